//! The table: who has which address, since when, and what is being asked.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use roci_protocol::Nanos;
use roci_protocol::wire::MacAddr;

use super::{NeighbourStats, Resolution, Unreachable};

/// Addresses that are remembered; static neighbours do not count.
pub const MAX_LEARNT: usize = 1024;
/// Addresses that are asked for at a time.
pub const MAX_PENDING: usize = 64;
/// The shortest interval at which unsolicited stations are learnt, and how many at once: a flood of requests costs the
/// poll loop no more.
pub(super) const LEARN_EVERY: Nanos = 1_000_000;
pub(super) const LEARN_BURST: u64 = 64;
/// How often a question is asked (RFC 4861 10: MAX_MULTICAST_SOLICIT, MAX_UNICAST_SOLICIT).
pub const MAX_SOLICIT: u8 = 3;
/// How long a question waits for its answer (RFC 4861 10: RETRANS_TIMER).
pub const RETRANS_TIMER: Nanos = 1_000_000_000;
/// How long an unanswered address is not asked for again.
pub const HOLD_DOWN: Nanos = 1_000_000_000;
/// How long an answer is good. Twice RFC 4861's REACHABLE_TIME: a station's address is asked for when a
/// connection is made, and a wrong one shows in the retries of the transport.
pub const REACHABLE_TIME: Nanos = 60_000_000_000;

/// An address and the VLAN that it is on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct NeighbourKey {
    pub(super) ip: IpAddr,
    pub(super) vlan: Option<u16>,
}

/// Somebody said that a station has an address.
#[derive(Clone, Copy)]
pub(super) struct Claim {
    pub(super) mac: MacAddr,
    pub(super) evidence: Evidence,
    /// Whether it may overrule what is known (RFC 4861 4.4: the override flag).
    pub(super) is_override: bool,
}

/// What a claim is worth.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Evidence {
    /// It answers us: it confirms, where we did ask.
    Answer,
    /// It comes with a question for us: worth an entry, as the asker will want to hear more from us.
    Question,
    /// It was said to everybody: an entry may change by it, and none is made.
    Hearsay,
}

/// An ARP request or neighbour solicitation to send.
pub(super) struct NeighbourRequest {
    pub(super) key: NeighbourKey,
    /// The station to ask; everybody, where none is known.
    pub(super) mac: Option<MacAddr>,
}

/// The state of one neighbour's address.
#[derive(Clone, Copy, Debug)]
enum NeighbourEntry {
    /// Asked for, and not known.
    Pending(Probe),
    /// Asked for in vain, and not to be asked for before this.
    Failed(Nanos),
    Known(Known),
}

#[derive(Clone, Copy, Debug)]
struct Known {
    mac: MacAddr,
    /// When a question of ours was last answered.
    confirmed: Option<Nanos>,
    refresh: Option<Probe>,
}

/// A question that repeats.
#[derive(Clone, Copy, Debug)]
struct Probe {
    due: Nanos,
    sent: u8,
}

/// The entries, with the order in which they are due, so that no call walks over all of them.
#[derive(Debug, Default)]
pub(super) struct NeighbourTable {
    entries: BTreeMap<NeighbourKey, NeighbourEntry>,
    /// Those that want something, by when.
    deadlines: BTreeSet<(Nanos, NeighbourKey)>,
    /// Those that are known, by when they were confirmed.
    known: BTreeSet<(Option<Nanos>, NeighbourKey)>,
    failed: BTreeSet<NeighbourKey>,
    /// When the next unsolicited station may be learnt.
    learns_at: Nanos,
}

impl NeighbourTable {
    pub(super) fn resolve(&mut self, now: Nanos, key: NeighbourKey, stats: &mut NeighbourStats) -> Resolution {
        match self.entries.get(&key) {
            Some(&NeighbourEntry::Known(known)) => {
                if known.refresh.is_none() && !known.is_fresh(now) {
                    self.put(key, NeighbourEntry::Known(Known { refresh: Some(Probe::new(now)), ..known }));
                }
                Resolution::Known(known.mac)
            }
            Some(NeighbourEntry::Pending(_)) => Resolution::Pending,
            Some(NeighbourEntry::Failed(until)) if now < *until => Resolution::Unreachable(Unreachable::NoAnswer),
            Some(NeighbourEntry::Failed(_)) | None => self.ask(now, key, stats),
        }
    }

    /// Takes a claim about an address that is neither ours nor static. Returns whether it concerned an entry.
    pub(super) fn learn(&mut self, now: Nanos, key: NeighbourKey, claim: Claim, stats: &mut NeighbourStats) -> bool {
        let confirmed = (claim.evidence == Evidence::Answer).then_some(now);
        let known = match self.entries.get(&key) {
            Some(NeighbourEntry::Known(known)) => known.after(&claim, confirmed),
            Some(NeighbourEntry::Pending(_)) => Known { mac: claim.mac, confirmed, refresh: None },
            Some(NeighbourEntry::Failed(_)) => Known { mac: claim.mac, confirmed: None, refresh: None },
            None if claim.evidence == Evidence::Question => {
                if !self.may_learn(now) {
                    stats.too_fast += 1;
                    return false;
                }
                Known { mac: claim.mac, confirmed: None, refresh: None }
            }
            None => return false,
        };
        if !matches!(self.entries.get(&key), Some(NeighbourEntry::Known(_))) {
            self.make_room(stats);
        }
        self.put(key, NeighbourEntry::Known(known));
        true
    }

    /// The station, where it is known.
    pub(super) fn mac(&self, key: &NeighbourKey) -> Option<MacAddr> {
        match self.entries.get(key) {
            Some(NeighbourEntry::Known(known)) => Some(known.mac),
            _ => None,
        }
    }

