//! What we ask, what we believe, and what we forget.

use super::*;
use crate::neighbour::table::{LEARN_BURST, LEARN_EVERY};
use crate::neighbour::{HOLD_DOWN, MAX_LEARNT, MAX_PENDING, MAX_SOLICIT, REACHABLE_TIME, RETRANS_TIMER};

/// Asks for `address` at `now` and hands the question to `peer` and its answer back.
fn exchange(us: &mut Neighbours, peer: &mut Neighbours, now: Nanos, address: &str, vlan: Option<u16>) -> Vec<u8> {
    assert_eq!(us.resolve(now, ip(address), vlan), Resolution::Pending);
    let [question] = tick(us, now).try_into().expect("one question");
    let (_, answers) = feed(peer, now, &question);
    assert_eq!(feed(us, now, &answers[0]).1, Vec::<Vec<u8>>::new());
    question
}

/// Makes a neighbour known at the time 0 by its answer.
fn acquainted() -> Neighbours {
    let mut us = ours();
    exchange(&mut us, &mut peer(), 0, "10.0.0.2", None);
    us
}

fn peer_in(us: &mut Neighbours, now: Nanos) -> Resolution {
    us.resolve(now, ip("10.0.0.2"), None)
}

#[test]
fn arp_finds_a_peer_and_the_peer_finds_us() {
    let (mut us, mut peer) = (ours(), peer());
    let question = exchange(&mut us, &mut peer, 0, "10.0.0.2", None);
    assert_eq!((&question[..6], question.len()), (&[0xff; 6][..], 60));
    assert_eq!(us.resolve(0, ip("10.0.0.2"), None), Resolution::Known(PEER));
    assert_eq!(peer.resolve(0, ip("10.0.0.1"), None), Resolution::Known(OURS), "it was asked by us");
    assert_eq!(us.deadline(), None);
}

#[test]
fn neighbour_discovery_finds_a_peer_and_the_peer_finds_us() {
    let (mut us, mut peer) = (ours(), peer());
    let question = exchange(&mut us, &mut peer, 0, "2001:db8::2", None);
    assert_eq!(question[..6], [0x33, 0x33, 0xff, 0, 0, 2]);
    assert_eq!((question[21], question[38..54].to_vec()), (255, v6("ff02::1:ff00:2").octets().to_vec()));
    assert_eq!(checksum_v6(&question), 0);
    assert_eq!(us.resolve(0, ip("2001:db8::2"), None), Resolution::Known(PEER));
    assert_eq!(peer.resolve(0, ip("2001:db8::1"), None), Resolution::Known(OURS));
}

#[test]
fn a_question_goes_out_on_its_vlan() {
    let (mut us, mut peer) = (ours(), peer());
    for address in ["10.7.0.2", "2001:db8:7::2", "fe80::ff:fe00:2"] {
        let question = exchange(&mut us, &mut peer, 0, address, Some(7));
        assert_eq!(question[12..16], [0x81, 0, 0, 7]);
        assert_eq!(us.resolve(0, ip(address), Some(7)), Resolution::Known(PEER));
    }
    assert_eq!(us.resolve(0, ip("fe80::ff:fe00:2"), None), Resolution::Pending, "another link");
    assert_eq!(us.resolve(0, ip("10.0.0.2"), Some(8)), unreachable(Unreachable::NoRoute));
}

#[test]
fn what_is_off_the_link_goes_to_the_gateway() {
    let mut us = ours();
    assert_eq!(us.resolve(0, ip("192.0.2.1"), None), Resolution::Pending);
    assert_eq!(tick(&mut us, 0)[0][38..42], [10, 0, 0, 254]);
    feed(&mut us, 0, &is_at(THIRD, "10.0.0.254"));
    assert_eq!(us.resolve(0, ip("192.0.2.1"), None), Resolution::Known(THIRD));
    assert_eq!(us.resolve(0, ip("198.51.100.1"), None), Resolution::Known(THIRD));
    assert_eq!(us.resolve(0, ip("2001:db9::1"), None), Resolution::Pending);
    assert_eq!(tick(&mut us, 0)[0][62..78], v6("fe80::fe").octets());
    // The gateway is not on this VLAN's link.
    assert_eq!(us.resolve(0, ip("192.0.2.1"), Some(7)), unreachable(Unreachable::NoRoute));
    let mut stranded = Neighbours::new(NeighbourConfig { gateway_v4: None, ..config(OURS, "1") });
    assert_eq!(stranded.resolve(0, ip("192.0.2.1"), None), unreachable(Unreachable::NoRoute));
}

