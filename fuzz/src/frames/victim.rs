//! The victim: an engine with queue pairs, memory of every kind and work under way.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use roci_driver::link::sim::{Clock, SimLink};
use roci_driver::link::{Batch, Link};
use roci_driver::neighbour::Interface;
use roci_driver::{
    Access, Address, Arena, Buffer, CompletionQueue, DatagramQp, Dialect, Engine, MemoryRegion, MemoryWindow, Mtu,
    Operation, PdId, PortConfig, QpParams, QueuePair, SendWr, SharedReceiveQueue, WindowView, WorkCompletion,
};
use roci_protocol::wire::{Flow, Frame, Headers, Ip, Opcode, Syndrome};
use roci_protocol::{Psn, Qpn, Rkey};

use crate::tape::Tape;

pub(super) const MTU: usize = 256;
pub(super) const QKEY: u32 = 0x1111;
const ARENA: usize = 1 << 20;
const REGION: usize = 1024;
const CANARY: u8 = 0x11;
const WINDOW: std::ops::Range<usize> = 10..30;

/// What the victim connects its queue pairs with.
struct ConnectParams {
    pd: PdId,
    cq: CompletionQueue,
    srq: SharedReceiveQueue,
    params: QpParams,
    peer: Address,
}

impl ConnectParams {
    fn make(&self, engine: &mut Engine<SimLink>, which: usize) -> QueuePair {
        let mut qp = engine.create_qp(0, self.pd, self.cq).expect("room");
        if which == 1 {
            engine.share_receives(&mut qp, self.srq).expect("one completion queue");
        }
        // One of each dialect.
        let dialect = if which == 1 { Dialect::Rocinante } else { Dialect::Verbs };
        let peer = Address { dialect, ..self.peer };
        engine.connect(qp, &peer, &QpParams { dialect, ..self.params.clone() }).expect("one IP version")
    }
}

/// The memory that the peer may name.
struct VictimMemory {
    /// Regions, which rights the peer has, and the bytes that it may change.
    guarded: Vec<(PdId, MemoryRegion, std::ops::Range<usize>)>,
    open: MemoryRegion,
    window: MemoryWindow,
    keys: Vec<Rkey>,
}

impl VictimMemory {
    fn reopen(&mut self, engine: &mut Engine<SimLink>, pd: PdId) {
        drop(engine.deregister(self.open).expect("it is registered"));
        let all = Access::REMOTE_READ.and(Access::REMOTE_WRITE).and(Access::REMOTE_ATOMIC);
        self.open = register(engine, pd, all);
        self.keys[0] = self.open.rkey();
    }

    /// Binds the window once more; returns whether the request was accepted.
    fn rebind(&mut self, engine: &mut Engine<SimLink>, qp: QueuePair, wr_id: u64) -> bool {
        let view = view(self.guarded[0].1);
        let accepted = engine.bind_window(qp, wr_id, &mut self.window, view).is_ok();
        self.keys[2] = self.window.rkey();
        accepted
    }

    fn check(&self, engine: &Engine<SimLink>) {
        for (pd, region, granted) in &self.guarded {
            let mut bytes = [0; REGION];
            engine.read_region(*pd, *region, 0, &mut bytes).expect("inside");
            let mut outside = bytes.iter().enumerate().filter(|(at, _)| !granted.contains(at));
            assert!(outside.all(|(_, &byte)| byte == CANARY), "memory changed that was not granted");
        }
    }
}

/// The victim's work requests.
struct VictimRequests {
    /// Those that have not ended.
    posted: BTreeSet<u64>,
    next: u64,
}

impl VictimRequests {
    fn posted(&mut self, accepted: bool) {
        if accepted {
            self.posted.insert(self.next);
        }
        self.next += 1;
    }
}

/// The PSNs that the peer goes by.
struct PeerPsns {
    /// What it sends next to each queue pair.
    cursors: [Psn; 2],
    /// Which requests it has seen last.
    seen: [Psn; 8],
}

impl PeerPsns {
    fn psn(&mut self, headers: &Headers, which: usize, low: u32) -> Psn {
        let is_response = headers.ext.aeth.is_some() || headers.bth.opcode == Opcode::RcReadResponseMiddle;
        if is_response {
            return self.seen[low as usize % self.seen.len()].plus(low >> 8 & 3);
        }
        let cursor = &mut self.cursors[which];
        match low & 7 {
            6 => cursor.plus((low >> 8) & 15),
            7 => cursor.plus((low >> 8).wrapping_neg() & 0xff_ffff),
            _ => {
                let psn = *cursor;
                let is_read = headers.bth.opcode == Opcode::RcReadRequest;
                let len = headers.ext.reth.filter(|_| is_read).map_or(0, |reth| reth.len);
                *cursor = psn.plus(Mtu::Mtu256.packets(len));
                psn
            }
        }
    }

    fn on_packet(&mut self, headers: Headers) {
        let Headers { bth, ext } = headers;
        match ext.aeth.map(|aeth| aeth.syndrome) {
            // Which queue pair said it is not in the packet: both peers go back.
            Some(Syndrome::Nak(_) | Syndrome::Rnr { .. }) => self.cursors = [bth.psn; 2],
            Some(_) => {}
            None => {
                self.seen.rotate_right(1);
                self.seen[0] = bth.psn;
            }
        }
    }
}

