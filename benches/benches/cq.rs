//! Completion queues: the queue alone, and SENDs of 64 B between two engines from the post to the polled completion.
#![allow(missing_docs)] // criterion's macros

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use roci_benches::cq::{Alone, EnginePair};

const BATCHES: [usize; 3] = [1, 16, 64];

/// The queue alone: so many ends, and polls for them.
fn alone(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("cq");
    for batch in BATCHES {
        let mut queue = Alone::new(batch);
        group.throughput(Throughput::Elements(batch as u64));
        group.bench_function(BenchmarkId::new("end_and_poll", batch), |bencher| bencher.iter(|| queue.turn()));
    }
    group.finish();
}

/// So many SENDs posted, carried, acknowledged, and polled for at both ends.
fn over_a_wire(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("cq");
    for (name, icrc) in [("send_and_poll", true), ("send_and_poll, no ICRC", false)] {
        for batch in BATCHES {
            let mut pair = EnginePair::new(batch, icrc);
            group.throughput(Throughput::Elements(batch as u64));
            group.bench_function(BenchmarkId::new(name, batch), |bencher| bencher.iter(|| pair.turn()));
        }
    }
    let mut pair = EnginePair::new(1, true);
    group.throughput(Throughput::Elements(1));
    group.bench_function("poll_in_vain", |bencher| bencher.iter(|| pair.poll_in_vain()));
    group.finish();
}

criterion_group!(benches, alone, over_a_wire);
criterion_main!(benches);
