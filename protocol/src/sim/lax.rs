//! A requester of another make at one end: as lax as Linux's rxe where IBTA leaves the fault with the peer.
//!
//! It shares no line with [`crate::rc`]. Go-back-N, one cursor, and a completer that takes a positive acknowledgement with
//! the oldest request's last PSN for the end of that request, whatever it is: a READ then completes without its data.
//! A responder that names the wrong PSN is found out by it, where our own requester would ask again.

use std::collections::VecDeque;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::deviation::Deviation;
use super::faults::{FaultInjector, Faults};
use super::network::SimNetwork;
use super::node::{Node, READ_KEY, READABLE, WORD_KEY, WORDS, WRITABLE, WRITE_KEY};
use super::oracle::Oracle;
use super::world::{SimReport, Violation};
use crate::rc::{AtomicOperation, Config, Operation, RcCompletion, RecvRequest, State, Stats, WcStatus};
use crate::wire::{
    AtomicEth, Bth, Extensions, Flow, Frame, Headers, Ip, MacAddr, NakCode, Opcode, Packet, Reth, Syndrome,
};
use crate::{Mtu, Nanos, Psn, Qpn};

const REQUESTS: u64 = 200;
const OUTSTANDING: usize = 8;
/// READs and atomics under way, as the responder has granted.
const FETCHES: usize = 4;
const MAX_PACKETS: usize = 3;
const MTU: Mtu = Mtu::Mtu256;
const TIMEOUT_NS: Nanos = 60_000;
const STALL_NS: Nanos = 60_000_000_000;

/// Runs the world of one seed: a lax requester, a network that loses, and a queue pair that answers.
pub fn run_lax(seed: u64) -> Result<SimReport, Violation> {
    LaxWorld::new(seed).run()
}

/// What a request asks for.
#[derive(Clone, Copy)]
enum Ask {
    Send,
    Write { va: u64 },
    Read { va: u64 },
    Atomic { index: usize, operation: AtomicOperation },
}

/// A send work request and its PSNs.
struct LaxWqe {
    wr_id: u64,
    ask: Ask,
    buffer: Vec<u8>,
    first: Psn,
    packets: u32,
}

impl LaxWqe {
    fn end(&self) -> Psn {
        self.first.plus(self.packets)
    }

    fn last(&self) -> Psn {
        self.end().previous()
    }

    fn is_fetch(&self) -> bool {
        matches!(self.ask, Ask::Read { .. } | Ask::Atomic { .. })
    }

    /// The packet that starts at `psn`, its payload, and the PSN after it.
    fn packet(&self, psn: Psn, dest: Qpn) -> (Headers, &[u8], Psn) {
        let index = psn.since(self.first) as u32;
        let offset = (index as usize) << MTU.shift();
        let (is_first, is_last) = (index == 0, index + 1 == self.packets);
        let mut ext = Extensions::default();
        let (opcode, payload, next) = match self.ask {
            Ask::Read { va } => {
                let rest = self.buffer.len() - offset;
                ext.reth = Some(Reth { va: va + offset as u64, rkey: READ_KEY, len: rest as u32 });
                (Opcode::RcReadRequest, &[][..], self.end())
            }
            Ask::Atomic { index, operation } => {
                let (opcode, swap_or_add, compare) = match operation {
                    AtomicOperation::CompareSwap { compare, swap } => (Opcode::RcCompareSwap, swap, compare),
                    AtomicOperation::FetchAdd { add } => (Opcode::RcFetchAdd, add, 0),
                };
                ext.atomic = Some(AtomicEth { va: index as u64 * 8, rkey: WORD_KEY, swap_or_add, compare });
                (opcode, &[][..], self.end())
            }
            Ask::Send | Ask::Write { .. } => {
                if let (Ask::Write { va }, true) = (self.ask, is_first) {
                    ext.reth = Some(Reth { va, rkey: WRITE_KEY, len: self.buffer.len() as u32 });
                }
                let end = self.buffer.len().min(offset + MTU.bytes());
                let is_write = matches!(self.ask, Ask::Write { .. });
                (part_opcode(is_write, is_first, is_last), &self.buffer[offset..end], psn.plus(1))
            }
        };
        let mut bth = Bth::new(opcode, dest, psn);
        bth.ack_req = is_last || self.is_fetch();
        (Headers { bth, ext }, payload, next)
    }
}

