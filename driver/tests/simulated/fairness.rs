//! A queue pair with much traffic does not hold up others: queue pairs of one engine take turns.

use roci_driver::link::sim::{Clock, SimLink};
use roci_driver::{
    Access, CompletionQueue, Dialect, Engine, MemoryRegion, Mtu, PdId, QpParams, QueuePair, SendWr, WcStatus,
};
use roci_testkit::{World, poll_and_check};

/// What the wire holds, and what an end receives at once.
const WIRE: usize = 256;
const BURST: usize = 32;
/// Frames of one turn: 64 KiB.
const TURN: usize = 16;
const LONG: usize = 32 << 20;

struct End {
    engine: Engine<SimLink>,
    pd: PdId,
    cqs: Vec<CompletionQueue>,
    qps: Vec<QueuePair>,
}

/// Two engines with some queue pairs between them.
struct Pair {
    clock: Clock,
    ends: [End; 2],
}

impl Pair {
    fn new(dialect: Dialect, connections: usize) -> Self {
        // 2 ms and seven retries: what a READ of 32 MiB at 10 Gb/s took longer than.
        let params = QpParams {
            dialect,
            mtu: Mtu::Mtu4096,
            ack_timeout_ns: 2_000_000,
            ack_timeout_max_ns: 2_000_000,
            retry_limit: 7,
            ..QpParams::default()
        };
        let clock = Clock::default();
        let (near, far) = SimLink::pair(&clock);
        let mut ends = [near, far].map(|link| {
            let mut engine = Engine::new(3 * LONG).expect("memory");
            let last = link_number(&link);
            engine.add_port(link, [10, 0, 0, last].into(), true);
            let pd = engine.alloc_pd();
            End { engine, pd, cqs: Vec::new(), qps: Vec::new() }
        });
        for _ in 0..connections {
            let made = ends.each_mut().map(|End { engine, pd, cqs, .. }| {
                let cq = engine.create_cq(4096);
                cqs.push(cq);
                let qp = engine.create_qp(0, *pd, cq).expect("room");
                let address = engine.address_of(&qp, &params);
                (qp, address)
            });
            let [(near, here), (far, there)] = made;
            let near = ends[0].engine.connect(near, &there, &params).expect("one IP version");
            let far = ends[1].engine.connect(far, &here, &params).expect("one IP version");
            ends[0].qps.push(near);
            ends[1].qps.push(far);
        }
        Self { clock, ends }
    }

    fn region(&mut self, who: usize, len: usize) -> MemoryRegion {
        let End { engine, pd, .. } = &mut self.ends[who];
        let buffer = engine.buffer(len).expect("memory");
        engine.register(*pd, buffer, Access::REMOTE_READ).map_err(|_| ()).expect("a key")
    }

    fn post(&mut self, who: usize, connection: usize, wr: SendWr) {
        let end = &mut self.ends[who];
        end.engine.post_send(end.qps[connection], wr).expect("accepted");
    }

    fn post_recv(&mut self, who: usize, connection: usize) {
        let end = &mut self.ends[who];
        let buffer = end.engine.buffer(64).expect("memory");
        end.engine.post_recv(end.qps[connection], 0, buffer).expect("accepted");
    }

    /// Steps until a connection's queue has a completion, which must be a success.
    fn wait(&mut self, who: usize, connection: usize, most: usize) -> usize {
        for steps in 0..=most {
            let end = &mut self.ends[who];
            if let Some(done) = end.engine.poll_cq(end.cqs[connection]) {
                assert_eq!(done.status, WcStatus::Success);
                return steps;
            }
            self.step();
        }
        panic!("no completion within {most} steps");
    }

    fn read(&mut self, from: MemoryRegion, len: usize) {
        let buffer = self.ends[1].engine.buffer(len).expect("memory");
        self.post(1, 0, SendWr::read(1, buffer, from.rkey(), 0));
    }
}

impl World for Pair {
    /// As on a link of 10 Gb/s that carries a burst.
    const STEP_NS: u64 = BURST as u64 * 3_400;

    fn clock(&self) -> &Clock {
        &self.clock
    }

    fn run(&mut self) {
        self.ends.iter_mut().for_each(|end| poll_and_check(&mut end.engine));
    }
}

fn link_number(link: &SimLink) -> u8 {
    use roci_driver::link::Link as _;
    link.mac().0[5]
}

const DIALECTS: [Dialect; 2] = [Dialect::Verbs, Dialect::Rocinante];

#[test]
fn a_short_send_beside_a_long_read_waits_for_one_turn() {
    for dialect in DIALECTS {
        let mut pair = Pair::new(dialect, 2);
        let source = pair.region(0, LONG);
        pair.read(source, LONG);
        pair.steps(64);
        for _ in 0..20 {
            pair.post_recv(1, 1);
            let send = SendWr::send(2, pair.ends[0].engine.buffer(8).expect("memory"));
            pair.post(0, 1, send);
            // What is on the wire already, one turn of the other's, and the step that brings it.
            let most = (WIRE + TURN).div_ceil(BURST) + 1;
            let steps = pair.wait(1, 1, most);
            assert!(steps <= most, "{dialect:?}: {steps} steps");
            pair.wait(0, 1, 2 * most);
        }
    }
}

