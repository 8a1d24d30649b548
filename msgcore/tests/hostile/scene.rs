//! The victim at rank 0, the hostile peer at rank 1, and an honest worker at rank 2.

use rand::Rng;
use rand::rngs::StdRng;
use roci_driver::link::faulty::Faulty;
use roci_driver::link::sim::{Clock, Net, SimLink};
use roci_driver::{CompletionQueue, Operation, QpParams, QueuePair, Rkey, SendWr, UnconnectedQp};
use roci_msgcore::active::{ActiveMessage, HandlerContext, HandlerId};
use roci_msgcore::config::Origin;
use roci_msgcore::one_sided::{AtomicOp, AtomicWidth, RemoteAccess, SegmentKey};
use roci_msgcore::receive_queues::Kind;
use roci_msgcore::{
    CallError, Config, Context, OpError, Pattern, Ports, Request, SendOptions, Source, Tag, TagMatch, Worker,
    WorkerEvent,
};
use roci_protocol::msg::{self, Capabilities, ConnectionTerms, Header, Label, Message, Mode, QueueTerms};
use roci_testkit::World;

use crate::facade::TestWorker;
use crate::messages::{Known, OFFER, OFFERED, SEGMENT};

const PATIENCE: usize = 400_000;
const HONEST: Context = Context::new(5);

/// A scene whose victim has its engine inside its calls.
pub(crate) type Scene = AnyScene<false>;
/// A scene with a dedicated victim, whose engine takes its turns when the scene lets it.
pub(crate) type DedicatedScene = AnyScene<true>;

pub(crate) struct AnyScene<const DEDICATED: bool> {
    clock: Clock,
    net: Net,
    victim: TestWorker,
    honest: TestWorker,
    peer: Ports<Faulty<SimLink>>,
    cq: CompletionQueue,
    qps: Vec<QueuePair>,
    cut: Box<dyn Fn()>,
    config: Config,
    known: Known,
    requests: Vec<Request>,
    memory: usize,
    /// The peer takes no more messages than it has receives.
    pub(crate) is_deaf: bool,
    /// The address of the peer's first queue pair, by which the victim knows the connection.
    pub(crate) first_address: String,
}

fn config(settings: &[(&str, &str)]) -> Config {
    let mut config = Config::default();
    let common =
        [("arena_size", "32MiB"), ("retry_limit", "4"), ("ack_timeout_us", "100"), ("ack_timeout_max_us", "200")];
    let firehoses = [("firehose_bucket", "4KiB"), ("firehose_m", "1"), ("firehose_maxvictim_m", "1")];
    for (name, value) in common.iter().chain(&firehoses).chain(settings) {
        config.set(name, value, Origin::Code).unwrap_or_else(|error| panic!("{error}"));
    }
    config
}