const fn part_opcode(is_write: bool, is_first: bool, is_last: bool) -> Opcode {
    match (is_write, is_first, is_last) {
        (false, true, true) => Opcode::RcSendOnly,
        (false, true, false) => Opcode::RcSendFirst,
        (false, false, false) => Opcode::RcSendMiddle,
        (false, false, true) => Opcode::RcSendLast,
        (true, true, true) => Opcode::RcWriteOnly,
        (true, true, false) => Opcode::RcWriteFirst,
        (true, false, false) => Opcode::RcWriteMiddle,
        (true, false, true) => Opcode::RcWriteLast,
    }
}

/// A requester that is less strict than ours.
struct LaxRequester {
    flow: Flow,
    dest: Qpn,
    queue: VecDeque<LaxWqe>,
    next: Psn,
    /// The next packet to send, and the next answer to come.
    cursor: Psn,
    expected: Psn,
    timer: Option<Nanos>,
    retransmissions: u64,
    completions: Vec<RcCompletion<Vec<u8>>>,
}

impl LaxRequester {
    fn new(dest: Qpn, first: Psn) -> Self {
        let ip = Ip::between([10, 0, 0, 1].into(), [10, 0, 0, 2].into()).expect("both are IPv4");
        let mac = |index| MacAddr([2, 0, 0, 0, 0, index]);
        Self {
            flow: Flow::new(mac(0), mac(1), None, ip, 0xc000),
            dest,
            queue: VecDeque::new(),
            next: first,
            cursor: first,
            expected: first,
            timer: None,
            retransmissions: 0,
            completions: Vec::new(),
        }
    }

    fn post(&mut self, wr_id: u64, ask: Ask, buffer: Vec<u8>) {
        let packets = if matches!(ask, Ask::Atomic { .. }) { 1 } else { MTU.packets(buffer.len() as u32) };
        self.queue.push_back(LaxWqe { wr_id, ask, buffer, first: self.next, packets });
        self.next = self.next.plus(packets);
    }

    fn fetches(&self) -> usize {
        self.queue.iter().filter(|wqe| wqe.is_fetch()).count()
    }

    /// Sends everything from the cursor on.
    fn pump(&mut self, now: Nanos, network: &mut SimNetwork) {
        while self.cursor.before(self.next) && network.has_room() {
            let holder = self.queue.iter().find(|wqe| self.cursor.before(wqe.end()));
            let Some(wqe) = holder else { return };
            let (headers, payload, next) = wqe.packet(self.cursor, self.dest);
            let mut frame = vec![0; self.flow.frame_len(&headers, payload.len())];
            self.flow.emit(&mut frame, &headers, payload.len(), |bytes| bytes.copy_from_slice(payload));
            network.send(now, 1, frame);
            self.cursor = next;
        }
        if self.timer.is_none() && !self.queue.is_empty() {
            self.timer = Some(now + TIMEOUT_NS);
        }
    }

    fn go_back(&mut self) {
        self.retransmissions += u64::from(self.expected.before(self.cursor));
        if self.expected.before(self.cursor) {
            self.cursor = self.expected;
        }
    }

    fn on_timeout(&mut self, now: Nanos) {
        self.go_back();
        self.timer = (!self.queue.is_empty()).then_some(now + TIMEOUT_NS);
    }

    fn receive(&mut self, now: Nanos, bytes: &[u8]) {
        let frame = Frame::parse(bytes).and_then(|frame| frame.verify_icrc().map(|()| frame));
        if let Ok(frame) = frame {
            self.on_answer(now, &frame.packet);
        }
    }

    fn on_answer(&mut self, now: Nanos, packet: &Packet<'_>) {
        let psn = packet.headers.bth.psn;
        // What the answer lies beyond is done, unless data is missing: that is asked for again.
        while let Some(oldest) = self.queue.front().filter(|oldest| oldest.last().before(psn)) {
            if oldest.is_fetch() {
                return self.go_back();
            }
            self.complete(now);
        }
        let Some(oldest) = self.queue.front() else { return };
        if psn.before(self.expected) || (oldest.is_fetch() && self.expected.before(psn)) {
            return;
        }
        match packet.headers.bth.opcode {
            Opcode::RcAck => self.on_acknowledgement(now, packet),
            _ => self.on_data(now, packet),
        }
    }

