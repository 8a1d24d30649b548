//! What a responder sends: acknowledgements, and the data of READs and atomics.

use std::collections::BTreeMap;
use std::fmt;

use super::connections::KnownReceives;
use super::part::MessageKind;
use super::requests::{RequestBody, Sent, Totals, TrackedRequests, psn_at};
use super::{FrameReport, Rule};
use crate::rc::rnr_timer_ns;
use crate::wire::aeth::CREDIT_UNLIMITED;
use crate::wire::{Aeth, NakCode, Opcode, Packet, Syndrome};
use crate::{Msn, Nanos};

/// What was answered to the requests that go the other way.
pub(super) struct Answers {
    messages: MessageNumbers,
    /// The last position that a positive acknowledgement named.
    acknowledged: Option<u64>,
    /// The position of the response that follows the last one, by the READ's first.
    continuations: BTreeMap<u64, u64>,
    /// What atomics found, by position.
    originals: BTreeMap<u64, u64>,
}

/// How the message sequence numbers of a responder relate to the messages seen.
struct MessageNumbers {
    /// The number before the first message seen; unknown where that was not the connection's first.
    origin: Option<Msn>,
    last: Option<Msn>,
}

/// The least and the most that a responder has done.
#[derive(Clone, Copy)]
struct Bounds {
    least: Totals,
    most: Totals,
}

impl Bounds {
    fn exactly(totals: Totals) -> Self {
        Self { least: totals, most: totals }
    }
}

impl Answers {
    /// `is_whole` says that the connection is known from its beginning.
    pub(super) fn new(is_whole: bool) -> Self {
        Self {
            messages: MessageNumbers { origin: is_whole.then(Msn::default), last: None },
            acknowledged: None,
            continuations: BTreeMap::new(),
            originals: BTreeMap::new(),
        }
    }

    pub(super) fn check(
        &mut self,
        at: Nanos,
        packet: &Packet<'_>,
        requests: &mut TrackedRequests,
        receives: Option<KnownReceives>,
        report: &mut FrameReport,
    ) {
        let headers = &packet.headers;
        if headers.bth.ack_req {
            report.broken(Rule::AckReq, format!("none on a {}", headers.bth.opcode.name()), "AckReq");
        }
        let Some(position) = requests.position(headers.bth.psn) else {
            return;
        };
        if requests.is_future(position) {
            let rule = if headers.bth.opcode == Opcode::RcAck { Rule::AckPsn } else { Rule::ResponsePsn };
            report.broken(rule, "a PSN that was sent", format!("{}", headers.bth.psn));
            return;
        }
        let bounds = match headers.bth.opcode {
            Opcode::RcAck => self.check_acknowledgement(at, position, packet, requests, report),
            Opcode::RcAtomicAck => self.check_atomic(position, packet, requests, report),
            _ => self.check_response(position, packet, requests, report),
        };
        if let (Some(bounds), Some(aeth)) = (bounds, &headers.ext.aeth) {
            self.messages.check(aeth.msn, bounds, report);
            check_credits(aeth, bounds, receives, report);
        }
    }

    /// Checks a packet that is no more than an acknowledgement, and returns what its responder has done.
    fn check_acknowledgement(
        &mut self,
        at: Nanos,
        position: u64,
        packet: &Packet<'_>,
        requests: &mut TrackedRequests,
        report: &mut FrameReport,
    ) -> Option<Bounds> {
        if !packet.payload.is_empty() {
            report.broken(Rule::Payload, "no payload in an acknowledgement", format!("{} bytes", packet.payload.len()));
        }
        let Some((first, sent)) = requests.covering(position) else {
            if requests.is_whole() {
                report.broken(Rule::AckPsn, "a PSN that was sent", format!("{}", psn_at(position)));
            }
            return None;
        };
        let up_to_all = |least| Bounds { least, most: requests.totals() };
        match packet.headers.ext.aeth?.syndrome {
            Syndrome::Ack { .. } => {
                if sent.part.is_fetch() {
                    let kind = sent.part.kind;
                    report.broken(Rule::AckOfData, format!("the data of a {kind:?}"), "an acknowledgement without");
                }
                self.check_ack_order(position, report);
                let bounds = up_to_all(sent.after);
                requests.acknowledge(position + 1);
                Some(bounds)
            }
            Syndrome::Rnr { timer } => {
                if !sent.part.takes_receive() {
                    let expected = "a packet that takes a receive";
                    report.broken(Rule::RnrPlace, expected, format!("{}", psn_at(position)));
                }
                let bounds = Bounds::exactly(sent.before);
                requests.acknowledge(position);
                requests.wait(position, at + rnr_timer_ns(timer));
                Some(bounds)
            }
            Syndrome::Nak(NakCode::PsnSequence) => {
                let bounds = if position == first { Bounds::exactly(sent.before) } else { up_to_all(sent.before) };
                requests.acknowledge(position);
                Some(bounds)
            }
            Syndrome::Nak(NakCode::InvalidRdRequest) => {
                report.broken(Rule::Syndrome, "none of reliable datagrams", "invalid RD request");
                None
            }
            Syndrome::Nak(_) => Some(up_to_all(sent.before)),
            Syndrome::Reserved(byte) => {
                report.broken(Rule::Syndrome, "one of the table", format!("{byte:#04x}"));
                None
            }
        }
    }

