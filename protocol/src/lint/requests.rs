//! What a requester sends: messages, PSNs, and what it sends again.

use std::collections::BTreeMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

use super::part::{MessageKind, PacketPosition, Part};
use super::{FrameReport, Rule};
use crate::wire::{AtomicEth, Extensions, Headers, Opcode, Packet, Reth};
use crate::{Mtu, Nanos, Psn};

/// PSNs that may be in flight (IBTA 9.7.5.1: less than half of all).
const MAX_IN_FLIGHT: u64 = (1 << 23) - 1;
/// Positions are PSNs that do not wrap; so far from 0 that what lies before the first one has one too.
const ORIGIN: u64 = 1 << 24;
/// Packets that are remembered: what is sent again after that is not compared.
const REMEMBERED: usize = 1 << 17;

/// The requests in one direction of a connection.
#[derive(Default)]
pub(super) struct TrackedRequests {
    /// Known from its beginning.
    is_whole: bool,
    mtu: Option<Mtu>,
    /// The position of the next new packet; nothing was sent while there is none.
    next: Option<u64>,
    /// What was sent first under each position.
    sent: BTreeMap<u64, Sent>,
    message: Option<MessageProgress>,
    /// The beginning of a message has been seen, or that there is none under way.
    is_aligned: bool,
    totals: Totals,
    /// The first position that no answer covers.
    unacknowledged: u64,
    /// The latest request is a READ whose responses cannot be counted yet.
    has_open_read: bool,
    not_ready: Option<NotReady>,
}

/// A packet, or a READ with the PSNs of its responses.
pub(super) struct Sent {
    /// The first position after it.
    pub(super) end: u64,
    pub(super) what: RequestBody,
    pub(super) part: Part,
    pub(super) before: Totals,
    pub(super) after: Totals,
}

/// What a request packet asks for.
pub(super) enum RequestBody {
    /// A packet of a SEND or WRITE.
    Data { opcode: Opcode, ext: Extensions, len: usize, digest: u64 },
    /// A READ, and where it was asked for: at its first PSN, and perhaps again from its middle on.
    Read { reth: Reth, starts: Vec<u64> },
    /// An atomic.
    Atomic { opcode: Opcode, request: AtomicEth },
}

/// What a responder has done that has executed everything up to here.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Totals {
    /// Messages executed.
    pub(super) messages: u64,
    /// Receives taken.
    pub(super) receives: u64,
}

/// How far the present message has come.
struct MessageProgress {
    kind: MessageKind,
    /// What a WRITE's RETH says.
    announced: Option<u32>,
    carried: u64,
}

/// The responder had no receive.
struct NotReady {
    at: u64,
    until: Nanos,
}

impl TrackedRequests {
    /// Requests from the first one on.
    pub(super) fn from(first: Psn, mtu: Mtu) -> Self {
        let next = ORIGIN + u64::from(first.get());
        Self {
            is_whole: true,
            mtu: Some(mtu),
            next: Some(next),
            unacknowledged: next,
            is_aligned: true,
            ..Self::default()
        }
    }

    pub(super) fn is_whole(&self) -> bool {
        self.is_whole
    }

    pub(super) fn mtu(&self) -> Option<Mtu> {
        self.mtu
    }

    /// What a responder has done that has executed everything that was sent.
    pub(super) fn totals(&self) -> Totals {
        self.totals
    }

    /// The position of a PSN near the newest; `None` while nothing was sent.
    pub(super) fn position(&self, psn: Psn) -> Option<u64> {
        let next = self.next?;
        next.checked_add_signed(psn.since(psn_at(next)).into())
    }

    /// Whether the position lies beyond all that was sent.
    pub(super) fn is_future(&self, position: u64) -> bool {
        self.next.is_none_or(|next| position >= next)
    }

    pub(super) fn has_sent(&self, psn: Psn) -> bool {
        self.position(psn).is_some_and(|position| self.covering(position).is_some())
    }