    fn on_acknowledgement(&mut self, now: Nanos, packet: &Packet<'_>) {
        let psn = packet.headers.bth.psn;
        match packet.headers.ext.aeth.expect("an acknowledgement has its header").syndrome {
            // Here it is lax: the oldest request may be a READ.
            Syndrome::Ack { .. } => {
                if self.queue[0].last() == psn {
                    self.complete(now);
                } else {
                    self.expected = psn.plus(1);
                }
            }
            Syndrome::Nak(NakCode::PsnSequence) | Syndrome::Rnr { .. } => {
                if self.expected.before(psn) {
                    self.expected = psn;
                }
                self.go_back();
            }
            other => panic!("nothing here earns {other:?}"),
        }
    }

    fn on_data(&mut self, now: Nanos, packet: &Packet<'_>) {
        let psn = packet.headers.bth.psn;
        let wqe = &mut self.queue[0];
        let offset = (psn.since(wqe.first) as usize) << MTU.shift();
        match (wqe.ask, packet.headers.ext.atomic_ack) {
            (Ask::Atomic { .. }, Some(ack)) => wqe.buffer.copy_from_slice(&ack.original.to_ne_bytes()),
            (Ask::Read { .. }, None) => {
                let Some(place) = wqe.buffer.get_mut(offset..offset + packet.payload.len()) else { return };
                place.copy_from_slice(packet.payload);
            }
            _ => return,
        }
        self.expected = psn.plus(1);
        self.timer = Some(now + TIMEOUT_NS);
        if psn == wqe.last() {
            self.complete(now);
        }
    }

    fn complete(&mut self, now: Nanos) {
        let LaxWqe { wr_id, ask, buffer, first, packets } = self.queue.pop_front().expect("the caller looked at it");
        let end = first.plus(packets);
        if self.expected.before(end) {
            self.expected = end;
        }
        if self.cursor.before(end) {
            self.cursor = end;
        }
        self.timer = (!self.queue.is_empty()).then_some(now + TIMEOUT_NS);
        let operation = match ask {
            Ask::Send => Operation::Send,
            Ask::Write { .. } => Operation::Write,
            Ask::Read { .. } => Operation::Read,
            Ask::Atomic { operation: AtomicOperation::CompareSwap { .. }, .. } => Operation::CompareSwap,
            Ask::Atomic { operation: AtomicOperation::FetchAdd { .. }, .. } => Operation::FetchAdd,
        };
        let (status, len) = (WcStatus::Success, buffer.len() as u32);
        let (imm, invalidated, solicited, signaled) = (None, None, false, true);
        self.completions.push(RcCompletion {
            wr_id,
            status,
            operation,
            len,
            imm,
            invalidated,
            solicited,
            signaled,
            buffer,
        });
    }
}

/// A lax requester and a node, and the network between them.
struct LaxWorld {
    seed: u64,
    dice: StdRng,
    now: Nanos,
    network: SimNetwork,
    requester: LaxRequester,
    responder: Node,
    oracle: Oracle,
    posted: u64,
    trace: crc32fast::Hasher,
    frames: u64,
}

impl LaxWorld {
    fn new(seed: u64) -> Self {
        let mut dice = StdRng::seed_from_u64(seed);
        let faults = Faults {
            loss: dice.random_range(0.0..0.3),
            dup: dice.random_range(0.0..0.3),
            reorder: if dice.random() { dice.random_range(0.0..0.2) } else { 0.0 },
            corrupt: 0.0,
            seed: dice.random(),
        };
        let first = Psn::new(dice.random());
        let config = Config {
            dest_qpn: Qpn::new(0x11),
            mtu: MTU,
            rq_psn: first,
            rq_depth: 2 * OUTSTANDING,
            max_dest_rd_atomic: FETCHES,
            ..Config::default()
        };
        let mut responder = Node::new(1, config, true);
        for state in [State::Rtr, State::Rts] {
            responder.qp.modify(state).expect("the way up is in the table");
        }
        Self {
            seed,
            now: 0,
            network: SimNetwork::new(FaultInjector::new(faults, seed), seed, 500, 64),
            requester: LaxRequester::new(Qpn::new(0x12), first),
            responder,
            oracle: Oracle::new(),
            posted: 0,
            trace: crc32fast::Hasher::new(),
            frames: 0,
            dice,
        }
    }