#[test]
fn acknowledgements_do_not_starve_beside_a_long_read() {
    for dialect in DIALECTS {
        let mut pair = Pair::new(dialect, 2);
        let source = pair.region(0, LONG);
        pair.read(source, LONG);
        let mut sends = 0;
        while pair.ends[1].engine.poll_cq(pair.ends[1].cqs[0]).is_none() {
            pair.post_recv(0, 1);
            let send = SendWr::send(2, pair.ends[1].engine.buffer(8).expect("memory"));
            pair.post(1, 1, send);
            pair.wait(1, 1, 64);
            pair.wait(0, 1, 64);
            sends += 1;
        }
        let stats = pair.ends[1].engine.stats();
        assert!(sends > 8, "{dialect:?}: the READ took {sends} SENDs' time");
        assert_eq!(stats.queue_pairs.local_ack_timeout_err, 0, "{dialect:?}");
    }
}

#[test]
fn those_who_read_much_at_the_same_time_are_served_alike() {
    const READERS: usize = 5;
    let mut pair = Pair::new(Dialect::Verbs, READERS);
    let source = pair.region(0, LONG / 8);
    for connection in 0..READERS {
        let buffer = pair.ends[1].engine.buffer(LONG / 8).expect("memory");
        pair.post(1, connection, SendWr::read(1, buffer, source.rkey(), 0));
    }
    let mut ended = Vec::new();
    for step in 0..20_000 {
        let End { engine, cqs, .. } = &mut pair.ends[1];
        ended.extend(cqs.iter().filter_map(|cq| engine.poll_cq(*cq)).map(|_| step));
        if ended.len() == READERS {
            break;
        }
        pair.step();
    }
    let (first, last) = (ended[0], ended[READERS - 1]);
    assert!(ended.len() == READERS && last - first <= last / 10, "{ended:?}");
}

#[test]
fn a_link_that_takes_nothing_holds_up_no_other() {
    let clock = Clock::default();
    let params = QpParams { mtu: Mtu::Mtu4096, window: 4 * WIRE as u32, ..QpParams::default() };
    let (mut near, mut far) = (Vec::new(), Vec::new());
    for _ in 0..2 {
        let (one, other) = SimLink::pair(&clock);
        near.push(one);
        let mut engine = Engine::new(16 << 20).expect("memory");
        engine.add_port(other, [10, 0, 0, 2].into(), true);
        far.push(engine);
    }
    let mut engine = Engine::new(16 << 20).expect("memory");
    for link in near {
        engine.add_port(link, [10, 0, 0, 1].into(), true);
    }
    let (pd, mut far_pd) = (engine.alloc_pd(), engine.alloc_pd());
    let connected: Vec<_> = (0..2)
        .map(|port| {
            let (cq, peer) = (engine.create_cq(64), &mut far[port]);
            let (peer_pd, peer_cq) = (peer.alloc_pd(), peer.create_cq(64));
            far_pd = peer_pd;
            let ours = engine.create_qp(port, pd, cq).expect("room");
            let theirs = peer.create_qp(0, peer_pd, peer_cq).expect("room");
            let here = engine.address_of(&ours, &params);
            let there = peer.address_of(&theirs, &params);
            let ours = engine.connect(ours, &there, &params).expect("one IP version");
            (ours, cq, peer.connect(theirs, &here, &params).expect("one IP version"), peer_cq)
        })
        .collect();
    // The first peer does not receive.
    for _ in 0..2 {
        let long = SendWr::write(1, engine.buffer(4 << 20).expect("memory"), roci_protocol::Rkey(1), 0);
        engine.post_send(connected[0].0, long).expect("accepted");
    }
    for _ in 0..8 {
        engine.poll();
    }
    let (ours, cq, ..) = connected[1];
    let target = far[1].buffer(1 << 20).expect("memory");
    let target = far[1].register(far_pd, target, Access::REMOTE_WRITE).map_err(|_| ()).expect("a key");
    for round in 0..4 {
        // More than a turn: it goes on from the list of those who wait.
        let write = SendWr::write(round, engine.buffer(1 << 20).expect("memory"), target.rkey(), 0);
        engine.post_send(ours, write).expect("accepted");
        for step in 0.. {
            if let Some(done) = engine.poll_cq(cq) {
                assert_eq!(done.status, WcStatus::Success);
                break;
            }
            assert!(step < 64, "the WRITE waits for another link");
            clock.advance(10_000);
            engine.poll();
            far[1].poll();
        }
    }
    assert!(engine.link_stats(0).tx_full > 0, "the other link was full");
}