impl<const DEDICATED: bool> AnyScene<DEDICATED> {
    pub(crate) fn new(settings: &[(&str, &str)], seed: u64) -> Self {
        let (clock, config) = (Clock::default(), config(settings));
        let links = SimLink::switch(&clock, 3);
        let cut = Box::new(links[1].cutter());
        let net = links[0].net();
        net.record();
        let hosts = [1, 2, 3].map(|host| [10, 0, 0, host].into());
        let engine = |((link, host), number)| {
            let mut engine = roci_testkit::engine(config.arena_size, seed << 2 | number);
            engine.add_port(Faulty::new(link, config.faults, number + 1), host, false);
            engine
        };
        let engines = links.into_iter().zip(hosts).zip(0..).map(engine).collect();
        let [victim, mut peer, honest] = Ports::group(engines, &hosts).try_into().unwrap_or_else(|_| unreachable!());
        let worker = |ports| Worker::assemble(ports, &config).unwrap_or_else(|error| panic!("{error}"));
        let (victim, honest) = (worker(victim), TestWorker::inline(worker(honest)));
        let victim = if DEDICATED { TestWorker::dedicated(victim, &config) } else { TestWorker::inline(victim) };
        let mut victim = victim;
        let key = open_to_peers(&mut victim);
        let memory = victim.memory();
        let cq = peer.engine.create_cq(10_000);
        // As `HandlerId::of("echo")` is on the wire.
        let handler =
            b"echo".iter().fold(0x811c_9dc5, |hash, &byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
        let known = Known { names: Vec::new(), own: 1 << 32, keys: vec![key], sequence: 0, series: None, handler };
        let (qps, requests, first_address) = (Vec::new(), Vec::new(), String::new());
        Self {
            clock,
            net,
            victim,
            honest,
            peer,
            cq,
            qps,
            cut,
            config,
            known,
            requests,
            memory,
            is_deaf: false,
            first_address,
        }
    }

    /// A queue pair of the hostile peer's, and its address.
    fn create(&mut self) -> (UnconnectedQp, String) {
        let qp = self.peer.engine.create_qp(0, self.peer.pd, self.cq).expect("room");
        let address = self.peer.engine.address_of(&qp, &params());
        (qp, address.to_string())
    }

    /// An address that somebody could connect to.
    pub(crate) fn address(&mut self) -> String {
        let (qp, address) = self.create();
        self.peer.engine.discard_qp(qp);
        address
    }

    pub(crate) fn mail(&mut self, text: &str) {
        let mail = self.peer.mail.as_mut().expect("a group has mail");
        // It is full where the victim does not read.
        let _ = mail.send(0, text);
    }

    /// Connects as a worker does, and sends terms, which `spoil` makes wrong.
    pub(crate) fn connect(&mut self, spoil: Option<&mut StdRng>) {
        let lanes = self.config.receive_queues().len();
        let (qps, addresses): (Vec<_>, Vec<_>) = (0..lanes).map(|_| self.create()).unzip();
        self.mail(&format!("ask {}", addresses.join(";")));
        self.first_address.clone_from(&addresses[0]);
        let answer = loop {
            self.step();
            if let Some((0, text)) = self.peer.mail.as_mut().expect("mail").poll().expect("always") {
                break text;
            }
        };
        let theirs = answer.strip_prefix("grant ").expect("it was asked as it should be");
        for (qp, address) in qps.into_iter().zip(theirs.split(';')) {
            let address = address.parse().expect("an address");
            let qp = self.peer.engine.connect(qp, &address, &params()).expect("one IP version");
            (0..200).for_each(|_| self.post_receive(qp));
            self.qps.push(qp);
        }
        let mut bytes = [0; ConnectionTerms::LEN];
        self.terms().emit(&mut bytes);
        if let Some(dice) = spoil {
            let at = dice.random_range(0..bytes.len());
            bytes[at] = dice.random();
        }
        self.send(0, &Header::new(Message::Terms), &bytes);
        // The victim's own may have to be repeated: it was sent before its peer was up.
        (0..2_000).for_each(|_| {
            if !self.victim_talks() {
                self.step();
            }
        });
    }

    /// What was said, and when.
    pub(crate) fn trace(&self) -> Option<u64> {
        self.net.trace()
    }

    fn terms(&self) -> ConnectionTerms {
        let queues = self.config.receive_queues();
        let of_queue = |queue: &roci_msgcore::receive_queues::ReceiveQueue| {
            let is_shared = matches!(queue.kind, Kind::Shared { .. });
            QueueTerms { is_shared, credits: 64, missing: 0, reserve: 64, size: queue.size as u32 }
        };
        ConnectionTerms {
            rank: 1,
            capabilities: Capabilities { rdma: true },
            queues: queues.iter().map(of_queue).collect(),
        }
    }

    fn post_receive(&mut self, qp: QueuePair) {
        let buffer = self.peer.engine.buffer(self.config.receive_queues().largest()).expect("memory");
        // A queue pair that has failed takes none.
        let _ = self.peer.engine.post_recv(qp, 0, buffer);
    }

    fn send(&mut self, lane: usize, header: &Header, payload: &[u8]) {
        let mut buffer = self.peer.engine.buffer(msg::LEN + payload.len()).expect("memory");
        header.emit(&mut buffer);
        buffer[msg::LEN..].copy_from_slice(payload);
        // A queue pair that has failed takes none.
        let _ = self.peer.engine.post_send(self.qps[lane], SendWr::send(0, buffer));
    }

    /// The victim begins something that the peer could answer.
    pub(crate) fn provoke(&mut self, dice: &mut StdRng) {
        let tag = Tag::new(dice.random_range(0..3));
        let outcome = match dice.random_range(0..10) {
            0..2 => {
                let len = *[10, 2_000, 20_000].get(dice.random_range(0..3)).expect("three");
                let payload = self.victim.buffer(len).expect("memory");
                let options = SendOptions::default();
                let options = if dice.random() { options.synchronous() } else { options };
                self.victim.send_with(1.into(), tag, payload, options).map_err(CallError::from)
            }
            2 => self.victim.recv_in_place(Pattern::new(Source::Any, TagMatch::Any)),
            3 => {
                let buffer = self.victim.buffer(10_000).expect("memory");
                self.victim.recv(1, tag, buffer).map_err(CallError::from)
            }
            4 => {
                let room = self.victim.buffer(dice.random_range(0..40_000)).expect("memory");
                let pattern = Pattern::new(Source::Any, tag);
                self.victim.recv_multi(pattern, room, 100, 0).map_err(CallError::from)
            }
            6 | 7 => self.operate(dice),
            5 if !self.requests.is_empty() => {
                return self.victim.cancel(self.requests[dice.random_range(0..self.requests.len())]);
            }
            _ => return,
        };
        // A peer that is gone is refused, which of a dedicated victim's call is the outcome.
        self.requests.extend(outcome.ok());
    }

    /// Operates on memory of the peer's, under a key that it would have given.
    fn operate(&mut self, dice: &mut StdRng) -> Result<Request, CallError> {
        // Its length is 16 KiB.
        let mut theirs = [0; SegmentKey::LEN];
        theirs[9] = 64;
        // It is exposed, or offered in pages, of which four may be held.
        if dice.random() {
            (theirs[20], theirs[22]) = (4, 12);
        }
        let theirs = SegmentKey::from_bytes(&theirs).expect("16 KiB");
        // Or under one of the keys of which the peer may speak.
        let is_requested = dice.random_ratio(1, 3);
        let theirs = if is_requested { SegmentKey::requested(dice.random_range(0..4)) } else { theirs };
        let at = theirs.at(8 * dice.random_range(0..100));
        let buffer = self.victim.buffer(dice.random_range(0..4000)).expect("memory");
        match dice.random_range(0..4) {
            0 => self.victim.put_with(1.into(), buffer, at, None).map_err(CallError::from),
            1 => self.victim.get_from(1.into(), buffer, at).map_err(CallError::from),
            2 => self.victim.atomic_with(1.into(), AtomicOp::Xor(1), AtomicWidth::U32, at),
            _ => self.victim.request_active(1.into(), HandlerId::of("echo"), &[1], &[2; 100]),
        }
    }

    pub(crate) fn say_something(&mut self, dice: &mut StdRng) {
        let lane = dice.random_range(0..self.qps.len());
        let room = self.config.receive_queues().get(lane).expect("a lane").size - msg::LEN;
        if dice.random_ratio(1, 8) {
            let (header, behind) = self.known.coalesced(dice, room);
            return self.send(lane, &header, &behind[..behind.len().min(room)]);
        }
        let (header, len) = self.known.header(dice, room);
        let payload = match header.message {
            Message::Firehose { .. } => Known::firehoses(dice),
            _ => vec![7; len],
        };
        self.send(lane, &header, &payload[..payload.len().min(room)]);
    }

    /// The victim waits for so many short messages under a tag.
    pub(crate) fn expect_messages(&mut self, count: usize, tag: Tag) {
        for _ in 0..count {
            let buffer = self.victim.buffer(8).expect("memory");
            self.requests.push(self.victim.recv(1, tag, buffer).expect("accepted"));
        }
    }

    /// Says the next short message under a tag, which brings so many credits.
    pub(crate) fn say_eagerly(&mut self, tag: Tag, credits: u16) {
        let (label, id) = (Label { context: 0, tag: tag.get(), data: None }, u64::from(self.known.sequence));
        let message = Message::Eager { label, len: 8, id, mode: Mode::Standard };
        let header = Header { credits, sequence: self.known.sequence, ..Header::new(message) };
        self.known.sequence = self.known.sequence.wrapping_add(1);
        self.send(0, &header, &[7; 8]);
    }

    /// Asks for firehoses to so many buckets at once.
    pub(crate) fn say_long_move(&mut self, count: u32) {
        let bytes = [&[1, 1, 0, 1, 0, 0][..], &[0; 10], &1_u64.to_be_bytes(), &count.to_be_bytes()].concat();
        self.send(0, &Header::new(Message::Firehose { get: None }), &bytes);
    }

    /// Asks for a firehose to a bucket, in place of another.
    pub(crate) fn say_move(&mut self, to: u64, instead: Option<u64>) {
        let (new, old) = ([0, 1], [0, u8::from(instead.is_some())]);
        let mut bytes = [&[1, 1][..], &new, &old, &[0; 10]].concat();
        for bucket in [Some(to), instead].into_iter().flatten() {
            bytes.extend(bucket.to_be_bytes());
            bytes.extend(1_u32.to_be_bytes());
        }
        self.send(0, &Header::new(Message::Firehose { get: None }), &bytes);
    }

    /// Asks so often what a key of the victim's stands for.
    pub(crate) fn say_find_key(&mut self, count: usize) {
        (0..count).for_each(|_| self.send(0, &Header::new(Message::FindKey { key: 1 }), &[]));
    }

    /// How many of the victim's receives have met a message; they are forgotten. A dedicated one knows of those that ended in
    /// the steps before.
    pub(crate) fn take_received(&mut self) -> usize {
        let before = self.requests.len();
        self.requests.retain(|&request| self.victim.test(request).is_none());
        before - self.requests.len()
    }

    pub(crate) fn victim_talks(&self) -> bool {
        self.victim.is_connected(1)
    }

    /// What has happened to the victim. A dedicated one has at hand what its ring holds, and more after a turn.
    pub(crate) fn next_event(&mut self) -> Option<WorkerEvent> {
        self.victim.poll_event().or_else(|| {
            self.victim.take_turn();
            self.victim.poll_event()
        })
    }

    pub(crate) fn cut_peer(&self) {
        (self.cut)();
    }

    /// The victim has ended the peer, or does so now that it has gone: why.
    pub(crate) fn end_of_peer(&mut self) -> String {
        self.steps(20);
        self.cut_peer();
        for _ in 0..PATIENCE {
            let event = self.next_event();
            if let Some(WorkerEvent::PeerGone { peer, ref error }) = event
                && peer == 1
            {
                assert!(
                    matches!(
                        error,
                        OpError::PeerProtocol { .. } | OpError::PeerGone { .. } | OpError::NotConnected { .. }
                    ),
                    "{error}"
                );
                return error.to_string();
            }
            assert!(!matches!(event, Some(WorkerEvent::PeerGone { .. })), "{event:?}");
            self.requests.extend(self.victim.send_bytes(1.into(), Tag::new(9), b"are you there?").ok());
            self.steps(100);
        }
        panic!("the peer is never missed");
    }

    /// Messages both ways, short and long, between the victim and the honest worker.
    pub(crate) fn expect_honest_conversation(&mut self) {
        for len in [5, 100_000] {
            let tag = Tag::new(77);
            let bytes: Vec<u8> = (0..len).map(|at| (at * 7) as u8).collect();
            let buffers = (self.victim.buffer(len).expect("memory"), self.honest.buffer(len).expect("memory"));
            // In a context of their own: the others' wildcards must not take these.
            let pattern = |from: usize| Pattern::new(from, tag).within(HONEST);
            let there = self.honest.recv_with(pattern(0), buffers.1).expect("accepted");
            let back = self.victim.recv_with(pattern(2), buffers.0).expect("accepted");
            let sends = (say(&mut self.victim, 2, tag, &bytes), say(&mut self.honest, 0, tag, &bytes));
            let (mut there, mut back) = ((there, false), (back, false));
            for _ in 0..PATIENCE {
                self.step();
                check(&mut self.honest, &mut there, &bytes);
                check(&mut self.victim, &mut back, &bytes);
                if there.1 && back.1 {
                    break;
                }
            }
            assert!(there.1 && back.1, "{:?}", self.victim.stats());
            self.steps(1_000);
            self.victim.test(sends.0).expect("it arrived").expect("sent");
            self.honest.test(sends.1).expect("it arrived").expect("sent");
        }
    }

    /// All requests end, all that came can be received, and all memory returns.
    pub(crate) fn expect_no_leak(&mut self) {
        for request in std::mem::take(&mut self.requests) {
            self.victim.cancel(request);
            drop(self.victim.test_in_turn(request).expect("nothing waits for a peer that is gone"));
        }
        while let Some(part) = self.victim.poll_completion() {
            assert!(!part.is_last, "the end of a multi-receive was taken by its name");
        }
        let pattern = Pattern::new(Source::Any, TagMatch::Any);
        while self.victim.probe(pattern).is_some() {
            let request = self.victim.recv_in_place(pattern).expect("accepted");
            let _ = self.victim.test_in_turn(request).expect("all of it is here");
        }
        self.steps(1_000);
        self.victim.inside().check_invariants().expect("what must hold");
        assert_eq!(self.victim.inside().unexpected_bytes(), 0);
        assert_eq!(self.victim.memory(), self.memory);
    }
}

impl<const DEDICATED: bool> World for AnyScene<DEDICATED> {
    fn clock(&self) -> &Clock {
        &self.clock
    }

