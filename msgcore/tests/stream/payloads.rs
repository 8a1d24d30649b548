//! Payloads: zero-copy both ways, the ways round it, and the cache of registrations.

use roci_msgcore::stream::{StreamConfig, StreamError, StreamPayload};

use super::pair::{End, Pair, SMALL, stream};

const LONG: usize = 100_000;

fn adopt(pair: &mut Pair, who: usize, bytes: &[u8]) -> StreamPayload {
    let mut buffer = pair.ends[who].buffer(bytes.len());
    buffer.copy_from_slice(bytes);
    pair.ends[who].adopt(buffer)
}

/// Puts a payload, and gets it into a buffer of `room` bytes, however often it takes.
fn transfer(pair: &mut Pair, payload: StreamPayload, len: usize, room: usize) -> Vec<u8> {
    let (mut got, mut is_put) = (Vec::new(), false);
    let mut slot = Some(pair.ends[1].buffer(room));
    pair.settle(|pair| {
        is_put = is_put || pair.ends[0].put_payload(1, payload).expect("the peer is there") == len;
        let part = pair.ends[1].get_into(0, &mut slot).expect("the peer is there");
        got.extend_from_slice(slot.as_deref().map_or(&[], |buffer| &buffer[..part]));
        is_put && got.len() == len
    });
    assert_eq!(slot.expect("it is back").len(), room, "as long as it was");
    got
}

#[test]
fn a_payload_goes_straight_into_a_buffer_that_holds_it() {
    for piggyback in [false, true] {
        let mut pair = Pair::new(StreamConfig { piggyback, ..SMALL });
        let payload = adopt(&mut pair, 0, &stream(0, LONG));
        assert!(transfer(&mut pair, payload, LONG, LONG + 5) == stream(0, LONG));
        let [sender, receiver] = pair.ends.each_ref().map(End::stats);
        assert_eq!((sender.tx_announcements, sender.tx_data, receiver.rx_direct, receiver.rx_staged), (1, 1, 1, 0));
    }
}

#[test]
fn a_payload_that_does_not_fit_comes_through_the_staging_buffer() {
    let mut pair = Pair::new(SMALL);
    let payload = adopt(&mut pair, 0, &stream(0, LONG));
    assert!(transfer(&mut pair, payload, LONG, 999) == stream(0, LONG));
    let stats = pair.ends[1].stats();
    assert_eq!((stats.rx_direct, stats.rx_staged), (0, LONG.div_ceil(SMALL.ring) as u64));
}

#[test]
fn plain_gets_get_payloads_too_and_in_their_place() {
    for piggyback in [false, true] {
        let mut pair = Pair::new(StreamConfig { piggyback, ..SMALL });
        pair.put_all(0, &stream(0, 10));
        let payload = adopt(&mut pair, 0, &stream(10, LONG));
        assert_eq!(pair.ends[0].put_payload(1, payload), Ok(0), "it is announced");
        assert_eq!(pair.ends[0].put(1, b"x"), Err(StreamError::PutPending(1.into())));
        assert!(pair.get_all(1, 10 + LONG) == stream(0, 10 + LONG));
        pair.settle(|pair| pair.ends[0].put_payload(1, payload) == Ok(LONG));
        pair.put_all(0, b"x");
        assert_eq!(pair.get_all(1, 1), b"x");
    }
}

/// Put all along the ring: without piggybacking, the ring's end comes to lie in the middle of an announcement.
#[test]
fn announcements_may_lie_across_the_end_of_the_ring() {
    let config = StreamConfig { piggyback: false, ..SMALL };
    let mut pair = Pair::new(config);
    pair.put_all(0, &stream(0, config.ring - 24));
    assert_eq!(pair.get_all(1, config.ring - 24).len(), config.ring - 24);
    for round in 0..3 {
        let payload = adopt(&mut pair, 0, &stream(round, LONG));
        assert!(transfer(&mut pair, payload, LONG, LONG) == stream(round, LONG), "round {round}");
    }
    assert_eq!(pair.ends[0].stats().tx_data, config.ring.div_ceil(config.chunk) as u64 + 3 + 1);
}

#[test]
fn short_payloads_and_all_without_zero_copy_are_copied() {
    let threshold = SMALL.zero_copy.expect("it is on");
    for (config, len, announced) in
        [(SMALL, threshold - 1, 0), (SMALL, threshold, 1), (StreamConfig { zero_copy: None, ..SMALL }, LONG, 0)]
    {
        let mut pair = Pair::new(config);
        let payload = adopt(&mut pair, 0, &stream(0, len));
        assert!(transfer(&mut pair, payload, len, len) == stream(0, len));
        assert_eq!(pair.ends[0].stats().tx_announcements, announced, "{len} bytes");
    }
}

