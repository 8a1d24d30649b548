//! Two engines at the ends of a simulated wire.
#![allow(dead_code)] // each test file uses its own part

pub(crate) mod traffic;

use roci_driver::link::faulty::Faulty;
use roci_driver::link::sim::{Clock, Net, NetConfig, SimLink};
use roci_driver::{
    Algorithm, Buffer, CompletionQueue, Dialect, Engine, PdId, QpParams, QueuePair, SendWr, WorkCompletion,
};
use roci_protocol::sim::Faults;
use roci_testkit::{World, poll_and_check};

pub(crate) struct End {
    pub(crate) engine: Engine<Faulty<SimLink>>,
    pub(crate) pd: PdId,
    pub(crate) cq: CompletionQueue,
    pub(crate) qp: QueuePair,
}

pub(crate) struct Wire {
    pub(crate) clock: Clock,
    pub(crate) ends: [End; 2],
    pub(crate) cut: Box<dyn Fn()>,
}

impl Wire {
    pub(crate) fn new(faults: Option<Faults>) -> Self {
        Self::with(faults, Dialect::Verbs, Algorithm::Unlimited)
    }

    pub(crate) fn with(faults: Option<Faults>, dialect: Dialect, congestion: Algorithm) -> Self {
        let params = QpParams { dialect, congestion, ..QpParams::default() };
        Self::between(faults, [params.clone(), params])
    }

    pub(crate) fn between(faults: Option<Faults>, params: [QpParams; 2]) -> Self {
        let patience =
            |params| QpParams { ack_timeout_ns: 10_000, ack_timeout_max_ns: 80_000, retry_limit: 20, ..params };
        Self::over(NetConfig::default(), faults, params.map(patience))
    }

    /// Over a network of this kind, from whose seed everything follows.
    pub(crate) fn over(net: NetConfig, faults: Option<Faults>, params: [QpParams; 2]) -> Self {
        let clock = Clock::default();
        let (near, far) = SimLink::pair_over(&clock, net);
        let cut = Box::new(near.cutter());
        let mut links = [near, far].into_iter();
        let mut engines = [1, 2].map(|host| {
            let mut engine = roci_testkit::engine(8 << 20, net.seed << 8 | host);
            let link = links.next().expect("two ends");
            engine.add_port(Faulty::new(link, faults, host), [10, 0, 0, host as u8].into(), true);
            let pd = engine.alloc_pd();
            let cq = engine.create_cq(64);
            let qp = engine.create_qp(0, pd, cq).expect("room");
            let address = engine.address_of(&qp, &params[host as usize - 1]);
            Some((engine, pd, cq, qp, address))
        });
        let addresses = engines.each_ref().map(|end| end.as_ref().expect("made above").4);
        let ends = [0, 1].map(|index| {
            let (mut engine, pd, cq, qp, _) = engines[index].take().expect("made above");
            let qp = engine.connect(qp, &addresses[1 - index], &params[index]).expect("one IP version");
            End { engine, pd, cq, qp }
        });
        Self { clock, ends, cut }
    }

    /// What lies between the ends.
    pub(crate) fn net(&self) -> Net {
        self.ends[0].engine.link(0).inner().net()
    }

    /// The next completion of one end.
    pub(crate) fn wait(&mut self, who: usize) -> WorkCompletion {
        self.find("a completion", |wire| {
            let end = &mut wire.ends[who];
            end.engine.poll_cq(end.cq)
        })
    }

    pub(crate) fn buffer(&self, who: usize, bytes: &[u8]) -> Buffer {
        let mut buffer = self.ends[who].engine.buffer(bytes.len()).expect("memory");
        buffer.copy_from_slice(bytes);
        buffer
    }

    pub(crate) fn post(&mut self, who: usize, wr: SendWr) {
        let end = &mut self.ends[who];
        end.engine.post_send(end.qp, wr).expect("accepted");
    }

    pub(crate) fn post_recv(&mut self, who: usize, len: usize) {
        let buffer = self.buffer(who, &vec![0; len]);
        let end = &mut self.ends[who];
        end.engine.post_recv(end.qp, 7, buffer).expect("accepted");
    }
}

impl World for Wire {
    fn clock(&self) -> &Clock {
        &self.clock
    }

    fn run(&mut self) {
        self.ends.iter_mut().for_each(|end| poll_and_check(&mut end.engine));
    }
}

pub(crate) fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 13 + at / 256) as u8).collect()
}