#[test]
fn only_one_host_is_resolved() {
    for group in ["0.0.0.0", "255.255.255.255", "224.0.0.1", "::", "ff02::1", "127.0.0.1"] {
        assert_eq!(ours().resolve(0, ip(group), None), unreachable(Unreachable::NotUnicast));
    }
}

#[test]
fn a_static_neighbour_is_never_overruled() {
    let fixed = vec![(ip("10.0.0.2"), THIRD), (ip("2001:db8::2"), THIRD), (ip("10.0.0.254"), THIRD)];
    let mut us = Neighbours::new(NeighbourConfig { fixed, ..config(OURS, "1") });
    assert_eq!(feed(&mut us, 0, &is_at(PEER, "10.0.0.2")).0, NeighbourVerdict::Conflict);
    let advert = advertise("2001:db8::1", "2001:db8::2", Some(PEER), Flags::SOLICITED | Flags::OVERRIDE);
    assert_eq!(feed(&mut us, 0, &advert).0, NeighbourVerdict::Conflict);
    let (verdict, replies) = feed(&mut us, 0, &who_has("10.0.0.1", None));
    assert_eq!((verdict, replies.len()), (NeighbourVerdict::Conflict, 1), "not believed, and still answered");
    for address in ["10.0.0.2", "2001:db8::2", "192.0.2.1"] {
        assert_eq!(us.resolve(0, ip(address), None), Resolution::Known(THIRD));
    }
    assert_eq!((us.stats().conflict, us.deadline()), (3, None));
}

#[test]
fn a_question_without_an_answer_is_repeated_given_up_and_taken_up_again() {
    let mut us = ours();
    assert_eq!(peer_in(&mut us, 5), Resolution::Pending);
    for round in 0..Nanos::from(MAX_SOLICIT) {
        let at = 5 + round * RETRANS_TIMER;
        assert_eq!(us.deadline(), Some(at));
        assert!(tick(&mut us, at.saturating_sub(1)).is_empty());
        assert_eq!(tick(&mut us, at).len(), 1);
        assert_eq!(peer_in(&mut us, at), Resolution::Pending);
    }
    let end = us.deadline().unwrap();
    assert_eq!(end, 5 + 3 * SECOND);
    assert!(tick(&mut us, end).is_empty());
    assert_eq!(peer_in(&mut us, end), unreachable(Unreachable::NoAnswer));
    assert_eq!(peer_in(&mut us, end + HOLD_DOWN - 1), unreachable(Unreachable::NoAnswer));
    assert_eq!(peer_in(&mut us, end + HOLD_DOWN), Resolution::Pending);
    assert_eq!(tick(&mut us, end + HOLD_DOWN).len(), 1);
    assert_eq!((us.stats().unanswered, us.stats().tx_requests), (1, 4));
}

#[test]
fn the_hold_down_ends_by_itself() {
    let mut us = ours();
    peer_in(&mut us, 0);
    (0..5).for_each(|second| drop(tick(&mut us, second * SECOND)));
    assert_eq!(us.deadline(), None);
}

#[test]
fn a_late_answer_is_still_one() {
    let mut us = ours();
    peer_in(&mut us, 0);
    (0..4).for_each(|second| drop(tick(&mut us, second * SECOND)));
    assert_eq!(feed(&mut us, 3 * SECOND, &is_at(PEER, "10.0.0.2")).0, NeighbourVerdict::Arp);
    assert_eq!(peer_in(&mut us, 3 * SECOND), Resolution::Known(PEER));
}