    fn check_ack_order(&mut self, position: u64, report: &mut FrameReport) {
        let last = *self.acknowledged.get_or_insert(position);
        if position < last {
            let expected = format!("{} or a later PSN, as acknowledged before", psn_at(last));
            report.broken(Rule::AckOrder, expected, format!("{}", psn_at(position)));
        }
        self.acknowledged = Some(last.max(position));
    }

    fn check_atomic(
        &mut self,
        position: u64,
        packet: &Packet<'_>,
        requests: &mut TrackedRequests,
        report: &mut FrameReport,
    ) -> Option<Bounds> {
        let (_, sent) = fetch_at(position, MessageKind::Atomic, requests, report)?;
        check_positive(packet, report);
        if !packet.payload.is_empty() {
            report.broken(Rule::Payload, "no payload beside an atomic's result", format!("{}", packet.payload.len()));
        }
        let original = packet.headers.ext.atomic_ack?.original;
        let first = *self.originals.entry(position).or_insert(original);
        forget_old(&mut self.originals);
        if original != first {
            report.broken(Rule::AtomicReplay, format!("{first:#x}, as answered before"), format!("{original:#x}"));
        }
        let bounds = Bounds { least: sent.after, most: requests.totals() };
        requests.acknowledge(position + 1);
        Some(bounds)
    }

    /// Checks a READ's response.
    fn check_response(
        &mut self,
        position: u64,
        packet: &Packet<'_>,
        requests: &mut TrackedRequests,
        report: &mut FrameReport,
    ) -> Option<Bounds> {
        let opcode = packet.headers.bth.opcode;
        if matches!(opcode, Opcode::RcReadResponseFirst | Opcode::RcReadResponseMiddle) {
            requests.learn_mtu(packet.payload.len());
        }
        let (first, sent) = fetch_at(position, MessageKind::Read, requests, report)?;
        check_positive(packet, report);
        self.check_response_order((first, position), sent, opcode, report);
        check_response_length((first, position), sent, packet, requests, report);
        let is_last = position + 1 == sent.end;
        let least = if is_last { sent.after } else { sent.before };
        let bounds = Bounds { least, most: requests.totals() };
        requests.acknowledge(position + 1);
        Some(bounds)
    }

    fn check_response_order(
        &mut self,
        (first, position): (u64, u64),
        sent: &Sent,
        opcode: Opcode,
        report: &mut FrameReport,
    ) {
        use Opcode::{RcReadResponseFirst, RcReadResponseLast, RcReadResponseMiddle, RcReadResponseOnly};
        let RequestBody::Read { starts, .. } = &sent.what else { return };
        let begins = starts.contains(&position);
        let continues = self.continuations.insert(first, position + 1) == Some(position);
        forget_old(&mut self.continuations);
        let is_last = position + 1 == sent.end;
        let (whole, rest) = if is_last {
            (RcReadResponseOnly, RcReadResponseLast)
        } else {
            (RcReadResponseFirst, RcReadResponseMiddle)
        };
        if !(begins && opcode == whole || continues && opcode == rest) {
            let at = psn_at(position);
            let expected = match (begins, continues) {
                (true, true) => format!("{} or {} at {at}", whole.name(), rest.name()),
                (true, false) => format!("{} at {at}, where the READ was asked for", whole.name()),
                (false, true) => format!("{} at {at}, after the response before it", rest.name()),
                (false, false) => format!("a response that follows the last one or begins where a READ does, not {at}"),
            };
            report.broken(Rule::ResponseOrder, expected, opcode.name());
        }
    }
}

