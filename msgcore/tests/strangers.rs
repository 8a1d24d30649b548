//! One worker alone and a thousand strangers, which are inserted, spoken with and removed while messages go to and fro: a few at a time,
//! and all of them at once. What the first message to each takes, what each that is known costs, and what is left of those that have gone.

mod common;

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use common::{World, config};
use roci_driver::link::sim::NetConfig;
use roci_msgcore::{Config, Pattern, PeerId, Request, Source, Tag, TagMatch};
use roci_testkit::World as _;

const STRANGERS: usize = 1_000;
/// Strangers that are known at a time where they come and go, and those of them that stay and talk.
const FEW: usize = 64;
const TALKERS: usize = 8;
const LATENCY_NS: u64 = 2_000;
/// Between two calls of progress.
const STEP_NS: u64 = 1_000;
/// A worker looks for connections that are being made at every 256th, and at every one while it makes some itself.
const LOOK_NS: u64 = 256 * STEP_NS;

fn configs() -> Vec<Config> {
    let common = [
        ("receive_queues", "S,1KiB,512"),
        ("connect_method", "rdma_cm"),
        ("peers", "1024"),
        ("vbuf_pool", "1"),
        ("vbuf_secondary_pool", "1"),
        ("pipeline_chunk", "4KiB"),
        ("pipeline_depth", "1"),
        ("ack_timeout_us", "200"),
    ];
    let of = |who| {
        let mut settings = common.to_vec();
        settings.push(("arena_size", if who == 0 { "256MiB" } else { "16MiB" }));
        config(&settings)
    };
    (0..=STRANGERS).map(of).collect()
}

/// The hub's conversation with one that answers whatever comes.
struct Talk {
    who: usize,
    peer: PeerId,
    /// The receive of the answer, while one is due.
    answer: Option<Request>,
    /// That of the other end, which is posted again for each message.
    question: Request,
    answered: usize,
}

impl Talk {
    /// Inserts a stranger and sends it a message.
    fn begin(world: &mut World, who: usize) -> Self {
        let address = world.workers[who].address();
        let peer = world.workers[0].insert(address).expect("there is room");
        let question = world.recv(who, TagMatch::Any, 100);
        let (send, answer) = Self::ask(world, who, peer);
        world.workers[0].detach(send);
        Self { who, peer, answer: Some(answer), question, answered: 0 }
    }

    fn ask(world: &mut World, who: usize, peer: PeerId) -> (Request, Request) {
        let answer = world.recv_from(0, peer.into(), Tag::new(who as u64), 100);
        let send = world.workers[0].send_bytes(peer, Tag::new(1), &[who as u8; 100]).expect("accepted");
        (send, answer)
    }

    /// The other end answers what has come; the hub asks again, if it is to.
    fn go_on(&mut self, world: &mut World, asks_again: bool) {
        let who = self.who;
        if let Some(done) = world.workers[who].test(self.question) {
            let done = done.expect("it comes");
            assert!(*done.buffer == [who as u8; 100], "another's message");
            let send = world.workers[who].send_bytes(done.peer, Tag::new(who as u64), &done.buffer).expect("accepted");
            world.workers[who].detach(send);
            self.question = world.recv(who, TagMatch::Any, 100);
        }
        if let Some(done) = self.answer.and_then(|answer| world.workers[0].test(answer)) {
            let done = done.expect("it comes");
            self.answer = None;
            assert_eq!((done.peer, done.len), (self.peer, 100));
            self.answered += 1;
            if asks_again {
                let (send, answer) = Self::ask(world, who, self.peer);
                world.workers[0].detach(send);
                self.answer = Some(answer);
            }
        }
    }

    fn end(self, world: &mut World) {
        world.workers[0].remove(self.peer).expect("it is there");
        // What is under way ends, whichever way.
        if let Some(answer) = self.answer {
            world.workers[0].detach(answer);
        }
        world.workers[self.who].cancel(self.question);
        world.workers[self.who].detach(self.question);
    }
}

/// Lets the hub, those that talk and the newest make progress, and all others now and then.
fn step(world: &mut World, talks: &mut VecDeque<Talk>) {
    world.clock.advance(STEP_NS);
    world.workers[0].progress();
    for talk in talks.iter().take(TALKERS).chain(talks.back()) {
        world.workers[talk.who].progress();
    }
    if world.clock.now().is_multiple_of(64 * STEP_NS) {
        for worker in &mut world.workers {
            worker.progress();
        }
    }
    for (at, talk) in talks.iter_mut().enumerate() {
        talk.go_on(world, at < TALKERS);
    }
}

fn resident_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find(|line| line.starts_with("RssAnon:")).expect("Linux 4.5");
    let kibibytes: usize = line.split_whitespace().nth(1).and_then(|word| word.parse().ok()).expect("a number");
    kibibytes << 10
}

