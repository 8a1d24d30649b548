//! Long messages between processes of one host, which the kernel copies from the one's memory to the other's. Here both are this
//! process, whose memory it may read by that call as well.

use std::time::{Duration, Instant};

use roci_driver::link::Link;
use roci_msgcore::config::Origin;
use roci_msgcore::internals::withdraw_mark;
use roci_msgcore::{Config, OpError, Pattern, PeerId, Request, Source, Tag, Worker};

const PATIENCE: Duration = Duration::from_secs(30);
/// Shorter than what is copied at once, and longer.
const LENGTHS: [usize; 5] = [8_200, 65_536, 262_144, 262_145, 3_000_001];
const LONG: usize = 8 << 20;

/// A worker alone, on a socket of its own at an address of the loopback interface. No port leads to its peers but that.
fn worker(address: &str, settings: &[(&str, &str)]) -> Worker {
    let mut config = Config::default();
    let device = format!("udp:{address}");
    let common = [("device", device.as_str()), ("arena_size", "128MiB"), ("peers", "8"), ("local_ports", "0")];
    for &(name, value) in common.iter().chain(settings) {
        config.set(name, value, Origin::Environment).expect("a good value");
    }
    Worker::open_alone(&config).expect("the loopback interface is up")
}

/// Two ends, the first of which sends to the second.
struct Ends {
    workers: [Worker; 2],
    to: PeerId,
}

impl Ends {
    fn open(net: u8, settings: [&[(&str, &str)]; 2]) -> Self {
        let address = |host| format!("127.74.{net}.{host}");
        let mut workers = [worker(&address(1), settings[0]), worker(&address(2), settings[1])];
        let to = workers[1].address();
        let to = workers[0].insert(to).expect("room");
        Self { workers, to }
    }

    fn progress(&mut self) {
        self.workers.iter_mut().for_each(|worker| _ = worker.progress());
    }

    /// Begins to send and to receive a message.
    fn begin(&mut self, tag: u64, len: usize) -> [Request; 2] {
        [self.send(tag, len), self.post_receive(tag, len)]
    }

    fn send(&mut self, tag: u64, len: usize) -> Request {
        let mut payload = self.workers[0].buffer(len).expect("room");
        payload.copy_from_slice(&pattern(tag, len));
        self.workers[0].send(self.to, Tag::new(tag), payload).expect("taken")
    }

    fn post_receive(&mut self, tag: u64, len: usize) -> Request {
        let room = self.workers[1].buffer(len).expect("room");
        self.workers[1].recv(Source::Any, Tag::new(tag), room).expect("taken")
    }

    /// Both requests end, and the message is what it was. Returns who has sent it.
    fn end(&mut self, tag: u64, len: usize, [sent, received]: [Request; 2]) -> PeerId {
        let from = self.receive(tag, len, received);
        self.wait_for(|ends| ends.workers[0].test(sent)).expect("it arrives");
        from
    }

    /// The message comes, and is what it was. Returns who has sent it.
    fn receive(&mut self, tag: u64, len: usize, received: Request) -> PeerId {
        let done = self.wait_for(|ends| ends.workers[1].test(received)).expect("it arrives");
        assert!(done.buffer[..] == pattern(tag, len)[..], "message {tag} of {len} bytes");
        done.peer
    }

    fn wait_for<T>(&mut self, look: impl Fn(&mut Self) -> Option<T>) -> T {
        let deadline = Instant::now() + PATIENCE;
        loop {
            self.progress();
            if let Some(what) = look(self) {
                return what;
            }
            assert!(Instant::now() < deadline, "it never comes");
        }
    }

    fn carry(&mut self, tag: u64, len: usize) -> PeerId {
        let requests = self.begin(tag, len);
        self.end(tag, len, requests)
    }

    /// Connects, and waits until both ends know whether they may read each other's memory. Returns who the first is for the second.
    fn meet(&mut self) -> PeerId {
        let from = self.carry(0, 8);
        // An end that has nothing to do looks at its socket now and then.
        (0..1 << 16).for_each(|_| self.progress());
        from
    }

