//! What is asked of messages beside sending and receiving them, between two strangers whose frames are lost, repeated, swapped and damaged.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use roci_driver::link::sim::NetConfig;
use roci_msgcore::{
    CallError, Completion, Done, FlushError, OpError, Pattern, PeerId, Request, SendOptions, Source, Tag, TagMatch,
};
use roci_testkit::World as _;

use super::common::{TestWorker, World, config};

const SETTINGS: [(&str, &str); 4] =
    [("connect_method", "rdma_cm"), ("peers", "8"), ("ack_timeout_us", "200"), ("ack_timeout_max_us", "2000")];
/// Nothing, what is injected, eager messages, and some by rendezvous.
const LENGTHS: [usize; 6] = [0, 8, 1_000, 7_000, 20_000, 150_001];
const MOST: usize = LENGTHS[5];
/// Steps in which the network repairs what it has done.
const A_WHILE: usize = 20_000;

/// Two strangers, and whom each of them speaks to.
struct Pair {
    world: World,
    peers: [PeerId; 2],
}

impl Pair {
    fn new(seed: u64) -> Self {
        // Other frames are lost in each world.
        let faults = format!("loss=0.05,dup=0.05,reorder=0.05,corrupt=0.02,seed={seed}");
        let config = config(&[&SETTINGS[..], &[("faults", &faults)]].concat());
        let mut world = World::of_strangers(NetConfig::default(), &[config.clone(), config], seed);
        let addresses = [0, 1].map(|who| world.workers[who].address());
        let peers = [0, 1].map(|who| world.workers[who].insert(addresses[1 - who]).expect("there is room"));
        let mut pair = Self { world, peers };
        pair.world.workers[0].connect(pair.peers[0]).expect("it is there");
        pair.world.until("they are connected", |world| {
            world.workers.iter().zip(peers).all(|(worker, peer)| worker.is_connected(peer))
        });
        pair
    }

    fn send_with(&mut self, tag: Tag, len: usize, options: SendOptions) -> Request {
        let worker = &mut self.world.workers[0];
        let mut payload = worker.buffer(len).expect("memory");
        payload.copy_from_slice(&bytes(len, tag));
        worker.send_with(self.peers[0], tag, payload, options).expect("accepted")
    }

    /// The first one sends to the second one.
    fn send(&mut self, tag: Tag, len: usize) -> Request {
        self.send_with(tag, len, SendOptions::default())
    }

    fn recv(&mut self, tag: impl Into<TagMatch>, room: usize) -> Request {
        self.world.recv_from(1, self.peers[1].into(), tag, room)
    }

    /// The second one receives this message.
    fn expect(&mut self, receive: Request, tag: Tag, len: usize) -> Done {
        let done = self.world.wait(1, receive).unwrap_or_else(|error| panic!("{error}: {}", self.world.describe()));
        check(&done, tag, len);
        assert_eq!(done.peer, self.peers[1]);
        done
    }

    /// A message has come that the second one has posted no receive for.
    fn until_found(&mut self, pattern: Pattern) {
        self.world.find("a message", |world| world.workers[1].probe(pattern));
    }

    fn end(&self) {
        let faults: u64 = self.world.workers.iter().map(TestWorker::injected_faults).sum();
        assert!(faults > 0, "no frame was lost");
        self.world.workers.iter().for_each(|worker| worker.inside().check_invariants().expect("what must hold"));
    }
}

/// Plays a scene in several worlds.
fn play(scene: impl Fn(&mut Pair)) {
    play_in(1..5, scene);
}

fn play_in(seeds: Range<u64>, scene: impl Fn(&mut Pair)) {
    for seed in seeds {
        let mut pair = Pair::new(seed);
        scene(&mut pair);
        pair.end();
    }
}

fn bytes(len: usize, tag: Tag) -> Vec<u8> {
    (0..len).map(|at| (at * 13 + at / 251) as u8 ^ (tag.get() * 7) as u8).collect()
}

fn check(done: &Done, tag: Tag, len: usize) {
    assert_eq!((done.tag, done.len), (tag, len));
    assert!(done.buffer[..len] == *bytes(len, tag), "the bytes under {tag:?} differ");
}

/// The upper half of a tag is a kind.
fn of_kind(kind: u64, number: usize) -> Tag {
    Tag::new(kind << 32 | number as u64)
}

