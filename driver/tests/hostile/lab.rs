//! A victim, and a peer made by hand at the other end of its wire.
//!
//! Every frame that the peer makes is good until a row of the table makes it bad, with an ICRC that is right: what is
//! refused is refused for the value that the row names.

use std::collections::BTreeMap;
use std::net::IpAddr;

use roci_driver::link::Link;
use roci_driver::link::sim::{Clock, SimLink};
use roci_driver::neighbour::Interface;
use roci_driver::{
    Access, Address, CompletionQueue, Engine, MemoryRegion, Mtu, PdId, PortConfig, QpParams, QueuePair, SendWr,
    WindowView,
};
use roci_protocol::wire::{
    Aeth, AtomicAckEth, AtomicEth, Bth, Deth, Extensions, Flow, Frame, Headers, Ieth, ImmDt, Ip, NakCode, Opcode, Reth,
    Syndrome, icrc,
};
use roci_protocol::{Msn, Psn, Qpn, Rkey};
use roci_testkit::ScriptedPeer;

/// The path MTU, and how long each region is.
pub(crate) const MTU: usize = 256;
pub(crate) const REGION: usize = 1024;
/// How long each posted receive is.
pub(crate) const RECEIVE: usize = 2 * MTU;
/// What the peer may have outstanding.
pub(crate) const READS: u8 = 2;

/// The packet that the victim expects first: close to the wrap, so that every row is about it too.
const FIRST: Psn = Psn::new(0xff_fffe);
/// The receive of the packet before.
const WARMING: u64 = 99;

/// What the wire is like.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Net {
    V4,
    V4Tagged,
    V6,
}

/// Keys of the victim's memory.
pub(crate) struct Keys {
    /// Everything is allowed.
    pub(crate) open: Rkey,
    pub(crate) read_only: Rkey,
    pub(crate) write_only: Rkey,
    /// Nothing is.
    pub(crate) local: Rkey,
    /// Everything, to another protection domain.
    pub(crate) foreign: Rkey,
    /// It was.
    pub(crate) dead: Rkey,
    /// A window through which bytes 10 to 29 of a region that allows nothing else may be written.
    pub(crate) window: Rkey,
    /// A window of another queue pair.
    pub(crate) other_window: Rkey,
}

/// What the victim says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Said {
    /// Its number relative to the first one that the victim expects, as in all answers.
    Ack(i32),
    Rnr(i32),
    Nak(NakCode, i32),
    /// A response that carries data.
    Data(Opcode, i32),
    /// A request of its own, relative to its first one.
    Request(Opcode, i32),
}

/// What is left of the victim: its memory, and how each work request ended.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Remains {
    regions: Vec<Vec<u8>>,
    ends: BTreeMap<u64, (bool, Vec<u8>)>,
}

pub(crate) struct Lab {
    pub(crate) engine: Engine<SimLink>,
    pub(crate) qp: QueuePair,
    pub(crate) keys: Keys,
    /// Numbers of a queue pair that is gone, and of one that has no peer yet.
    pub(crate) gone: Qpn,
    pub(crate) unconnected: Qpn,
    /// The first PSN that the victim expects, and the first that it sends.
    pub(crate) theirs: Psn,
    pub(crate) ours: Psn,
    net: Net,
    regions: Vec<(PdId, MemoryRegion)>,
    cq: CompletionQueue,
    peer: ScriptedPeer,
    flow: Flow,
}

impl Lab {
    /// A victim with memory of every kind and two receives.
    pub(crate) fn new(net: Net) -> Self {
        Self::expecting(net, FIRST, &[0, 1])
    }

    /// One whose victim has executed WRITEs and a SEND before, so that packets like them take the fast path, where there is one. What a
    /// connection's first packet is like is not remembered.
    pub(crate) fn warm(net: Net, has_fast_path: bool) -> Self {
        let mut lab = Self::expecting(net, FIRST.plus(-3_i32 as u32), &[WARMING, 0, 1]);
        lab.engine.set_fast_path(has_fast_path);
        for opcode in [Opcode::RcWriteOnly, Opcode::RcWriteOnly, Opcode::RcSendOnly] {
            // Where no row writes.
            let frame = lab.packet(opcode, 0, 20, |headers, _| headers.ext.reth.as_mut().expect("made").va = 900);
            lab.prepare(frame);
            lab.theirs = lab.theirs.plus(1);
        }
        assert_eq!((lab.theirs, lab.counters()["rx_requests"]), (FIRST, 3));
        let done = lab.engine.poll_cq(lab.cq).expect("it is executed");
        assert_eq!(done.wr_id, WARMING);
        lab
    }

