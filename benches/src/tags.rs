//! Tagged messages of eight bytes between two workers, over a wire that allocates nothing: one at a time, and many at once.

use roci_driver::Engine;
use roci_msgcore::config::Origin;
use roci_msgcore::{Buffer, Config, Ports, Request, Tag, Worker};

use crate::cq::wire::{ManualClock, WireEnd};
use crate::parts::PartTable;

/// Bytes of a message.
const LEN: usize = 8;
const TAG: Tag = Tag::new(7);
/// Messages of a stream that are under way.
const UNDER_WAY: usize = 32;
/// Time that passes with each message.
pub(crate) const ROUND_NS: u64 = 1_000;
const SETTINGS: [(&str, &str); 3] = [("arena_size", "64MiB"), ("mtu", "256"), ("keepalive_s", "0")];

/// What `worker_instructions` counts.
pub const TAGS: &PartTable = &[("tag_8", || stream(1)), ("tag_8_stream", || stream(UNDER_WAY))];

/// Two connected workers and their clock.
pub(crate) fn connected_workers() -> (ManualClock, [Worker<WireEnd>; 2]) {
    connected_workers_with(&[])
}

/// Two connected workers with these settings, and their clock.
pub(crate) fn connected_workers_with(settings: &[(&str, &str)]) -> (ManualClock, [Worker<WireEnd>; 2]) {
    let mut config = Config::default();
    for (name, value) in SETTINGS.iter().chain(settings) {
        config.set(name, value, Origin::Code).expect("in range");
    }
    let clock = ManualClock::default();
    let hosts = [1, 2].map(|host| [10, 0, 0, host].into());
    let engines = WireEnd::pair(&clock).into_iter().zip(hosts).map(|(link, host)| {
        let mut engine = Engine::new(config.arena_size).expect("memory");
        engine.add_port(link, host, true);
        engine
    });
    let workers = Ports::group(engines.collect(), &hosts).into_iter();
    let mut workers = workers.map(|ports| Worker::assemble(ports, &config).expect("a worker"));
    let (mut near, mut far) = (workers.next().expect("two"), workers.next().expect("two"));
    near.connect(1).expect("a peer");
    while !(near.is_connected(1) && far.is_connected(0)) {
        clock.advance(ROUND_NS);
        near.progress();
        far.progress();
    }
    (clock, [near, far])
}

/// Two connected workers.
struct WorkerPair {
    clock: ManualClock,
    near: Worker<WireEnd>,
    far: Worker<WireEnd>,
    /// Buffers of messages that are over.
    spare: [Vec<Buffer>; 2],
    under_way: Vec<(Request, Request)>,
}

impl WorkerPair {
    fn new(under_way: usize) -> Self {
        let (clock, [near, far]) = connected_workers();
        let buffers = |worker: &Worker<WireEnd>| (0..under_way).map(|_| worker.buffer(LEN).expect("room")).collect();
        let spare = [buffers(&near), buffers(&far)];
        Self { clock, near, far, spare, under_way: Vec::with_capacity(under_way) }
    }

    /// Sends a message more; once as many are under way as may be, waits for all of them.
    #[inline]
    fn turn(&mut self) {
        self.clock.advance(ROUND_NS);
        let payload = self.spare[0].pop().expect("as many as needed");
        let room = self.spare[1].pop().expect("as many as needed");
        let receive = self.far.recv(0, TAG, room).expect("accepted");
        let send = self.near.send(1, TAG, payload).expect("accepted");
        self.under_way.push((send, receive));
        if self.spare[0].is_empty() {
            self.end_all();
        }
    }

    /// All messages are over at both ends, the first to be sent first.
    fn end_all(&mut self) {
        for at in 0..self.under_way.len() {
            let (send, receive) = self.under_way[at];
            self.end(send, receive);
        }
        self.under_way.clear();
    }

    /// A message is over at both ends.
    fn end(&mut self, send: Request, receive: Request) {
        let received = loop {
            if let Some(done) = self.far.test(receive) {
                break done.expect("it came").buffer;
            }
            self.far.progress();
            self.near.progress();
        };
        let sent = self.near.test(send).expect("it has left").expect("it arrived").buffer;
        self.spare[0].push(sent);
        self.spare[1].push(received);
    }
}

fn stream(under_way: usize) -> Box<dyn FnMut()> {
    let mut pair = WorkerPair::new(under_way);
    Box::new(move || pair.turn())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_arrive_one_at_a_time_and_as_a_stream() {
        for (_, start) in TAGS {
            let mut exchange = start();
            (0..1000).for_each(|_| exchange());
        }
    }
}
