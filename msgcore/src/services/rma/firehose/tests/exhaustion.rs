//! Too few firehoses, too little room: all operations wait in line, and none holds a part.

use super::super::wire::MAX_BUCKETS;
use super::*;

fn refusal(end: &mut End, peer: Rank, va: u64, len: u64) -> AcquireError {
    end.engine.acquire(&mut end.host, peer, Span { va, len }, 0).expect_err("it cannot be had")
}

#[test]
fn what_can_never_be_had_is_refused_at_once() {
    let (mut one, _) = End::pair(4, 8);
    let too_large = AcquireError::TooLarge { buckets: 5, most: 4 };
    assert_eq!(refusal(&mut one, 1, 0, 4 * PAGE + 1), too_large);
    assert_eq!(too_large.to_string(), "5 buckets at once, and there are never more than 4: split the transfer");
    assert_eq!(refusal(&mut one, 0, 0, 1), AcquireError::Oneself(0));
    assert_eq!(refusal(&mut one, 2, 0, 1), AcquireError::NoPeer { rank: 2, size: 2 });
    assert_eq!(refusal(&mut one, 1, 0, 0), AcquireError::Span(BadSpan::Empty(0)));
    let outside = AcquireError::OutsideSegment { rank: 1, first: SEGMENT - 1, count: 2 };
    assert_eq!(refusal(&mut one, 1, SEGMENT * PAGE - 1, 2), outside);
    assert!(one.take_messages().is_empty());
}

#[test]
fn one_operation_fits_one_message_however_its_buckets_lie() {
    let limits = Limits::exact(Grain::new(PAGE).expect("a power of two"), 2 * MAX_BUCKETS, 8);
    let segments = vec![Region::new(Bucket(0), 4 * MAX_BUCKETS).expect("few"); 2];
    let (mut one, mut other) = End::pair(1, 1);
    for end in [&mut one, &mut other] {
        end.engine = FirehoseEngine::new(limits, end.me, segments.clone());
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
    assert_eq!(refusal(&mut one, 1, 0, (most + 1) * PAGE), AcquireError::TooLarge { buckets: most + 1, most });
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
    let hit = |one: &mut End| one.engine.acquire(&mut one.host, 1, Span { va: 0, len: 1 }, 0);
    let holds: Vec<Hold> = (0..1 << 16).map(|_| hit(&mut one).expect("a hit").expect("at once")).collect();
    assert_eq!(hit(&mut one), Err(AcquireError::TooMany(1 << 16)));
    for hold in holds {
        one.engine.release(&mut one.host, hold).expect("its own");
    }
    one.check();
    assert!(hit(&mut one).is_ok());
}

#[test]
fn a_hold_of_another_rank_comes_back() {
    let (mut one, mut other) = End::pair(4, 4);
    touch(&mut one, &mut other, 0, 1);
    touch(&mut other, &mut one, 0, 1);
    let theirs = other.acquire(0, 1, 0).expect("a hit");
    let hold = one.acquire(0, 1, 0).expect("a hit");
    assert_eq!(other.engine.pieces(&hold).count(), 0);
    let Err(UnknownHold(hold)) = other.engine.release(&mut other.host, hold) else { panic!("it is another's") };
    one.release(hold);
    other.release(theirs);
}