    /// A victim that expects this packet first, and has posted these receives.
    fn expecting(net: Net, psn: Psn, receives: &[u64]) -> Self {
        let (wire, link) = SimLink::pair(&Clock::default());
        let [peer_ip, ip] = addresses(net);
        let vlan = (net == Net::V4Tagged).then_some(7);
        let mut engine = roci_testkit::engine(1 << 20, 1);
        let interfaces = vec![Interface { ip, prefix: 24, vlan }];
        engine.add_port_with(link, PortConfig { interfaces, ..PortConfig::default() }).expect("a good configuration");
        let pds = [engine.alloc_pd(), engine.alloc_pd()];
        let cq = engine.create_cq(64);

        let params = QpParams { mtu: Mtu::Mtu256, max_rd_atomic: READS.into(), ..QpParams::default() };
        let peer = Address {
            mac: wire.mac(),
            ip: peer_ip,
            qpn: Qpn::new(0x123),
            psn,
            mtu: Mtu::Mtu256,
            max_rd_atomic: READS,
            dialect: roci_driver::Dialect::Verbs,
            icrc: true,
        };
        let connect = |engine: &mut Engine<SimLink>| {
            let qp = engine.create_qp(0, pds[0], cq).expect("room");
            let address = engine.address_of(&qp, &params);
            (engine.connect(qp, &peer, &params).expect("one IP version"), address)
        };
        let (other, _) = connect(&mut engine);
        let (gone, _) = connect(&mut engine);
        engine.destroy_qp(gone);
        let (qp, address) = connect(&mut engine);
        let unconnected = engine.create_qp(0, pds[0], cq).expect("room");
        let unconnected = engine.address_of(&unconnected, &params).qpn;

        let mut regions = Vec::new();
        let keys = register_all(&mut engine, pds, [qp, other], &mut regions);
        let between = Ip::between(peer_ip, ip).expect("one IP version");
        let flow = Flow::new(wire.mac(), address.mac, vlan, between, 0xc001);
        let (gone, theirs, ours) = (gone.qpn(), psn, address.psn);
        let peer = ScriptedPeer::new(wire);
        let mut lab = Self { engine, qp, keys, gone, unconnected, theirs, ours, net, regions, cq, peer, flow };
        while lab.engine.poll_cq(cq).is_some() {}
        for &wr_id in receives {
            let buffer = lab.buffer(RECEIVE);
            lab.engine.post_recv(qp, wr_id, buffer).expect("accepted");
        }
        lab
    }

    /// A packet of the peer's, `ahead` of what the victim expects first, with extensions that make sense.
    pub(crate) fn packet(
        &mut self,
        opcode: Opcode,
        ahead: i32,
        payload: usize,
        edit: impl FnOnce(&mut Headers, &Keys),
    ) -> Vec<u8> {
        let mut bth = Bth::new(opcode, self.qp.qpn(), self.theirs.plus(ahead as u32));
        bth.ack_req = true;
        let mut headers = Headers { bth, ext: self.extensions(payload) };
        edit(&mut headers, &self.keys);
        self.emit(&headers, payload)
    }

    /// An answer of the peer's, `ahead` of the victim's first request.
    pub(crate) fn answer(&mut self, opcode: Opcode, ahead: i32, syndrome: u8, payload: usize) -> Vec<u8> {
        let psn = self.ours.plus(ahead as u32);
        self.packet(opcode, 0, payload, |headers, _| {
            headers.bth.psn = psn;
            headers.bth.ack_req = false;
            headers.ext.aeth = Some(Aeth { syndrome: Syndrome::from_wire(syndrome), msn: Msn::new(1) });
        })
    }

