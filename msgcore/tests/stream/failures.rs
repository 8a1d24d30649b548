//! Ends: other configurations, a cut wire, and where the memory goes.

use roci_msgcore::OpError;
use roci_msgcore::stream::{StreamConfig, StreamError};
use roci_testkit::World as _;

use super::pair::{End, Pair, SMALL, TestWorker, Wire, combinations, stream};

const LONG: usize = 100_000;

#[test]
fn both_ends_name_a_configuration_that_differs() {
    let others = [
        StreamConfig { ring: SMALL.ring * 2, ..SMALL },
        StreamConfig { chunk: SMALL.chunk / 2, ..SMALL },
        StreamConfig { piggyback: false, ..SMALL },
        StreamConfig { tail_delay: false, ..SMALL },
        StreamConfig { pipelining: false, ..SMALL },
        StreamConfig { zero_copy: None, ..SMALL },
        StreamConfig { zero_copy: Some(1), ..SMALL },
        StreamConfig { registrations: 9, ..SMALL },
    ];
    for other in others {
        let mut pair = Pair::unopened([SMALL, other], &[]);
        pair.settle(|pair| [pair.ends[0].is_open(1), pair.ends[1].is_open(0)].iter().all(Result::is_err));
        for (who, ours, theirs) in [(0, SMALL, other), (1, other, SMALL)] {
            let (ours, theirs) = (Box::new(ours), Box::new(theirs));
            let differs = StreamError::OtherConfig { peer: (1 - who).into(), theirs, ours };
            assert_eq!(pair.ends[who].put(1 - who, b"x"), Err(differs.clone()));
            assert_eq!(pair.ends[who].get(1 - who, &mut [0]), Err(differs));
        }
    }
}

/// As on a port that cannot: the connection stays, for messages.
#[test]
fn without_rdma_at_one_end_there_is_no_stream() {
    for knobs in [[&[("rdma", "off")][..], &[]], [&[], &[("rdma", "off")][..]]] {
        let Wire { clock, net, workers, cut, .. } = Wire::of(knobs);
        let mut pair = Pair { clock, net, ends: workers.map(End), cut };
        pair.settle(|pair| [pair.ends[0].is_open(1), pair.ends[1].is_open(0)].iter().all(Result::is_err));
        for who in [0, 1] {
            let refused = Err(StreamError::NoRdma((1 - who).into()));
            assert_eq!(pair.ends[who].put(1 - who, b"x"), refused);
            assert!(pair.ends[who].0.is_connected(1 - who));
        }
    }
}

#[test]
fn a_cut_wire_fails_every_call_by_name() {
    for config in combinations() {
        let mut pair = Pair::new(config);
        pair.put_all(0, &stream(0, 1000));
        (pair.cut)();
        pair.settle(|pair| pair.ends[0].is_open(1).is_err());
        let end = &mut pair.ends[0];
        let error = end.put(1, b"x").expect_err("the peer is gone");
        assert!(matches!(error, StreamError::Peer(OpError::PeerGone { peer, .. }) if peer == 1), "{error}");
        assert!(error.to_string().contains("IBV_WC_"), "{error}");
        assert_eq!(end.get(1, &mut [0]), Err(error.clone()));
        assert_eq!(end.get_into(1, &mut None), Err(error.clone()));
        assert_eq!(end.flush(1), Err(error.clone()));
        let buffer = end.buffer(LONG);
        let payload = end.adopt(buffer);
        assert_eq!(end.put_payload(1, payload), Err(error));
        assert!(end.release(payload).is_ok());
        assert_eq!(end.0.stats().peers_gone, 1);
    }
}

#[test]
fn what_had_come_from_a_peer_that_is_gone_can_still_be_got() {
    for config in combinations() {
        let mut pair = Pair::new(config);
        pair.put_all(0, &stream(0, 3000));
        pair.settle(|pair| pair.ends[0].flush(1) == Ok(true));
        (pair.cut)();
        pair.settle(|pair| pair.ends[1].is_open(0).is_err());
        let mut bytes = [0; 3000];
        let (first, second) = bytes.split_at_mut(1);
        assert_eq!(pair.ends[1].get(0, first), Ok(1));
        assert_eq!(pair.ends[1].get(0, second), Ok(2999));
        assert!(bytes[..] == stream(0, 3000));
        assert!(
            matches!(pair.ends[1].get(0, &mut [0]), Err(StreamError::Peer(OpError::PeerGone { peer, .. })) if peer == 0)
        );
    }
}