#[test]
fn a_stale_entry_is_used_while_it_is_refreshed() {
    let mut us = acquainted();
    assert_eq!(peer_in(&mut us, REACHABLE_TIME - 1), Resolution::Known(PEER));
    assert_eq!(us.deadline(), None);
    assert_eq!(peer_in(&mut us, REACHABLE_TIME), Resolution::Known(PEER));
    let question = &tick(&mut us, REACHABLE_TIME)[0];
    assert_eq!(question[..6], PEER.0, "asked alone");
    let (_, answers) = feed(&mut peer(), REACHABLE_TIME, question);
    feed(&mut us, REACHABLE_TIME, &answers[0]);
    assert_eq!((us.deadline(), peer_in(&mut us, REACHABLE_TIME)), (None, Resolution::Known(PEER)));
    assert_eq!(us.deadline(), None, "fresh again");
}

#[test]
fn a_stale_entry_without_an_answer_is_dropped() {
    let mut us = acquainted();
    for second in 0..3 {
        let now = REACHABLE_TIME + second * SECOND;
        assert_eq!(peer_in(&mut us, now), Resolution::Known(PEER));
        assert_eq!(tick(&mut us, now).len(), 1);
    }
    let end = REACHABLE_TIME + 3 * SECOND;
    assert!(tick(&mut us, end).is_empty());
    assert_eq!(peer_in(&mut us, end), Resolution::Pending);
    assert_eq!(tick(&mut us, end)[0][..6], [0xff; 6], "asked of everybody");
}

#[test]
fn an_advertisement_without_a_station_confirms_the_known_one() {
    let mut us = ours();
    exchange(&mut us, &mut peer(), 0, "2001:db8::2", None);
    us.resolve(REACHABLE_TIME, ip("2001:db8::2"), None);
    let question = &tick(&mut us, REACHABLE_TIME)[0];
    assert_eq!((&question[..6], &question[38..54]), (&PEER.0[..], &v6("2001:db8::2").octets()[..]));
    let advert = advertise("2001:db8::1", "2001:db8::2", None, Flags::SOLICITED);
    assert_eq!(feed(&mut us, REACHABLE_TIME, &advert).0, NeighbourVerdict::Ndp);
    assert_eq!(us.deadline(), None);
}

#[test]
fn an_advertisement_is_checked() {
    let mut us = ours();
    us.resolve(0, ip("2001:db8::2"), None);
    let to_group = advertise("ff02::1", "2001:db8::2", Some(PEER), Flags::SOLICITED);
    assert_eq!(feed(&mut us, 0, &to_group), ignored(Ignored::Invalid));
    let of_group = advertise("2001:db8::1", "ff02::2", Some(PEER), Flags::SOLICITED);
    assert_eq!(feed(&mut us, 0, &of_group), ignored(Ignored::Invalid));
    let mut routed = advertise("2001:db8::1", "2001:db8::2", Some(PEER), Flags::SOLICITED);
    routed[21] = 64;
    assert_eq!(feed(&mut us, 0, &routed), ignored(Ignored::HopLimit));
    let anonymous = advertise("2001:db8::1", "2001:db8::2", None, Flags::SOLICITED);
    assert_eq!(feed(&mut us, 0, &anonymous), ignored(Ignored::NotOurs));
    assert_eq!(us.resolve(0, ip("2001:db8::2"), None), Resolution::Pending);
}

#[test]
fn an_advertisement_that_does_not_override_only_casts_doubt() {
    let mut us = ours();
    exchange(&mut us, &mut peer(), 0, "2001:db8::2", None);
    feed(&mut us, 1, &advertise("ff02::1", "2001:db8::2", Some(THIRD), Flags::empty()));
    assert_eq!(us.resolve(1, ip("2001:db8::2"), None), Resolution::Known(PEER));
    assert_eq!(tick(&mut us, 1).len(), 1, "so it is asked for again");
}

#[test]
fn a_gratuitous_arp_moves_a_peer_and_makes_none() {
    let moved = arp(1, (THIRD, "10.0.0.2"), (MacAddr::default(), "10.0.0.2"), BROADCAST, None);
    assert_eq!(feed(&mut ours(), 0, &moved), ignored(Ignored::NotOurs));
    let mut us = acquainted();
    assert_eq!(feed(&mut us, 1, &moved).0, NeighbourVerdict::Arp);
    assert_eq!(peer_in(&mut us, 1), Resolution::Known(THIRD));
    assert_eq!(tick(&mut us, 1)[0][..6], THIRD.0, "it is not confirmed yet");
}

