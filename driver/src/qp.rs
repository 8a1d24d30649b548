//! Queue pairs: handles, parameters, and the slab that holds them.

use std::collections::BTreeMap;
use std::net::IpAddr;

use rand::Rng;
use rand::rngs::StdRng;
use roci_protocol::rc::congestion::Algorithm;
use roci_protocol::rc::{self, Config, Dialect, State};
use roci_protocol::wire::{Flow, Inflow, Ip, MacAddr};
use roci_protocol::{Access, Mtu, Nanos, Psn, Qpn};
use thiserror::Error;

use crate::address::Address;
use crate::attendance::Attendance;
use crate::event::{Event, Events};
use crate::handles::{CmChannel, CompletionQueue, QueuePair, SharedReceiveQueue};
use crate::link::Share;
use crate::mem::{Buffer, PdId};

const INDEX_BITS: u32 = 14;
/// Bits of a number before the index: the queue's, where engines share a port, and a generation.
const NAME_BITS: u32 = 24 - INDEX_BITS;
const GENERATIONS: u32 = 1 << NAME_BITS;
/// Queue pairs of one engine.
const LIMIT: usize = 1 << INDEX_BITS;
/// The table grows by this part of itself: a queue pair takes more than two kilobytes, so doubling would hold much more memory
/// than is in use.
const GROWTH: usize = 8;

/// A queue pair that has a number but no peer: it can only be connected.
#[derive(Debug)]
pub struct UnconnectedQp {
    pub(crate) qp: QueuePair,
    pub(crate) port: usize,
    pub(crate) ip: IpAddr,
    pub(crate) pd: PdId,
    pub(crate) cq: CompletionQueue,
    pub(crate) psn: Psn,
    /// What its frames carry at most, as of when it was made: what its peer is given and what is connected must agree.
    pub(crate) mtu: Mtu,
    pub(crate) vlan: Option<u16>,
    pub(crate) shared: Option<SharedReceiveQueue>,
    /// The peer's, where the caller knows it.
    pub(crate) station: Option<MacAddr>,
    /// Where events of its connection go, should the connection manager make it.
    pub(crate) channel: CmChannel,
}

impl UnconnectedQp {
    /// The same, to be connected with a peer at this station, which needs no resolution.
    #[must_use]
    pub fn toward(self, station: MacAddr) -> Self {
        Self { station: Some(station), ..self }
    }

    /// The same. Events of the connection that [`Engine::cm_connect`](crate::Engine::cm_connect) makes of it go to `channel`.
    #[must_use]
    pub fn reporting_to(self, channel: CmChannel) -> Self {
        Self { channel, ..self }
    }

    /// The same, with packets of at most this MTU.
    #[must_use]
    pub fn with_mtu(self, at_most: Mtu) -> Self {
        Self { mtu: self.mtu.min(at_most), ..self }
    }

    /// The MTU that it can be connected with at most.
    pub const fn mtu(&self) -> Mtu {
        self.mtu
    }

    /// Whether it is on a port.
    pub const fn is_on(&self, port: usize) -> bool {
        self.port == port
    }

    /// The number that its peer will know it by.
    pub const fn qpn(&self) -> Qpn {
        self.qp.qpn()
    }

    /// The first PSN that it will send.
    pub const fn starting_psn(&self) -> Psn {
        self.psn
    }

    /// Sends from another PSN on than the random one that it was made with.
    pub const fn set_starting_psn(&mut self, psn: Psn) {
        self.psn = psn;
    }
}

/// Why two queue pairs were not connected.
#[derive(Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// All numbers are in use.
    #[error("the engine has no queue pair left")]
    NoQueuePair,
    /// The shared receive queue completes to another completion queue.
    #[error("a shared receive queue and its queue pairs use one completion queue")]
    OtherCompletionQueue,
    /// IPv4 here and IPv6 there.
    #[error("{0} and {1} are of different IP versions")]
    IpVersion(IpAddr, IpAddr),
    /// IBTA allows from one to less than 2^23 packets in flight.
    #[error("a window of {0} packets: from 1 to 8388607 can be in flight")]
    Window(u32),
    /// The link's frames are too short for any path MTU.
    #[error(
        "the link carries frames of {0} bytes, too short for the smallest path MTU (of a kernel's interface: ip link set IFACE mtu 1500)"
    )]
    LinkTooShort(usize),
}