    fn extensions(&self, payload: usize) -> Extensions {
        let (rkey, va) = (self.keys.open, 8);
        Extensions {
            deth: Some(Deth { qkey: 0, source_qpn: Qpn::new(0x123), reserved: 0 }),
            reth: Some(Reth { va, rkey, len: payload as u32 }),
            atomic: Some(AtomicEth { va, rkey, swap_or_add: 1, compare: 0 }),
            aeth: Some(Aeth { syndrome: Syndrome::Ack { credit: 31 }, msn: Msn::new(1) }),
            atomic_ack: Some(AtomicAckEth { original: 9 }),
            imm: Some(ImmDt(7)),
            ieth: Some(Ieth(self.keys.window)),
        }
    }

    fn emit(&mut self, headers: &Headers, payload: usize) -> Vec<u8> {
        ScriptedPeer::packet(&mut self.flow, headers, payload, 0x77)
    }

    /// Where the IP header, the UDP header and the BTH of a frame start.
    pub(crate) fn ip_at(&self) -> usize {
        if self.net == Net::V4Tagged { 18 } else { 14 }
    }

    pub(crate) fn udp_at(&self) -> usize {
        self.ip_at() + if self.net == Net::V6 { 40 } else { 20 }
    }

    pub(crate) fn bth_at(&self) -> usize {
        self.udp_at() + 8
    }

    /// Puts `bytes` at `at` of a frame and makes its checksums right again.
    pub(crate) fn patch(&self, mut frame: Vec<u8>, at: usize, bytes: &[u8]) -> Vec<u8> {
        frame[at..at + bytes.len()].copy_from_slice(bytes);
        seal(&mut frame[self.ip_at()..]);
        frame
    }

    /// Makes a frame longer by zeros, or shorter, with lengths and checksums that fit.
    pub(crate) fn resize(&self, mut frame: Vec<u8>, len: usize) -> Vec<u8> {
        frame.resize(len, 0);
        let (ip, udp) = (self.ip_at(), self.udp_at());
        let (ip_len, ip_len_at) = if self.net == Net::V6 { (len - udp, ip + 4) } else { (len - ip, ip + 2) };
        frame[ip_len_at..ip_len_at + 2].copy_from_slice(&(ip_len as u16).to_be_bytes());
        frame[udp + 4..udp + 6].copy_from_slice(&((len - udp) as u16).to_be_bytes());
        seal(&mut frame[ip..]);
        frame
    }

    /// Hands a frame to the wire.
    pub(crate) fn inject(&mut self, frame: &[u8]) {
        self.peer.send(frame);
    }

    /// Sends a frame that is part of what came before, and forgets what is said to it.
    pub(crate) fn prepare(&mut self, frame: Vec<u8>) {
        self.inject(&frame);
        self.listen();
    }

    /// Lets the victim work, and returns what it says. Time stands still: nothing is said for want of an answer.
    pub(crate) fn listen(&mut self) -> Vec<Said> {
        for _ in 0..4 {
            self.engine.poll();
        }
        self.peer.receive().iter().map(|frame| self.understand(frame)).collect()
    }

    fn understand(&self, bytes: &[u8]) -> Said {
        let frame = Frame::parse(bytes).expect("the victim speaks RoCEv2");
        frame.verify_icrc().expect("its ICRC is right");
        let Headers { bth, ext } = frame.packet.headers;
        let ahead = bth.psn.since(self.theirs);
        match (bth.opcode, ext.aeth.map(|aeth| aeth.syndrome)) {
            (Opcode::RcAck, Some(Syndrome::Ack { .. })) => Said::Ack(ahead),
            (Opcode::RcAck, Some(Syndrome::Rnr { .. })) => Said::Rnr(ahead),
            (Opcode::RcAck, Some(Syndrome::Nak(code))) => Said::Nak(code, ahead),
            (opcode, Some(_)) | (opcode @ Opcode::RcReadResponseMiddle, _) => Said::Data(opcode, ahead),
            (opcode, None) => Said::Request(opcode, bth.psn.since(self.ours)),
        }
    }

    /// Posts a work request of the victim's and lets it send.
    pub(crate) fn post(&mut self, make: impl FnOnce(roci_driver::Buffer) -> SendWr, len: usize) {
        let wr = make(self.buffer(len));
        self.engine.post_send(self.qp, wr).expect("accepted");
        self.listen();
    }