#[test]
fn an_unsolicited_answer_makes_no_entry() {
    let mut us = ours();
    assert_eq!(feed(&mut us, 0, &is_at(PEER, "10.0.0.2")), ignored(Ignored::NotOurs));
    assert_eq!(peer_in(&mut us, 0), Resolution::Pending);
}

#[test]
fn a_station_off_the_link_is_answered_and_not_remembered() {
    let mut us = ours();
    let foreign = arp(1, (PEER, "192.0.2.9"), (MacAddr::default(), "10.0.0.1"), BROADCAST, None);
    assert_eq!(feed(&mut us, 0, &foreign).1.len(), 1);
    assert!(us.table.mac(&super::super::table::NeighbourKey { ip: ip("192.0.2.9"), vlan: None }).is_none());
}

#[test]
fn only_so_many_are_asked_for_at_a_time() {
    let mut us = ours();
    let stranger = |number: usize| ip(&format!("10.0.0.{}", 100 + number));
    for number in 0..MAX_PENDING {
        assert_eq!(us.resolve(0, stranger(number), None), Resolution::Pending);
    }
    assert_eq!(us.resolve(0, stranger(MAX_PENDING), None), unreachable(Unreachable::TooMany));
    assert_eq!(us.stats().too_many, 1);
    (0..4).for_each(|second| drop(tick(&mut us, second * SECOND)));
    assert_eq!(us.resolve(3 * SECOND, stranger(1), None), unreachable(Unreachable::NoAnswer));
    assert_eq!(us.resolve(3 * SECOND, stranger(MAX_PENDING), None), Resolution::Pending, "in place of a failed one");
}

#[test]
fn a_full_table_forgets_who_was_never_confirmed_before_who_was_long_ago() {
    let wide = Interface { ip: ip("10.0.0.1"), prefix: 8, vlan: None };
    let mut us = Neighbours::new(NeighbourConfig { interfaces: vec![wide], ..config(OURS, "1") });
    us.resolve(0, ip("10.0.0.2"), None);
    tick(&mut us, 0);
    feed(&mut us, 0, &is_at(PEER, "10.0.0.2"));
    assert_eq!(us.resolve(0, ip("10.0.0.3"), None), Resolution::Pending);
    for number in 0..MAX_LEARNT + 10 {
        let asker = format!("10.1.{}.{}", number / 200, number % 200 + 1);
        let request = arp(1, (THIRD, &asker), (MacAddr::default(), "10.0.0.1"), BROADCAST, None);
        assert_eq!(feed(&mut us, number as Nanos * LEARN_EVERY, &request).1.len(), 1);
    }
    assert_eq!(us.stats().evicted, 11);
    assert_eq!(us.resolve(1, ip("10.0.0.2"), None), Resolution::Known(PEER));
    assert_eq!(us.resolve(1, ip("10.0.0.3"), None), Resolution::Pending);
}

#[test]
fn a_flood_of_questions_is_answered_and_teaches_little() {
    let wide = Interface { ip: ip("10.0.0.1"), prefix: 8, vlan: None };
    let mut us = Neighbours::new(NeighbourConfig { interfaces: vec![wide], ..config(OURS, "1") });
    us.resolve(0, ip("10.0.0.2"), None);
    tick(&mut us, 0);
    for number in 0..1000 {
        let asker = format!("10.1.{}.{}", number / 200, number % 200 + 1);
        feed(&mut us, SECOND, &arp(1, (THIRD, &asker), (MacAddr::default(), "10.0.0.1"), BROADCAST, None));
    }
    assert_eq!(us.stats().too_fast, 1000 - LEARN_BURST);
    feed(&mut us, SECOND, &is_at(PEER, "10.0.0.2"));
    assert_eq!(us.resolve(SECOND, ip("10.0.0.2"), None), Resolution::Known(PEER), "we have asked for it");
}

#[test]
fn the_end_of_time_is_no_panic() {
    let mut us = ours();
    peer_in(&mut us, Nanos::MAX);
    (0..5).for_each(|_| drop(tick(&mut us, Nanos::MAX)));
}