/// How a queue pair behaves; both sides may differ but for the MTU, which is the smaller one.
///
/// The default is what verbs programs use: path MTU 1024, room for 128 sends and 512 receives, 16 READs, all rights for the peer,
/// a timeout of 67 ms, seven retries, RNR retries without end, [`Dialect::Verbs`]. What a peer may reach is what is registered in
/// the queue pair's protection domain. Two ends of this stack may both ask for [`Dialect::Rocinante`] and a longer path MTU.
#[derive(Clone, Debug)]
pub struct QpParams {
    /// The largest path MTU to use.
    pub mtu: Mtu,
    /// Work requests that the send queue holds.
    pub sq_depth: usize,
    /// Work requests that the receive queue holds.
    pub rq_depth: usize,
    /// Packets in flight.
    pub window: u32,
    /// READs in flight, in each direction, at most 255; the smaller of both sides' counts.
    pub max_rd_atomic: usize,
    /// What the peer may do.
    pub access: Access,
    /// The first wait for an answer.
    pub ack_timeout_ns: Nanos,
    /// The longest wait for an answer.
    pub ack_timeout_max_ns: Nanos,
    /// Waits before the peer is given up.
    pub retry_limit: u32,
    /// RNR NAKs before the peer is given up; `None` is for ever.
    pub rnr_retry_limit: Option<u32>,
    /// The wait that RNR NAKs of this side ask for, as a code (IBTA table 45).
    pub min_rnr_timer: u8,
    /// Wait for the peer's receives, as its acknowledgements tell of them.
    pub end_to_end_credits: bool,
    /// How to recover from loss, if the peer can do so too.
    pub dialect: Dialect,
    /// Whether packets carry an ICRC, and are dropped where it is wrong. Without, damage that no other layer finds goes
    /// unnoticed, and so it is only left out where the peer says the same when the two connect.
    pub icrc: bool,
    /// Who decides how much may be in flight, and when.
    pub congestion: Algorithm,
    /// The link's speed in bits per second, for congestion control by rate.
    pub link_rate: u64,
    /// DSCP and ECN of this side's packets. Who is asked by RDMA-CM takes the asker's.
    pub traffic_class: u8,
    /// The same of its congestion notifications, which should pass whatever queue they tell of. Where frames have a priority,
    /// theirs is the one that this DSCP names.
    pub cnp_traffic_class: u8,
    /// The IPv6 flow label, 20 bits. Who is asked by RDMA-CM takes the asker's.
    pub flow_label: u32,
    /// The 802.1p priority, 0 to 7. Other than 0 it takes a tag, of VLAN 0 where there is no VLAN.
    pub priority: u8,
}

/// What NICs send their congestion notifications with: network control (CS6).
const CNP_DSCP: u8 = 48;

impl Default for QpParams {
    fn default() -> Self {
        let Config { mtu, sq_depth, rq_depth, window, max_rd_atomic, access, .. } = Config::default();
        let Config { ack_timeout_ns, ack_timeout_max_ns, retry_limit, rnr_retry_limit, .. } = Config::default();
        let Config { min_rnr_timer, end_to_end_credits, .. } = Config::default();
        Self {
            mtu,
            sq_depth,
            rq_depth,
            window,
            max_rd_atomic,
            access,
            ack_timeout_ns,
            ack_timeout_max_ns,
            retry_limit,
            rnr_retry_limit,
            min_rnr_timer,
            end_to_end_credits,
            dialect: Dialect::Verbs,
            icrc: true,
            congestion: Algorithm::Unlimited,
            link_rate: Config::default().link_rate,
            traffic_class: 0,
            cnp_traffic_class: CNP_DSCP << 2,
            flow_label: 0,
            priority: 0,
        }
    }
}

impl QpParams {
    /// Whether a queue pair can be made of them.
    pub(crate) const fn check(&self) -> Result<(), ConnectError> {
        if self.window == 0 || self.window >= 1 << 23 { Err(ConnectError::Window(self.window)) } else { Ok(()) }
    }

    /// The header of this side's packets above Ethernet.
    pub(crate) const fn header(&self, ip: Ip) -> Ip {
        ip.with_traffic_class(self.congestion.traffic_class(self.traffic_class)).with_flow_label(self.flow_label)
    }

    /// The tag of this side's frames, if they have one (IEEE 802.1Q 9.6).
    pub(crate) fn tag(&self, vlan: Option<u16>) -> Option<u16> {
        if self.priority == 0 { vlan } else { Some(u16::from(self.priority & 7) << 13 | vlan.unwrap_or(0)) }
    }

