//! The bench of the lab: our engine at one end of the wire, the guest's verbs at the other.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::{IpAddr, TcpStream};
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};

use roci_driver::link::dpdk::{Attachment, Device, DpdkLink};
use roci_driver::link::live::AnyLink;
use roci_driver::link::udp::{UdpAddress, UdpLink};
use roci_driver::neighbour::Interface;
use roci_driver::{
    Access, Address, Buffer, CompletionQueue, Dialect, Engine, MemoryRegion, Mtu, PdId, PortConfig, QpParams,
    QueuePair, SendWr, UnconnectedQp, WcStatus, WorkCompletion,
};
use roci_protocol::lint::{End, Opening};
use roci_protocol::wire::MacAddr;
use roci_protocol::{Psn, Qpn, Rkey};

use crate::LabError;
use crate::guest::{self, Guest, GuestConfig, GuestWire};
use crate::lint;
use crate::machine::ConsoleLine;
use crate::wire::{LabLink, LossRule, PacketObserver, Script, WireEvent};

/// How long a completion may take: emulation is slow.
const PATIENCE: Duration = Duration::from_secs(30);
const ARENA: usize = 64 << 20;
const STALE: u8 = 0xee;
const OUR_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];

/// A route between a GID of ours and one of the guest's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct GidRoute {
    /// Which of our addresses.
    pub(crate) address: usize,
    pub(crate) ours: &'static str,
    pub(crate) theirs: &'static str,
    /// The guest's index of its GID.
    pub(crate) gid: usize,
}

/// IPv4, untagged.
pub(crate) const V4: GidRoute = GidRoute { address: 0, ours: "10.77.0.1", theirs: "10.77.0.2", gid: 1 };
/// IPv6, untagged.
pub(crate) const V6: GidRoute = GidRoute { address: 1, ours: "fd77::1", theirs: "fd77::2", gid: 2 };
/// IPv4 in VLAN 7.
pub(crate) const VLAN: GidRoute = GidRoute { address: 2, ours: "10.78.0.1", theirs: "10.78.0.2", gid: 3 };
const VLAN_ID: u16 = 7;

const GUEST_SETUP: &[&str] = &[
    "sysctl -qw net.ipv6.conf.all.accept_dad=0 net.ipv6.conf.eth0.accept_dad=0",
    "ip link set eth0 mtu 9000",
    "ip link set eth0 up",
    "ip addr add 10.77.0.2/24 dev eth0",
    "ip addr add fd77::2/64 dev eth0 nodad",
    "rdma link add rxe0 type rxe netdev eth0",
    "ip link add link eth0 name eth0.7 type vlan id 7",
    "ip addr add 10.78.0.2/24 dev eth0.7",
    "ip link set eth0.7 up",
    "verbs_peer -d",
];

/// What a pair of queue pairs is connected with.
#[derive(Clone)]
pub(crate) struct PairTerms {
    pub(crate) route: GidRoute,
    pub(crate) mtu: Mtu,
    /// Our first PSN and theirs.
    pub(crate) psns: [u32; 2],
    pub(crate) params: QpParams,
    /// More words for the guest's `connect`.
    pub(crate) theirs: String,
}

impl Default for PairTerms {
    fn default() -> Self {
        // How long a machine takes under emulation says nothing about its packets: we do not give up.
        let params = QpParams { retry_limit: 1000, rnr_retry_limit: None, access: all_access(), ..QpParams::default() };
        Self { route: V4, mtu: Mtu::Mtu1024, psns: [0x10_0000, 0x20_0000], params, theirs: String::new() }
    }
}

pub(crate) fn all_access() -> Access {
    Access::REMOTE_READ.and(Access::REMOTE_WRITE).and(Access::REMOTE_ATOMIC).and(Access::WINDOW_BIND)
}

/// How long the scenarios run that can run long, and what their dice begin with.
#[derive(Clone, Copy)]
pub(crate) struct Form {
    /// `None` is the short form.
    pub(crate) time: Option<Duration>,
    pub(crate) seed: u64,
}