impl MessageNumbers {
    fn check(&mut self, msn: Msn, bounds: Bounds, report: &mut FrameReport) {
        if let Some(last) = self.last.replace(msn)
            && msn.since(last) < 0
        {
            report.broken(Rule::Msn, format!("an MSN of {} or more, as before", last.get()), format!("{}", msn.get()));
            return;
        }
        let (least, most) = (bounds.least.messages as u32, bounds.most.messages as u32);
        if self.origin.is_none() && least == most {
            self.origin = Some(Msn::new(msn.get().wrapping_sub(least)));
        }
        let Some(origin) = self.origin else { return };
        let [least, most] = [least, most].map(|count| Msn::new(origin.get().wrapping_add(count)));
        if msn.since(least) < 0 || msn.since(most) > 0 {
            let expected = format!("an MSN {}, by the messages executed", between(least.get(), most.get()));
            report.broken(Rule::Msn, expected, format!("{}", msn.get()));
        }
    }
}

/// The READ or atomic that a response belongs to.
fn fetch_at<'a>(
    position: u64,
    kind: MessageKind,
    requests: &'a TrackedRequests,
    report: &mut FrameReport,
) -> Option<(u64, &'a Sent)> {
    let found = requests.covering(position);
    let fitting = found.filter(|(_, sent)| sent.part.kind == kind);
    if fitting.is_none() && (found.is_some() || requests.is_whole()) {
        report.broken(Rule::ResponsePsn, format!("a PSN of a {kind:?}"), format!("{}", psn_at(position)));
    }
    fitting
}

/// Data comes with a positive syndrome.
fn check_positive(packet: &Packet<'_>, report: &mut FrameReport) {
    if let Some(Aeth { syndrome, .. }) = packet.headers.ext.aeth
        && !matches!(syndrome, Syndrome::Ack { .. })
    {
        report.broken(Rule::Syndrome, "a positive one beside data", format!("{syndrome}"));
    }
}

fn check_response_length(
    (first, position): (u64, u64),
    sent: &Sent,
    packet: &Packet<'_>,
    requests: &TrackedRequests,
    report: &mut FrameReport,
) {
    let (RequestBody::Read { reth, .. }, Some(mtu)) = (&sent.what, requests.mtu()) else { return };
    let rest = u64::from(reth.len).saturating_sub((position - first) << mtu.shift());
    let due = rest.min(mtu.bytes() as u64);
    let len = packet.payload.len() as u64;
    if len != due {
        let name = packet.headers.bth.opcode.name();
        report.broken(Rule::Payload, format!("{due} bytes in a {name}"), format!("{len}"));
    }
}

fn check_credits(aeth: &Aeth, bounds: Bounds, receives: Option<KnownReceives>, report: &mut FrameReport) {
    let (Syndrome::Ack { credit }, Some(receives)) = (aeth.syndrome, receives) else { return };
    let (least, most) = match receives {
        KnownReceives::Flushed => return,
        KnownReceives::Shared => (CREDIT_UNLIMITED, CREDIT_UNLIMITED),
        KnownReceives::Posted(posted) => {
            let left = |totals: Totals| credit_code(posted.saturating_sub(totals.receives));
            (left(bounds.most), left(bounds.least))
        }
    };
    if !(least..=most).contains(&credit) {
        report.broken(Rule::Credits, format!("a code {}", between(least, most)), format!("{credit}"));
    }
}

/// A requester has far fewer READs and atomics under way.
fn forget_old(by_position: &mut BTreeMap<u64, u64>) {
    const REMEMBERED: usize = 1 << 12;
    if by_position.len() > REMEMBERED {
        by_position.pop_first();
    }
}

fn between<N: PartialEq + fmt::Display>(least: N, most: N) -> String {
    if least == most { format!("of {least}") } else { format!("from {least} to {most}") }
}

/// The largest code that stands for no more than `receives` (IBTA table 44: from 2 on, powers of two by turns with
/// one and a half of them).
fn credit_code(receives: u64) -> u8 {
    const CODES: u8 = CREDIT_UNLIMITED;
    let stands_for = |code: u8| match code {
        0 | 1 => u64::from(code),
        even if even % 2 == 0 => 1 << (even / 2),
        odd => 3 << ((odd - 3) / 2),
    };
    (0..CODES).rev().find(|&code| stands_for(code) <= receives).unwrap_or(0)
}

#[cfg(test)]
mod unit {
    use super::credit_code;

    #[test]
    fn credit_codes_are_those_of_table_44() {
        assert_eq!(
            [0, 1, 2, 3, 4, 5, 6, 8, 12, 23, 32_767, 32_768, 1 << 20].map(credit_code),
            [0, 1, 2, 3, 4, 4, 5, 6, 7, 8, 29, 30, 30]
        );
    }
}