    /// What both sides can do.
    pub(crate) fn config(&self, ours: &Address, peer: &Address, shared_receives: bool) -> Config {
        let max_rd_atomic = ours.max_rd_atomic.min(peer.max_rd_atomic).into();
        Config {
            dest_qpn: peer.qpn,
            mtu: ours.mtu.min(peer.mtu),
            sq_psn: ours.psn,
            rq_psn: peer.psn,
            max_rd_atomic,
            max_dest_rd_atomic: max_rd_atomic,
            dialect: ours.dialect.with(peer.dialect),
            ..self.base(shared_receives)
        }
    }

    /// What this side alone decides.
    pub(crate) fn base(&self, shared_receives: bool) -> Config {
        Config {
            sq_depth: self.sq_depth,
            rq_depth: self.rq_depth,
            window: self.window,
            access: self.access,
            ack_timeout_ns: self.ack_timeout_ns,
            ack_timeout_max_ns: self.ack_timeout_max_ns,
            retry_limit: self.retry_limit,
            rnr_retry_limit: self.rnr_retry_limit,
            min_rnr_timer: self.min_rnr_timer,
            end_to_end_credits: self.end_to_end_credits,
            congestion: self.congestion,
            link_rate: self.link_rate,
            shared_receives,
            ..Config::default()
        }
    }
}

/// A connected queue pair with all that it works on.
pub(crate) struct ConnectedQp {
    pub(crate) rc: rc::RcQueuePair<Buffer>,
    pub(crate) flow: Flow,
    /// What its peer's frames look like.
    pub(crate) inflow: Inflow,
    pub(crate) qp: QueuePair,
    pub(crate) port: usize,
    pub(crate) pd: PdId,
    pub(crate) cq: CompletionQueue,
    pub(crate) shared: Option<SharedReceiveQueue>,
    pub(crate) reported: Reported,
    /// A packet of its peer's has come in.
    pub(crate) was_seen: bool,
    pub(crate) attendance: Attendance,
    /// DSCP and ECN of its congestion notifications.
    pub(crate) cnp_class: u8,
}

/// Which events of a queue pair's state were queued.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Reported {
    /// That the send queue has drained.
    drained: bool,
    /// That the queue pair has failed.
    failed: bool,
}

impl Reported {
    /// Returns whether the event of a drained send queue is still to be queued, and notes it.
    fn drain(&mut self) -> bool {
        !std::mem::replace(&mut self.drained, true)
    }

    /// The same of the event of a failure. A queue pair that the application destroys queues none.
    pub(crate) fn fail(&mut self) -> bool {
        !std::mem::replace(&mut self.failed, true)
    }

    /// The send queue drains anew.
    pub(crate) fn drain_again(&mut self) {
        self.drained = false;
    }
}

impl ConnectedQp {
    /// The time to add to the wheel, where it would come too late as it is.
    #[inline]
    pub(crate) fn needs_waking(&mut self) -> Option<Nanos> {
        let deadline = self.rc.deadline()?;
        self.attendance.needs(deadline).then_some(deadline)
    }

    /// The wheel looks at it, as it had asked for at `at`; `false` where that is forgotten.
    pub(crate) fn wakes(&mut self, at: Nanos) -> bool {
        self.attendance.forget(at)
    }

    /// Queues the event, once, that the send queue has drained or that the queue pair has failed; returns whether it
    /// has just failed.
    pub(crate) fn tell_of_state(&mut self, events: &mut Events) -> bool {
        match self.rc.state() {
            State::Sqd if self.rc.is_drained() && self.reported.drain() => {
                events.push(Event::SendQueueDrained(self.qp));
                false
            }
            State::Error if self.reported.fail() => {
                events.push(Event::QueuePairFailed(self.qp));
                if self.shared.is_some() {
                    events.push(Event::LastReceiveTaken(self.qp));
                }
                true
            }
            _ => false,
        }
    }
}

/// All queue pairs of an engine: a number's low bits are the index here, its high bits a generation.
pub(crate) struct QpTable {
    slots: Vec<QpEntry>,
    free: Vec<u32>,
    /// Thrown for a new queue pair alone, and large.
    dice: Box<StdRng>,
    /// The names of peers, for the log, by queue pair.
    labels: BTreeMap<Qpn, Box<str>>,
}

/// An entry of the table; it is free without a queue pair.
struct QpEntry {
    generation: u32,
    /// What the number begins with while it is in use, made of the link's share and the generation.
    name: u32,
    slot: Option<ConnectedQp>,
}

impl QpEntry {
    /// Number 0 and 1 belong to management: no name is 0.
    fn rename(&mut self, share: Share) {
        let bits = NAME_BITS - share.bits();
        let generations = (1 << bits) - 1;
        self.name = u32::from(share.queue()) << bits | (self.generation % generations + 1);
    }
}

