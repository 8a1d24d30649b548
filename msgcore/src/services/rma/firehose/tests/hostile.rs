//! A peer that breaks the protocol: each breach has its name and is counted, and nothing comes of it.

use roci_protocol::Rkey;

use super::super::wire::{BadFirehoseMessage, emit_granted, emit_refused, emit_request};
use super::*;

fn region(first: u64, count: u64) -> Region {
    Region::new(Bucket(first), count).expect("their numbers fit")
}

fn request(new: &[Region], old: &[Region]) -> Vec<u8> {
    let mut bytes = Vec::new();
    emit_request(&mut bytes, 1, new, old);
    bytes
}

/// All that a message could have changed.
fn snapshot(end: &End) -> impl PartialEq + std::fmt::Debug + use<> {
    let stats = FirehoseStats { breaches: 0, ..end.engine.stats() };
    let granted: Vec<bool> = (0..SEGMENT).map(|bucket| end.engine.has_granted(0.into(), Bucket(bucket))).collect();
    let keys = end.engine.firehoses_to(0.into());
    (
        stats,
        end.engine.pin_counts(),
        granted,
        keys,
        end.host.pinned.clone(),
        end.host.ended.len(),
        end.host.outbox.len(),
    )
}

/// A rank that has granted buckets 0 and 1 to the hostile one, and waits for its answer to a move of one bucket.
fn scene() -> (End, Vec<u8>) {
    let (mut one, mut other) = End::pair(4, 8);
    touch(&mut one, &mut other, 0, 2);
    assert!(other.acquire(9, 1, 0).is_none());
    let request = other.take_messages().pop().expect("a move");
    (other, request)
}

fn assert_breach(end: &mut End, message: &[u8], expected: FirehoseBreach) {
    let (before, breaches) = (snapshot(end), end.engine.stats().breaches);
    assert_eq!(end.on_message(message), Err(expected));
    assert_eq!(snapshot(end), before, "{expected}");
    assert_eq!(end.engine.stats().breaches, breaches + 1);
}

#[test]
fn requests_for_what_is_not_its_own() {
    let (mut end, _) = scene();
    for (new, old, expected) in [
        (vec![region(5, 1)], vec![region(7, 1)], FirehoseBreach::NotHeld(Bucket(7))),
        (vec![region(5, 1)], vec![region(0, 1), region(0, 1)], FirehoseBreach::NotHeld(Bucket(0))),
        (vec![region(1, 1)], vec![], FirehoseBreach::HeldAlready(Bucket(1))),
        (vec![region(0, 1)], vec![region(0, 1)], FirehoseBreach::HeldAlready(Bucket(0))),
        (vec![region(5, 1), region(5, 1)], vec![], FirehoseBreach::HeldAlready(Bucket(5))),
        (vec![region(5, 3)], vec![], FirehoseBreach::MoreThanItsShare { buckets: 5, most: 4 }),
        (vec![region(0, 1 << 31)], vec![], FirehoseBreach::TooManyAtOnce { buckets: 1 << 31, most: MAX_BUCKETS }),
        (vec![region(5, 1)], vec![region(0, 225)], FirehoseBreach::TooManyAtOnce { buckets: 225, most: MAX_BUCKETS }),
    ] {
        assert_breach(&mut end, &request(&new, &old), expected);
    }
    // And it is still served.
    end.on_message(&request(&[region(5, 1)], &[region(0, 1)])).expect("a move");
    assert!(end.engine.has_granted(0.into(), Bucket(5)) && !end.engine.has_granted(0.into(), Bucket(0)));
}

#[test]
fn requests_for_what_is_not_offered_are_refused() {
    let (mut end, _) = scene();
    for first in [SEGMENT, SEGMENT - 1, u64::MAX - 2] {
        let before = (end.engine.pin_counts().held, end.engine.stats().breaches);
        end.on_message(&request(&[region(first, 2)], &[])).expect("a move");
        let answer = end.take_messages().pop().expect("a refusal");
        assert!(matches!(answer[..4], [3, 1, 0, 3]), "{answer:?}");
        assert_eq!((end.engine.pin_counts().held, end.engine.stats().breaches), before);
    }
}

