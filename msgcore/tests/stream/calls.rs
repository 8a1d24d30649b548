//! The calls one by one: what they take and give, their limits, and their misuse.

use roci_msgcore::stream::{BadStreamConfig, StreamConfig, StreamError, StreamStep};
use roci_testkit::World as _;

use super::pair::{Pair, SMALL, Wire, combinations, stream};

/// Without the way for payloads, which has tests of its own.
const COPIED: StreamConfig = StreamConfig { zero_copy: None, ..SMALL };

#[test]
fn nothing_put_is_nothing_taken_and_nothing_asked_is_nothing_got() {
    for config in combinations() {
        let mut pair = Pair::new(config);
        assert_eq!(pair.ends[0].put(1, &[]), Ok(0));
        assert_eq!(pair.ends[1].get(0, &mut []), Ok(0));
        assert_eq!(pair.ends[1].get(0, &mut [0]), Ok(0), "nothing was put");
        pair.put_all(0, b"x");
        assert_eq!(pair.get_all(1, 1), b"x");
        assert_eq!(pair.ends[0].stats().tx_data, 1, "an empty put writes nothing");
    }
}

#[test]
fn boundaries_of_puts_are_not_kept() {
    for config in combinations() {
        let mut pair = Pair::new(config);
        for part in [&b"one"[..], b"two", b"three"] {
            pair.put_all(0, part);
        }
        pair.settle(|pair| pair.ends[0].flush(1) == Ok(true));
        assert_eq!(pair.get_all(1, 5), b"onetw");
        let mut rest = [0; 100];
        assert_eq!(pair.ends[1].get(0, &mut rest), Ok(6));
        assert_eq!(&rest[..6], b"othree");
    }
}

/// Puts until nothing is taken any more, though everything was acknowledged; returns how much was taken.
fn fill(pair: &mut Pair, who: usize, piece: usize) -> usize {
    let mut total = 0;
    loop {
        let taken = pair.ends[who].put(1 - who, &stream(total as u64, piece)).expect("the peer is there");
        total += taken;
        if taken == 0 && pair.ends[who].flush(1 - who) == Ok(true) {
            return total;
        }
        pair.step();
    }
}

#[test]
fn a_ring_can_be_full_to_the_last_byte_and_goes_on_when_there_is_room() {
    for config in combinations() {
        let mut pair = Pair::new(config);
        let piece = if config.piggyback { config.chunk - 16 } else { config.chunk };
        let all = config.ring / config.chunk * piece;
        for round in 0..3 {
            assert_eq!(fill(&mut pair, 0, all), all, "round {round} of {config:?}");
            assert!(pair.ends[0].stats().ring_stalls > 0);
            assert!(pair.get_all(1, all) == stream(0, all));
            pair.settle(|pair| pair.ends[1].flush(0) == Ok(true));
        }
    }
}

#[test]
fn one_byte_fits_again_once_enough_was_got() {
    for config in combinations() {
        let mut pair = Pair::new(config);
        let all = fill(&mut pair, 0, config.ring);
        assert_eq!(pair.ends[0].put(1, b"x"), Ok(0));
        // More than the part after which a delayed tail is told.
        let head = pair.get_all(1, all / 2);
        assert!(head == stream(0, all / 2));
        pair.put_all(0, b"x");
        let rest = pair.get_all(1, all - all / 2 + 1);
        assert!(rest[..all - all / 2] == stream((all / 2) as u64, all - all / 2));
        assert_eq!(rest.last(), Some(&b'x'));
    }
}

#[test]
fn both_sides_may_put_more_than_fits_before_anybody_gets() {
    for config in combinations() {
        let mut pair = Pair::new(config);
        let filled = [fill(&mut pair, 0, 3_000), fill(&mut pair, 1, 3_000)];
        for who in [0, 1] {
            assert_eq!(pair.ends[who].put(1 - who, b"more"), Ok(0));
            assert_eq!(pair.ends[who].flush(1 - who), Ok(true), "a full ring is no fault");
        }
        for who in [0, 1] {
            assert!(pair.get_all(who, filled[1 - who]) == stream(0, filled[1 - who]));
        }
        for who in [0, 1] {
            pair.put_all(who, b"more");
            assert_eq!(pair.get_all(1 - who, 4), b"more");
        }
    }
}

#[test]
fn short_puts_are_limited_by_what_is_not_acknowledged_and_go_on() {
    for config in [COPIED, StreamConfig { piggyback: false, ..COPIED }] {
        let mut pair = Pair::new(StreamConfig { ring: 1 << 20, chunk: 4096, ..config });
        pair.settle(|pair| pair.ends[0].flush(1) == Ok(true));
        let sender = &mut pair.ends[0];
        // Nobody polls at the other end: what is posted stays under way.
        let taken = (0..1000).map(|_| sender.put(1, b"four").expect("the peer is there")).sum::<usize>();
        assert_eq!(taken, 64 * 4, "{:?}", sender.stats());
        assert!(sender.stats().send_stalls > 0);
        pair.put_all(0, &[9; 400]);
        assert_eq!(pair.get_all(1, 656)[255..], [b"r", &[9; 400][..]].concat());
    }
}

#[test]
fn the_steps_write_as_often_as_they_say() {
    let writes = |config| {
        let mut pair = Pair::new(config);
        for _ in 0..8 {
            pair.put_all(0, b"ping");
            assert_eq!(pair.get_all(1, 4), b"ping");
            pair.put_all(1, b"pong");
            assert_eq!(pair.get_all(0, 4), b"pong");
        }
        let stats = pair.ends[0].stats();
        [stats.tx_data, stats.tx_heads, stats.tx_tails, stats.tx_tails_piggybacked]
    };
    assert_eq!(writes(StreamConfig::of(StreamStep::Basic)), [8, 8, 8, 0], "three WRITEs a message");
    assert_eq!(writes(StreamConfig::of(StreamStep::Piggyback)), [8, 0, 0, 7], "one, and the tail travels along");
    let undelayed = StreamConfig { tail_delay: false, ..StreamConfig::of(StreamStep::Piggyback) };
    assert_eq!(writes(undelayed), [8, 0, 8, 0]);
}

