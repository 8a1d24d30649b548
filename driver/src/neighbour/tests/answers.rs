//! What we answer, and what not.

use super::*;

const SOLICITED_NODE: &str = "ff02::1:ff00:1";

#[test]
fn an_arp_request_for_us_is_answered() {
    let (verdict, replies) = feed(&mut ours(), 0, &who_has("10.0.0.1", None));
    assert_eq!(verdict, NeighbourVerdict::Arp);
    assert_eq!(
        replies,
        [{
            let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 6, 0, 1, 8, 0, 6, 4, 0, 2];
            frame.extend([2, 0, 0, 0, 0, 1, 10, 0, 0, 1, 2, 0, 0, 0, 0, 2, 10, 0, 0, 2]);
            frame.resize(60, 0);
            frame
        }]
    );
    assert_eq!(feed(&mut ours(), 0, &who_has("10.0.0.9", None)), ignored(Ignored::NotOurs));
}

#[test]
fn an_arp_probe_is_answered_and_not_learnt() {
    let mut us = ours();
    let probe = arp(1, (PEER, "0.0.0.0"), (MacAddr::default(), "10.0.0.1"), BROADCAST, None);
    assert_eq!(feed(&mut us, 0, &probe).1.len(), 1);
    assert!(us.table.mac(&super::super::table::NeighbourKey { ip: ip("0.0.0.0"), vlan: None }).is_none());
}

#[test]
fn the_vlan_of_a_question_is_the_vlan_of_its_answer() {
    let mut us = ours();
    let (verdict, replies) = feed(&mut us, 0, &who_has("10.7.0.1", Some(0xa007)));
    assert_eq!(verdict, NeighbourVerdict::Arp);
    assert_eq!(replies[0][12..18], [0x81, 0, 0xa0, 7, 8, 6]);
    let mut us = ours();
    assert_eq!(feed(&mut us, 0, &who_has("10.0.0.1", Some(7))), ignored(Ignored::NotOurs));
    assert_eq!(feed(&mut us, 0, &who_has("10.7.0.1", None)), ignored(Ignored::NotOurs));
    assert_eq!(feed(&mut us, 0, &who_has("10.7.0.1", Some(8))), ignored(Ignored::WrongVlan));
    // A priority alone is no VLAN.
    let (verdict, replies) = feed(&mut us, 0, &who_has("10.0.0.1", Some(0xa000)));
    assert_eq!((verdict, &replies[0][12..14]), (NeighbourVerdict::Arp, &[8, 6][..]));
}

#[test]
fn a_solicitation_for_us_is_answered() {
    let (verdict, replies) = feed(&mut ours(), 0, &solicit("2001:db8::2", SOLICITED_NODE, "2001:db8::1", Some(PEER)));
    assert_eq!(verdict, NeighbourVerdict::Ndp);
    let reply = &replies[0];
    assert_eq!(reply[..14], [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x86, 0xdd]);
    assert_eq!(reply[21], 255, "hop limit");
    assert_eq!(reply[22..38], v6("2001:db8::1").octets());
    assert_eq!(reply[38..54], v6("2001:db8::2").octets());
    assert_eq!((reply[54], reply[58]), (136, 0x60), "an advertisement, solicited, that overrides");
    assert_eq!(reply[62..78], v6("2001:db8::1").octets());
    assert_eq!(reply[78..], [2, 1, 2, 0, 0, 0, 0, 1]);
    assert_eq!(checksum_v6(reply), 0);
}

#[test]
fn our_link_local_address_is_ours() {
    let target = "fe80::ff:fe00:1";
    let (verdict, replies) = feed(&mut ours(), 0, &solicit("fe80::ff:fe00:2", SOLICITED_NODE, target, Some(PEER)));
    assert_eq!((verdict, replies.len()), (NeighbourVerdict::Ndp, 1));
}

#[test]
fn duplicate_address_detection_is_answered_to_everybody() {
    let (verdict, replies) = feed(&mut ours(), 0, &solicit("::", SOLICITED_NODE, "2001:db8::1", None));
    assert_eq!(verdict, NeighbourVerdict::Ndp);
    let reply = &replies[0];
    assert_eq!(reply[..6], [0x33, 0x33, 0, 0, 0, 1]);
    assert_eq!(reply[38..54], v6("ff02::1").octets());
    assert_eq!(reply[58], 0x20, "not solicited, overrides");
    assert_eq!(checksum_v6(reply), 0);
}

#[test]
fn a_solicitation_that_fails_a_check_is_not_answered() {
    let mut us = ours();
    let good = solicit("2001:db8::2", SOLICITED_NODE, "2001:db8::1", Some(PEER));
    let broken = |at: usize, value: u8, delta: u16| {
        let mut frame = good.clone();
        frame[at] = value;
        let sum = u16::from_be_bytes([frame[56], frame[57]]).wrapping_sub(delta);
        frame[56..58].copy_from_slice(&sum.to_be_bytes());
        frame
    };
    assert_eq!(feed(&mut us, 0, &broken(21, 254, 0)), ignored(Ignored::HopLimit));
    assert_eq!(feed(&mut us, 0, &broken(70, 1, 0)), ignored(Ignored::Checksum));
    assert_eq!(feed(&mut us, 0, &broken(55, 1, 1)), ignored(Ignored::Invalid), "the code");
    assert_eq!(feed(&mut us, 0, &broken(79, 0, 0xffff)), ignored(Ignored::Malformed), "an option without a length");
    let of_group = solicit("2001:db8::2", SOLICITED_NODE, "ff02::1", Some(PEER));
    assert_eq!(feed(&mut us, 0, &of_group), ignored(Ignored::Invalid));
    let probe_with_station = solicit("::", SOLICITED_NODE, "2001:db8::1", Some(PEER));
    assert_eq!(feed(&mut us, 0, &probe_with_station), ignored(Ignored::Invalid));
    let probe_elsewhere = solicit("::", "ff02::1", "2001:db8::1", None);
    assert_eq!(feed(&mut us, 0, &probe_elsewhere), ignored(Ignored::Invalid));
    let from_group = solicit("2001:db8::2", SOLICITED_NODE, "2001:db8::1", Some(BROADCAST));
    assert_eq!(feed(&mut us, 0, &from_group), ignored(Ignored::Invalid));
    assert_eq!(feed(&mut us, 0, &good).0, NeighbourVerdict::Ndp);
}