#[test]
fn buffers_come_back_from_a_transfer_that_was_cut() {
    let mut pair = Pair::new(SMALL);
    let payload = pair.ends[0].buffer(LONG);
    let payload = pair.ends[0].adopt(payload);
    let mut slot = Some(pair.ends[1].buffer(LONG + 1));
    pair.settle(|pair| {
        pair.ends[0].put_payload(1, payload).expect("the peer is there");
        pair.ends[1].get_into(0, &mut slot).expect("the peer is there");
        slot.is_none()
    });
    (pair.cut)();
    pair.settle(|pair| [pair.ends[0].is_open(1), pair.ends[1].is_open(0)].iter().all(Result::is_err));
    assert_eq!(pair.ends[0].release(payload).expect("no peer reads it").len(), LONG);
    assert!(pair.ends[1].get_into(0, &mut slot).is_err());
    assert_eq!(slot.expect("it is back").len(), LONG + 1);
}

#[test]
fn all_memory_returns_when_a_worker_is_dropped() {
    for config in combinations() {
        let Wire { clock, net, workers, arenas, free, cut } = Wire::new(&[]);
        let ends = workers.map(|worker| configured(worker, config));
        let mut pair = Pair { clock, net, ends, cut };
        pair.open();
        let payload = pair.ends[0].buffer(LONG);
        let payload = pair.ends[0].adopt(payload);
        pair.put_all(0, &stream(0, 5000));
        pair.settle(|pair| {
            let taken = pair.ends[0].put_payload(1, payload).expect("the peer is there");
            taken == LONG || pair.ends[1].get(0, &mut [0; 999]).is_err()
        });
        assert!(arenas.iter().zip(free).all(|(arena, free)| arena.free_bytes() < free), "it takes memory");
        drop(pair);
        assert_eq!(arenas.map(|arena| arena.free_bytes()), free, "{config:?}");
    }
}

fn configured(mut worker: TestWorker, config: StreamConfig) -> End {
    worker.configure_streams(config).expect("a configuration");
    End(worker)
}

/// Buffers that go round must not get lost on the way: a stream's memory is the same after much traffic.
#[test]
fn traffic_takes_no_more_memory() {
    for config in combinations() {
        let mut pair = Pair::new(config);
        let is_flushed = |pair: &mut Pair| pair.ends[0].flush(1) == Ok(true) && pair.ends[1].flush(0) == Ok(true);
        pair.settle(is_flushed);
        let free = |pair: &Pair| pair.ends.each_ref().map(|end| end.0.memory());
        let before = free(&pair);
        for round in 0..20 {
            pair.put_all(0, &stream(round, 7_777));
            assert!(pair.get_all(1, 7_777) == stream(round, 7_777));
        }
        pair.settle(is_flushed);
        assert_eq!(free(&pair), before, "{config:?}");
    }
}

#[test]
fn closing_waits_for_what_was_put_and_counts_what_no_peer_read() {
    let mut pair = Pair::new(SMALL);
    let taken = pair.ends[0].put(1, &stream(0, 5000)).expect("the peer is there");
    assert_eq!(pair.ends[0].flush(1), Ok(false), "the other end has not polled");
    assert!(pair.get_all(1, taken) == stream(0, taken));
    pair.settle(|pair| pair.ends[0].flush(1) == Ok(true) && pair.ends[1].flush(0) == Ok(true));
    let buffer = pair.ends[0].buffer(LONG);
    let payload = pair.ends[0].adopt(buffer);
    assert_eq!(pair.ends[0].put_payload(1, payload), Ok(0));
    pair.steps(100);
    let [near, far] = pair.ends;
    assert_eq!(near.0.close().expect("all has arrived").payloads, 1);
    assert_eq!(far.0.close().expect("all has arrived").payloads, 0);
}
