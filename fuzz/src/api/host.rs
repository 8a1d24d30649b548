//! One host: an engine, everything that was made on it, and which work requests have not ended.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use roci_driver::link::faulty::Faulty;
use roci_driver::link::sim::SimLink;
use roci_driver::{
    Access, Address, AddressHandle, Arena, Buffer, CompletionQueue, DatagramQp, Destination, Engine, MemoryRegion,
    MemoryWindow, Notify, PdId, PostError, QpParams, QueuePair, SendWr, SharedReceiveQueue, State, UnconnectedQp,
    WcStatus, WindowView,
};
use roci_protocol::sim::Faults;
use roci_protocol::wire::MacAddr;
use roci_protocol::{Qpn, Rkey};

use crate::tape::Tape;

const ARENA: usize = 1 << 18;
/// Places for work requests, few enough to run out of.
const PLACES: usize = 24;
const QKEY: u32 = 5;

/// How a work request may complete.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum CompletionMode {
    Signaled,
    /// Success is silent.
    Unsignaled,
    /// It ends when some queue pair takes it.
    Shared,
}

/// The queue pairs of a host.
struct HostQps {
    live: Vec<QueuePair>,
    /// Destroyed: their handles are refused.
    gone: Vec<QueuePair>,
}

impl HostQps {
    fn pick(&self, tape: &mut Tape<'_>) -> Option<QueuePair> {
        let stale = tape.byte() == 0xff;
        tape.pick(if stale { &self.gone } else { &self.live })
    }
}

/// Datagram queue pairs of a host, and where they may send to.
struct HostDatagrams {
    qps: Vec<DatagramQp>,
    handles: Vec<AddressHandle>,
}

/// What a host has opened to its peer.
struct HostMemory {
    regions: Vec<(PdId, MemoryRegion)>,
    windows: Vec<MemoryWindow>,
}

impl HostMemory {
    fn keys(&self) -> Vec<Rkey> {
        let windows = self.windows.iter().map(MemoryWindow::rkey);
        self.regions.iter().map(|(_, region)| region.rkey()).chain(windows).collect()
    }
}

/// The work requests of a host.
struct HostRequests {
    /// Those that have not ended.
    posted: BTreeMap<u64, CompletionMode>,
    next: u64,
}

impl HostRequests {
    fn posted(&mut self, accepted: bool, kind: CompletionMode) {
        if accepted {
            self.posted.insert(self.next, kind);
        }
        self.next += 1;
    }
}

/// A host that calls the API as the fuzzer's bytes say.
pub(super) struct FuzzHost {
    engine: Engine<Faulty<SimLink>>,
    arena: Arc<Arena>,
    number: u8,
    pds: [PdId; 2],
    cqs: [CompletionQueue; 2],
    srq: SharedReceiveQueue,
    qps: HostQps,
    datagrams: HostDatagrams,
    memory: HostMemory,
    requests: HostRequests,
}

impl FuzzHost {
    pub(super) fn new(link: SimLink, faults: Option<Faults>, number: u8) -> Self {
        let mut engine = roci_testkit::engine(ARENA, number.into());
        engine.add_port(Faulty::new(link, faults, number.into()), [10, 0, 0, number].into(), false);
        let pds = [engine.alloc_pd(), engine.alloc_pd()];
        let cqs = [engine.create_cq(PLACES), engine.create_cq(PLACES)];
        let (srq, arena) = (engine.create_srq(4, cqs[0]), engine.arena().clone());
        let qps = HostQps { live: Vec::new(), gone: Vec::new() };
        let datagrams = HostDatagrams { qps: Vec::new(), handles: Vec::new() };
        let memory = HostMemory { regions: Vec::new(), windows: Vec::new() };
        let requests = HostRequests { posted: BTreeMap::new(), next: 0 };
        Self { engine, arena, number, pds, cqs, srq, qps, datagrams, memory, requests }
    }

