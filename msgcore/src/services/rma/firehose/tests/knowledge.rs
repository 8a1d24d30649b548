//! Who knows what, and what it costs: hits, moves, keys, memory that stays pinned, and peers that are gone.

use super::*;

#[test]
fn the_second_transfer_costs_the_target_nothing() {
    let (mut one, mut other) = End::pair(4, 8);
    touch(&mut one, &mut other, 5, 2);
    let served = other.engine.stats().moves_served;
    let hold = one.acquire(5, 2, 0).expect("a hit");
    let pieces: Vec<Piece> = one.engine.pieces(&hold).collect();
    let keys = [5, 6].map(|bucket| other.engine.key(Bucket(bucket)).expect("pinned"));
    assert_eq!(pieces.iter().map(|piece| piece.key).collect::<Vec<_>>(), keys);
    assert_eq!(pieces[1].span, Span { va: 6 * PAGE, len: PAGE });
    one.release(hold);
    assert!(one.take_messages().is_empty());
    assert_eq!((one.engine.stats().hits, one.engine.stats().misses, served), (1, 1, 1));
}

#[test]
fn a_hit_on_what_is_on_its_way_sends_nothing() {
    let (mut one, mut other) = End::pair(4, 8);
    assert!(one.acquire(0, 2, 1).is_none() && one.acquire(1, 1, 2).is_none());
    assert_eq!((one.host.outbox.len(), one.engine.stats().pending_hits), (1, 1));
    settle(&mut one, &mut other);
    assert_eq!(one.take_ended().len(), 2);
}

#[test]
fn neighbours_are_one_region_and_the_oldest_gives_way() {
    let (mut one, mut other) = End::pair(4, 8);
    (0..4).for_each(|bucket| touch(&mut one, &mut other, bucket, 1));
    touch(&mut one, &mut other, 0, 1);
    assert!(one.acquire(10, 2, 0).is_none());
    // Two of twelve bytes: the new ones together, and 1 and 2 together, because 0 was used again.
    assert_eq!(one.host.outbox[0].1.len(), 16 + 2 * 12);
    settle(&mut one, &mut other);
    let held: Vec<u64> = one.engine.firehoses_to(1.into()).iter().map(|(bucket, _)| bucket.0).collect();
    assert_eq!(held, [0, 3, 10, 11]);
    assert_eq!(other.engine.state(Bucket(1)), BucketState::B, "still pinned");
    assert_eq!(other.host.pinned.len(), 6);
}

#[test]
fn a_victim_is_pinned_over_or_used_again() {
    let (mut one, mut other) = End::pair(2, 1);
    for bucket in [0, 1, 2] {
        touch(&mut one, &mut other, bucket, 1);
    }
    assert_eq!((other.engine.state(Bucket(0)), other.engine.stats().pins), (BucketState::B, 3));
    touch(&mut one, &mut other, 0, 1);
    let stats = other.engine.stats();
    assert_eq!((stats.pins, stats.victim_reuses), (3, 1), "no registration");
    touch(&mut one, &mut other, 3, 1);
    let stats = other.engine.stats();
    assert_eq!((stats.pins, stats.repins, stats.unpins), (4, 1, 0), "in the place of the victim before");
}

#[test]
fn memory_that_no_peer_holds_stays_pinned_within_maxvictim() {
    let (mut one, mut other) = End::pair(1, 1);
    assert_eq!(other.engine.state(Bucket(0)), BucketState::A);
    touch(&mut one, &mut other, 0, 1);
    assert_eq!(other.engine.state(Bucket(0)), BucketState::E);
    touch(&mut one, &mut other, 1, 1);
    assert_eq!(other.engine.state(Bucket(0)), BucketState::B);
    touch(&mut one, &mut other, 2, 1);
    assert_eq!((other.engine.state(Bucket(0)), other.host.pinned.len()), (BucketState::A, 2), "the oldest is unpinned");
}

#[test]
fn where_memory_cannot_be_pinned_victims_give_way_and_then_the_move_fails() {
    let (mut one, mut other) = End::pair(2, 4);
    for bucket in 0..3 {
        touch(&mut one, &mut other, bucket, 1);
    }
    other.host.refuse_all();
    assert!(one.acquire(10, 1, 7).is_none());
    let request = one.take_messages();
    other.on_message(&request[0]).expect("a move");
    let answer = other.take_messages();
    one.on_message(&answer[0]).expect("a refusal");
    let (context, outcome) = one.host.ended.pop().expect("it has failed");
    assert!(
        context == 7 && matches!(outcome, Err(Failed::Refused { reason: PinError::NoKey | PinError::NoMemory, .. })),
        "{outcome:?}"
    );
    assert_eq!(other.engine.pin_counts().victims, 0, "all of them were tried");
    assert_eq!(other.engine.stats().rollbacks, 1);
    assert_eq!(one.engine.firehoses_to(1.into()).len(), 1, "what was given up is given up");
}

#[test]
fn a_peer_that_is_gone_takes_nothing_with_it() {
    let (mut one, mut other) = End::pair(2, 8);
    touch(&mut one, &mut other, 0, 1);
    touch(&mut other, &mut one, 3, 1);
    let held = one.acquire(0, 1, 1).expect("a hit");
    assert!(one.acquire(5, 1, 2).is_none() && one.acquire(6, 2, 3).is_none(), "one moves, one stands in line");
    one.engine.peer_gone(&mut one.host, 1.into());
    one.engine.peer_gone(&mut one.host, 1.into());
    one.check();
    let ended: Vec<_> = one.host.ended.drain(..).collect();
    assert_eq!(ended, [2, 3].map(|context| (context, Err(Failed::PeerGone(1.into())))));
    assert_eq!(one.engine.state(Bucket(3)), BucketState::B, "its firehose is ours again");
    assert_eq!(one.engine.pieces(&held).count(), 0);
    one.release(held);
    one.check();
}
