//! One message through everything but a port: two workers over a simulated wire.
#![allow(missing_docs)] // criterion's macros

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use roci_driver::Engine;
use roci_driver::link::sim::{Clock, SimLink};
use roci_msgcore::{Config, Ports, Tag, Worker};

const SIZES: [usize; 3] = [8, 4096, 65_536];

fn workers() -> [Worker<SimLink>; 2] {
    let config = Config::default();
    let clock = Clock::default();
    let (near, far) = SimLink::pair(&clock);
    let engine = |link, host: u8| {
        let mut engine = Engine::new(64 << 20).expect("memory");
        engine.add_port(link, [10, 0, 0, host].into(), true);
        engine
    };
    let hosts = [[10, 0, 0, 1].into(), [10, 0, 0, 2].into()];
    let ports = Ports::group(vec![engine(near, 1), engine(far, 2)], &hosts);
    let mut workers = ports.into_iter().map(|ports| Worker::assemble(ports, &config).expect("memory"));
    let mut workers = [workers.next().expect("two"), workers.next().expect("two")];
    workers[0].connect(1).expect("it is there");
    while !workers[0].is_connected(1) || !workers[1].is_connected(0) {
        // What came before its queue pair is sent again.
        clock.advance(100_000);
        for worker in &mut workers {
            worker.progress();
        }
    }
    workers
}

/// A tagged message from one worker to the other, until both are done with it.
fn messages(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("message");
    for size in SIZES {
        let [mut sender, mut receiver] = workers();
        let mut buffers = Some((sender.buffer(size).expect("memory"), receiver.buffer(size).expect("memory")));
        group.bench_function(BenchmarkId::new("send_and_receive", size), |bencher| {
            bencher.iter(|| {
                let (outgoing, incoming) = buffers.take().expect("they come back");
                let receive = receiver.recv(0, Tag::new(1), incoming).expect("accepted");
                let send = sender.send(1, Tag::new(1), outgoing).expect("accepted");
                let (mut sent, mut received) = (None, None);
                while sent.is_none() || received.is_none() {
                    receiver.progress();
                    sender.progress();
                    sent = sent.or_else(|| sender.test(send));
                    received = received.or_else(|| receiver.test(receive));
                }
                let outgoing = sent.expect("over").expect("sent").buffer;
                buffers = Some((outgoing, received.expect("over").expect("received").buffer));
            });
        });
    }
    group.finish();
}

criterion_group!(benches, messages);
criterion_main!(benches);
