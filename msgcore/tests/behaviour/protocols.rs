//! Each protocol, forced by its knob: the right bytes at every size around its thresholds, and the counter of exactly
//! that protocol; and what a message falls back to where its protocol cannot be.

use roci_msgcore::select::{Protocol, Reason};
use roci_msgcore::{Capabilities, Circumstances, ProtocolRange, SendOptions, Tag, protocol_ranges};
use roci_protocol::msg::RendezvousProtocol;
use roci_testkit::World as _;

use super::common::{TestWorker, World, config, pattern};

/// What a vbuf of the default size holds.
const VBUF: usize = 8192 - 40;
/// The longest eager message, and a piece of a pipeline.
const EAGER: usize = 1000;
const CHUNK: usize = 4096;
const FAULTS: &str = "loss=0.03,dup=0.03,reorder=0.03,corrupt=0.01,seed=11";
const QUICK: (&str, &str) = ("ack_timeout_us", "100");

/// Messages sent by each protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Sent {
    eager: u64,
    r3: u64,
    rget: u64,
    rput: u64,
    pipeline: u64,
}

fn sent(worker: &TestWorker) -> Sent {
    let stats = worker.stats();
    let (eager, r3, rget) = (stats.tx_eager, stats.tx_r3, stats.tx_rget);
    Sent { eager, r3, rget, rput: stats.tx_rput, pipeline: stats.tx_pipeline }
}