    fn run(&mut self) -> Result<SimReport, Violation> {
        while self.posted < REQUESTS || !self.oracle.is_satisfied() {
            self.post_work();
            self.requester.pump(self.now, &mut self.network);
            self.responder.pump(self.now, &mut self.network);
            self.step()?;
            self.responder.qp.check();
            self.check()?;
        }
        let verdict = self.oracle.check_image(&self.responder.host);
        verdict.map_err(|what| self.violation(1, what))?;
        let (trace, stats) = (self.trace.clone().finalize(), *self.responder.qp.stats());
        let stats = Stats { retransmitted_packets: self.requester.retransmissions, ..stats };
        let (finished_ns, dropped, dimensions) = (self.now, self.responder.host.dropped, Vec::new());
        Ok(SimReport { trace, finished_ns, frames: self.frames, dropped, stats, dimensions })
    }

    fn step(&mut self) -> Result<(), Violation> {
        let next = self.requester.timer.into_iter().chain(self.network.next_arrival()).min();
        self.now = next.unwrap_or(self.now + 1_000).max(self.now);
        if self.now > STALL_NS {
            return Err(self.violation(0, Deviation::Stalled));
        }
        while let Some(arrival) = self.network.take(self.now) {
            self.frames += 1;
            self.trace.update(&self.now.to_le_bytes());
            self.trace.update(&arrival.frame);
            if arrival.node == 0 {
                self.requester.receive(self.now, &arrival.frame);
            } else {
                self.responder.receive(self.now, &arrival.frame, &mut self.network);
                // Answers leave one by one or after several requests, as a busy host's do.
                if self.dice.random() {
                    self.responder.pump(self.now, &mut self.network);
                }
            }
        }
        if self.requester.timer.is_some_and(|at| at <= self.now) {
            self.requester.on_timeout(self.now);
        }
        Ok(())
    }

    fn post_work(&mut self) {
        while self.responder.qp.receives_posted() < OUTSTANDING {
            let request = RecvRequest {
                wr_id: 0,
                buffer: vec![0; MAX_PACKETS * MTU.bytes()],
                len: (MAX_PACKETS * MTU.bytes()) as u32,
            };
            self.responder.qp.post_recv(request).expect("the queue has room");
        }
        while self.posted < REQUESTS && self.requester.queue.len() < OUTSTANDING && self.dice.random_bool(0.7) {
            self.post_one();
        }
    }

    fn post_one(&mut self) {
        let wr_id = self.posted;
        let len = self.dice.random_range(1..=MAX_PACKETS * MTU.bytes());
        let may_fetch = self.requester.fetches() < FETCHES;
        let (ask, buffer) = match self.dice.random_range(0..4) {
            0 => {
                let bytes = self.random_bytes(len);
                self.oracle.expect_send(wr_id, &bytes, (None, None), false);
                (Ask::Send, bytes)
            }
            1 if may_fetch => {
                let va = self.dice.random_range(0..=READABLE - len);
                self.oracle.expect_read(wr_id, &self.responder.host.readable[va..va + len]);
                (Ask::Read { va: va as u64 }, vec![0; len])
            }
            2 if may_fetch => {
                let (index, add) = (self.dice.random_range(0..WORDS), self.dice.random());
                let operation = AtomicOperation::FetchAdd { add };
                self.oracle.expect_atomic(wr_id, index, operation);
                (Ask::Atomic { index, operation }, vec![0; 8])
            }
            _ => {
                let va = self.dice.random_range(0..=WRITABLE - len) as u64;
                let bytes = self.random_bytes(len);
                self.oracle.expect_write(wr_id, va, &bytes, None, false);
                (Ask::Write { va }, bytes)
            }
        };
        self.posted += 1;
        self.requester.post(wr_id, ask, buffer);
    }

    fn random_bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.dice.fill(&mut bytes[..]);
        bytes
    }

    fn check(&mut self) -> Result<(), Violation> {
        for done in std::mem::take(&mut self.requester.completions) {
            let verdict = self.oracle.check_send(&done, &self.responder.host);
            verdict.map_err(|what| self.violation(0, what))?;
        }
        for done in std::mem::take(&mut self.responder.host.completions) {
            let verdict = self.oracle.check_recv(&done, &self.responder.host);
            verdict.map_err(|what| self.violation(1, what))?;
        }
        Ok(())
    }

    fn violation(&self, node: usize, what: Deviation) -> Violation {
        Violation { seed: self.seed, at_ns: self.now, node, what }
    }
}