/// The two ends.
pub(crate) struct Lab {
    pub(crate) engine: Engine<LabLink>,
    pub(crate) pd: PdId,
    pub(crate) cq: CompletionQueue,
    pub(crate) script: Rc<RefCell<Script>>,
    pub(crate) guest: Guest,
    pub(crate) form: Form,
    verbs: Option<ConsoleLine<TcpStream>>,
    /// Our port carries frames; else it is a socket for each address.
    is_vhost: bool,
}

/// Our queue pair, and the guest's that it is connected to.
#[derive(Clone, Copy)]
pub(crate) struct GuestPair {
    pub(crate) qp: QueuePair,
    /// The guest's name for its own.
    pub(crate) theirs: u32,
}

/// A memory region of the guest.
#[derive(Clone, Copy)]
pub(crate) struct GuestMemory {
    pub(crate) mr: u32,
    pub(crate) addr: u64,
    pub(crate) rkey: Rkey,
}

/// The reply of the guest's verbs program: its values by name.
pub(crate) type GuestReply = BTreeMap<String, String>;

impl Lab {
    /// Brings our port up, boots the guest on it, and sets the guest up.
    pub(crate) fn start(directory: &Path, image: &Path, wire: GuestWire, form: Form) -> Result<Self, LabError> {
        let is_vhost = wire == GuestWire::Vhost;
        let plan = GuestConfig { directory: directory.to_owned(), image: image.to_owned(), wire };
        let socket = plan.data_socket();
        let (tell, started) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let deadline = Instant::now() + PATIENCE;
            while is_vhost && !plan.data_socket().exists() && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(10));
            }
            // The socket's name appears a moment before it listens.
            std::thread::sleep(Duration::from_millis(100));
            // If the receiver is gone, the machine ends here.
            let _ = tell.send(plan.start().map_err(|failure| failure.to_string()));
            // The machine lives as long as the thread that started it.
            loop {
                std::thread::park();
            }
        });
        let links = if is_vhost { vec![open_vhost(&socket)?] } else { open_sockets()? };
        let starting = started.recv()??;
        let script = Rc::new(RefCell::new(Script::default()));
        let mut engine = Engine::new(ARENA)?;
        for link in links {
            let host = our_host(&link)?;
            let port = engine.add_port_with(LabLink::new(link, script.clone()), host)?;
            if is_vhost {
                engine.check_zero_copy(port)?;
            }
        }
        let (pd, cq) = (engine.alloc_pd(), engine.create_cq(1024));
        let guest = starting.ready(|| drop_count(engine.poll()))?;
        let mut lab = Self { engine, pd, cq, script, guest, form, verbs: None, is_vhost };
        for command in GUEST_SETUP {
            lab.run(command)?;
        }
        Ok(lab)
    }

    /// The port of a route of ours, and its address there: a VLAN needs a port that carries frames.
    pub(crate) fn place(&self, route: GidRoute) -> Result<(usize, usize), LabError> {
        match (self.is_vhost, route) {
            (true, _) => Ok((0, route.address)),
            (false, V4) => Ok((0, 0)),
            (false, V6) => Ok((1, 0)),
            (false, _) => Err("a socket has no VLAN".into()),
        }
    }

    /// Forgets what the last scenario left behind.
    pub(crate) fn begin(&mut self) {
        self.begin_part();
        *self.script.borrow_mut() = Script::default();
    }

    /// The same for a part of a scenario: the record of the wire goes on.
    pub(crate) fn begin_part(&mut self) {
        self.verbs = None;
        while self.engine.poll_cq(self.cq).is_some() {}
        while self.engine.poll_event().is_some() {}
    }

    /// Begins a session with the guest's verbs, and the record, anew: what happens on the wire goes on. Fails, and keeps the
    /// record, where the lint finds a broken rule in it.
    pub(crate) fn renew(&mut self) -> Result<(), LabError> {
        self.verbs = None;
        let events = &mut self.script.borrow_mut().events;
        lint::judge(events).failure().map_or(Ok(()), Err)?;
        events.clear();
        Ok(())
    }

    /// Loses the packets that `rule` points at.
    pub(crate) fn lose(&self, rule: LossRule) {
        self.script.borrow_mut().rule = Some(rule);
    }

    /// Shows `watch` each packet, and what happens to it.
    pub(crate) fn watch(&self, watch: PacketObserver) {
        self.script.borrow_mut().watch = Some(watch);
    }

    /// Runs a shell command in the guest.
    pub(crate) fn run(&mut self, command: &str) -> Result<String, LabError> {
        let Self { engine, guest, .. } = self;
        guest.run(command, &mut || drop_count(engine.poll()))
    }

    /// Asks the guest's verbs; the first question of a scenario opens a session on `route`.
    pub(crate) fn ask(&mut self, question: &str) -> Result<GuestReply, LabError> {
        let line = self.ask_line(question)?;
        Ok(words(&line))
    }

    /// Asks, and returns the whole answer.
    pub(crate) fn ask_line(&mut self, question: &str) -> Result<String, LabError> {
        Ok(self.ask_all(&[question.to_owned()])?.remove(0))
    }

    /// Asks without waiting for the answers in between, which must all be good; returns each whole.
    pub(crate) fn ask_all(&mut self, questions: &[String]) -> Result<Vec<String>, LabError> {
        let Self { engine, guest, verbs, .. } = self;
        let mut poll = || drop_count(engine.poll());
        let session = match verbs {
            Some(session) => session,
            None => verbs.insert(guest.verbs()?),
        };
        for question in questions {
            session.send(question, &mut poll)?;
        }
        let mut answers = Vec::new();
        for question in questions {
            let line = session.answer(&mut poll)?;
            match line.strip_prefix("ok") {
                Some(rest) => answers.push(rest.trim().to_owned()),
                None => return Err(format!("'{question}': {line}").into()),
            }
        }
        Ok(answers)
    }

    /// A connected pair over `terms`.
    pub(crate) fn connect(&mut self, terms: &PairTerms) -> Result<GuestPair, LabError> {
        if self.verbs.is_none() {
            self.ask(&format!("open gid={}", terms.route.gid))?;
        }
        let theirs = self.ask("qp type=rc")?;
        self.connect_with(terms, number(&theirs, "qp")?, number(&theirs, "qpn")?, None)
    }

    /// Ends our half of a connection, and discards its completions that were not polled.
    pub(crate) fn disconnect(&mut self, pair: GuestPair) {
        self.engine.destroy_qp(pair.qp);
        while self.engine.poll_cq(self.cq).is_some() {}
    }

    /// Connects to a queue pair of the guest's that is in INIT.
    pub(crate) fn connect_with(
        &mut self,
        terms: &PairTerms,
        qp: u32,
        qpn: u32,
        srq: Option<roci_driver::SharedReceiveQueue>,
    ) -> Result<GuestPair, LabError> {
        let GidRoute { ours, theirs, .. } = terms.route;
        let (port, address) = self.place(terms.route)?;
        let mut near = self.engine.create_qp_at(port, address, self.pd, self.cq)?;
        near.set_starting_psn(Psn::new(terms.psns[0]));
        if let Some(srq) = srq {
            self.engine.share_receives(&mut near, srq)?;
            self.record(WireEvent::Shared(End { ip: ours.parse()?, qpn: near.qpn() }));
        }
        let [our_psn, their_psn] = terms.psns;
        self.ask(&format!(
            "connect qp={qp} dqpn={} dgid={ours} sq_psn={their_psn} rq_psn={our_psn} mtu={} {}",
            near.qpn().get(),
            terms.mtu.bytes(),
            terms.theirs
        ))?;
        let peer = Address {
            mac: MacAddr(guest::MAC),
            ip: theirs.parse()?,
            qpn: Qpn::new(qpn),
            psn: Psn::new(their_psn),
            mtu: terms.mtu,
            max_rd_atomic: 16,
            dialect: Dialect::Verbs,
            icrc: true,
        };
        self.record_opening(&near, terms.route, &peer)?;
        let params = QpParams { mtu: terms.mtu, ..terms.params.clone() };
        let near = self.engine.connect(near, &peer, &params)?;
        Ok(GuestPair { qp: near, theirs: qp })
    }

    /// Announces to the lint a connection that is about to begin.
    pub(crate) fn record_opening(&self, near: &UnconnectedQp, route: GidRoute, peer: &Address) -> Result<(), LabError> {
        let ours = End { ip: route.ours.parse()?, qpn: near.qpn() };
        let ends = [ours, End { ip: peer.ip, qpn: peer.qpn }];
        self.record(WireEvent::Opened(Opening { ends, first_psns: [near.starting_psn(), peer.psn], mtu: peer.mtu }));
        Ok(())
    }

    pub(crate) fn record(&self, event: WireEvent) {
        self.script.borrow_mut().events.push(event);
    }

    /// Memory of the guest's, with all rights.
    pub(crate) fn remote(&mut self, len: usize) -> Result<GuestMemory, LabError> {
        let answer = self.ask(&format!("mr size={} access=lrwab", len.max(1)))?;
        Ok(GuestMemory {
            mr: number(&answer, "mr")?,
            addr: wide(&answer, "addr")?,
            rkey: Rkey(number(&answer, "rkey")?),
        })
    }

    /// A region of ours, with all rights, that holds `bytes`.
    pub(crate) fn region(&mut self, bytes: &[u8]) -> Result<MemoryRegion, LabError> {
        let buffer = self.buffer(bytes)?;
        Ok(self.engine.register(self.pd, buffer, all_access()).map_err(|_| "no key is free")?)
    }

    /// What a region of ours holds.
    pub(crate) fn content(&self, region: MemoryRegion) -> Result<Vec<u8>, LabError> {
        let mut bytes = vec![0; region.len()];
        self.engine.read_region(self.pd, region, 0, &mut bytes).ok_or("outside of the region")?;
        Ok(bytes)
    }

    pub(crate) fn buffer(&self, bytes: &[u8]) -> Result<Buffer, LabError> {
        let mut buffer = self.engine.buffer(bytes.len())?;
        buffer.copy_from_slice(bytes);
        Ok(buffer)
    }

    pub(crate) fn post(&mut self, pair: GuestPair, wr: SendWr) -> Result<(), LabError> {
        self.engine.post_send(pair.qp, wr).map_err(|refused| refused.why.into())
    }

    /// A buffer for a receive, full of what no message is full of.
    pub(crate) fn stale_buffer(&self, len: usize) -> Result<Buffer, LabError> {
        self.buffer(&vec![STALE; len])
    }

    pub(crate) fn post_recv(&mut self, pair: GuestPair, wr_id: u64, len: usize) -> Result<(), LabError> {
        let buffer = self.stale_buffer(len)?;
        self.engine.post_recv(pair.qp, wr_id, buffer).map_err(|refused| refused.why)?;
        self.record(WireEvent::Posted(pair.qp.qpn()));
        Ok(())
    }

    /// Our next completion.
    pub(crate) fn wait(&mut self) -> Result<WorkCompletion, LabError> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(done) = self.engine.poll_cq(self.cq) {
                return Ok(done);
            }
            if Instant::now() > deadline {
                return Err(format!("no completion within {PATIENCE:?}").into());
            }
            self.engine.poll();
        }
    }

    /// Our next completion, which must be a success.
    pub(crate) fn wait_ok(&mut self) -> Result<WorkCompletion, LabError> {
        let done = self.wait()?;
        match done.status {
            WcStatus::Success => Ok(done),
            status => Err(format!("wr {} ended with {}", done.wr_id, status.verbs_name()).into()),
        }
    }

    /// The guest's next `n` completions.
    pub(crate) fn their_completions(&mut self, n: usize) -> Result<Vec<GuestReply>, LabError> {
        let line = self.ask_line(&format!("poll n={n} ms=20000"))?;
        completions(&line, n)
    }

    /// The guest's next completion, which must be a success.
    pub(crate) fn they_succeed(&mut self) -> Result<GuestReply, LabError> {
        let done = self.their_completions(1)?.remove(0);
        match done.get("status").map(String::as_str) {
            Some("IBV_WC_SUCCESS") => Ok(done),
            status => Err(format!("the guest's work ended with {status:?}").into()),
        }
    }

    /// Polls for a while.
    pub(crate) fn idle(&mut self, time: Duration) {
        let end = Instant::now() + time;
        while Instant::now() < end {
            self.engine.poll();
        }
    }
}

