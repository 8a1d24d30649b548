//! What MPI promises, and what the tables promise themselves.

mod model;

use super::*;

pub(super) fn label(source: usize, tag: u64, context: u32) -> MatchLabel {
    MatchLabel { source: source.into(), tag: Tag::new(tag), context: Context::new(context) }
}

fn pattern(source: Source, tag: TagMatch) -> Pattern {
    Pattern { source, tag, context: Context::default() }
}

fn exactly(source: usize, tag: u64) -> Pattern {
    pattern(Source::from(source), Tag::new(tag).into())
}

#[test]
fn receives_are_met_in_the_order_of_posting() {
    let mut matching = Matching::<u32, ()>::default();
    matching.post(exactly(3, 7), 1);
    matching.post(pattern(Source::Any, TagMatch::Any), 2);
    matching.post(pattern(Source::from(3), TagMatch::Any), 3);
    matching.post(exactly(3, 7), 4);
    assert_eq!(matching.take_posted(&label(3, 8, 0)), Some(2));
    assert_eq!(matching.take_posted(&label(3, 7, 0)), Some(1));
    assert_eq!(matching.take_posted(&label(4, 7, 0)), None);
    assert_eq!(matching.take_posted(&label(3, 7, 0)), Some(3));
    assert_eq!(matching.take_posted(&label(3, 7, 0)), Some(4));
    assert_eq!(matching.posted_len(), 0);
}

/// As libfabric has it: bits that the mask ignores do not count, in the receive's tag either.
#[test]
fn a_mask_ignores_bits_of_both_tags() {
    let mut matching = Matching::<u32, u8>::default();
    let masked = |tag, ignore| pattern(Source::Any, TagMatch::Masked { tag: Tag::new(tag), ignore });
    matching.post(masked(0xab_cd, 0xff), 1);
    matching.post(masked(0xab_00, 0xff), 2);
    matching.post(masked(7, 0), 3);
    matching.post(masked(7, u64::MAX), 4);
    assert_eq!(matching.take_posted(&label(1, 0xab_01, 0)), Some(1));
    assert_eq!(matching.take_posted(&label(2, 7, 0)), Some(3));
    assert_eq!(matching.take_posted(&label(2, 8, 0)), Some(4));
    assert_eq!(matching.take_posted(&label(2, 0xac_01, 0)), None);
    assert_eq!(matching.take_posted(&label(2, 0xab_ff, 0)), Some(2));
}

/// More classes than are kept, each used once: they leave nothing behind.
#[test]
fn masks_that_are_used_once_take_no_memory() {
    let mut matching = Matching::<u64, u64>::default();
    for at in 0..8 {
        // The list is full.
        matching.post(pattern(Source::from(9), TagMatch::Any), at);
    }
    for ignore in 1..10_000 {
        let pattern = pattern(Source::Any, TagMatch::Masked { tag: Tag::new(ignore), ignore });
        for at in 0..8 {
            matching.keep(label(1, 1 << 40 | at, 0), at, 64, at);
        }
        assert_eq!(matching.take_unexpected(&pattern), None);
        assert!(matching.unexpected.classes() <= 3);
        for at in 0..8 {
            assert_eq!(matching.take_unexpected(&exactly(1, 1 << 40 | at)).map(|(_, mark)| mark), Some(at));
        }
        matching.post(pattern, ignore);
        assert_eq!(matching.take_posted(&label(3, 0, 0)), Some(ignore));
    }
    assert!(matching.receives.classes() <= 4);
    assert_eq!(matching.unexpected.classes(), 0, "no message waits");
}

/// A class has an index, and then messages come under other tags and are taken by exact receives: the index forgets them.
#[test]
fn messages_that_were_taken_do_not_pile_up_in_the_index_of_a_class() {
    let mut matching = Matching::<u32, u64>::default();
    let from_any = |tag| pattern(Source::Any, Tag::new(tag).into());
    for at in 0..100 {
        matching.keep(label(1, 1, 0), at, 64, at);
    }
    for at in 100..10_000 {
        if at % 1_000 == 100 {
            assert_eq!(matching.peek_unexpected(&from_any(2)), None);
            assert_eq!(matching.unexpected.indexed_messages(), 100);
        }
        matching.keep(label(2, at, 0), at, 64, at);
        assert_eq!(matching.take_unexpected(&exactly(2, at)).map(|(_, mark)| mark), Some(at));
        assert!(matching.unexpected.indexed_messages() < 500, "{}", matching.unexpected.indexed_messages());
    }
}

#[test]
fn messages_of_one_sender_do_not_overtake() {
    let mut matching = Matching::<u32, u8>::default();
    for (tag, mark) in [(1, 10), (2, 20), (1, 30)] {
        matching.keep(label(0, tag, 0), mark.into(), 64, mark);
    }
    let mut take = |tag| matching.take_unexpected(&pattern(Source::Any, tag)).map(|(_, mark)| mark);
    assert_eq!(take(TagMatch::Exact(Tag::new(2))), Some(20));
    assert_eq!(take(TagMatch::Any), Some(10));
    assert_eq!(take(TagMatch::Exact(Tag::new(1))), Some(30));
    assert_eq!((matching.unexpected_bytes(), matching.unexpected_len()), (0, 0));
}