/// Meets `strangers` one after the other, and knows no more than `most`; returns how long the first answer of each has taken, in
/// nanoseconds of the world.
fn meet(
    world: &mut World,
    talks: &mut VecDeque<Talk>,
    strangers: impl Iterator<Item = usize>,
    most: usize,
) -> Vec<u64> {
    let mut times = Vec::new();
    for who in strangers {
        let since = world.clock.now();
        let at = talks.len();
        let talk = Talk::begin(world, who);
        talks.push_back(talk);
        let deadline = since + 1_000_000_000;
        while talks[at].answered == 0 {
            assert!(world.clock.now() < deadline, "no answer from {who}: {}", world.workers[0].inside().report().len());
            step(world, talks);
        }
        times.push(world.clock.now() - since);
        if talks.len() > most {
            talks.remove(TALKERS).expect("it is known").end(world);
        }
        if who.is_multiple_of(50) {
            world.workers[0].inside().check_invariants().expect("what must hold");
        }
    }
    times
}

/// What is resident is the whole process's: one test after the other.
static TURN: Mutex<()> = Mutex::new(());

fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn world() -> World {
    let net = NetConfig { latency_ns: LATENCY_NS, ..NetConfig::default() };
    World::of_strangers(net, &configs(), 7)
}

/// Until the stranger looks; and ARP, REQ, REP, RTU and terms, a message and its answer: a few round trips, and no time-out.
fn check_times(mut times: Vec<u64>) {
    times.sort_unstable();
    let (median, worst) = (times[times.len() / 2], times[times.len() - 1]);
    println!("first answer: median {median} ns, worst {worst} ns, of {} peers", times.len());
    assert!(worst < LOOK_NS + 20 * LATENCY_NS, "{worst} ns");
}

/// Parts from all: their names are used again, their memory is free, and nothing that they have sent is left.
fn part(world: &mut World, mut talks: VecDeque<Talk>, (memory, most): (usize, usize)) {
    assert!(talks.iter().take(TALKERS).all(|talk| talk.answered > 100), "the talkers went on meanwhile");
    for talk in talks.drain(..) {
        talk.end(world);
    }
    world.steps(2_000);
    let hub = &mut world.workers[0];
    hub.inside().check_invariants().expect("what must hold");
    let another = roci_msgcore::EndpointAddress { service: 1, ..hub.address() };
    let highest = hub.insert(another).expect("there is room").slot();
    assert!(highest <= 2 * most, "slots are used again: {highest}");
    assert!(hub.memory() + (64 << 10) >= memory, "{} bytes of the arena are missing", memory - hub.memory());
    assert!(hub.probe(Pattern::new(Source::Any, TagMatch::Any)).is_none(), "what they have sent is gone");
}

#[test]
fn a_thousand_strangers_come_and_go_while_others_talk() {
    let _turn = turn();
    let (mut world, mut talks) = (world(), VecDeque::new());
    let memory = world.workers[0].memory();
    let mut times = meet(&mut world, &mut talks, 1..=STRANGERS, FEW);
    let first_pass = resident_bytes();
    // Again, all but those that are known still.
    times.extend(meet(&mut world, &mut talks, TALKERS + 1..=STRANGERS / 2, FEW));
    let grown = resident_bytes().saturating_sub(first_pass);
    check_times(times);
    part(&mut world, talks, (memory, FEW));
    // Two passes leave no more behind than one: all ends are in this process.
    assert!(grown < 8 << 20, "{grown} bytes");
}

/// All at once: then every second one goes, and comes again.
#[test]
fn a_thousand_strangers_are_known_at_once_while_some_talk() {
    let _turn = turn();
    let (mut world, mut talks) = (world(), VecDeque::new());
    let (memory, resident) = (world.workers[0].memory(), resident_bytes());
    let mut times = meet(&mut world, &mut talks, 1..=STRANGERS, STRANGERS);
    let arena = memory.saturating_sub(world.workers[0].memory()) / STRANGERS;
    let resident = resident_bytes().saturating_sub(resident) / STRANGERS;
    println!("each costs {arena} bytes of the hub's arena, and {resident} resident at both ends");
    // An idle peer has nothing in the arena: receives and send buffers are for all.
    assert!(arena < 64, "{arena} bytes of the arena");
    // Most of it is what a stranger touches for its first peer.
    assert!(resident < 64 << 10, "{resident} bytes resident");
    let (gone, stay) = talks.into_iter().partition::<VecDeque<_>, _>(|talk| talk.who > TALKERS && talk.who % 2 == 0);
    talks = stay;
    let again: Vec<_> = gone.iter().map(|talk| talk.who).collect();
    for talk in gone {
        talk.end(&mut world);
        step(&mut world, &mut talks);
    }
    times.extend(meet(&mut world, &mut talks, again.into_iter(), STRANGERS));
    check_times(times);
    part(&mut world, talks, (memory, STRANGERS));
}