#[test]
fn a_ping_is_answered() {
    for len in [0, 1, 56, 1472, 8972] {
        let data: Vec<_> = (0..len).map(|at| at as u8).collect();
        let ping = ping4("10.0.0.1", &data);
        let (verdict, replies) = feed(&mut ours(), 0, &ping);
        assert_eq!(verdict, NeighbourVerdict::Echo);
        let reply = &replies[0];
        assert_eq!(reply.len(), ping.len());
        assert_eq!(reply[..14], [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0]);
        assert_eq!(reply[26..34], [10, 0, 0, 1, 10, 0, 0, 2]);
        assert_eq!((reply[34], reply[35], &reply[38..42]), (0, 0, &[0x12, 0x34, 0, 5][..]));
        assert_eq!(reply[42..42 + len], data);
        assert_eq!((checksum(&[&reply[14..34]]), checksum(&[&reply[34..42 + len]])), (0, 0));
    }
}

#[test]
fn a_ping_of_ipv6_is_answered() {
    for len in [0, 1, 56, 1452] {
        let data: Vec<_> = (0..len).map(|at| at as u8).collect();
        let (verdict, replies) = feed(&mut ours(), 0, &ping6("2001:db8::1", &data));
        assert_eq!(verdict, NeighbourVerdict::Echo);
        let reply = &replies[0];
        assert_eq!(reply[22..38], v6("2001:db8::1").octets());
        assert_eq!((reply[54], reply[55], &reply[58..62]), (129, 0, &[0x12, 0x34, 0, 5][..]));
        assert_eq!(reply[62..62 + len], data);
        assert_eq!(checksum_v6(reply), 0);
    }
}

#[test]
fn a_ping_with_ip_options_is_answered_without() {
    let plain = ping4("10.0.0.1", &[7; 40]);
    let mut ping = [&plain[..34], &[1; 4], &plain[34..]].concat();
    ping[14] = 0x46;
    ping[16..18].copy_from_slice(&72u16.to_be_bytes());
    ping[24..26].fill(0);
    let sum = checksum(&[&ping[14..38]]);
    ping[24..26].copy_from_slice(&sum.to_be_bytes());
    let (verdict, replies) = feed(&mut ours(), 0, &ping);
    assert_eq!((verdict, replies[0].len()), (NeighbourVerdict::Echo, plain.len()));
}

#[test]
fn a_ping_that_is_not_for_us_alone_is_not_answered() {
    let mut us = ours();
    let mut frame = ping4("10.0.0.1", b"x");
    frame[..6].fill(0xff);
    assert_eq!(feed(&mut us, 0, &frame), ignored(Ignored::NotOurs));
    assert_eq!(feed(&mut us, 0, &ping4("10.0.0.9", b"x")), ignored(Ignored::NotOurs));
    assert_eq!(feed(&mut us, 0, &ping6("ff02::1", b"x")), ignored(Ignored::NotOurs));
    let mut frame = ping4("10.0.0.1", b"x");
    frame[34 + 8] ^= 1;
    assert_eq!(feed(&mut us, 0, &frame), ignored(Ignored::Checksum));
    frame[5] = 9;
    assert_eq!(feed(&mut us, 0, &frame), ignored(Ignored::OtherStation));
    frame[6..12].copy_from_slice(&OURS.0);
    assert_eq!(feed(&mut us, 0, &frame), ignored(Ignored::OwnFrame));
}

#[test]
fn a_station_that_claims_our_address_is_not_believed() {
    let mut us = ours();
    let announced = arp(1, (PEER, "10.0.0.1"), (MacAddr::default(), "10.0.0.1"), BROADCAST, None);
    assert_eq!(feed(&mut us, 0, &announced), (NeighbourVerdict::Conflict, vec![]));
    let advertised = advertise("ff02::1", "2001:db8::1", Some(PEER), Flags::OVERRIDE);
    assert_eq!(feed(&mut us, 0, &advertised), (NeighbourVerdict::Conflict, vec![]));
    assert_eq!(us.resolve(0, ip("10.0.0.1"), None), Resolution::Known(OURS));
    assert_eq!(us.stats().conflict, 2);
}

#[test]
fn a_group_address_is_no_station() {
    let request = arp(1, (BROADCAST, "10.0.0.2"), (MacAddr::default(), "10.0.0.1"), BROADCAST, None);
    assert_eq!(feed(&mut ours(), 0, &request), ignored(Ignored::Invalid));
}