#[test]
fn a_mask_takes_the_oldest_of_its_kind() {
    play(|pair| {
        let mut sends = Vec::new();
        for (number, len) in LENGTHS.into_iter().enumerate() {
            sends.extend([2, 1].map(|kind| pair.send(of_kind(kind, number), len)));
        }
        for kind in [1, 2] {
            let mask = TagMatch::Masked { tag: of_kind(kind, 0), ignore: 0xffff_ffff };
            for (number, len) in LENGTHS.into_iter().enumerate() {
                let receive = pair.recv(mask, MOST);
                pair.expect(receive, of_kind(kind, number), len);
            }
        }
        for send in sends {
            pair.world.wait(0, send).expect("sent");
        }
    });
}

#[test]
fn data_comes_with_its_message_and_with_no_other() {
    play(|pair| {
        for (number, len) in LENGTHS.into_iter().enumerate() {
            for data in [Some(u64::MAX - number as u64), None] {
                let tag = of_kind(1, number);
                let options = SendOptions::default();
                let send = pair.send_with(tag, len, data.map_or(options, |data| options.with_data(data)));
                let receive = pair.world.recv_from(1, Source::Any, tag, len);
                assert_eq!(pair.expect(receive, tag, len).data, data);
                pair.world.wait(0, send).expect("sent");
            }
        }
    });
}

#[test]
fn the_request_that_is_over_first_is_returned_first() {
    play(|pair| {
        let mut open: Vec<_> =
            (0..LENGTHS.len()).map(|number| (pair.recv(of_kind(3, number), LENGTHS[number]), number)).collect();
        for (number, len) in LENGTHS.into_iter().enumerate().rev() {
            let send = pair.send(of_kind(3, number), len);
            pair.world.wait(0, send).expect("sent");
            pair.world.steps(A_WHILE);
            let requests: Vec<_> = open.iter().map(|(request, _)| *request).collect();
            let (index, outcome) = pair.world.workers[1].wait_any(&requests).expect("one is over");
            assert_eq!(open.remove(index).1, number);
            check(&outcome.expect("it comes"), of_kind(3, number), len);
        }
    });
}

/// All completions of so many operations, by their contexts.
fn take_completions(world: &mut World, who: usize, count: usize) -> BTreeMap<u64, Result<Done, OpError>> {
    let (mut all, mut some) = (BTreeMap::new(), Vec::new());
    world.find("all completions", |world| {
        assert!(world.workers[who].poll_completions(&mut some, 4) <= 4);
        for Completion { context, outcome, is_last } in some.drain(..) {
            assert!(is_last && all.insert(context, outcome).is_none(), "{context} twice");
        }
        (all.len() >= count).then_some(())
    });
    world.steps(A_WHILE);
    assert!(world.workers[who].poll_completion().is_none());
    all
}

/// One buffer is too short: that is a completion, too.
#[test]
fn each_operation_completes_once_with_its_context() {
    const SHORT: usize = 3;
    play(|pair| {
        for (number, len) in LENGTHS.into_iter().enumerate() {
            let send = pair.send(of_kind(4, number), len);
            pair.world.workers[0].queue_completion(send, number as u64).expect("it is there");
            let receive = pair.recv(of_kind(4, number), if number == SHORT { len - 1 } else { len });
            pair.world.workers[1].queue_completion(receive, 100 + number as u64).expect("it is there");
        }
        for ((context, outcome), number) in take_completions(&mut pair.world, 1, LENGTHS.len()).into_iter().zip(0..) {
            assert_eq!(context, 100 + number as u64);
            match outcome {
                Err(OpError::Truncated(it)) => {
                    assert_eq!((number, it.envelope.len, it.room), (SHORT, LENGTHS[SHORT], LENGTHS[SHORT] - 1));
                }
                outcome => check(&outcome.expect("it comes"), of_kind(4, number), LENGTHS[number]),
            }
        }
        let sent = take_completions(&mut pair.world, 0, LENGTHS.len());
        assert!(sent.values().all(Result::is_ok) && sent.into_keys().eq(0..6), "sent, all of them");
    });
}

/// Of the messages one third is discarded, one third dropped, and one third received. Each send ends when its message is met, whatever
/// becomes of it, and no memory is left with what was not received.
#[test]
fn a_claimed_message_is_discarded_or_dropped_or_received() {
    play(|pair| {
        let before = pair.world.workers[1].memory();
        for (number, len) in LENGTHS.into_iter().enumerate() {
            let tag = of_kind(5, number);
            let pattern = Pattern::new(pair.peers[1], tag);
            let send = pair.send_with(tag, len, SendOptions::default().synchronous());
            pair.until_found(pattern);
            let worker = &mut pair.world.workers[1];
            assert_eq!(worker.probe(pattern).expect("it waits still").len, len);
            let message = worker.claim(pattern).expect("it waits still");
            assert!(worker.probe(pattern).is_none() && worker.claim(pattern).is_none(), "it is claimed");
            pair.world.steps(A_WHILE);
            match number % 3 {
                0 => pair.world.workers[1].discard(message),
                1 => drop(message),
                _ => {
                    let room = pair.world.workers[1].buffer(len).expect("memory");
                    let receive = pair.world.workers[1].recv_message(message, room).expect("accepted");
                    pair.expect(receive, tag, len);
                }
            }
            pair.world.wait(0, send).expect("met");
        }
        pair.world.steps(A_WHILE);
        assert_eq!(pair.world.workers[1].memory(), before);
    });
}