/// Every size at which something changes, and its neighbours.
fn sizes(edges: &[usize]) -> Vec<usize> {
    let around = edges.iter().flat_map(|&edge| [edge - 1, edge, edge + 1]);
    let mut sizes: Vec<_> = [0, 1].into_iter().chain(around).collect();
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

/// One message from `who` to the other, whose receive is there before it or comes after it.
fn exchange(pair: &mut World, who: usize, len: usize, is_expected: bool) {
    let (bytes, tag) = (pattern(len, len + who), Tag::new(len as u64));
    let early = is_expected.then(|| pair.recv(1 - who, tag, len));
    // Data goes with every message but those whose length is divided by four.
    let data = (!len.is_multiple_of(4)).then_some(u64::MAX - len as u64);
    let options = data.into_iter().fold(SendOptions::default(), SendOptions::with_data);
    let send = pair.send_with(who, 1 - who, len as u64, &bytes, options);
    let receive = early.unwrap_or_else(|| {
        pair.steps(40);
        pair.recv(1 - who, tag, len)
    });
    let done = pair.wait(1 - who, receive).unwrap_or_else(|error| panic!("{error}: {}", pair.counters()));
    assert_eq!((done.len, done.data, done.peer), (len, data, who.into()));
    assert!(done.buffer[..len] == *bytes, "the bytes differ");
    let done = pair.wait(who, send).expect("sent");
    assert!(done.len == len && *done.buffer == *bytes, "the payload comes back as it was");
}

fn exchange_all(pair: &mut World, who: usize, len: usize) {
    for is_expected in [true, false] {
        exchange(pair, who, len, is_expected);
    }
}

/// Sends every size both ways, expected and not; `count` names the counters that one message must move.
fn check(settings: &[(&str, &str)], edges: &[usize], count: impl Fn(usize) -> Sent) {
    for faults in ["", FAULTS] {
        let settings = [settings, &[("faults", faults), QUICK]].concat();
        let mut pair = World::pair(&settings);
        for (who, len) in sizes(edges).into_iter().flat_map(|len| [(0, len), (1, len)]) {
            let (before, one) = (sent(&pair.workers[who]), count(len));
            exchange_all(&mut pair, who, len);
            let expected = Sent {
                eager: before.eager + 2 * one.eager,
                r3: before.r3 + 2 * one.r3,
                rget: before.rget + 2 * one.rget,
                rput: before.rput + 2 * one.rput,
                pipeline: before.pipeline + 2 * one.pipeline,
            };
            assert_eq!(sent(&pair.workers[who]), expected, "{len} bytes from {who}");
        }
        assert_eq!(pair.workers.iter().any(|worker| worker.injected_faults() > 0), !faults.is_empty());
        for worker in &pair.workers {
            let stats = worker.stats();
            let fallbacks = [stats.fallback_credit, stats.fallback_registration, stats.fallback_peer];
            assert_eq!((fallbacks, stats.rx_staged), ([0; 3], 0), "{}", pair.counters());
        }
    }
}

fn check_forced(protocol: &str, one: Sent) {
    let settings = [("rndv_protocol", protocol), ("eager_threshold", "1000"), ("pipeline_chunk", "4KiB")];
    let edges = [EAGER, CHUNK, VBUF, 2 * CHUNK, 2 * VBUF, 4 * CHUNK, 5 * CHUNK, 9 * CHUNK, 100_000];
    let eager = Sent { eager: 1, ..Sent::default() };
    check(&settings, &edges, |len| if len <= EAGER { eager } else { one });
}

#[test]
fn r3_brings_the_right_bytes_at_every_size() {
    check_forced("r3", Sent { r3: 1, ..Sent::default() });
}

#[test]
fn rget_brings_the_right_bytes_at_every_size() {
    check_forced("rget", Sent { rget: 1, ..Sent::default() });
}

#[test]
fn rput_brings_the_right_bytes_at_every_size() {
    check_forced("rput", Sent { rput: 1, ..Sent::default() });
}

#[test]
fn pipeline_brings_the_right_bytes_at_every_size() {
    check_forced("pipeline", Sent { pipeline: 1, ..Sent::default() });
}

#[test]
fn auto_chooses_by_length() {
    let settings = [("r3_threshold", "20000"), ("pipeline_threshold", "64KiB"), ("pipeline_chunk", "16KiB")];
    check(&settings, &[VBUF, 20_000, 65_536, 5 * 16_384], |len| match len {
        0..=8152 => Sent { eager: 1, ..Sent::default() },
        8153..20_000 => Sent { r3: 1, ..Sent::default() },
        20_000..65_536 => Sent { rget: 1, ..Sent::default() },
        _ => Sent { pipeline: 1, ..Sent::default() },
    });
}

#[test]
fn an_eager_message_that_no_vbuf_holds_goes_in_a_series() {
    let settings = [("vbuf_size", "256"), ("eager_threshold", "2000")];
    check(&settings, &[216, 2 * 216, 9 * 216, 2000], |len| match len {
        0..=2000 => Sent { eager: 1, ..Sent::default() },
        _ => Sent { rget: 1, ..Sent::default() },
    });
}

/// The receive meets the series when none of it has come, some, and all.
#[test]
fn a_series_is_received_at_any_moment_of_its_arrival() {
    for latency in 0..30 {
        let mut pair = World::pair(&[("vbuf_size", "256"), ("eager_threshold", "8000"), ("mtu", "256")]);
        pair.connect_all();
        let bytes = pattern(8000, latency);
        let send = pair.send(0, 1, &bytes);
        for _ in 0..latency {
            pair.workers[0].progress();
            pair.step();
        }
        let receive = pair.recv(1, Tag::new(1), 8000);
        pair.expect(1, receive, &bytes);
        pair.wait(0, send).expect("sent");
        assert_eq!(sent(&pair.workers[0]).eager, 1);
    }
}

/// The threshold is longer than what a send queue or the send buffers hold at once.
#[test]
fn a_series_that_could_never_leave_at_once_goes_by_rendezvous() {
    let small_pool = [("vbuf_size", "256"), ("eager_threshold", "8000"), ("vbuf_max", "16"), ("vbuf_pool", "16")];
    let small_queue = [("vbuf_size", "256"), ("eager_threshold", "100000"), ("credits", "1024")];
    for (settings, most) in [(&small_pool[..], 16 * 216), (&small_queue[..], 256 * 216)] {
        let mut pair = World::pair(settings);
        exchange_all(&mut pair, 0, most);
        exchange_all(&mut pair, 0, most + 1);
        // One that finds vbufs still under way, those of the one before or of the handshake, does not wait for them.
        let Sent { eager, r3, .. } = sent(&pair.workers[0]);
        assert_eq!(eager + r3, 2);
        assert_eq!(sent(&pair.workers[0]), Sent { eager, r3, rget: 2, ..Sent::default() });
        let stats = pair.workers[0].stats();
        assert_eq!((stats.fallback_buffer, stats.fallback_credit), (r3, 0), "the peer has receives enough");
    }
}

#[test]
fn without_credits_a_short_message_becomes_r3_and_is_counted() {
    let settings = [("credits", "8"), ("credit_preserve", "4"), ("coalesce_threshold", "0")];
    let mut pair = World::pair(&settings);
    pair.connect_all();
    let sends: Vec<_> = (0..6).map(|tag| pair.send(0, tag, &pattern(100, tag as usize))).collect();
    pair.workers[0].take_turn();
    assert_eq!(sent(&pair.workers[0]), Sent { eager: 4, r3: 2, ..Sent::default() });
    assert_eq!(pair.workers[0].stats().fallback_credit, 2);
    for (tag, send) in (0..6).zip(sends) {
        let receive = pair.recv(1, Tag::new(tag), 100);
        pair.expect(1, receive, &pattern(100, tag as usize));
        pair.wait(0, send).expect("sent");
    }
}

#[test]
fn a_message_without_bytes_becomes_r3_too() {
    // It needs no credit where it joins another one.
    for (coalesce_threshold, eager, r3) in [("0", 2, 1), ("1", 3, 0)] {
        let mut pair =
            World::pair(&[("credits", "4"), ("credit_preserve", "2"), ("coalesce_threshold", coalesce_threshold)]);
        pair.connect_all();
        let sends: Vec<_> = (0..3).map(|tag| pair.send(0, tag, b"")).collect();
        pair.workers[0].take_turn();
        assert_eq!(sent(&pair.workers[0]), Sent { eager, r3, ..Sent::default() });
        for (tag, send) in (0..3).zip(sends) {
            let receive = pair.recv(1, Tag::new(tag), 0);
            pair.expect(1, receive, b"");
            pair.wait(0, send).expect("sent");
        }
    }
}

#[test]
fn what_the_sender_cannot_register_goes_by_r3() {
    let rget = ("rndv_protocol", "rget");
    let mut pair = World::of(&[&[rget, ("ndreg_entries", "0")], &[rget]]);
    exchange_all(&mut pair, 0, 50_000);
    assert_eq!(sent(&pair.workers[0]), Sent { r3: 2, ..Sent::default() });
    assert_eq!(pair.workers[0].stats().fallback_registration, 2);
    // The one that fetches needs no key.
    exchange_all(&mut pair, 1, 50_000);
    assert_eq!(sent(&pair.workers[1]), Sent { rget: 2, ..Sent::default() });
    assert_eq!(pair.workers[1].stats().fallback_registration, 0);
}

#[test]
fn a_single_key_carries_one_message_at_a_time() {
    let mut pair = World::pair(&[("rndv_protocol", "rget"), ("ndreg_entries", "1")]);
    for round in 1..4 {
        let sends = [1, 2].map(|tag| pair.send(0, tag, &pattern(50_000, tag as usize)));
        for (tag, send) in [1, 2].into_iter().zip(sends) {
            let receive = pair.recv(1, Tag::new(tag), 50_000);
            pair.expect(1, receive, &pattern(50_000, tag as usize));
            pair.wait(0, send).expect("sent");
        }
        assert_eq!(sent(&pair.workers[0]).rget + sent(&pair.workers[0]).r3, 2 * round);
        assert!(sent(&pair.workers[0]).rget >= round, "the key comes back");
    }
    assert!(pair.workers[0].stats().fallback_registration > 0);
}

#[test]
fn what_the_receiver_cannot_register_goes_by_r3() {
    let rput = ("rndv_protocol", "rput");
    let mut pair = World::of(&[&[rput], &[rput, ("ndreg_entries", "0")]]);
    exchange_all(&mut pair, 0, 50_000);
    for worker in &pair.workers {
        assert_eq!(worker.stats().fallback_registration, 2, "both ends count it");
    }
    assert_eq!(sent(&pair.workers[0]), Sent { r3: 2, ..Sent::default() }, "it is counted as it went");
    assert_eq!(pair.workers[1].stats().registrations_refused, 2);
    exchange_all(&mut pair, 1, 50_000);
    assert_eq!(pair.workers[1].stats().fallback_registration, 2, "the one that writes needs no key");
    assert_eq!(sent(&pair.workers[1]), Sent { rput: 2, ..Sent::default() });
}

#[test]
fn a_very_long_message_that_cannot_be_registered_goes_in_pieces() {
    let settings = [("rndv_protocol", "rget"), ("ndreg_entries", "0"), ("pipeline_threshold", "64KiB")];
    let mut pair = World::of(&[&settings, &[]]);
    exchange_all(&mut pair, 0, 65_536);
    assert_eq!(sent(&pair.workers[0]), Sent { pipeline: 2, ..Sent::default() });
    assert_eq!(pair.workers[0].stats().fallback_registration, 2);
}

/// Several messages share the staging memory, and wait for it.
#[test]
fn pieces_for_memory_that_cannot_be_registered_are_staged() {
    let settings = [("rndv_protocol", "pipeline"), ("pipeline_chunk", "4KiB"), ("pipeline_depth", "2"), QUICK];
    for faults in ["", FAULTS] {
        let ours = [&settings[..], &[("faults", faults)]].concat();
        let theirs = [&settings[..], &[("faults", faults), ("ndreg_entries", "0")]].concat();
        let mut pair = World::of(&[&ours, &theirs]);
        let lens = [VBUF + 1, 2 * CHUNK, 100_000, 8 * CHUNK - 1, 8 * CHUNK + 1];
        let receives: Vec<_> = (0..).zip(lens).map(|(tag, len)| pair.recv(1, Tag::new(tag), len)).collect();
        let sends: Vec<_> = (0..).zip(lens).map(|(tag, len)| pair.send(0, tag, &pattern(len, len))).collect();
        for ((len, receive), send) in lens.into_iter().zip(receives).zip(sends) {
            pair.expect(1, receive, &pattern(len, len));
            pair.wait(0, send).expect("sent");
        }
        assert_eq!(sent(&pair.workers[0]), Sent { pipeline: lens.len() as u64, ..Sent::default() });
        assert_eq!(pair.workers[1].stats().rx_staged, lens.len() as u64);
        assert_eq!(pair.workers[0].stats().rx_staged, 0);
    }
}

#[test]
fn without_rdma_at_either_end_everything_long_goes_by_r3() {
    for without in 0..2 {
        for protocol in ["auto", "rget", "rput", "pipeline"] {
            let mut settings = [vec![("rndv_protocol", protocol)], vec![("rndv_protocol", protocol)]];
            settings[without].push(("rdma", "off"));
            let mut pair = World::of(&[&settings[0], &settings[1]]);
            for who in 0..2 {
                exchange_all(&mut pair, who, 50_000);
                assert_eq!(sent(&pair.workers[who]), Sent { r3: 2, ..Sent::default() });
                assert_eq!(pair.workers[who].stats().fallback_peer, 2, "{}", pair.counters());
            }
        }
    }
}

#[test]
fn two_ends_may_be_set_differently() {
    let near = [
        ("credits", "4"),
        ("credit_preserve", "1"),
        ("eager_threshold", "500"),
        ("rndv_protocol", "rput"),
        ("pipeline_chunk", "64KiB"),
        ("connect", "peer-to-peer"),
    ];
    let far = [
        ("credits", "300"),
        ("credit_notify_threshold", "100"),
        ("eager_threshold", "20000"),
        ("rndv_protocol", "pipeline"),
        ("pipeline_chunk", "4KiB"),
        ("pipeline_depth", "1"),
    ];
    let mut pair = World::of(&[&near, &far]);
    for len in [0, 500, 501, VBUF, VBUF + 1, 20_000, 20_001, 200_000] {
        for who in 0..2 {
            exchange_all(&mut pair, who, len);
        }
    }
    assert_eq!(sent(&pair.workers[0]), Sent { eager: 4, rput: 12, ..Sent::default() });
    let theirs = sent(&pair.workers[1]);
    assert_eq!((theirs.pipeline, theirs.eager + theirs.r3), (4, 12), "{theirs:?}");
    let stats = pair.workers[1].stats();
    assert_eq!(theirs.r3, stats.fallback_credit + stats.fallback_buffer, "a series may find too few of either");
}

/// A message of this length goes as the table says, and for its reason: by one worker of two that have just met.
fn goes_as_shown(settings: &[(&str, &str)], len: usize, row: &ProtocolRange) {
    let mut pair = World::pair(settings);
    pair.connect_all();
    pair.steps(1_000);
    exchange(&mut pair, 0, len, true);
    let one = match row.protocol {
        Protocol::Eager => Sent { eager: 1, ..Sent::default() },
        Protocol::Rendezvous(RendezvousProtocol::R3) => Sent { r3: 1, ..Sent::default() },
        Protocol::Rendezvous(RendezvousProtocol::Rget) => Sent { rget: 1, ..Sent::default() },
        Protocol::Rendezvous(RendezvousProtocol::Rput) => Sent { rput: 1, ..Sent::default() },
        Protocol::Rendezvous(RendezvousProtocol::Pipeline) => Sent { pipeline: 1, ..Sent::default() },
    };
    assert_eq!(sent(&pair.workers[0]), one, "{len} bytes, {settings:?}: {row:?}");
    let stats = pair.workers[0].stats();
    let fallbacks = [stats.fallback_credit, stats.fallback_registration, stats.fallback_peer];
    let reasons = [Reason::NoCredit, Reason::Unregistered, Reason::NoRdma];
    let told = reasons.map(|reason| u64::from(row.reason == reason));
    assert_eq!(fallbacks, told, "{len} bytes, {settings:?}: {row:?}");
}

#[test]
fn the_table_of_protocols_says_how_messages_go_at_both_ends_of_every_row() {
    let (long, keys) = (("eager_threshold", "128KiB"), ("ndreg_entries", "0"));
    let lanes = ("receive_queues", "P,256,128:P,8KiB,8");
    let shared = ("receive_queues", "P,256,16:S,8KiB,64,32,6");
    let pieces = ("pipeline_threshold", "200000");
    for settings in [
        &[pieces][..],
        &[("credits", "16"), long, pieces],
        &[("credits", "16"), ("credit_preserve", "4096"), long],
        &[lanes, long, pieces],
        &[shared, long],
        &[lanes, ("eager_threshold", "100"), ("r3_threshold", "20000")],
        &[("vbuf_max", "16"), ("vbuf_pool", "16"), long],
        &[keys, pieces],
        &[keys, ("rndv_protocol", "rget"), pieces],
        &[("rdma", "off"), long],
        &[("rndv_protocol", "rput"), lanes],
    ] {
        let mut pair = World::pair(settings);
        pair.connect_all();
        let rows = pair.workers[0].inside().protocol_ranges(1).expect("they are connected");
        let well = Circumstances { peer: Capabilities { rdma: true }, has_credits: true, has_keys: true };
        assert_eq!(rows, protocol_ranges(&config(settings), &well), "the same is told where nobody is asked");
        for row in &rows {
            for len in [row.from, row.to].into_iter().filter(|&len| len <= 300_000) {
                goes_as_shown(settings, len, row);
            }
        }
    }
}