    /// Messages whose address was sent, that were copied, and that could not be.
    fn counts(&self) -> [u64; 3] {
        let stats = self.workers.each_ref().map(Worker::stats);
        [stats[0].tx_cma, stats[1].rx_cma, stats[1].fallback_cma]
    }
}

fn pattern(tag: u64, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at as u8).wrapping_mul(tag as u8 | 1) ^ (at >> 8) as u8 ^ (at >> 16) as u8).collect()
}

#[test]
fn long_messages_are_copied_by_the_kernel_and_no_packet_carries_them() {
    let mut ends = Ends::open(1, [&[]; 2]);
    ends.meet();
    let bytes = |ends: &Ends| ends.workers[0].link().expect("one port").stats().tx_bytes;
    let before = bytes(&ends);
    for (tag, len) in (1..).zip(LENGTHS) {
        ends.carry(tag, len);
    }
    assert_eq!(ends.counts(), [5, 5, 0]);
    assert!(bytes(&ends) - before < 8_200, "{} bytes", bytes(&ends) - before);
}

#[test]
fn packets_carry_them_where_either_end_wants_that() {
    let off: [&[(&str, &str)]; 4] =
        [&[("cma", "off")], &[("local", "off")], &[("faults", "loss=0.01")], &[("pcap", "/dev/null")]];
    for (at, settings) in off.into_iter().enumerate() {
        for who in 0..2 {
            let both = if who == 0 { [settings, &[]] } else { [&[], settings] };
            let mut ends = Ends::open(2 + at as u8, both);
            ends.meet();
            ends.carry(1, 100_000);
            assert_eq!(ends.counts(), [0, 0, 0], "{settings:?} at {who}");
        }
    }
    for protocol in ["r3", "rget", "rput", "pipeline"] {
        let mut ends = Ends::open(6, [&[("rndv_protocol", protocol)], &[]]);
        ends.meet();
        ends.carry(1, 100_000);
        assert_eq!(ends.counts(), [0, 0, 0], "{protocol}");
    }
}

#[test]
fn what_the_kernel_does_not_copy_is_fetched() {
    let mut ends = Ends::open(7, [&[]; 2]);
    ends.meet();
    ends.carry(1, 300_000);
    // It stays the same process, and is not known by its mark any more.
    withdraw_mark(&mut ends.workers[0]);
    for tag in 2..5 {
        ends.carry(tag, 300_000);
    }
    assert_eq!(ends.counts(), [4, 1, 1], "once refused it is not tried again");
}

#[test]
fn a_long_copy_keeps_neither_others_nor_short_messages_waiting() {
    let mut ends = Ends::open(8, [&[]; 2]);
    ends.meet();
    let long = ends.begin(1, LONG);
    let other = ends.begin(2, LONG / 4);
    let short = ends.begin(3, 8);
    let mut sends = Vec::new();
    for (tag, len, [sent, received]) in [(3, 8, short), (2, LONG / 4, other)] {
        ends.receive(tag, len, received);
        assert!(ends.workers[1].test(long[1]).is_none(), "message {tag} was to be first");
        sends.push(sent);
    }
    for sent in sends {
        ends.wait_for(|ends| ends.workers[0].test(sent)).expect("it arrives");
    }
    ends.end(1, LONG, long);
    assert_eq!(ends.counts(), [2, 2, 0]);
}

#[test]
fn a_receive_ends_with_its_peer_though_it_is_being_copied() {
    let mut ends = Ends::open(9, [&[]; 2]);
    let from = ends.meet();
    let _ = ends.send(1, LONG);
    let announced = Pattern::new(Source::Any, Tag::new(1));
    ends.wait_for(|ends| ends.workers[1].probe(announced));
    assert_eq!(ends.workers[0].stats().tx_cma, 1);
    let received = ends.post_receive(1, LONG);
    // A part of the message comes.
    (0..4).for_each(|_| _ = ends.workers[1].progress());
    assert!(ends.workers[1].test(received).is_none(), "it is too long for that");
    ends.workers[1].remove(from).expect("it is there");
    let outcome = ends.workers[1].wait(received);
    assert!(matches!(outcome, Err(OpError::PeerRemoved { .. })), "{outcome:?}");
    (0..100).for_each(|_| ends.progress());
    assert_eq!(ends.counts(), [1, 0, 0]);
}