impl QpTable {
    pub(crate) fn new(dice: StdRng) -> Self {
        Self { slots: Vec::new(), free: Vec::new(), dice: Box::new(dice), labels: BTreeMap::new() }
    }

    /// A number for a new queue pair, one of those that lead to its link, and its first PSN; `None` where all are in use.
    pub(crate) fn reserve(&mut self, share: Share) -> Option<(QueuePair, Psn)> {
        let index = match self.free.pop() {
            Some(index) => index,
            None if self.slots.len() == LIMIT => return None,
            None => {
                let generation = self.dice.random_range(0..GENERATIONS);
                if self.slots.len() == self.slots.capacity() {
                    self.slots.reserve_exact(self.slots.len() / GROWTH + 1);
                }
                self.slots.push(QpEntry { generation, name: 0, slot: None });
                self.slots.len() as u32 - 1
            }
        };
        let entry = &mut self.slots[index as usize];
        entry.rename(share);
        let psn = Psn::new(self.dice.random());
        Some((QueuePair(Qpn::new(entry.name << INDEX_BITS | index)), psn))
    }

    pub(crate) fn occupy(&mut self, slot: ConnectedQp) {
        let index = Self::index(slot.qp.0);
        self.slots[index].slot = Some(slot);
    }

    /// Takes a queue pair out; its number is not valid again until the generations come round.
    pub(crate) fn vacate(&mut self, qp: QueuePair) -> Option<ConnectedQp> {
        let index = Self::index(qp.0);
        let entry = self.slots.get_mut(index).filter(|entry| entry.name == Self::name(qp.0))?;
        entry.name = 0;
        entry.generation = entry.generation.wrapping_add(1);
        self.free.push(index as u32);
        self.labels.remove(&qp.0);
        entry.slot.take()
    }

    /// Names the peer of a queue pair, where there is one.
    pub(crate) fn label(&mut self, qp: QueuePair, label: &str) {
        if self.get(qp.0).is_some() {
            self.labels.insert(qp.0, label.into());
        }
    }

    pub(crate) fn label_of(&self, qp: QueuePair) -> Option<&str> {
        self.labels.get(&qp.0).map(|label| &**label)
    }

    #[inline]
    pub(crate) fn get(&self, qpn: Qpn) -> Option<&ConnectedQp> {
        let entry = self.slots.get(Self::index(qpn)).filter(|entry| entry.name == Self::name(qpn))?;
        entry.slot.as_ref()
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, qpn: Qpn) -> Option<&mut ConnectedQp> {
        let entry = self.slots.get_mut(Self::index(qpn)).filter(|entry| entry.name == Self::name(qpn))?;
        entry.slot.as_mut()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &ConnectedQp> {
        self.slots.iter().filter_map(|entry| entry.slot.as_ref())
    }

    const fn index(qpn: Qpn) -> usize {
        (qpn.get() & ((1 << INDEX_BITS) - 1)) as usize
    }

    const fn name(qpn: Qpn) -> u32 {
        qpn.get() >> INDEX_BITS
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;
    use crate::link::MAX_QUEUES;

    #[test]
    fn a_number_names_its_queue_and_is_not_managements() {
        let mut slab = QpTable::new(StdRng::seed_from_u64(1));
        for queues in 1..=MAX_QUEUES {
            for queue in 0..queues {
                let share = Share::of(queue, queues);
                for _ in 0..3 * GENERATIONS {
                    let (qp, _) = slab.reserve(share).expect("room");
                    assert_eq!(share.owner(qp.0), queue);
                    assert!(qp.0.get() > 1);
                    slab.vacate(qp);
                }
            }
        }
    }

    #[test]
    fn a_number_that_was_given_back_comes_again_last_of_all() {
        for share in [Share::WHOLE, Share::of(1, 2), Share::of(7, 8)] {
            let mut slab = QpTable::new(StdRng::seed_from_u64(1));
            let mut numbers = Vec::new();
            for _ in 0..(GENERATIONS >> share.bits()) - 1 {
                let (qp, _) = slab.reserve(share).expect("room");
                assert!(slab.get(qp.0).is_none(), "reserved, and not connected");
                slab.vacate(qp);
                numbers.push(qp.0);
            }
            numbers.sort_unstable();
            assert!(numbers.windows(2).all(|pair| pair[0] != pair[1]), "{share:?}");
            let (again, _) = slab.reserve(share).expect("room");
            assert!(numbers.contains(&again.0));
        }
    }
}