#[test]
fn an_empty_payload_is_never_under_way() {
    let mut pair = Pair::new(SMALL);
    let payload = adopt(&mut pair, 0, &[]);
    assert_eq!(pair.ends[0].put_payload(1, payload), Ok(0));
    pair.put_all(0, b"x");
    assert_eq!(pair.get_all(1, 1), b"x");
    assert!(pair.ends[0].release(payload).is_ok());
}

#[test]
fn a_payload_that_is_being_put_is_left_alone() {
    let mut pair = Pair::new(SMALL);
    let payload = adopt(&mut pair, 0, &stream(0, LONG));
    let other = adopt(&mut pair, 0, &stream(0, 10));
    assert_eq!(pair.ends[0].put_payload(1, payload), Ok(0));
    assert_eq!(pair.ends[0].release(payload).err(), Some(StreamError::PayloadInUse));
    assert_eq!(pair.ends[0].write_payload(payload, 0, b"x"), Err(StreamError::PayloadInUse));
    assert_eq!(pair.ends[0].put_payload(1, other), Err(StreamError::PutPending(1.into())));
    assert!(transfer(&mut pair, payload, LONG, LONG) == stream(0, LONG));
    assert!(pair.ends[0].release(payload).is_ok_and(|buffer| *buffer == stream(0, LONG)));
    assert_eq!(pair.ends[0].release(payload).err(), Some(StreamError::NoPayload));
    assert_eq!(pair.ends[0].put_payload(1, payload), Err(StreamError::NoPayload));
}

#[test]
fn a_buffer_that_is_being_filled_is_asked_for_without_another_one() {
    let mut pair = Pair::new(SMALL);
    let payload = adopt(&mut pair, 0, &stream(0, LONG));
    let mut slot = Some(pair.ends[1].buffer(LONG));
    pair.settle(|pair| {
        pair.ends[0].put_payload(1, payload).expect("the peer is there");
        assert_eq!(pair.ends[1].get_into(0, &mut slot), Ok(0));
        slot.is_none()
    });
    let mut other = Some(pair.ends[1].buffer(LONG));
    assert_eq!(pair.ends[1].get_into(0, &mut other), Err(StreamError::GetPending(0.into())));
    assert_eq!(pair.ends[1].get(0, &mut [0]), Err(StreamError::GetPending(0.into())));
    assert!(other.is_some(), "it was not taken");
    pair.settle(|pair| pair.ends[1].get_into(0, &mut slot) == Ok(LONG));
    assert!(*slot.expect("it is back") == stream(0, LONG));
}

#[test]
fn a_range_beyond_a_payload_is_refused() {
    let mut pair = Pair::new(SMALL);
    let payload = adopt(&mut pair, 0, &[0; 10]);
    for offset in [10, 11, usize::MAX] {
        let outside = StreamError::PayloadRange { offset, len: 1, room: 10 };
        assert_eq!(pair.ends[0].write_payload(payload, offset, b"x"), Err(outside));
    }
    assert_eq!(pair.ends[0].write_payload(payload, 9, b"x"), Ok(()));
    assert_eq!(pair.ends[0].release(payload).expect("it is not in use")[9], b'x');
}

#[test]
fn payloads_stay_registered_until_others_take_their_place() {
    let mut pair = Pair::new(SMALL);
    let [one, two, three] = [1, 2, 3].map(|mark| adopt(&mut pair, 0, &stream(mark, LONG)));
    let mut put = |payload, from, expected: [u64; 3]| {
        assert!(transfer(&mut pair, payload, LONG, LONG) == stream(from, LONG));
        let stats = pair.ends[0].stats();
        assert_eq!([stats.cache_hits, stats.cache_misses, stats.cache_evictions], expected);
    };
    put(one, 1, [0, 1, 0]);
    put(one, 1, [1, 1, 0]);
    put(two, 2, [1, 2, 0]);
    put(one, 1, [2, 2, 0]);
    // There is room for two, and the second was not used for longest.
    put(three, 3, [2, 3, 1]);
    put(one, 1, [3, 3, 1]);
    put(two, 2, [3, 4, 2]);
}

#[test]
fn what_is_written_to_a_registered_payload_is_what_is_put_next() {
    let mut pair = Pair::new(SMALL);
    let payload = adopt(&mut pair, 0, &stream(0, LONG));
    assert!(transfer(&mut pair, payload, LONG, LONG) == stream(0, LONG));
    pair.ends[0].write_payload(payload, 0, &stream(77, LONG)).expect("it is not in use");
    assert!(transfer(&mut pair, payload, LONG, LONG) == stream(77, LONG));
    assert_eq!(pair.ends[0].stats().cache_hits, 1);
    assert!(pair.ends[0].release(payload).is_ok_and(|buffer| *buffer == stream(77, LONG)));
}