    fn run(&mut self) {
        self.victim.progress();
        self.honest.progress();
        self.peer.engine.poll();
        while let Some(done) = self.peer.engine.poll_cq(self.cq) {
            if done.operation == Operation::Recv && done.status.is_success() {
                if let Ok((header, _)) = Header::parse(&done.buffer[..done.len]) {
                    self.known.learn(&header);
                }
                if !self.is_deaf {
                    self.post_receive(done.qp);
                }
            }
        }
    }
}

fn check(worker: &mut TestWorker, (request, is_done): &mut (Request, bool), bytes: &[u8]) {
    if !*is_done && let Some(outcome) = worker.test(*request) {
        let done = outcome.unwrap_or_else(|error| panic!("{error}"));
        assert!(done.buffer[..done.len] == *bytes, "the bytes differ");
        *is_done = true;
    }
}

fn say(worker: &mut TestWorker, to: usize, tag: Tag, bytes: &[u8]) -> Request {
    let mut payload = worker.buffer(bytes.len()).expect("memory");
    payload.copy_from_slice(bytes);
    worker.send_with(to.into(), tag, payload, SendOptions::default().within(HONEST)).expect("accepted")
}

/// The victim exposes a segment, and has a handler that replies and looks at what was written.
fn open_to_peers(victim: &mut TestWorker) -> Rkey {
    let segment = victim.buffer(SEGMENT as usize).expect("memory");
    let segment = victim.expose(segment).expect("a key");
    let other = victim.buffer(SEGMENT as usize).expect("memory");
    victim.expose_as(1, 0, other, RemoteAccess::ReadWrite).expect("a key");
    let room = vec![0; OFFERED + 4096].leak();
    let page = room.as_ptr().align_offset(4096);
    let offer = victim.offer((&mut room[page..page + OFFERED]).into()).expect("keys are left");
    assert_eq!(offer.key().to_bytes()[..8], OFFER.to_le_bytes());
    let echo = move |context: &mut HandlerContext<'_>, message: ActiveMessage<'_>| {
        if let Some(written) = message.written
            && let Some(offset) = written.offset_in(segment)
        {
            let mut bytes = vec![0; usize::try_from(written.len).expect("what was written is in memory")];
            context.read_segment(segment, offset, &mut bytes).expect("it is there");
        }
        // Not of one that is no request.
        let _ = context.reply(message.arguments, message.payload);
    };
    victim.register_handler("echo", Box::new(echo)).expect("a name");
    let key = segment.key().to_bytes();
    Rkey(u32::from_le_bytes(key[16..20].try_into().expect("4 bytes")))
}

fn params() -> QpParams {
    QpParams { rq_depth: 256, sq_depth: 256, end_to_end_credits: false, ..QpParams::default() }
}