    fn buffer(&self, len: usize) -> roci_driver::Buffer {
        let mut buffer = self.engine.buffer(len).expect("memory");
        buffer.fill(0x55);
        buffer
    }

    /// The counters that say what became of frames.
    pub(crate) fn counters(&self) -> BTreeMap<&'static str, u64> {
        let stats = self.engine.stats();
        assert!(stats.is_balanced());
        let is_ours = |name: &str| !name.starts_with("tx_") && name != "retransmitted_packets";
        stats.iter().filter(|(name, _)| is_ours(name)).collect()
    }

    /// Ends everything.
    pub(crate) fn remains(mut self) -> Remains {
        self.engine.destroy_qp(self.qp);
        let done = std::iter::from_fn(|| self.engine.poll_cq(self.cq));
        let ends = done.map(|done| (done.wr_id, (done.status.is_success(), done.buffer.to_vec()))).collect();
        let read = |&(pd, region): &(PdId, MemoryRegion)| {
            let mut bytes = vec![0; region.len()];
            self.engine.read_region(pd, region, 0, &mut bytes).expect("inside");
            bytes
        };
        Remains { regions: self.regions.iter().map(read).collect(), ends }
    }
}

fn addresses(net: Net) -> [IpAddr; 2] {
    let text = if net == Net::V6 { ["fd00::1", "fd00::2"] } else { ["10.0.0.1", "10.0.0.2"] };
    text.map(|ip| ip.parse().expect("an address"))
}

fn register_all(
    engine: &mut Engine<SimLink>,
    [ours, foreign]: [PdId; 2],
    [qp, other]: [QueuePair; 2],
    regions: &mut Vec<(PdId, MemoryRegion)>,
) -> Keys {
    let all = Access::REMOTE_READ.and(Access::REMOTE_WRITE).and(Access::REMOTE_ATOMIC).and(Access::WINDOW_BIND);
    let mut add = |engine: &mut Engine<SimLink>, pd, access| {
        let mut buffer = engine.buffer(REGION).expect("memory");
        buffer.fill(0x11);
        let region = engine.register(pd, buffer, access).expect("a free key");
        regions.push((pd, region));
        region
    };
    let mut keys = Keys {
        open: add(engine, ours, all).rkey(),
        read_only: add(engine, ours, Access::REMOTE_READ).rkey(),
        write_only: add(engine, ours, Access::REMOTE_WRITE).rkey(),
        local: add(engine, ours, Access::LOCAL).rkey(),
        foreign: add(engine, foreign, all).rkey(),
        dead: Rkey(0),
        window: Rkey(0),
        other_window: Rkey(0),
    };
    let region = add(engine, ours, Access::WINDOW_BIND);
    for (qp, key) in [(qp, &mut keys.window), (other, &mut keys.other_window)] {
        let mut window = engine.alloc_window(ours).expect("a free key");
        let view = WindowView { region, va: 10, len: 20, access: Access::REMOTE_WRITE };
        engine.bind_window(qp, 0, &mut window, view).expect("accepted");
        *key = window.rkey();
    }
    let gone = engine.buffer(REGION).expect("memory");
    let gone = engine.register(ours, gone, all).expect("a free key");
    engine.deregister(gone).expect("it was registered");
    keys.dead = gone.rkey();
    keys
}

/// Makes IPv4's header checksum and the ICRC of a datagram right, as far as it is one.
fn seal(datagram: &mut [u8]) {
    if datagram[0] >> 4 == 4 {
        datagram[10..12].fill(0);
        let sum = datagram[..20].chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum::<u32>();
        let folded = (sum & 0xffff) + (sum >> 16);
        let folded = (folded & 0xffff) + (folded >> 16);
        datagram[10..12].copy_from_slice(&(!(folded as u16)).to_be_bytes());
    }
    let Ok((register, headers)) = icrc::Register::after_udp(datagram) else { return };
    let end = datagram.len() - icrc::LEN;
    if end < headers + 12 {
        return;
    }
    let icrc = register.finish(&datagram[headers..end]);
    datagram[end..].copy_from_slice(&icrc);
}