pub(super) struct Victim {
    engine: Engine<SimLink>,
    arena: Arc<Arena>,
    clock: Clock,
    connection: ConnectParams,
    /// One with receives of its own, one with shared ones.
    pub(super) qps: [QueuePair; 2],
    datagrams: DatagramQp,
    gone: Qpn,
    memory: VictimMemory,
    requests: VictimRequests,
    pub(super) wire: SimLink,
    pub(super) flow: Flow,
    psns: PeerPsns,
}

impl Victim {
    pub(super) fn new() -> Self {
        let clock = Clock::default();
        let (wire, link) = SimLink::pair(&clock);
        let mut engine = roci_testkit::engine(ARENA, 1);
        let [peer_ip, ip]: [IpAddr; 2] = [[10, 0, 0, 1].into(), [10, 0, 0, 2].into()];
        // Whose station is certain is never asked for: all that the victim says is RoCEv2.
        let neighbours = vec![(peer_ip, wire.mac())];
        let interfaces = vec![Interface { ip, prefix: 24, vlan: None }];
        let config = PortConfig { interfaces, neighbours, ..PortConfig::default() };
        engine.add_port_with(link, config).expect("a good configuration");
        let (pd, foreign, cq) = (engine.alloc_pd(), engine.alloc_pd(), engine.create_cq(64));
        let params = QpParams {
            mtu: Mtu::Mtu256,
            max_rd_atomic: 2,
            sq_depth: 8,
            rq_depth: 4,
            window: 8,
            ack_timeout_ns: 10_000,
            ack_timeout_max_ns: 40_000,
            retry_limit: 3,
            rnr_retry_limit: Some(3),
            ..QpParams::default()
        };
        let psn = Psn::new(0xff_fff0);
        let (mac, qpn) = (wire.mac(), Qpn::new(0x123));
        let peer = Address {
            mac,
            ip: peer_ip,
            qpn,
            psn,
            mtu: Mtu::Mtu256,
            max_rd_atomic: 2,
            dialect: Dialect::Verbs,
            icrc: true,
        };
        let srq = engine.create_srq(4, cq);
        let connection = ConnectParams { pd, cq, srq, params, peer };
        let mut connect = |which| connection.make(&mut engine, which);
        let (qps, gone) = ([connect(0), connect(1)], connect(0));
        engine.destroy_qp(gone);
        let datagrams = engine.create_datagram_qp((0, 0), cq, QKEY, 4).expect("room");
        let arena = engine.arena().clone();
        let all = Access::REMOTE_READ.and(Access::REMOTE_WRITE).and(Access::REMOTE_ATOMIC).and(Access::WINDOW_BIND);
        // Next to each other, so that an access that leaves one enters another.
        let local = register(&mut engine, pd, Access::LOCAL);
        let open = register(&mut engine, pd, all);
        let read_only = register(&mut engine, pd, Access::REMOTE_READ);
        let foreign_open = register(&mut engine, foreign, all);
        let windowed = register(&mut engine, pd, Access::WINDOW_BIND);
        let mut window = engine.alloc_window(pd).expect("a free key");
        let accepted = engine.bind_window(qps[0], 0, &mut window, view(windowed));
        accepted.expect("accepted");
        let guarded =
            vec![(pd, windowed, WINDOW), (pd, local, 0..0), (pd, read_only, 0..0), (foreign, foreign_open, 0..0)];
        let mut keys = vec![open.rkey(), read_only.rkey(), window.rkey(), local.rkey(), foreign_open.rkey()];
        // These go stale once the first ones change.
        keys.extend([open.rkey(), window.rkey()]);
        let between = Ip::between(peer_ip, ip).expect("one IP version");
        let flow = Flow::new(mac, wire.mac(), None, between, 0xc001);
        let gone = gone.qpn();
        let memory = VictimMemory { guarded, open, window, keys };
        let requests = VictimRequests { posted: BTreeSet::from([0]), next: 1 };
        let psns = PeerPsns { cursors: [psn; 2], seen: [Psn::default(); 8] };
        Self { engine, arena, clock, connection, qps, datagrams, gone, memory, requests, wire, flow, psns }
    }

    /// Keys that the peer has, some of them stale.
    pub(super) fn keys(&self) -> &[Rkey] {
        &self.memory.keys
    }

    pub(super) fn qpn(&self, target: usize) -> Qpn {
        match target {
            2 => self.datagrams.qpn(),
            3 => self.gone,
            _ => self.qps[target % 2].qpn(),
        }
    }

    /// A PSN that the victim may be waiting for, as `low` bits of the literal say.
    pub(super) fn psn(&mut self, headers: &Headers, which: usize, low: u32) -> Psn {
        self.psns.psn(headers, which, low)
    }