#[test]
fn what_is_injected_and_buffered_arrives() {
    play(|pair| {
        let most = pair.world.workers[0].inject_size();
        for number in 0..50 {
            let (tag, worker) = (of_kind(6, number), &mut pair.world.workers[0]);
            let payload = bytes(most * number / 49, tag);
            worker.inject(pair.peers[0], tag, &payload, SendOptions::default()).expect("it is short");
            if number % 8 == 0 {
                pair.world.steps(100);
            }
        }
        for (number, len) in LENGTHS.into_iter().enumerate() {
            let (tag, worker) = (of_kind(7, number), &mut pair.world.workers[0]);
            let send = worker.send_buffered(pair.peers[0], tag, &bytes(len, tag), SendOptions::default());
            worker.detach(send.expect("room"));
        }
        for number in 0..50 {
            let tag = of_kind(6, number);
            let receive = pair.recv(tag, most);
            pair.expect(receive, tag, most * number / 49);
        }
        for (number, len) in LENGTHS.into_iter().enumerate() {
            let receive = pair.world.workers[1].recv_in_place(Pattern::new(pair.peers[1], of_kind(7, number)));
            let done = pair.expect(receive.expect("accepted"), of_kind(7, number), len);
            pair.world.workers[1].give_back(done.buffer);
        }
    });
}

/// The calls that block end at once where nothing is to be waited for: a short message is copied, and one that has come is taken.
#[test]
fn calls_that_block_do_not_where_they_need_not() {
    play(|pair| {
        for number in 0..20 {
            let (tag, len) = (of_kind(8, number), number * 50);
            pair.world.workers[0].send_from(pair.peers[0], tag, &bytes(len, tag)).expect("sent");
            let pattern = Pattern::new(pair.peers[1], tag);
            pair.until_found(pattern);
            let mut into = vec![0; len];
            let envelope = pair.world.workers[1].recv_into(pattern, &mut into).expect("it is here");
            assert_eq!((envelope.len, envelope.source), (len, pair.peers[1]));
            assert!(into == bytes(len, tag), "the bytes under {tag:?} differ");
        }
    });
}

/// A flush ends no sooner than all that was sent is with the peer: the cable is pulled at once, and nothing is missing. And it names who
/// has not got all of it.
#[test]
fn what_was_flushed_is_there_though_the_cable_is_pulled() {
    const COUNT: usize = 40;
    // It takes one of the last packets that is lost.
    play_in(1..65, |pair| {
        let to = pair.peers[0];
        for number in 0..COUNT {
            let tag = of_kind(9, number);
            let payload = bytes(number * 20, tag);
            pair.world.workers[0].inject(to, tag, &payload, SendOptions::default()).expect("it is short");
            pair.world.steps(3);
        }
        pair.world.find("the flush", |world| {
            let outcomes = [Some(to), None].map(|whom| world.workers[0].flush(whom, Duration::ZERO));
            match outcomes {
                [Ok(()), Ok(())] => Some(()),
                [Err(FlushError::Timeout { peers, .. }), Err(FlushError::Timeout { peers: all, .. })] => {
                    assert!(peers == [to] && all == [to]);
                    None
                }
                other => panic!("{other:?}"),
            }
        });
        pair.world.cut(0);
        for number in 0..COUNT {
            let tag = of_kind(9, number);
            let mut into = vec![0; number * 20];
            let pattern = Pattern::new(pair.peers[1], tag);
            assert!(pair.world.workers[1].probe(pattern).is_some(), "message {number} is not there");
            let envelope = pair.world.workers[1].recv_into(pattern, &mut into).expect("it is here");
            assert_eq!(envelope.len, number * 20);
            assert!(into == bytes(number * 20, tag), "the bytes under {tag:?} differ");
        }
        pair.world.workers[0].remove(to).expect("it is there");
        let unknown = pair.world.workers[0].flush(Some(to), Duration::ZERO);
        assert!(matches!(unknown, Err(FlushError::Peer(CallError::NoPeer(_)))), "{unknown:?}");
    });
}