    /// What was sent under a position, and where that begins.
    pub(super) fn covering(&self, position: u64) -> Option<(u64, &Sent)> {
        let (&first, sent) = self.sent.range(..=position).next_back()?;
        (position < sent.end).then_some((first, sent))
    }

    /// An answer speaks of everything before this position.
    pub(super) fn acknowledge(&mut self, end: u64) {
        self.unacknowledged = self.unacknowledged.max(end);
        self.not_ready.take_if(|not_ready| not_ready.at < end);
    }

    /// An RNR NAK names the packet at this position. A packet that was sent twice may be refused twice; which refusal
    /// arrived first is not seen here, and the first one counts.
    pub(super) fn wait(&mut self, position: u64, until: Nanos) {
        let earlier = self.not_ready.as_ref().filter(|not_ready| not_ready.at == position);
        let until = earlier.map_or(until, |earlier| earlier.until.min(until));
        self.not_ready = Some(NotReady { at: position, until });
    }

    /// A full packet was seen.
    pub(super) fn learn_mtu(&mut self, payload: usize) {
        if self.mtu.is_some() {
            return;
        }
        self.mtu = Mtu::from_bytes(payload);
        if let (true, Some(mtu), Some(mut entry)) = (self.has_open_read, self.mtu, self.sent.last_entry()) {
            let first = *entry.key();
            let sent = entry.get_mut();
            if let RequestBody::Read { reth, .. } = &sent.what {
                sent.end = first + u64::from(mtu.packets(reth.len));
                self.next = Some(sent.end);
            }
            self.has_open_read = false;
        }
    }

    pub(super) fn check(&mut self, at: Nanos, part: Part, packet: &Packet<'_>, report: &mut FrameReport) {
        let headers = &packet.headers;
        if part.place.ends() && !part.is_fetch() && !headers.bth.ack_req {
            let expected = format!("AckReq on the last packet of a message ({})", headers.bth.opcode.name());
            report.broken(Rule::AckReq, expected, "none");
        }
        let next = *self.next.get_or_insert_with(|| {
            self.unacknowledged = ORIGIN + u64::from(headers.bth.psn.get());
            self.unacknowledged
        });
        let Some(position) = self.position(headers.bth.psn) else { return };
        self.check_wait(at, position, report);
        if position >= next {
            self.check_new(position, part, packet, report);
        } else {
            self.check_repeat(position, packet, report);
        }
    }

    fn check_wait(&mut self, at: Nanos, position: u64, report: &mut FrameReport) {
        let Some(NotReady { until, .. }) = self.not_ready.take_if(|not_ready| not_ready.at == position) else { return };
        if at < until {
            let expected =
                format!("{} not sent again for another {} us", psn_at(position), (until - at).div_ceil(1000));
            report.broken(Rule::RnrWait, expected, "the packet");
        }
    }

    fn check_new(&mut self, position: u64, part: Part, packet: &Packet<'_>, report: &mut FrameReport) {
        self.check_consecutive(position, report);
        self.check_order(part, packet, report);
        self.check_payload(part, packet, report);
        let before = self.totals;
        let count = self.responses(part, &packet.headers);
        self.totals.receives += u64::from(part.takes_receive());
        self.totals.messages += u64::from(part.place.ends());
        let end = position + u64::from(count.unwrap_or(1));
        self.has_open_read = count.is_none();
        self.next = Some(end);
        self.sent
            .insert(position, Sent { end, what: RequestBody::of(position, packet), part, before, after: self.totals });
        if self.sent.len() > REMEMBERED {
            self.sent.pop_first();
        }
        let in_flight = end.saturating_sub(self.unacknowledged);
        if in_flight > MAX_IN_FLIGHT {
            let seen = format!("{in_flight} from {} on", psn_at(self.unacknowledged));
            report.broken(Rule::InFlight, format!("{MAX_IN_FLIGHT} PSNs at most"), seen);
        }
    }