#[test]
fn without_pipelining_a_long_put_waits_for_the_one_before() {
    for piggyback in [false, true] {
        let config = StreamConfig { pipelining: false, piggyback, ..COPIED };
        let mut pair = Pair::new(config);
        let taken = pair.ends[0].put(1, &stream(0, 10_000)).expect("the peer is there");
        assert_eq!(taken, 10_000);
        assert_eq!(pair.ends[0].put(1, &stream(10_000, 5_000)), Ok(0), "the first is under way");
        pair.put_all(0, &stream(10_000, 5_000));
        assert!(pair.get_all(1, 15_000) == stream(0, 15_000));
        let mut pipelined = Pair::new(StreamConfig { pipelining: true, ..config });
        assert_eq!(pipelined.ends[0].put(1, &stream(0, 10_000)), Ok(10_000));
        assert_eq!(pipelined.ends[0].put(1, &stream(0, 5_000)), Ok(5_000));
    }
}

#[test]
fn puts_take_nothing_before_the_peer_has_opened() {
    let mut pair = Pair::unopened([SMALL; 2], &[]);
    for _ in 0..3 {
        assert_eq!(pair.ends[0].is_open(1), Ok(false));
        assert_eq!(pair.ends[0].put(1, b"early"), Ok(0));
        assert_eq!(pair.ends[0].flush(1), Ok(false));
        pair.steps(1_000);
    }
    assert!(pair.ends[0].0.is_connected(1), "only the other end of the stream is missing");
    assert_eq!(pair.ends[1].get(0, &mut [0; 5]), Ok(0), "which opens it");
    pair.put_all(0, b"early");
    assert_eq!(pair.get_all(1, 5), b"early");
}

#[test]
fn misuse_is_refused_by_name() {
    let mut pair = Pair::new(SMALL);
    let end = &mut pair.ends[0];
    for rank in [0, 2, usize::MAX] {
        let no_peer = StreamError::NoPeer(rank.into());
        assert_eq!(end.put(rank, b"x"), Err(no_peer.clone()));
        assert_eq!(end.get(rank, &mut [0]), Err(no_peer.clone()));
        assert_eq!(end.get_into(rank, &mut None), Err(no_peer.clone()));
        assert_eq!(end.is_open(rank), Err(no_peer.clone()));
        assert_eq!(end.flush(rank), Err(no_peer));
    }
    assert_eq!(end.get_into(1, &mut None), Err(StreamError::NoBuffer(1.into())));
}

/// Calls that name the peer open its streams themselves, and refuse a rank that is none.
#[test]
fn calls_that_name_the_peer_open_its_streams() {
    let mut pair = Pair::unopened([SMALL; 2], &[]);
    for rank in [0, 2, usize::MAX] {
        let worker = &mut *pair.ends[0].0;
        let no_peer = StreamError::NoPeer(rank.into());
        assert_eq!(worker.put_bytes(rank.into(), b"x"), Err(no_peer.clone()));
        assert_eq!(worker.get_bytes(rank.into(), &mut [0]), Err(no_peer.clone()));
        assert_eq!(worker.get_into(rank.into(), &mut None), Err(no_peer.clone()));
        assert_eq!(worker.is_stream_open(rank.into()), Err(no_peer.clone()));
        assert_eq!(worker.flush_stream(rank.into()), Err(no_peer));
    }
    let (mut sent, mut got, mut bytes) = (0, 0, [0; 5]);
    pair.settle(|pair| {
        sent += pair.ends[0].0.put_bytes(1.into(), &b"hello"[sent..]).expect("the peer is there");
        got += pair.ends[1].0.get_bytes(0.into(), &mut bytes[got..]).expect("the peer is there");
        got == bytes.len()
    });
    assert_eq!(&bytes, b"hello");
}

#[test]
fn a_bad_configuration_is_refused_and_a_late_one() {
    let [mut worker, _far] = Wire::new(&[]).workers;
    let bad = StreamConfig { chunk: 100, ..SMALL };
    assert_eq!(worker.configure_streams(bad), Err(StreamError::Config(BadStreamConfig::Chunk(100))));
    worker.configure_streams(SMALL).expect("a good one");
    let buffer = worker.buffer(10).expect("memory");
    let payload = worker.adopt_payload(buffer).expect("room");
    assert_eq!(worker.configure_streams(SMALL), Err(StreamError::ConfigInUse));
    worker.release_payload(payload).expect("no peer reads it");
    worker.configure_streams(SMALL).expect("none is in use");
    assert!(worker.stream(1).is_ok());
    assert_eq!(worker.configure_streams(SMALL), Err(StreamError::ConfigInUse));
}

#[test]
fn an_arena_that_is_too_small_is_an_error_and_keeps_nothing() {
    let [mut worker, _far] = Wire::new(&[]).workers;
    let large = StreamConfig { ring: 64 << 20, chunk: 1 << 20, ..SMALL };
    worker.configure_streams(large).expect("a good one");
    let free = worker.free_bytes();
    let error = worker.stream(1).err().expect("it does not fit").to_string();
    assert!(error.contains("ROCI_ARENA_SIZE"), "{error}");
    assert_eq!(worker.free_bytes(), free);
    worker.configure_streams(SMALL).expect("no stream is open");
    assert!(worker.stream(1).is_ok());
}
