//! Neighbours: which station has an address, and what a peer's kernel needs before it can reach us.
//!
//! [`Neighbours`] is sans-IO: frames and the time go in, frames come out of a closure, and no link is known. It
//! answers ARP (RFC 826), neighbour solicitations (RFC 4861) and pings for our addresses, and resolves the
//! station of a peer or of the gateway on the way to it. What it does with a frame is a [`NeighbourVerdict`], and each
//! verdict is one counter of [`NeighbourStats`].
//!
//! # Limits
//! [`MAX_LEARNT`] addresses are remembered; a further one takes the place of the one confirmed longest ago.
//! [`MAX_PENDING`] are asked for at a time; a further one is [`Unreachable::TooMany`]. A question is asked
//! [`MAX_SOLICIT`] times, then the address is [`Unreachable::NoAnswer`].
//!
//! # Trust
//! Neither protocol knows who speaks. A static neighbour is therefore never overruled by the wire; other
//! stations enter the table only where we asked or where they ask for us, as RFC 826 has it; and only an answer
//! to a question of ours confirms an entry.

mod arp;
mod frame;
mod icmp;
mod local;
mod ndp;
mod stats;
mod table;
#[cfg(test)]
mod tests;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use roci_protocol::Nanos;
use roci_protocol::wire::MacAddr;
use roci_protocol::wire::ethernet::{ETHERTYPE_IPV4, ETHERTYPE_IPV6};

pub use stats::{Ignored, NeighbourStats, NeighbourVerdict};
pub use table::{HOLD_DOWN, MAX_LEARNT, MAX_PENDING, MAX_SOLICIT, REACHABLE_TIME, RETRANS_TIMER};

use frame::{ETHERTYPE_ARP, RxHeader};
use local::{Local, is_group, is_unicast_ip, is_unicast_mac};
use table::{Claim, NeighbourKey, NeighbourRequest, NeighbourTable};

/// One address of ours.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Interface {
    /// The address.
    pub ip: IpAddr,
    /// How many of its leading bits are those of every station on the link; more than there are counts as all.
    pub prefix: u8,
    /// The VLAN that it is on; `None` and VLAN 0 are the untagged one.
    pub vlan: Option<u16>,
}

impl Interface {
    /// Whether a host is on the link that this address is on.
    pub fn reaches(&self, ip: IpAddr) -> bool {
        local::covers(self, ip)
    }
}

/// The configuration of [`Neighbours`].
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NeighbourConfig {
    /// Our station address.
    pub mac: MacAddr,
    /// Our addresses. Where one is IPv6, the link-local address made of `mac` is ours too.
    pub interfaces: Vec<Interface>,
    /// Static neighbours: stations that are never asked for, on whatever VLAN.
    pub fixed: Vec<(IpAddr, MacAddr)>,
    /// The way to IPv4 addresses off the link.
    pub gateway_v4: Option<Ipv4Addr>,
    /// The way to IPv6 addresses off the link.
    pub gateway_v6: Option<Ipv6Addr>,
}

/// What is known of the way to an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Resolution {
    /// Frames for it go to this station.
    Known(MacAddr),
    /// The question is on its way: ask again after the next frames or timers.
    Pending,
    /// Nowhere to send frames to.
    Unreachable(Unreachable),
}

/// Why there is no way to an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Unreachable {
    /// On no link of ours, and no gateway leads there.
    #[error("no route: neither on our links nor behind a gateway")]
    NoRoute,
    /// A group, or no address at all.
    #[error("not the address of one host")]
    NotUnicast,
    /// Every question went unanswered; a new attempt may begin after [`HOLD_DOWN`].
    #[error("no answer to ARP or neighbour discovery")]
    NoAnswer,
    /// [`MAX_PENDING`] others are being asked for.
    #[error("too many addresses are being resolved")]
    TooMany,
}

/// The neighbours of one port.
#[derive(Debug)]
pub struct Neighbours {
    local: Local,
    table: NeighbourTable,
    stats: NeighbourStats,
}

/// What became of a frame that was understood.
struct Handled {
    verdict: NeighbourVerdict,
    reply: Option<Vec<u8>>,
}

/// What became of a claim that a station has an address.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Learnt {
    /// It is in the table.
    Used,
    /// It concerns no address that is known here.
    Nothing,
    /// It contradicts a static neighbour.
    AgainstFixed,
    /// Another station says that it has our address.
    AgainstUs,
}

impl Handled {
    /// A frame that carried a claim, and may have asked too.
    fn conclude(good: NeighbourVerdict, learnt: Learnt, reply: Option<Vec<u8>>) -> Result<Self, Ignored> {
        let verdict = match learnt {
            Learnt::AgainstFixed | Learnt::AgainstUs => NeighbourVerdict::Conflict,
            Learnt::Nothing if reply.is_none() => return Err(Ignored::NotOurs),
            Learnt::Used | Learnt::Nothing => good,
        };
        Ok(Self { verdict, reply })
    }
}