    pub(super) fn post_receive(&mut self, tape: &mut Tape<'_>) {
        let Some(buffer) = self.buffer(tape.below(3 * MTU)) else { return };
        let wr_id = self.requests.next;
        let accepted = match tape.byte() % 4 {
            0 => self.engine.post_datagram_recv(self.datagrams, wr_id, buffer).is_ok(),
            1 => self.engine.post_srq_recv(self.connection.srq, wr_id, buffer).is_ok(),
            _ => self.engine.post_recv(self.qps[0], wr_id, buffer).is_ok(),
        };
        self.requests.posted(accepted);
    }

    pub(super) fn post_send(&mut self, tape: &mut Tape<'_>) {
        let qp = self.qps[usize::from(tape.byte()) % 2];
        let kind = tape.byte() % 8;
        let len = if kind >= 6 { 8 } else { tape.below(5 * MTU) };
        let Some(buffer) = self.buffer(len) else { return };
        let (wr_id, key) = (self.requests.next, Rkey(7));
        let wr = match kind {
            0..=1 => SendWr::send(wr_id, buffer),
            2 => SendWr::write(wr_id, buffer, key, 0).with_imm(3),
            3 => SendWr::send_with_invalidate(wr_id, buffer, key),
            4..=5 => SendWr::read(wr_id, buffer, key, 0),
            6 => SendWr::fetch_add(wr_id, buffer, key, 0, 1),
            _ => SendWr::compare_swap(wr_id, buffer, key, 0, 1, 2),
        };
        let wr = if tape.flag() { wr.fenced() } else { wr };
        let accepted = self.engine.post_send(qp, wr).is_ok();
        self.requests.posted(accepted);
    }

    /// Something that the victim's application does to its memory or to its queue pairs.
    pub(super) fn change(&mut self, tape: &mut Tape<'_>) {
        let which = usize::from(tape.byte()) % 2;
        let qp = self.qps[which];
        match tape.byte() % 8 {
            0 => self.memory.reopen(&mut self.engine, self.connection.pd),
            1 => {
                let accepted = self.memory.rebind(&mut self.engine, qp, self.requests.next);
                self.requests.posted(accepted);
            }
            2 => {
                let accepted = self.engine.invalidate_window(qp, self.requests.next, self.memory.window).is_ok();
                self.requests.posted(accepted);
            }
            3 => _ = self.engine.drain_qp(qp),
            4 => _ = self.engine.resume_qp(qp),
            // A new connection: the old one has most often failed.
            _ => {
                self.engine.destroy_qp(qp);
                self.qps[which] = self.connection.make(&mut self.engine, which);
                self.psns.cursors[which] = self.connection.peer.psn;
            }
        }
    }

    fn buffer(&self, len: usize) -> Option<Buffer> {
        let mut buffer = self.engine.buffer(len).ok()?;
        buffer.fill(self.requests.next as u8);
        Some(buffer)
    }

    /// Lets time pass and the victim work, and looks at what it did.
    pub(super) fn pass(&mut self, time: u64) {
        self.clock.advance(time);
        self.engine.poll();
        assert!(self.engine.stats().is_balanced());
        self.listen();
        while let Some(done) = self.engine.poll_cq(self.connection.cq) {
            self.check(&done);
        }
        while self.engine.poll_event().is_some() {}
    }

    /// The peer hears what to send again, and what it may answer.
    fn listen(&mut self) {
        let mut batch = Batch::new();
        self.wire.receive(&mut batch);
        for bytes in &batch {
            let frame = Frame::parse(bytes).expect("the victim speaks RoCEv2");
            self.psns.on_packet(frame.packet.headers);
        }
    }

    fn check(&mut self, done: &WorkCompletion) {
        assert!(self.requests.posted.remove(&done.wr_id), "{done:?} was not posted, or ended twice");
        let fill = done.wr_id as u8;
        let untouched = match done.operation {
            Operation::Recv if done.status.is_success() => &done.buffer[done.len..],
            Operation::Send | Operation::Write => &done.buffer[..],
            _ => &[],
        };
        assert!(untouched.iter().all(|&byte| byte == fill), "{done:?} was written where nothing arrived");
    }

    /// Ends everything, and looks at what is left.
    pub(super) fn end(mut self) {
        self.pass(1000);
        for qp in self.qps {
            self.engine.destroy_qp(qp);
        }
        self.engine.destroy_datagram_qp(self.datagrams);
        self.pass(1000);
        assert_eq!(
            self.requests.posted.len(),
            self.engine.srq_len(self.connection.srq),
            "all ended but the shared receives"
        );
        self.memory.check(&self.engine);
        drop(self.engine);
        assert_eq!(self.arena.free_bytes(), ARENA, "memory was lost");
    }
}

/// What the window opens.
fn view(region: MemoryRegion) -> WindowView {
    let (va, len) = (WINDOW.start as u64, WINDOW.len() as u64);
    WindowView { region, va, len, access: Access::REMOTE_WRITE }
}

fn register(engine: &mut Engine<SimLink>, pd: PdId, access: Access) -> MemoryRegion {
    let mut buffer = engine.buffer(REGION).expect("memory");
    buffer.fill(CANARY);
    engine.register(pd, buffer, access).expect("a free key")
}