/// The completions in the answer to a `poll`.
pub(crate) fn completions(line: &str, n: usize) -> Result<Vec<GuestReply>, LabError> {
    let found: Vec<_> = line.split(';').skip(1).map(words).collect();
    if found.len() == n { Ok(found) } else { Err(format!("{n} completions were due: {line}").into()) }
}

/// This host: one address of each kind.
fn our_host(link: &AnyLink) -> Result<PortConfig, LabError> {
    if let AnyLink::Udp(socket) = link {
        let interfaces = vec![Interface { ip: socket.own().ip(), prefix: 0, vlan: None }];
        return Ok(PortConfig { interfaces, ..PortConfig::default() });
    }
    let interface = |route: GidRoute, prefix, vlan| -> Result<Interface, LabError> {
        Ok(Interface { ip: route.ours.parse::<IpAddr>()?, prefix, vlan })
    };
    let interfaces = vec![interface(V4, 24, None)?, interface(V6, 64, None)?, interface(VLAN, 24, Some(VLAN_ID))?];
    Ok(PortConfig { interfaces, is_point_to_point: true, ..PortConfig::default() })
}

fn open_vhost(socket: &Path) -> Result<AnyLink, LabError> {
    let attachment = Attachment::pair(Device::Vhost, socket, true, OUR_MAC);
    let mut links = DpdkLink::open_all(&[attachment], Duration::from_secs(90), &mut || false)?;
    Ok(links.remove(0).into())
}