impl Neighbours {
    /// Returns a table that holds only the static neighbours.
    pub fn new(config: NeighbourConfig) -> Self {
        Self { local: Local::new(config), table: NeighbourTable::default(), stats: NeighbourStats::default() }
    }

    /// Looks at a frame that is no RoCEv2 packet, and emits the reply where it deserves one.
    ///
    /// An echo reply is no longer than its request, or than the shortest Ethernet frame; any other frame that
    /// this type emits has at most 90 bytes.
    pub fn on_frame(&mut self, now: Nanos, frame: &[u8], mut emit: impl FnMut(&[u8])) -> NeighbourVerdict {
        let verdict = match self.handle(now, frame) {
            Ok(Handled { verdict, reply }) => {
                if let Some(reply) = reply {
                    emit(&reply);
                }
                verdict
            }
            Err(reason) => NeighbourVerdict::Ignored(reason),
        };
        self.stats.count(verdict);
        verdict
    }

    /// The station that frames for `ip` go to. A question that this raises is asked by the next
    /// [`Self::on_timer`], which is due at once.
    ///
    /// An address of ours gives our own station. What was not confirmed for [`REACHABLE_TIME`] is still good, and asked for again meanwhile.
    pub fn resolve(&mut self, now: Nanos, ip: IpAddr, vlan: Option<u16>) -> Resolution {
        let vlan = local::vlan_of(vlan);
        if !is_unicast_ip(ip) {
            return Resolution::Unreachable(Unreachable::NotUnicast);
        }
        if let Some(mac) = self.local.certain(ip, vlan) {
            return Resolution::Known(mac);
        }
        let Some(hop) = self.local.next_hop(ip, vlan) else {
            return Resolution::Unreachable(Unreachable::NoRoute);
        };
        match self.local.certain(hop, vlan) {
            Some(mac) => Resolution::Known(mac),
            None => self.table.resolve(now, NeighbourKey { ip: hop, vlan }, &mut self.stats),
        }
    }

    /// Asks what is due, and gives up on those who were asked often enough.
    pub fn on_timer(&mut self, now: Nanos, mut emit: impl FnMut(&[u8])) {
        for request in self.table.due(now, &mut self.stats) {
            if let Some(frame) = self.request(&request) {
                self.stats.tx_requests += 1;
                emit(&frame);
            }
        }
    }

    /// When [`Self::on_timer`] is next due.
    pub fn deadline(&self) -> Option<Nanos> {
        self.table.deadline()
    }

    /// The counters.
    pub const fn stats(&self) -> &NeighbourStats {
        &self.stats
    }

    fn handle(&mut self, now: Nanos, frame: &[u8]) -> Result<Handled, Ignored> {
        let (from, payload) = RxHeader::parse(frame)?;
        if from.source == self.local.mac() {
            return Err(Ignored::OwnFrame);
        }
        if from.destination != self.local.mac() && !is_group(from.destination) {
            return Err(Ignored::OtherStation);
        }
        if !self.local.has_vlan(from.vlan) {
            return Err(Ignored::WrongVlan);
        }
        match from.ethertype {
            ETHERTYPE_ARP => self.on_arp(now, &from, payload),
            ETHERTYPE_IPV4 => self.on_ipv4(&from, payload),
            ETHERTYPE_IPV6 => self.on_ipv6(now, &from, payload),
            _ => Err(Ignored::OtherProtocol),
        }
    }

    /// Takes a claim for what it is worth.
    fn learn(&mut self, now: Nanos, key: NeighbourKey, claim: Claim) -> Learnt {
        if self.local.owns(key.ip, key.vlan) {
            return Learnt::AgainstUs;
        }
        if let Some(mac) = self.local.fixed(key.ip) {
            return if mac == claim.mac { Learnt::Nothing } else { Learnt::AgainstFixed };
        }
        // No other station may have our station address: frames for that peer would come back to us.
        let is_plausible = is_unicast_mac(claim.mac) && claim.mac != self.local.mac() && is_unicast_ip(key.ip);
        if !is_plausible || self.local.source_for(key.ip, key.vlan).is_none() {
            return Learnt::Nothing;
        }
        let is_used = self.table.learn(now, key, claim, &mut self.stats);
        if is_used { Learnt::Used } else { Learnt::Nothing }
    }

    /// The frame that asks; `None` where no address of ours could ask.
    fn request(&self, request: &NeighbourRequest) -> Option<Vec<u8>> {
        let source = self.local.source_for(request.key.ip, request.key.vlan)?;
        match (source, request.key.ip) {
            (IpAddr::V4(source), IpAddr::V4(target)) => Some(self.arp_request(request, source, target)),
            (IpAddr::V6(source), IpAddr::V6(target)) => Some(self.solicitation(request, source, target)),
            _ => None,
        }
    }
}
