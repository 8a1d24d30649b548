//! The wire under test: our port, with a record of every frame, rules that lose some, and random faults.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::net::IpAddr;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use roci_driver::link::live::AnyLink;
use roci_driver::link::{
    Batch, FailedFrame, Full, Link, LinkState, LinkStats, Share, ZeroCopyError, ZeroCopyRanges, restore_identification,
};
use roci_driver::{Lasting, same_as_inner_link};
use roci_protocol::lint::{End, Opening};
use roci_protocol::sim::Verdict;
use roci_protocol::wire::{Frame, MacAddr, Packet};
use roci_protocol::{Nanos, Qpn};

use crate::faults::{Dice, FaultQueue};

/// The direction of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FrameDirection {
    /// From us to the guest.
    Out,
    /// From the guest to us.
    In,
}

/// Returns `true` for a packet that the wire loses.
pub(crate) type LossRule = Box<dyn FnMut(FrameDirection, &Packet<'_>) -> bool>;

/// Is called with each packet, and with what the wire does with it.
pub(crate) type PacketObserver = Box<dyn FnMut(FrameDirection, &Packet<'_>, Verdict)>;

/// An event that the lint is given.
pub(crate) enum WireEvent {
    /// An end has sent a frame, whatever is to happen to it.
    Frame { at: Nanos, way: FrameDirection, bytes: Vec<u8> },
    /// Two queue pairs were connected without RDMA-CM.
    Opened(Opening),
    /// A receive was posted to a queue pair of ours.
    Posted(Qpn),
    /// A queue pair of ours takes its receives from a shared queue.
    Shared(End),
}

/// What happened since the scenario began, and what is to happen.
#[derive(Default)]
pub(crate) struct Script {
    pub(crate) events: Vec<WireEvent>,
    pub(crate) rule: Option<LossRule>,
    /// Packets that the rule lost.
    pub(crate) lost: usize,
    /// Decide about the packets that the rule leaves.
    pub(crate) dice: Option<Dice>,
    pub(crate) watch: Option<PacketObserver>,
}

impl Script {
    /// An end has sent a frame.
    fn record(&mut self, at: Nanos, way: FrameDirection, frame: &[u8]) {
        self.events.push(WireEvent::Frame { at, way, bytes: frame.to_vec() });
    }

    /// Decides what happens to a frame. Only RoCEv2 packets are disturbed.
    fn judge(&mut self, way: FrameDirection, frame: &[u8]) -> Verdict {
        if self.rule.is_none() && self.dice.is_none() {
            return Verdict::Pass;
        }
        let Ok(parsed) = Frame::parse(frame) else { return Verdict::Pass };
        let verdict = self.decide(way, &parsed.packet);
        if let Some(watch) = &mut self.watch {
            watch(way, &parsed.packet, verdict);
        }
        verdict
    }

    fn decide(&mut self, way: FrameDirection, packet: &Packet<'_>) -> Verdict {
        if self.rule.as_mut().is_some_and(|rule| rule(way, packet)) {
            self.lost += 1;
            return Verdict::Lose;
        }
        self.dice.as_mut().map_or(Verdict::Pass, |dice| dice.throw(way, packet.headers.bth.opcode))
    }

    /// Writes the record as a capture.
    pub(crate) fn save(&self, path: &Path) -> io::Result<()> {
        let mut file = BufWriter::new(File::create(path)?);
        for word in [0xa1b2_3c4d_u32, 4 << 16 | 2, 0, 0, 65_535, 1] {
            file.write_all(&word.to_le_bytes())?;
        }
        for event in &self.events {
            let WireEvent::Frame { at, bytes, .. } = event else { continue };
            let len = bytes.len() as u32;
            for word in [(at / 1_000_000_000) as u32, (at % 1_000_000_000) as u32, len, len] {
                file.write_all(&word.to_le_bytes())?;
            }
            file.write_all(bytes)?;
        }
        file.flush()
    }
}

/// Payloads from this length on stay where they are until the device takes them; shorter ones are copied.
pub(crate) const ZERO_COPY_FROM: usize = 256;

/// Our port.
pub(crate) struct LabLink {
    inner: AnyLink,
    script: Rc<RefCell<Script>>,
    /// The frame that is to leave, whole.
    scratch: Vec<u8>,
    leaving: FaultQueue<Vec<u8>>,
    arriving: FaultQueue<Received>,
    /// What has arrived, in the order in which the engine gets it.
    arrived: VecDeque<Received>,
    /// The time that the engine read last: for the engine, whatever it receives now came then.
    read_at: Cell<Nanos>,
}

/// A frame that came in, or the second copy of one.
pub(crate) enum Received {
    First(<AnyLink as Link>::Frame),
    Again(Vec<u8>),
}

impl AsRef<[u8]> for Received {
    fn as_ref(&self) -> &[u8] {
        match self {
            Self::First(frame) => frame.as_ref(),
            Self::Again(bytes) => bytes,
        }
    }
}

/// How a frame leaves, where its payload stays in place: what lies around the payload is the rest of the frame.
#[derive(Clone, Copy)]
struct Around<'a> {
    head: usize,
    payload: &'a [u8],
    range: Option<u64>,
}

impl LabLink {
    pub(crate) fn new(mut inner: AnyLink, script: Rc<RefCell<Script>>) -> Self {
        if let AnyLink::Dpdk(link) = &mut inner {
            link.zero_copy_from(Some(ZERO_COPY_FROM));
        }
        let (scratch, arrived) = (Vec::new(), VecDeque::new());
        let (leaving, arriving, read_at) = (FaultQueue::new(), FaultQueue::new(), Cell::new(0));
        Self { inner, script, scratch, leaving, arriving, arrived, read_at }
    }

    /// Sends the frame in `scratch`, unless something happens to it. What the link does not take is not sent.
    fn send(&mut self, around: Option<Around<'_>>) -> Result<(), Full> {
        let now = self.inner.now();
        let verdict = self.script.borrow_mut().judge(FrameDirection::Out, &self.scratch);
        match verdict {
            Verdict::Lose => {}
            Verdict::Hold(frames) if self.leaving.has_room() => {
                self.leaving.hold(now, self.scratch.clone(), frames);
            }
            Verdict::Duplicate => {
                self.hand_over(around)?;
                // A full link may swallow the second one.
                let _ = self.hand_over(around);
                self.leaving.overtake();
            }
            Verdict::Pass | Verdict::Hold(_) | Verdict::Corrupt(_) => {
                self.hand_over(around)?;
                self.leaving.overtake();
            }
        }
        self.script.borrow_mut().record(now, FrameDirection::Out, &self.scratch);
        self.release(now);
        Ok(())
    }

    /// Sends what was held back long enough.
    fn release(&mut self, now: Nanos) {
        while let Some(frame) = self.leaving.release(now) {
            if self.inner.transmit(frame.len(), |bytes| bytes.copy_from_slice(&frame)).is_err() {
                self.leaving.put_back(frame);
                return;
            }
        }
    }

    /// Lets a frame in, unless something happens to it.
    fn admit(&mut self, now: Nanos, frame: <AnyLink as Link>::Frame) {
        let mut script = self.script.borrow_mut();
        let mut record = frame.as_ref().to_vec();
        if self.inner.hides_identification() {
            restore_identification(&mut record);
        }
        script.record(self.read_at.get(), FrameDirection::In, &record);
        let verdict = script.judge(FrameDirection::In, frame.as_ref());
        drop(script);
        match verdict {
            Verdict::Lose => return,
            Verdict::Hold(frames) if self.arriving.has_room() => {
                self.arriving.hold(now, Received::First(frame), frames);
                return;
            }
            Verdict::Duplicate => {
                let again = frame.as_ref().to_vec();
                self.arrived.extend([Received::First(frame), Received::Again(again)]);
            }
            Verdict::Pass | Verdict::Hold(_) | Verdict::Corrupt(_) => self.arrived.push_back(Received::First(frame)),
        }
        self.arriving.overtake();
        self.let_in(now);
    }

    /// Lets in what was held back long enough.
    fn let_in(&mut self, now: Nanos) {
        while let Some(frame) = self.arriving.release(now) {
            self.arrived.push_back(frame);
        }
    }

    /// Gives the frame in `scratch` to the device.
    fn hand_over(&mut self, around: Option<Around<'_>>) -> Result<(), Full> {
        let Self { inner, scratch, .. } = self;
        let Some(Around { head, payload, range }) = around else {
            return inner.transmit(scratch.len(), |bytes| bytes.copy_from_slice(scratch));
        };
        let (before, behind) = (&scratch[..head], &scratch[head + payload.len()..]);
        inner.transmit_around(head, payload, range, behind.len(), |to_head, to_tail| {
            to_head.copy_from_slice(before);
            to_tail.copy_from_slice(behind);
        })
    }
}

impl Link for LabLink {
    type Frame = Received;

    fn now(&self) -> Nanos {
        let now = self.inner.now();
        self.read_at.set(now);
        now
    }

    same_as_inner_link!();

    fn receive(&mut self, batch: &mut Batch<Self::Frame>) {
        let mut fresh = Batch::new();
        self.inner.receive(&mut fresh);
        let now = self.inner.now();
        fresh.into_iter().for_each(|frame| self.admit(now, frame));
        self.let_in(now);
        let count = self.arrived.len().min(batch.remaining_capacity());
        batch.extend(self.arrived.drain(..count));
    }

    fn transmit(&mut self, len: usize, fill: impl FnOnce(&mut [u8])) -> Result<(), Full> {
        self.scratch.resize(len, 0);
        fill(&mut self.scratch);
        self.send(None)
    }

    fn attach(&mut self, memory: Arc<dyn Lasting>) -> Result<(), ZeroCopyError> {
        self.inner.attach(memory)
    }

    fn zero_copy_ranges(&self) -> Option<Box<dyn ZeroCopyRanges>> {
        self.inner.zero_copy_ranges()
    }

    fn is_zero_copy(&self, payload: &[u8], range: Option<u64>) -> bool {
        self.inner.is_zero_copy(payload, range)
    }

    /// The record wants the frame whole, but the device takes the payload from where it is.
    fn transmit_around(
        &mut self,
        head: usize,
        payload: &[u8],
        range: Option<u64>,
        tail: usize,
        fill: impl FnOnce(&mut [u8], &mut [u8]),
    ) -> Result<(), Full> {
        self.scratch.resize(head + payload.len() + tail, 0);
        let (before, rest) = self.scratch.split_at_mut(head);
        let (middle, behind) = rest.split_at_mut(payload.len());
        middle.copy_from_slice(payload);
        fill(before, behind);
        self.send(Some(Around { head, payload, range }))
    }

    fn flush(&mut self) {
        self.inner.flush();
    }

    fn maintain(&mut self, now: Nanos) -> LinkState {
        self.release(now);
        self.inner.flush();
        self.inner.maintain(now)
    }

    fn stats(&self) -> LinkStats {
        self.inner.stats()
    }
}
