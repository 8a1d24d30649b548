//! Too few firehoses, too little room: all operations wait in line, and none holds a part.

use super::super::wire::{MAX_BUCKETS, emit_request};
use super::*;

fn refusal(end: &mut End, va: u64, len: u64) -> AcquireError {
    end.acquire_from(1, Span { va, len }, 0).expect_err("it cannot be had")
}

#[test]
fn what_can_never_be_had_is_refused_at_once() {
    let (mut one, _) = End::pair(4, 8);
    let too_large = AcquireError::TooLarge { buckets: 5, most: 4 };
    assert_eq!(refusal(&mut one, 0, 4 * PAGE + 1), too_large);
    assert_eq!(too_large.to_string(), "5 buckets at once, and there are never more than 4: split the transfer");
    assert_eq!(refusal(&mut one, 0, 0), AcquireError::Span(BadSpan::Empty(0)));
    assert!(one.acquire(0, 1, 0).is_none());
    let more = FirehoseShare { firehoses: 5, ..one.engine.limits().share() };
    let other = one.engine.acquire(&mut one.host, 1.into(), more, Span { va: 0, len: 1 }, 0);
    assert_eq!(other, Err(AcquireError::OtherShare(1.into())));
    assert_eq!(one.take_messages().len(), 1);
}

#[test]
fn what_is_not_offered_is_refused_and_no_victim_gives_way() {
    let (mut one, mut other) = End::pair(1, 2);
    (0..3).for_each(|bucket| touch(&mut one, &mut other, bucket, 1));
    assert!(one.acquire(SEGMENT - 1, 1, 0).is_none());
    settle(&mut one, &mut other);
    let (_, hold) = one.take_ended().pop().expect("the last one");
    one.release(hold);
    let pinned = other.host.pinned.len();
    assert!(one.acquire(SEGMENT, 1, 7).is_none());
    settle(&mut one, &mut other);
    let refused = Failed::Refused { peer: 1.into(), reason: PinError::NotOffered };
    assert_eq!(one.host.ended.pop(), Some((7, Err(refused))));
    assert!(other.host.pinned.len() >= pinned - 1, "at most what was given up for it");
}

#[test]
fn one_operation_fits_one_message_however_its_buckets_lie() {
    let limits = Limits::exact(Grain::new(PAGE).expect("a power of two"), 2 * MAX_BUCKETS, 8);
    let (mut one, mut other) = End::pair(1, 1);
    for end in [&mut one, &mut other] {
        end.engine = FirehoseEngine::new(limits);
        end.host = Host::new(4 * MAX_BUCKETS, 0, StdRng::seed_from_u64(1));
    }
    // Every other bucket of the first half, and every other one of the second: all of them lie alone.
    (0..MAX_BUCKETS).for_each(|at| touch(&mut one, &mut other, 2 * at, 1));
    (0..MAX_BUCKETS).for_each(|at| touch(&mut one, &mut other, 2 * (MAX_BUCKETS + at), 1));
    let half = MAX_BUCKETS;
    assert!(one.acquire(half + 1, MAX_BUCKETS, 0).is_none());
    assert!(one.host.outbox[0].1.len() <= MAX_MESSAGE);
    settle(&mut one, &mut other);
    let (_, hold) = one.take_ended().pop().expect("granted");
    assert_eq!(one.engine.pieces(&hold).count() as u64, MAX_BUCKETS);
    let most = MAX_BUCKETS;
    assert_eq!(refusal(&mut one, 0, (most + 1) * PAGE), AcquireError::TooLarge { buckets: most + 1, most });
}

#[test]
fn acquires_that_are_too_large_together_end_in_order() {
    let (mut one, mut other) = End::pair(4, 8);
    assert!(one.acquire(0, 3, 1).is_none());
    settle(&mut one, &mut other);
    let (_, first) = one.take_ended().pop().expect("granted");
    assert!(one.acquire(10, 3, 2).is_none(), "one firehose is free, and three are needed");
    assert!(one.acquire(20, 1, 3).is_none(), "it would fit, and does not overtake");
    assert!(one.acquire(0, 1, 4).is_none(), "not even with what is there");
    assert!(one.take_messages().is_empty(), "who waits takes nothing");
    one.release(first);
    settle(&mut one, &mut other);
    let mut ended = one.take_ended();
    assert_eq!(ended.iter().map(|(context, _)| *context).collect::<Vec<_>>(), [2, 3]);
    let (_, second) = ended.remove(0);
    one.release(second);
    settle(&mut one, &mut other);
    assert_eq!(one.take_ended().len(), 1, "the last one");
}

#[test]
fn operations_have_a_limit() {
    let (mut one, mut other) = End::pair(4, 4);
    touch(&mut one, &mut other, 0, 1);
    let hit = |one: &mut End| one.acquire_from(1, Span { va: 0, len: 1 }, 0);
    let holds: Vec<Hold> = (0..1 << 16).map(|_| hit(&mut one).expect("a hit").expect("at once")).collect();
    assert_eq!(hit(&mut one), Err(AcquireError::TooMany(1 << 16)));
    for hold in holds {
        one.engine.release(&mut one.host, hold);
    }
    one.check();
    assert!(hit(&mut one).is_ok());
}

/// Peers of which each keeps within its share want more together than M.
#[test]
fn all_peers_together_hold_no_more_than_m() {
    let settings = Settings { m: Some(4 * PAGE), maxvictim: Some(32 * PAGE), bucket: PAGE };
    let limits = Limits::new(settings, 2, Pinnable { bytes: 1 << 30, keys: 1000 }).expect("they fit");
    let (mut one, mut other) = End::pair(4, 8);
    other.engine = FirehoseEngine::new(limits);
    touch(&mut one, &mut other, 0, 4);
    let mut request = Vec::new();
    let region = |first, count| Region::new(Bucket(first), count).expect("few");
    emit_request(&mut request, 1, &[region(10, 1)], &[]);
    other.engine.on_message(&mut other.host, 7.into(), &request).expect("a move");
    assert!(matches!(other.take_messages()[0][..4], [3, 1, 0, 1]), "no key is left for it");
    emit_request(&mut request, 1, &[region(2, 1)], &[]);
    other.engine.on_message(&mut other.host, 7.into(), &request).expect("a move");
    assert!(matches!(other.take_messages()[0][0], 2), "what another holds already costs nothing more");
    other.check();
}

#[test]
fn what_is_withdrawn_is_closed_and_forgotten_when_no_peer_holds_it() {
    let (mut one, mut other) = End::pair(2, 8);
    (0..3).for_each(|bucket| touch(&mut one, &mut other, bucket, 1));
    let all = Region::new(Bucket(0), 3).expect("few");
    other.engine.withdraw(&mut other.host, all);
    other.engine.withdraw(&mut other.host, all);
    assert!(other.host.pinned.is_empty() && other.engine.key(Bucket(2)).is_none());
    other.check();
    // The one moves its firehoses elsewhere, and what was withdrawn is gone.
    (10..12).for_each(|bucket| touch(&mut one, &mut other, bucket, 1));
    assert_eq!((other.host.pinned.len(), other.engine.pin_counts().pinned), (2, 2));
}