#[test]
fn answers_without_a_question() {
    let (mut end, asked) = scene();
    let id = u64::from_be_bytes(asked[8..16].try_into().expect("an id"));
    let granted = |id, keys: &[Rkey]| {
        let mut bytes = Vec::new();
        emit_granted(&mut bytes, id, keys);
        bytes
    };
    for other in [id + 1, id | 1 << 40, u64::MAX] {
        assert_breach(&mut end, &granted(other, &[Rkey(7)]), FirehoseBreach::UnknownMove(other));
    }
    for got in [0, 2, 500] {
        assert_breach(&mut end, &granted(id, &vec![Rkey(7); got]), FirehoseBreach::Keys { got, wanted: 1 });
    }
    end.on_message(&granted(id, &[Rkey(7)])).expect("an answer");
    assert_eq!(end.take_ended().len(), 1);
    // Twice.
    assert_breach(&mut end, &granted(id, &[Rkey(8)]), FirehoseBreach::UnknownMove(id));
    let mut refusal = Vec::new();
    emit_refused(&mut refusal, id, PinError::NoKey);
    assert_breach(&mut end, &refusal, FirehoseBreach::UnknownMove(id));
}

#[test]
fn an_answer_from_another_than_was_asked() {
    let limits = Limits::exact(Grain::new(PAGE).expect("a power of two"), 4, 8);
    let mut end = End::new(0, 4, 8);
    end.engine = FirehoseEngine::new(limits);
    assert!(end.acquire(0, 1, 0).is_none());
    let (asked, message) = end.host.outbox.pop().expect("a move");
    let id = u64::from_be_bytes(message[8..16].try_into().expect("an id"));
    let mut answer = Vec::new();
    emit_granted(&mut answer, id, &[Rkey(7)]);
    assert_eq!(asked, 1);
    assert_eq!(end.engine.on_message(&mut end.host, 2.into(), &answer), Err(FirehoseBreach::UnknownMove(id)));
    assert_eq!(end.engine.on_message(&mut end.host, 1.into(), &answer), Ok(()));
}

#[test]
fn bytes_that_are_no_message() {
    let (mut end, asked) = scene();
    for len in 0..asked.len() {
        let before = snapshot(&end);
        assert!(matches!(end.on_message(&asked[..len]), Err(FirehoseBreach::Message(_))), "{len} bytes");
        assert_eq!(snapshot(&end), before);
    }
    let long = vec![1; MAX_MESSAGE + 1];
    assert_breach(&mut end, &long, FirehoseBreach::Message(BadFirehoseMessage::TooLong(MAX_MESSAGE + 1)));
}

/// Whole messages of wrong content, in any order: some are served, and nothing ever breaks.
#[test]
fn any_requests_leave_everything_in_order() {
    use proptest::prelude::*;
    let regions = || prop::collection::vec((0..SEGMENT + 2, 1..4_u64), 0..4);
    let config = ProptestConfig { cases: 200, ..ProptestConfig::default() };
    proptest!(config, |(moves in prop::collection::vec((regions(), regions()), 1..40))| {
        let (mut end, _) = scene();
        for (new, old) in moves {
            let regions = |of: Vec<(u64, u64)>| of.into_iter().map(|(first, count)| region(first, count)).collect();
            let (new, old): (Vec<_>, Vec<_>) = (regions(new), regions(old));
            let before = snapshot(&end);
            if end.on_message(&request(&new, &old)).is_err() {
                prop_assert_eq!(snapshot(&end), before);
            }
            prop_assert_eq!(end.engine.pin_counts().pinned, end.host.pinned.len());
        }
    });
}