    /// Returns how many PSNs the request takes, if that is known.
    fn responses(&self, part: Part, headers: &Headers) -> Option<u32> {
        match headers.ext.reth {
            Some(reth) if part.kind == MessageKind::Read => match self.mtu {
                Some(mtu) => Some(mtu.packets(reth.len)),
                None => (reth.len as usize <= Mtu::Mtu256.bytes()).then_some(1),
            },
            _ => Some(1),
        }
    }

    fn check_consecutive(&mut self, position: u64, report: &mut FrameReport) {
        if self.has_open_read {
            self.close_read(position);
        }
        let Some(next) = self.next else { return };
        if position != next {
            let expected = format!("{}, which follows the last new packet, or an earlier one", psn_at(next));
            report.broken(Rule::Psn, expected, format!("{}", psn_at(position)));
            self.is_aligned = false;
            self.message = None;
        }
    }

    /// Derives the number of a READ's responses from the packet that follows it, and with it perhaps the path MTU.
    fn close_read(&mut self, position: u64) {
        self.has_open_read = false;
        let Some(mut entry) = self.sent.last_entry() else { return };
        let count = position.saturating_sub(*entry.key());
        let sent = entry.get_mut();
        let RequestBody::Read { reth, .. } = &sent.what else { return };
        let fits = |mtu: &Mtu| u64::from(mtu.packets(reth.len)) == count;
        let mut fitting = Mtu::ALL.into_iter().filter(fits);
        let Some(mtu) = fitting.next() else { return };
        sent.end = position;
        self.next = Some(position);
        self.mtu = if fitting.next().is_none() { Some(mtu) } else { None };
    }

    fn check_order(&mut self, part: Part, packet: &Packet<'_>, report: &mut FrameReport) {
        let name = packet.headers.bth.opcode.name();
        match &self.message {
            Some(message) if part.place.starts() => {
                let expected = format!("MIDDLE or LAST of the {:?} under way", message.kind);
                report.broken(Rule::MessageOrder, expected, name);
            }
            Some(message) if message.kind != part.kind => {
                report.broken(Rule::MessageOrder, format!("a packet of the {:?} under way", message.kind), name);
            }
            None if !part.place.starts() && self.is_aligned => {
                report.broken(Rule::MessageOrder, "FIRST or ONLY, as no message is under way", name);
            }
            _ => {}
        }
        self.is_aligned |= part.place.starts() || part.place.ends();
    }

    fn check_payload(&mut self, part: Part, packet: &Packet<'_>, report: &mut FrameReport) {
        let len = packet.payload.len();
        if matches!(part.place, PacketPosition::First | PacketPosition::Middle) {
            self.learn_mtu(len);
        }
        let full = self.mtu.map_or(Mtu::Mtu8192.bytes(), Mtu::bytes);
        let (least, most) = match part.place {
            _ if part.is_fetch() => (0, 0),
            PacketPosition::First | PacketPosition::Middle => (full, full),
            PacketPosition::Last => (1, full),
            PacketPosition::Only => (0, full),
        };
        if !(least..=most).contains(&len) {
            let name = packet.headers.bth.opcode.name();
            report.broken(Rule::Payload, format!("{least} to {most} bytes in a {name}"), format!("{len}"));
        }
        if !part.is_fetch() {
            self.follow_message(part, packet, report);
        }
    }

    /// Adds up what a message carries.
    fn follow_message(&mut self, part: Part, packet: &Packet<'_>, report: &mut FrameReport) {
        if part.place.starts() {
            let announced = packet.headers.ext.reth.map(|reth| reth.len);
            self.message = Some(MessageProgress { kind: part.kind, announced, carried: 0 });
        }
        let Some(message) = &mut self.message else { return };
        message.carried += packet.payload.len() as u64;
        let carried = message.carried;
        let announced = message.announced.map(u64::from);
        let is_ended = part.place.ends();
        let fits = announced.is_none_or(|announced| if is_ended { carried == announced } else { carried < announced });
        if !fits {
            let expected = format!("a WRITE of {} bytes, as its RETH says", announced.unwrap_or_default());
            let so_far = if is_ended { "in all" } else { "so far, and more to come" };
            report.broken(Rule::WriteLength, expected, format!("{carried} {so_far}"));
            message.announced = None;
        }
        if is_ended {
            self.message = None;
        }
    }

