//! Which frames belong together: connections, their two ends, and how they are found out.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::answers::Answers;
use super::part::Part;
use super::requests::TrackedRequests;
use super::{End, FrameReport, Opening};
use crate::wire::cm::{CmMessage, Dreq, Mad, Rep, Req, mtu_of};
use crate::wire::{Frame, Transport};
use crate::{Mtu, Nanos, Psn, Qpn};

/// All connections that the lint has seen, or that were announced to it.
#[derive(Default)]
pub(super) struct TrackedConnections {
    streams: BTreeMap<FlowTarget, RequestFlow>,
    /// The way back of each way.
    back: BTreeMap<FlowTarget, FlowTarget>,
    receives: BTreeMap<End, KnownReceives>,
    handshakes: BTreeMap<(IpAddr, u32), ReqFields>,
    /// Counts packets, to tell which stream was used last.
    clock: u64,
}

/// One direction of a connection, as its frames name it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct FlowTarget {
    from: IpAddr,
    to: End,
}

/// The requests in one direction of a connection, and the answers to them.
struct RequestFlow {
    requests: TrackedRequests,
    answers: Answers,
    used: u64,
}

/// What the lint knows of a queue pair's receives.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum KnownReceives {
    /// So many were posted since it was made.
    Posted(u64),
    /// They come from a shared queue.
    Shared,
    /// The queue pair has ended its connection: they may have been flushed.
    Flushed,
}

/// The fields of a REQ that the lint needs.
#[derive(Clone, Copy)]
struct ReqFields {
    qpn: Qpn,
    starting_psn: Psn,
    mtu: Option<Mtu>,
}

impl RequestFlow {
    fn new(requests: TrackedRequests) -> Self {
        let answers = Answers::new(requests.is_whole());
        Self { requests, answers, used: 0 }
    }
}

impl TrackedConnections {
    pub(super) fn open(&mut self, opening: &Opening) {
        let &Opening { ends: [one, other], first_psns: [psn, other_psn], mtu } = opening;
        let (way, back) = (FlowTarget { from: one.ip, to: other }, FlowTarget { from: other.ip, to: one });
        self.pair(way, back);
        self.streams.insert(way, RequestFlow::new(TrackedRequests::from(psn, mtu)));
        self.streams.insert(back, RequestFlow::new(TrackedRequests::from(other_psn, mtu)));
    }

    pub(super) fn post_receives(&mut self, end: End, count: u32) {
        if let KnownReceives::Posted(sum) = self.receives.entry(end).or_insert(KnownReceives::Posted(0)) {
            *sum += u64::from(count);
        }
    }

    pub(super) fn share_receives(&mut self, end: End) {
        self.receives.insert(end, KnownReceives::Shared);
    }

    pub(super) fn check(&mut self, at: Nanos, frame: &Frame<'_>, report: &mut FrameReport) {
        let bth = &frame.packet.headers.bth;
        match bth.opcode.transport() {
            Transport::Ud => self.hear_management(frame),
            Transport::Rc => {
                let to = End { ip: frame.ip.destination(), qpn: bth.dest_qpn };
                let way = FlowTarget { from: frame.ip.source(), to };
                self.clock += 1;
                match Part::of(bth.opcode) {
                    Some(part) => self.check_request(way, at, part, frame, report),
                    None => self.check_response(way, at, frame, report),
                }
            }
            Transport::Uc | Transport::Cnp => {}
        }
    }

    fn check_request(&mut self, way: FlowTarget, at: Nanos, part: Part, frame: &Frame<'_>, report: &mut FrameReport) {
        let stream = self.streams.entry(way).or_insert_with(|| RequestFlow::new(TrackedRequests::default()));
        stream.used = self.clock;
        stream.requests.check(at, part, &frame.packet, report);
    }

    fn check_response(&mut self, way: FlowTarget, at: Nanos, frame: &Frame<'_>, report: &mut FrameReport) {
        let Some(asked) = self.back.get(&way).copied().or_else(|| self.guess(way, frame)) else { return };
        // The responder is whom the requests go to.
        let receives = self.receives.get(&asked.to).copied();
        if let Some(RequestFlow { requests, answers, .. }) = self.streams.get_mut(&asked) {
            answers.check(at, &frame.packet, requests, receives, report);
        }
    }

    /// Whose requests a response answers that belongs to no connection: of the streams that have sent its PSN, and no
    /// response is known to, the one that was used last.
    fn guess(&mut self, way: FlowTarget, frame: &Frame<'_>) -> Option<FlowTarget> {
        let psn = frame.packet.headers.bth.psn;
        let fits = |(asked, stream): &(&FlowTarget, &RequestFlow)| {
            let is_turned = asked.from == way.to.ip && asked.to.ip == way.from;
            is_turned && !self.back.contains_key(asked) && stream.requests.has_sent(psn)
        };
        let asked = *self.streams.iter().filter(fits).max_by_key(|(_, stream)| stream.used)?.0;
        self.pair(way, asked);
        Some(asked)
    }

    fn pair(&mut self, way: FlowTarget, back: FlowTarget) {
        self.back.insert(way, back);
        self.back.insert(back, way);
    }

    fn hear_management(&mut self, frame: &Frame<'_>) {
        let Some(Ok(mad)) = Mad::of_packet(&frame.packet) else { return };
        let (from, to) = (frame.ip.source(), frame.ip.destination());
        match &mad.message {
            CmMessage::Req(req) => {
                self.handshakes.insert((from, req.local_comm_id), ReqFields::of(req));
            }
            CmMessage::Rep(rep) => self.hear_reply([to, from], rep),
            CmMessage::Dreq(dreq) => self.hear_end(from, to, dreq),
            _ => {}
        }
    }

    /// A REP opens the connection, unless it only repeats what was said.
    fn hear_reply(&mut self, [asker, replier]: [IpAddr; 2], rep: &Rep) {
        let Some(asked) = self.handshakes.remove(&(asker, rep.remote_comm_id)) else { return };
        let Some(mtu) = asked.mtu else { return };
        let ends = [End { ip: asker, qpn: asked.qpn }, End { ip: replier, qpn: rep.qpn }];
        let [way, back] = [FlowTarget { from: asker, to: ends[1] }, FlowTarget { from: replier, to: ends[0] }];
        if self.back.get(&way) == Some(&back) {
            return;
        }
        // Each says where the other one shall start.
        self.open(&Opening { ends, first_psns: [rep.starting_psn, asked.starting_psn], mtu });
    }

    /// Handles a DREQ: its sender may have ended its queue pair already.
    fn hear_end(&mut self, from: IpAddr, to: IpAddr, dreq: &Dreq) {
        let way = FlowTarget { from, to: End { ip: to, qpn: dreq.remote_qpn } };
        if let Some(back) = self.back.get(&way) {
            self.receives.insert(back.to, KnownReceives::Flushed);
        }
    }
}

impl ReqFields {
    fn of(req: &Req) -> Self {
        Self { qpn: req.qpn, starting_psn: req.starting_psn, mtu: mtu_of(req.path_mtu) }
    }
}
