//! Streams and tagged messages of the same workers: neither keeps the other waiting, however receives are posted.

use roci_msgcore::{CallError, Source, Tag};
use roci_testkit::World as _;

use super::pair::{Dice, Pair, SMALL, stream};

const FAULTS: &str = "loss=0.01,dup=0.01,reorder=0.02,corrupt=0.01,seed=5";
/// Messages that no receive waits for: more than there are credits, and more than take all the memory that they may.
const FLOOD: usize = 4_000;
const LEN: usize = 1_000;
/// Bytes of the stream: several rings.
const TOTAL: usize = 200_000;

/// The ways in which receives are posted, and payloads move.
const MODES: [&[(&str, &str)]; 7] = [
    &[],
    &[("credits", "2")],
    &[("receive_queues", "S,8KiB,512")],
    &[("receive_queues", "S,8KiB,16,8")],
    &[("receive_queues", "P,256,64:P,2KiB,32:S,16KiB,256"), ("eager_threshold", "32KiB")],
    &[("receive_queues", "P,256,2:P,8KiB,2")],
    &[("vbuf_max", "16"), ("vbuf_pool", "16"), ("eager_threshold", "512"), ("rndv_protocol", "rput")],
];

/// A stream of bytes from one end to the other.
struct Flow {
    from: usize,
    sent: usize,
    got: usize,
}

impl Flow {
    fn step(&mut self, pair: &mut Pair, dice: &mut Dice) {
        let (from, to) = (self.from, 1 - self.from);
        let len = dice.below(5_000).min(TOTAL - self.sent);
        self.sent += pair.ends[from].put(to, &stream(self.sent as u64, len)).expect("the peer is there");
        let mut bytes = vec![0; dice.below(5_000)];
        let got = pair.ends[to].get(from, &mut bytes).expect("the peer is there");
        assert!(bytes[..got] == stream(self.got as u64, got), "other bytes than were put, from {} on", self.got);
        self.got += got;
    }

    fn is_over(&self) -> bool {
        self.got == TOTAL
    }
}

fn step(flows: &mut [Flow; 2], pair: &mut Pair, dice: &mut Dice) {
    for flow in flows {
        flow.step(pair, dice);
    }
}

fn flows() -> [Flow; 2] {
    [0, 1].map(|from| Flow { from, sent: 0, got: 0 })
}

#[test]
fn messages_and_bytes_arrive_whole_and_in_order_side_by_side() {
    for (seed, knobs) in MODES.iter().enumerate() {
        let faults = [("faults", FAULTS), ("ack_timeout_us", "100")];
        let mut pair = Pair::with(SMALL, &[*knobs, &faults].concat());
        let mut dice = Dice::new(seed as u64);
        let mut flows = flows();
        for number in 0..60 {
            let len = [0, 8, LEN, 9_000, 70_000][dice.below(5)];
            let requests: Vec<_> = [0, 1]
                .into_iter()
                .map(|who| {
                    let worker = &mut pair.ends[who].0;
                    let buffer = worker.buffer(len).expect("memory");
                    let receive = worker.recv(Source::Any, Tag::new(number), buffer).expect("accepted");
                    (
                        receive,
                        worker.send_bytes((1 - who).into(), Tag::new(number), &stream(number, len)).expect("accepted"),
                    )
                })
                .collect();
            for (who, (receive, send)) in requests.into_iter().enumerate() {
                let done = pair.find("the message", |pair| {
                    step(&mut flows, pair, &mut dice);
                    pair.ends[who].0.test(receive)
                });
                let done = done.expect("it arrives");
                assert!(done.buffer[..done.len] == stream(number, len)[..], "the bytes differ");
                pair.find("the send's end", |pair| pair.ends[who].0.test(send)).expect("it is sent");
            }
        }
        pair.settle(|pair| {
            step(&mut flows, pair, &mut dice);
            flows.iter().all(Flow::is_over)
        });
    }
}

/// The ring is full, and the peer gets nothing: messages, long ones too, do not wait for that.
#[test]
fn a_stream_that_no_peer_reads_keeps_no_message_waiting() {
    for knobs in MODES {
        let mut pair = Pair::with(SMALL, knobs);
        let mut filled = 0;
        pair.settle(|pair| {
            let taken = pair.ends[0].put(1, &stream(filled as u64, 3_000)).expect("the peer is there");
            filled += taken;
            taken == 0 && pair.ends[0].flush(1) == Ok(true)
        });
        for len in [8, LEN, 100_000] {
            let buffer = pair.ends[1].buffer(len);
            let receive = pair.ends[1].0.recv(0, Tag::new(1), buffer).expect("accepted");
            let send = pair.ends[0].0.send_bytes(1.into(), Tag::new(1), &stream(1, len)).expect("accepted");
            let done = pair.find("the message", |pair| pair.ends[1].0.test(receive)).expect("it arrives");
            assert!(done.buffer[..done.len] == stream(1, len)[..]);
            pair.find("the send's end", |pair| pair.ends[0].0.test(send)).expect("it is sent");
        }
        assert!(pair.get_all(1, filled) == stream(0, filled));
    }
}

/// Messages that no receive waits for take all credits that they may: the streams go on in both directions.
#[test]
fn messages_without_a_receive_keep_no_stream_waiting() {
    for knobs in MODES {
        let limit = [("unexpected_limit", "1MiB")];
        let mut pair = Pair::with(SMALL, &[knobs, &limit].concat());
        for who in [0, 1] {
            for _ in 0..FLOOD {
                let sent = pair.ends[who].0.send_bytes((1 - who).into(), Tag::new(1), &[7; LEN]);
                assert!(matches!(sent, Ok(_) | Err(CallError::Arena(_))), "{sent:?}");
            }
        }
        let (mut flows, mut dice) = (flows(), Dice::new(3));
        pair.settle(|pair| {
            step(&mut flows, pair, &mut dice);
            flows.iter().all(Flow::is_over)
        });
    }
}

/// The same, and a stream that takes whatever credit comes back: a message whose receive is posted arrives nevertheless.
#[test]
fn a_stream_that_never_ends_keeps_no_message_waiting() {
    for knobs in MODES {
        let limit = [("unexpected_limit", "1MiB")];
        let mut pair = Pair::with(SMALL, &[knobs, &limit].concat());
        let buffer = pair.ends[1].buffer(LEN);
        let wanted = pair.ends[1].0.recv(0, Tag::new(2), buffer).expect("accepted");
        for _ in 0..FLOOD {
            pair.ends[0].0.send_bytes(1.into(), Tag::new(1), &[7; LEN]).map(drop).expect("accepted");
        }
        let send = pair.ends[0].0.send_bytes(1.into(), Tag::new(2), &stream(2, LEN)).expect("accepted");
        let (mut sent, mut got, mut done) = (0, 0, None);
        let done = pair.find("the message, and bytes of the stream", |pair| {
            // One chunk after the other, so that credits come back one by one.
            sent += pair.ends[0].put(1, &stream(sent, 500)).expect("the peer is there") as u64;
            let mut bytes = vec![0; 5_000];
            let len = pair.ends[1].get(0, &mut bytes).expect("the peer is there");
            assert!(bytes[..len] == stream(got, len));
            got += len as u64;
            done = done.take().or_else(|| pair.ends[1].0.test(wanted));
            done.take_if(|_| got > 0)
        });
        assert!(done.expect("it arrives").buffer[..] == stream(2, LEN)[..]);
        pair.find("the send's end", |pair| pair.ends[0].0.test(send)).expect("it is sent");
    }
}