#[test]
fn a_gone_peer_leaves_what_it_sent_in_full() {
    let mut matching = Matching::default();
    matching.post(pattern(Source::from(2), TagMatch::Any), 1);
    matching.post(pattern(Source::Any, Tag::new(99).into()), 2);
    matching.post(exactly(2, 99), 3);
    matching.keep(label(2, 1, 0), 1, 65, "whole");
    matching.keep(label(2, 1, 0), 2, 64, "announced");
    matching.keep(label(3, 1, 0), 3, 64, "announced");
    assert_eq!(matching.forget(2.into(), |body| *body == "announced"), [1, 3]);
    assert_eq!(matching.unexpected_bytes(), 65 + 64);
    assert_eq!(matching.take_unexpected(&exactly(2, 1)), Some((label(2, 1, 0), "whole")));
    assert_eq!(matching.take_unexpected(&exactly(2, 1)), None);
    assert_eq!(matching.take_unexpected(&exactly(3, 1)), Some((label(3, 1, 0), "announced")));
    assert_eq!(matching.drain_posted(PeerId::NONE), [2]);
}

#[test]
fn a_wildcard_does_not_reach_into_another_context() {
    let mut matching = Matching::<u32, u8>::default();
    matching.post(pattern(Source::Any, TagMatch::Any), 1);
    assert_eq!(matching.take_posted(&label(0, 0, 1)), None);
    matching.keep(label(0, 0, 1), 5, 64, 5);
    assert_eq!(matching.peek_unexpected(&pattern(Source::Any, TagMatch::Any)), None);
    let there = Pattern { context: Context::new(1), ..pattern(Source::Any, TagMatch::Any) };
    assert_eq!(matching.peek_unexpected(&there), Some((label(0, 0, 1), &5)));
}

#[test]
fn a_stale_handle_does_not_cancel_the_receive_that_took_its_slot() {
    let mut matching = Matching::<u32, ()>::default();
    let first = matching.post(exactly(0, 1), 1);
    assert_eq!(matching.take_posted(&label(0, 1, 0)), Some(1));
    assert_eq!(matching.cancel_posted(first), None);
    let second = matching.post(exactly(0, 1), 2);
    assert_eq!(matching.cancel_posted(first), None);
    assert_eq!(matching.cancel_posted(second), Some(2));
    assert_eq!(matching.cancel_posted(second), None);
    assert_eq!(matching.take_posted(&label(0, 1, 0)), None);
}

#[test]
fn a_withdrawn_send_is_the_one_that_its_sender_names() {
    let mut matching = Matching::<u32, u8>::default();
    for (source, mark) in [(1, 7), (2, 8), (1, 9), (2, 7)] {
        matching.keep(label(source, u64::from(mark), 0), mark.into(), 64, mark);
    }
    assert_eq!(matching.withdraw(1.into(), 9), Some((label(1, 9, 0), 9)));
    assert_eq!(matching.withdraw(1.into(), 8), None);
    assert_eq!(matching.withdraw(1.into(), 7), Some((label(1, 7, 0), 7)));
    assert_eq!(matching.unexpected_bytes(), 2 * 64);
}

/// Many sends are cancelled, in an order that has nothing to do with that of their coming, while others come and are received:
/// the names are gathered once.
#[test]
fn many_cancels_look_at_each_message_once() {
    let mut matching = Matching::<u32, u64>::default();
    let name = |at: u64| at * 7919 % 10_007;
    for at in 1..10_007 {
        matching.keep(label(1, 5, 0), at, 64, at);
    }
    for at in 1..10_007 {
        assert_eq!(matching.withdraw(1.into(), name(at)), Some((label(1, 5, 0), name(at))));
        assert_eq!(matching.withdraw(1.into(), name(at)), None);
        matching.keep(label(2, 5, 0), at, 64, at);
        assert_eq!(matching.take_unexpected(&exactly(2, 5)).map(|(_, mark)| mark), Some(at));
    }
    assert_eq!((matching.unexpected_len(), matching.unexpected.indexed), (0, 1));
    assert_eq!(matching.withdraw(1.into(), 5), None);
}

/// Tags that are used once leave no bin behind, and neither slots nor tables grow.
#[test]
fn tags_that_are_used_once_take_no_memory() {
    let mut matching = Matching::default();
    let round = |matching: &mut Matching<u64, u64>, tag: u64| {
        for source in 0..4 {
            matching.keep(label(source, tag, 0), tag, 64, tag);
            matching.post(exactly(source, !tag), tag);
        }
        for source in 0..4 {
            assert_eq!(matching.take_unexpected(&exactly(source, tag)), Some((label(source, tag, 0), tag)));
            assert_eq!(matching.take_posted(&label(source, !tag, 0)), Some(tag));
        }
    };
    (0..10_000).for_each(|tag| round(&mut matching, tag));
    for [slots, bins, room] in [matching.receives.footprint(), matching.unexpected.footprint()] {
        assert_eq!((slots, bins), (4, 0));
        assert!(room <= 16, "a table of at most four bins has room for {room}");
    }
}