    fn check_repeat(&mut self, position: u64, packet: &Packet<'_>, report: &mut FrameReport) {
        let mtu = self.mtu;
        let is_remembered = self.is_whole && self.sent.len() < REMEMBERED;
        let covering = self.sent.range_mut(..=position).next_back().filter(|(_, sent)| position < sent.end);
        match covering {
            Some((&first, sent)) => {
                if let Some((expected, seen)) = sent.what.difference(position - first, packet, mtu) {
                    let at = psn_at(position);
                    report.broken(Rule::Repeat, format!("{expected}, as it was first sent under {at}"), seen);
                }
                if let RequestBody::Read { starts, .. } = &mut sent.what {
                    starts.push(position);
                }
            }
            None if is_remembered => {
                let expected = "a PSN from the connection's first one on";
                report.broken(Rule::Psn, expected, format!("{}", psn_at(position)));
            }
            None => {}
        }
    }
}

impl RequestBody {
    fn of(position: u64, packet: &Packet<'_>) -> Self {
        let Headers { bth, ext } = packet.headers;
        match (ext.reth, ext.atomic) {
            (Some(reth), _) if bth.opcode == Opcode::RcReadRequest => Self::Read { reth, starts: vec![position] },
            (_, Some(request)) => Self::Atomic { opcode: bth.opcode, request },
            _ => Self::Data { opcode: bth.opcode, ext, len: packet.payload.len(), digest: digest(packet.payload) },
        }
    }

    /// What a packet that is sent again, `offset` PSNs behind the beginning, has and should not have.
    fn difference(&self, offset: u64, packet: &Packet<'_>, mtu: Option<Mtu>) -> Option<(String, String)> {
        let Headers { bth, ext } = &packet.headers;
        match self {
            &Self::Data { opcode, .. } | &Self::Atomic { opcode, .. } if opcode != bth.opcode => {
                Some((opcode.name().into(), bth.opcode.name().into()))
            }
            Self::Data { ext: first, .. } if first != ext => Some((format!("{first:x?}"), format!("{ext:x?}"))),
            Self::Data { len, digest: first, .. } => {
                let is_equal = *len == packet.payload.len() && *first == digest(packet.payload);
                (!is_equal).then(|| (format!("the same payload of {len} bytes"), "another payload".into()))
            }
            Self::Atomic { request, .. } => {
                (ext.atomic != Some(*request)).then(|| (format!("{request:x?}"), format!("{:x?}", ext.atomic)))
            }
            Self::Read { reth, .. } => {
                let due = rest_of(reth, offset, mtu)?;
                let is_equal = bth.opcode == Opcode::RcReadRequest && ext.reth == Some(due);
                let seen = || format!("{} {:x?}", bth.opcode.name(), ext.reth);
                (!is_equal).then(|| (format!("RC_READ_REQ {due:x?}"), seen()))
            }
        }
    }
}

/// A READ from its packet `offset` on; `None` where the path MTU is unknown.
fn rest_of(reth: &Reth, offset: u64, mtu: Option<Mtu>) -> Option<Reth> {
    let skipped = if offset == 0 { 0 } else { offset << mtu?.shift() };
    Some(Reth { va: reth.va.wrapping_add(skipped), rkey: reth.rkey, len: reth.len.saturating_sub(skipped as u32) })
}

/// The PSN at a position.
pub(super) fn psn_at(position: u64) -> Psn {
    Psn::new((position & 0xff_ffff) as u32)
}

fn digest(payload: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    payload.hash(&mut hasher);
    hasher.finish()
}