    pub(super) fn create(&mut self, tape: &mut Tape<'_>, params: &QpParams) -> (UnconnectedQp, Address) {
        let shape = tape.byte();
        let (pd, cq) = (self.pds[usize::from(shape & 1)], self.cqs[usize::from(shape >> 1 & 1)]);
        let mut qp = self.engine.create_qp(0, pd, cq).expect("numbers are not used up so soon");
        if shape & 4 != 0 {
            let shared = self.engine.share_receives(&mut qp, self.srq);
            assert_eq!(shared.is_ok(), cq == self.cqs[0]);
        }
        let address = self.engine.address_of(&qp, params);
        (qp, address)
    }

    pub(super) fn connect(&mut self, qp: UnconnectedQp, peer: &Address, params: &QpParams, fate: u8) {
        match fate % 16 {
            0 => self.engine.discard_qp(qp),
            1 => {
                let ip = IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, 1]);
                self.engine.connect(qp, &Address { ip, ..*peer }, params).expect_err("IPv4 to IPv6");
            }
            _ => self.qps.live.push(self.engine.connect(qp, peer, params).expect("one IP version")),
        }
    }

    pub(super) fn destroy(&mut self, tape: &mut Tape<'_>) {
        if self.qps.live.is_empty() {
            return;
        }
        let qp = self.qps.live.swap_remove(tape.below(self.qps.live.len()));
        self.engine.destroy_qp(qp);
        assert_eq!(self.engine.qp_state(qp), None);
        self.qps.gone.push(qp);
    }

    fn buffer(&self, tape: &mut Tape<'_>) -> Option<Buffer> {
        let len = match tape.byte() % 4 {
            0 => tape.below(10),
            1 => tape.below(9000),
            _ => tape.below(600),
        };
        self.engine.buffer(len).ok()
    }

    pub(super) fn post_recv(&mut self, tape: &mut Tape<'_>) {
        let Some(buffer) = self.buffer(tape) else { return };
        if tape.byte().is_multiple_of(4) {
            let accepted = self.engine.post_srq_recv(self.srq, self.requests.next, buffer).is_ok();
            self.requests.posted(accepted, CompletionMode::Shared);
            self.engine.arm_srq(self.srq, tape.below(4));
        } else if let Some(qp) = self.qps.pick(tape) {
            let outcome = self.engine.post_recv(qp, self.requests.next, buffer).map_err(|refused| refused.why);
            self.check_stale(qp, outcome);
            self.requests.posted(outcome.is_ok(), CompletionMode::Signaled);
        }
    }

    fn check_stale(&self, qp: QueuePair, outcome: Result<(), PostError>) {
        assert_eq!(self.qps.gone.contains(&qp), outcome == Err(PostError::NoQueuePair), "{outcome:?}");
    }

    pub(super) fn keys(&self) -> Vec<Rkey> {
        self.memory.keys()
    }

    pub(super) fn post_send(&mut self, tape: &mut Tape<'_>, key: Rkey) {
        let (Some(qp), Some(mut buffer)) = (self.qps.pick(tape), self.buffer(tape)) else { return };
        let (wr_id, shape, va) = (self.requests.next, tape.byte(), tape.below(300) as u64);
        let is_atomic = shape % 8 >= 6;
        if is_atomic && shape & 0x80 == 0 {
            buffer.set_len(8);
        }
        let wr = match shape % 8 {
            0 => SendWr::send(wr_id, buffer),
            1 => SendWr::send(wr_id, buffer).with_imm(1),
            2 => SendWr::send_with_invalidate(wr_id, buffer, key),
            3 => SendWr::write(wr_id, buffer, key, va),
            4 => SendWr::write(wr_id, buffer, key, va).with_imm(2),
            5 => SendWr::read(wr_id, buffer, key, va),
            6 => SendWr::fetch_add(wr_id, buffer, key, va & !7, 1),
            _ => SendWr::compare_swap(wr_id, buffer, key, va & !7, 0, 1),
        };
        let wr = if shape & 8 != 0 { wr.fenced() } else { wr };
        let wr = if shape & 16 != 0 { wr.solicited() } else { wr };
        let (wr, kind) = if shape & 32 != 0 {
            (wr.unsignaled(), CompletionMode::Unsignaled)
        } else {
            (wr, CompletionMode::Signaled)
        };
        let outcome = self.engine.post_send(qp, wr).map_err(|refused| refused.why);
        self.check_stale(qp, outcome);
        self.requests.posted(outcome.is_ok(), kind);
    }

    pub(super) fn change_memory(&mut self, tape: &mut Tape<'_>) {
        if tape.byte().is_multiple_of(4) && !self.memory.regions.is_empty() {
            let (pd, region) = self.memory.regions.swap_remove(tape.below(self.memory.regions.len()));
            assert!(self.engine.read_region(pd, region, region.len(), &mut []).is_some());
            assert!(self.engine.read_region(pd, region, region.len(), &mut [0]).is_none());
            assert!(self.engine.deregister(region).is_some_and(|buffer| buffer.len() == region.len()));
            assert!(self.engine.deregister(region).is_none());
        } else if let Some(buffer) = self.buffer(tape) {
            let rights = [Access::REMOTE_READ, Access::REMOTE_WRITE, Access::REMOTE_ATOMIC, Access::WINDOW_BIND];
            let shape = tape.byte();
            let given = rights.into_iter().enumerate().filter(|(bit, _)| shape >> bit & 1 != 0);
            let access = given.fold(Access::LOCAL, |all, (_, right)| all.and(right));
            let pd = self.pds[usize::from(shape & 0x80 != 0)];
            self.memory.regions.push((pd, self.engine.register(pd, buffer, access).expect("a free key")));
        }
    }

    pub(super) fn change_window(&mut self, tape: &mut Tape<'_>) {
        let what = tape.byte() % 4;
        if what == 0 || self.memory.windows.is_empty() {
            let pd = self.pds[usize::from(tape.flag())];
            self.memory.windows.push(self.engine.alloc_window(pd).expect("a free key"));
            return;
        }
        let at = tape.below(self.memory.windows.len());
        if what == 3 {
            assert!(self.engine.dealloc_window(self.memory.windows.swap_remove(at)));
            return;
        }
        let Some(qp) = self.qps.pick(tape) else { return };
        let outcome = match tape.pick(&self.memory.regions) {
            Some((_, region)) if what == 1 => {
                let (va, len) = (tape.below(300) as u64, tape.below(300) as u64);
                let view = WindowView { region, va, len, access: Access::REMOTE_READ.and(Access::REMOTE_WRITE) };
                self.engine.bind_window(qp, self.requests.next, &mut self.memory.windows[at], view)
            }
            _ => self.engine.invalidate_window(qp, self.requests.next, self.memory.windows[at]),
        };
        self.requests.posted(outcome.is_ok(), CompletionMode::Signaled);
    }

    pub(super) fn change_state(&mut self, tape: &mut Tape<'_>) {
        let Some(qp) = self.qps.pick(tape) else { return };
        match tape.byte() % 8 {
            0 => self.engine.fail_qp(qp, WcStatus::LocQpOpErr),
            1..=3 => {
                let drains = self.engine.drain_qp(qp);
                assert_eq!(drains, self.engine.qp_state(qp) == Some(State::Sqd));
            }
            4..=6 => {
                let was_draining = self.engine.qp_state(qp) == Some(State::Sqd);
                assert_eq!(self.engine.resume_qp(qp), was_draining);
            }
            _ => self.engine.request_notify(self.cqs[usize::from(tape.flag())], Notify::Solicited),
        }
    }

    pub(super) fn change_datagrams(&mut self, tape: &mut Tape<'_>) {
        match tape.byte() % 8 {
            0 => {
                let cq = self.cqs[usize::from(tape.flag())];
                self.datagrams.qps.push(self.engine.create_datagram_qp((0, 0), cq, QKEY, 3).expect("numbers are left"));
            }
            1 if !self.datagrams.qps.is_empty() => {
                let qp = self.datagrams.qps.swap_remove(tape.below(self.datagrams.qps.len()));
                self.engine.destroy_datagram_qp(qp);
            }
            2 => {
                let (ip, mac) = ([10, 0, 0, 3 - self.number].into(), MacAddr([2, 0, 0, 0, 0, 3 - self.number]));
                self.datagrams.handles.push(self.engine.create_ah((0, 0), ip, mac).expect("room"));
            }
            3 if !self.datagrams.handles.is_empty() => {
                self.engine.destroy_ah(self.datagrams.handles.swap_remove(tape.below(self.datagrams.handles.len())));
            }
            _ => {
                let (Some(qp), Some(buffer)) = (tape.pick(&self.datagrams.qps), self.buffer(tape)) else { return };
                let accepted = self.engine.post_datagram_recv(qp, self.requests.next, buffer).is_ok();
                self.requests.posted(accepted, CompletionMode::Signaled);
            }
        }
    }

    pub(super) fn datagram_qpn(&self, tape: &mut Tape<'_>) -> Qpn {
        tape.pick(&self.datagrams.qps).map_or(Qpn::new(1), DatagramQp::qpn)
    }

    pub(super) fn post_datagram(&mut self, tape: &mut Tape<'_>, qpn: Qpn) {
        let (Some(qp), Some(handle)) = (tape.pick(&self.datagrams.qps), tape.pick(&self.datagrams.handles)) else {
            return;
        };
        let Some(buffer) = self.buffer(tape) else { return };
        let wr = SendWr::send(self.requests.next, buffer);
        let (wr, kind) =
            if tape.flag() { (wr.unsignaled(), CompletionMode::Unsignaled) } else { (wr, CompletionMode::Signaled) };
        let accepted = self.engine.post_datagram(qp, handle, Destination { qpn, qkey: QKEY }, wr).is_ok();
        self.requests.posted(accepted, kind);
    }

    pub(super) fn poll(&mut self) {
        self.engine.poll();
        assert!(self.engine.stats().is_balanced());
        while self.engine.poll_event().is_some() {}
    }

    pub(super) fn poll_completions(&mut self) {
        for cq in self.cqs {
            while let Some(done) = self.engine.poll_cq(cq) {
                let kind = self.requests.posted.remove(&done.wr_id);
                assert!(kind.is_some(), "{done:?} was not posted, or ended twice");
                let is_silent = kind == Some(CompletionMode::Unsignaled) && done.status.is_success();
                assert!(!is_silent, "{done:?} was to be silent");
            }
        }
    }

    /// Destroys everything, and looks at what is left.
    pub(super) fn end(mut self) {
        self.poll_completions();
        for qp in std::mem::take(&mut self.qps.live) {
            self.engine.destroy_qp(qp);
        }
        for qp in std::mem::take(&mut self.datagrams.qps) {
            self.engine.destroy_datagram_qp(qp);
        }
        self.poll_completions();
        let count = |kind| self.requests.posted.values().filter(|&&posted| posted == kind).count();
        assert_eq!(
            (count(CompletionMode::Signaled), count(CompletionMode::Shared)),
            (0, self.engine.srq_len(self.srq))
        );
        for (_, region) in std::mem::take(&mut self.memory.regions) {
            drop(self.engine.deregister(region).expect("it is registered"));
        }
        self.check_places();
        drop(self.engine);
        assert_eq!(self.arena.free_bytes(), ARENA, "memory was lost");
    }

    /// All places of the completion queues are free but those of the shared receives.
    fn check_places(&mut self) {
        for (cq, taken) in [(self.cqs[0], self.engine.srq_len(self.srq)), (self.cqs[1], 0)] {
            let srq = self.engine.create_srq(PLACES + 1, cq);
            let post = |engine: &mut Engine<_>| {
                let buffer = engine.buffer(0).map_err(|_| ())?;
                engine.post_srq_recv(srq, 0, buffer).map_err(|_| ())
            };
            let free = (0..=PLACES).take_while(|_| post(&mut self.engine).is_ok()).count();
            assert_eq!(free, PLACES - taken, "places of a completion queue were lost");
        }
    }
}