/// A socket at each of our addresses outside of VLANs, in the order of [`Lab::place`].
fn open_sockets() -> Result<Vec<AnyLink>, LabError> {
    let open = |route: GidRoute| -> Result<AnyLink, LabError> {
        Ok(UdpLink::open(UdpAddress { ip: Some(route.ours.parse()?), port: Some(4791) }, None)?.into())
    };
    Ok(vec![open(V4)?, open(V6)?])
}

/// The bytes that the guest's `fill` and `check` know by a seed.
pub(crate) fn pattern(seed: u8, len: usize) -> Vec<u8> {
    (0..len).map(|at| (usize::from(seed) + at * 7 + (at >> 8)) as u8).collect()
}

fn words(line: &str) -> GuestReply {
    line.split_whitespace().filter_map(|word| word.split_once('=')).map(|(k, v)| (k.into(), v.into())).collect()
}

pub(crate) fn wide(answer: &GuestReply, key: &str) -> Result<u64, LabError> {
    let text = answer.get(key).ok_or_else(|| format!("the answer lacks {key}: {answer:?}"))?;
    let parsed = match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => text.parse(),
    };
    Ok(parsed?)
}

pub(crate) fn number(answer: &GuestReply, key: &str) -> Result<u32, LabError> {
    Ok(u32::try_from(wide(answer, key)?)?)
}

/// Polling returns how much came in, which is not needed here.
fn drop_count(_: usize) {}