    /// The questions to ask now. Those asked often enough end here.
    pub(super) fn due(&mut self, now: Nanos, stats: &mut NeighbourStats) -> Vec<NeighbourRequest> {
        let mut requests = Vec::new();
        while let Some(&(at, key)) = self.deadlines.first()
            && at <= now
        {
            let Some(mut entry) = self.take(&key) else { unreachable!("an entry with a deadline is there") };
            if entry.repeat(now) {
                requests.push(NeighbourRequest { key, mac: entry.known().map(|known| known.mac) });
                self.put(key, entry);
            } else if entry.give_up(now, stats) {
                self.put(key, entry);
            }
        }
        requests
    }

    pub(super) fn deadline(&self) -> Option<Nanos> {
        self.deadlines.first().map(|&(at, _)| at)
    }

    /// Starts to ask, where fewer than [`MAX_PENDING`] others are asked for.
    fn ask(&mut self, now: Nanos, key: NeighbourKey, stats: &mut NeighbourStats) -> Resolution {
        self.take(&key);
        if self.entries.len() - self.known.len() >= MAX_PENDING && !self.forget_failed() {
            stats.too_many += 1;
            return Resolution::Unreachable(Unreachable::TooMany);
        }
        self.put(key, NeighbourEntry::Pending(Probe::new(now)));
        Resolution::Pending
    }

    /// Those asked for in vain share the places of those being asked for, and give way to them.
    fn forget_failed(&mut self) -> bool {
        let failed = self.failed.first().copied();
        failed.is_some_and(|key| self.take(&key).is_some())
    }

    /// Makes room for one more known entry: the one never confirmed, or confirmed longest ago, goes.
    fn make_room(&mut self, stats: &mut NeighbourStats) {
        if self.known.len() >= MAX_LEARNT
            && let Some(&(_, oldest)) = self.known.first()
        {
            self.take(&oldest);
            stats.evicted += 1;
        }
    }

    /// Whether another unsolicited station may be learnt: a token every [`LEARN_EVERY`], [`LEARN_BURST`] of them at
    /// most.
    fn may_learn(&mut self, now: Nanos) -> bool {
        let at = self.learns_at.max(now.saturating_sub((LEARN_BURST - 1) * LEARN_EVERY));
        let may = at <= now;
        if may {
            self.learns_at = at + LEARN_EVERY;
        }
        may
    }

    fn put(&mut self, key: NeighbourKey, entry: NeighbourEntry) {
        self.take(&key);
        if let Some(at) = entry.deadline() {
            self.deadlines.insert((at, key));
        }
        match entry {
            NeighbourEntry::Known(known) => drop(self.known.insert((known.confirmed, key))),
            NeighbourEntry::Failed(_) => drop(self.failed.insert(key)),
            NeighbourEntry::Pending(_) => {}
        }
        self.entries.insert(key, entry);
    }

    fn take(&mut self, key: &NeighbourKey) -> Option<NeighbourEntry> {
        let entry = self.entries.remove(key)?;
        if let Some(at) = entry.deadline() {
            self.deadlines.remove(&(at, *key));
        }
        match entry {
            NeighbourEntry::Known(known) => drop(self.known.remove(&(known.confirmed, *key))),
            NeighbourEntry::Failed(_) => drop(self.failed.remove(key)),
            NeighbourEntry::Pending(_) => {}
        }
        Some(entry)
    }
}

impl NeighbourEntry {
    const fn known(&self) -> Option<&Known> {
        if let Self::Known(known) = self { Some(known) } else { None }
    }

    fn deadline(&self) -> Option<Nanos> {
        match self {
            Self::Pending(probe) => Some(probe.due),
            Self::Failed(until) => Some(*until),
            Self::Known(known) => known.refresh.map(|probe| probe.due),
        }
    }

    /// Counts one more question; false where there is none, or enough were asked.
    fn repeat(&mut self, now: Nanos) -> bool {
        match self {
            Self::Pending(probe) | Self::Known(Known { refresh: Some(probe), .. }) => probe.repeat(now),
            Self::Failed(_) | Self::Known(_) => false,
        }
    }

    /// Handles an entry that was not answered, or whose hold-down is over. Returns whether the entry stays.
    fn give_up(&mut self, now: Nanos, stats: &mut NeighbourStats) -> bool {
        let was_pending = matches!(self, Self::Pending(_));
        if !matches!(self, Self::Failed(_)) {
            stats.unanswered += 1;
        }
        *self = Self::Failed(now.saturating_add(HOLD_DOWN));
        was_pending
    }
}

impl Known {
    fn is_fresh(&self, now: Nanos) -> bool {
        self.confirmed.is_some_and(|at| now.saturating_sub(at) < REACHABLE_TIME)
    }

    /// What is known after a claim (RFC 4861 7.2.5); `answered` is the time, where it answers us.
    fn after(self, claim: &Claim, answered: Option<Nanos>) -> Self {
        let answered = answered.filter(|_| self.refresh.is_some());
        if claim.mac != self.mac && !claim.is_override {
            // Two stations say that they have it: ask before the next use is taken for good.
            return Self { confirmed: None, ..self };
        }
        let is_settled = answered.is_some() || claim.mac != self.mac;
        Self {
            mac: claim.mac,
            confirmed: if is_settled { answered } else { self.confirmed },
            refresh: if is_settled { None } else { self.refresh },
        }
    }
}

impl Probe {
    const fn new(now: Nanos) -> Self {
        Self { due: now, sent: 0 }
    }

    /// Counts one more question; false where enough were asked.
    fn repeat(&mut self, now: Nanos) -> bool {
        if self.sent == MAX_SOLICIT {
            return false;
        }
        self.sent += 1;
        self.due = now.saturating_add(RETRANS_TIMER);
        true
    }
}
