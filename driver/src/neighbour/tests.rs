//! Scenarios: frames in, frames out, under a clock that the test moves.

mod answers;
mod arbitrary;
mod resolving;

use std::net::IpAddr;

use roci_protocol::Nanos;
use roci_protocol::wire::MacAddr;
use smoltcp::wire::{Icmpv4Repr, Icmpv6Repr, NdiscNeighborFlags as Flags, NdiscRepr};

use super::frame::{TxHeader, hardware};
use super::{Ignored, Interface, NeighbourConfig, NeighbourVerdict, Neighbours, Resolution, Unreachable};

const SECOND: Nanos = 1_000_000_000;
const OURS: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const PEER: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);
const THIRD: MacAddr = MacAddr([2, 0, 0, 0, 0, 3]);
const BROADCAST: MacAddr = MacAddr([0xff; 6]);

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn v4(text: &str) -> std::net::Ipv4Addr {
    text.parse().unwrap()
}

fn v6(text: &str) -> std::net::Ipv6Addr {
    text.parse().unwrap()
}

fn config(mac: MacAddr, host: &str) -> NeighbourConfig {
    let interface = |address: String, prefix, vlan| Interface { ip: ip(&address), prefix, vlan };
    NeighbourConfig {
        mac,
        interfaces: vec![
            interface(format!("10.0.0.{host}"), 24, None),
            interface(format!("2001:db8::{host}"), 64, Some(0)),
            interface(format!("10.7.0.{host}"), 24, Some(7)),
            interface(format!("2001:db8:7::{host}"), 64, Some(7)),
        ],
        gateway_v4: Some(v4("10.0.0.254")),
        gateway_v6: Some(v6("fe80::fe")),
        ..NeighbourConfig::default()
    }
}

fn ours() -> Neighbours {
    Neighbours::new(config(OURS, "1"))
}

fn peer() -> Neighbours {
    Neighbours::new(config(PEER, "2"))
}

/// Hands a frame in; the verdict and the replies.
fn feed(to: &mut Neighbours, now: Nanos, frame: &[u8]) -> (NeighbourVerdict, Vec<Vec<u8>>) {
    let mut replies = Vec::new();
    let verdict = to.on_frame(now, frame, |reply| replies.push(reply.to_vec()));
    (verdict, replies)
}

/// Lets the time reach `now`, and returns what is asked.
fn tick(on: &mut Neighbours, now: Nanos) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    on.on_timer(now, |frame| frames.push(frame.to_vec()));
    frames
}

fn ignored(reason: Ignored) -> (NeighbourVerdict, Vec<Vec<u8>>) {
    (NeighbourVerdict::Ignored(reason), Vec::new())
}

fn unreachable(reason: Unreachable) -> Resolution {
    Resolution::Unreachable(reason)
}

fn envelope(destination: MacAddr, tag: Option<u16>) -> TxHeader {
    TxHeader { source: PEER, destination, tag }
}

fn arp(operation: u16, sender: (MacAddr, &str), target: (MacAddr, &str), to: MacAddr, tag: Option<u16>) -> Vec<u8> {
    envelope(to, tag).arp(&smoltcp::wire::ArpRepr::EthernetIpv4 {
        operation: operation.into(),
        source_hardware_addr: hardware(sender.0),
        source_protocol_addr: v4(sender.1),
        target_hardware_addr: hardware(target.0),
        target_protocol_addr: v4(target.1),
    })
}

fn who_has(target: &str, tag: Option<u16>) -> Vec<u8> {
    let sender = if tag.is_some_and(|tag| tag & 0xfff != 0) { "10.7.0.2" } else { "10.0.0.2" };
    arp(1, (PEER, sender), (MacAddr::default(), target), BROADCAST, tag)
}

fn is_at(station: MacAddr, sender: &str) -> Vec<u8> {
    arp(2, (station, sender), (OURS, "10.0.0.1"), OURS, None)
}

fn solicit(source: &str, destination: &str, target: &str, station: Option<MacAddr>) -> Vec<u8> {
    let ask = NdiscRepr::NeighborSolicit { target_addr: v6(target), lladdr: station.map(|mac| hardware(mac).into()) };
    let to = super::ndp::group_station(v6(destination));
    envelope(to, None).icmpv6(v6(source), v6(destination), &Icmpv6Repr::Ndisc(ask))
}

fn advertise(destination: &str, target: &str, station: Option<MacAddr>, flags: Flags) -> Vec<u8> {
    let lladdr = station.map(|mac| hardware(mac).into());
    let advert = NdiscRepr::NeighborAdvert { flags, target_addr: v6(target), lladdr };
    envelope(OURS, None).icmpv6(v6("2001:db8::2"), v6(destination), &Icmpv6Repr::Ndisc(advert))
}

fn ping4(target: &str, data: &[u8]) -> Vec<u8> {
    let icmp = Icmpv4Repr::EchoRequest { ident: 0x1234, seq_no: 5, data };
    envelope(OURS, None).icmpv4(v4("10.0.0.2"), v4(target), &icmp)
}

fn ping6(target: &str, data: &[u8]) -> Vec<u8> {
    let icmp = Icmpv6Repr::EchoRequest { ident: 0x1234, seq_no: 5, data };
    envelope(OURS, None).icmpv6(v6("2001:db8::2"), v6(target), &icmp)
}

/// The Internet checksum (RFC 1071), by the book: over bytes that hold theirs it gives 0.
fn checksum(parts: &[&[u8]]) -> u16 {
    let word = |pair: &[u8]| u64::from(pair[0]) << 8 | pair.get(1).map_or(0, |&low| u64::from(low));
    let mut sum: u64 = parts.iter().flat_map(|part| part.chunks(2)).map(word).sum();
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    !(sum as u16)
}

/// The checksum of an ICMPv6 message in an untagged frame, with its pseudo header.
fn checksum_v6(frame: &[u8]) -> u16 {
    let len = usize::from(u16::from_be_bytes([frame[18], frame[19]]));
    checksum(&[&frame[22..54], &frame[18..20], &[0, 58], &frame[54..54 + len]])
}
