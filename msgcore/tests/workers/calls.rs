//! What is asked of messages beside sending and receiving them, over real memif ports that lose, repeat and reorder frames: between ranks
//! of a job and between strangers, with workers of both kinds.

use std::collections::BTreeMap;

use roci_msgcore::{
    Completion, DedicatedWorker, Done, OpError, Pattern, PeerId, SendOptions, Source, Tag, TagMatch, Worker,
};

use crate::ranks::{Member, PATIENCE, config, run_ranks, run_strangers};

const LOSSY: (&str, &str) = ("faults", "loss=0.05,dup=0.05,reorder=0.05,seed=11");
/// Nothing, what is injected, eager messages, and some by rendezvous.
const LENGTHS: [usize; 6] = [0, 8, 1_000, 7_000, 20_000, 150_001];
const GO: Tag = Tag::new(1);
const END: Tag = Tag::new(2);

/// One end's part of a scene, with the peer that plays the other one.
type Part<W> = fn(&mut W, PeerId);

/// Scenes: what the first end does, and what the second one does meanwhile.
fn scenes<W: Member>() -> [(Part<W>, Part<W>); 7] {
    [
        (send_two_kinds, receive_one_kind_and_then_the_other),
        (send_data, receive_data_from_anybody),
        (send_backwards, wait_for_any),
        (send_with_contexts, poll_completions),
        (send_synchronously, probe_claim_and_discard),
        (inject_and_buffer, receive_in_slices_and_in_place),
        (flush, cancel),
    ]
}

fn bytes(len: usize, mark: u64) -> Vec<u8> {
    (0..len).map(|at| (at * 13 + at / 251) as u8 ^ mark as u8).collect()
}

fn send<W: Member>(worker: &mut W, peer: PeerId, (tag, len): (Tag, usize)) {
    worker.send_from(peer, tag, &bytes(len, tag.get())).expect("sent");
}

fn check(done: &Done, tag: Tag, len: usize) {
    assert_eq!((done.tag, done.len), (tag, len));
    assert!(done.buffer[..len] == *bytes(len, tag.get()), "the bytes under {tag:?} differ");
}

/// The upper half of a tag is a kind.
fn of_kind(kind: u64, number: usize) -> Tag {
    Tag::new(kind << 32 | number as u64)
}

fn send_two_kinds<W: Member>(worker: &mut W, peer: PeerId) {
    let mut sends = Vec::new();
    for (number, len) in LENGTHS.into_iter().enumerate() {
        for tag in [of_kind(2, number), of_kind(1, number)] {
            sends.push(worker.send_bytes(peer, tag, &bytes(len, tag.get())).expect("accepted"));
        }
    }
    worker.wait_all(sends).expect("sent");
}

/// A mask takes the oldest of its kind, whatever came before it.
fn receive_one_kind_and_then_the_other<W: Member>(worker: &mut W, peer: PeerId) {
    for kind in [1, 2] {
        let mask = TagMatch::Masked { tag: of_kind(kind, 0), ignore: 0xffff_ffff };
        for (number, len) in LENGTHS.into_iter().enumerate() {
            let receive = worker.recv_with(Pattern::new(peer, mask), worker.memory(LENGTHS[5])).expect("accepted");
            check(&worker.wait(receive).expect("it comes"), of_kind(kind, number), len);
        }
    }
}

fn send_data<W: Member>(worker: &mut W, peer: PeerId) {
    for (number, len) in LENGTHS.into_iter().enumerate() {
        for options in [SendOptions::default().with_data(u64::MAX - number as u64), SendOptions::default()] {
            let mut payload = worker.memory(len);
            payload.copy_from_slice(&bytes(len, number as u64));
            let send = worker.send_with(peer, Tag::new(number as u64), payload, options).expect("accepted");
            worker.wait(send).expect("sent");
        }
    }
}

fn receive_data_from_anybody<W: Member>(worker: &mut W, peer: PeerId) {
    for (number, len) in LENGTHS.into_iter().enumerate() {
        for data in [Some(u64::MAX - number as u64), None] {
            let tag = Tag::new(number as u64);
            let receive = worker.recv_with(Pattern::new(Source::Any, tag), worker.memory(len)).expect("accepted");
            let done = worker.wait(receive).expect("it comes");
            assert_eq!((done.data, done.peer), (data, peer));
            check(&done, tag, len);
        }
    }
}

/// Each waits for its word: so there is never more than one that is over.
fn send_backwards<W: Member>(worker: &mut W, peer: PeerId) {
    for (number, len) in LENGTHS.into_iter().enumerate().rev() {
        worker.recv_into(Pattern::new(peer, GO), &mut []).expect("it is its turn");
        send(worker, peer, (of_kind(3, number), len));
    }
}

fn wait_for_any<W: Member>(worker: &mut W, peer: PeerId) {
    let mut open = Vec::new();
    for (number, len) in LENGTHS.into_iter().enumerate() {
        let receive = worker.recv_with(Pattern::new(peer, of_kind(3, number)), worker.memory(len)).expect("accepted");
        open.push((receive, number));
    }
    for last in (0..LENGTHS.len()).rev() {
        send(worker, peer, (GO, 0));
        let requests: Vec<_> = open.iter().map(|(request, _)| *request).collect();
        let (index, outcome) = worker.wait_any(&requests).expect("one is over");
        let (_, number) = open.remove(index);
        assert_eq!(number, last, "no other is over");
        check(&outcome.expect("it comes"), of_kind(3, number), LENGTHS[number]);
    }
    assert!(matches!(worker.wait_any(&[]), Err(OpError::NoRequest)));
}

/// All completions of so many operations, by their contexts.
fn take_completions<W: Member>(worker: &mut W, count: usize) -> BTreeMap<u64, Result<Done, OpError>> {
    let (mut all, mut some) = (BTreeMap::new(), Vec::new());
    while all.len() < count {
        assert!(worker.poll_completions(&mut some, 4) <= 4);
        for Completion { context, outcome, is_last } in some.drain(..) {
            assert!(is_last && all.insert(context, outcome).is_none(), "{context} twice");
        }
        worker.progress();
    }
    assert!(worker.poll_completion().is_none());
    all
}

fn send_with_contexts<W: Member>(worker: &mut W, peer: PeerId) {
    for (number, len) in LENGTHS.into_iter().enumerate() {
        let tag = of_kind(4, number);
        let request = worker.send_bytes(peer, tag, &bytes(len, tag.get())).expect("accepted");
        worker.queue_completion(request, number as u64).expect("it is there");
    }
    let all = take_completions(worker, LENGTHS.len());
    assert!(all.values().all(Result::is_ok), "sent, all of them");
}

/// One buffer is too short: that is a completion, too.
fn poll_completions<W: Member>(worker: &mut W, peer: PeerId) {
    const SHORT: usize = 3;
    for (number, len) in LENGTHS.into_iter().enumerate() {
        let buffer = worker.memory(if number == SHORT { len - 1 } else { len });
        let request = worker.recv_with(Pattern::new(peer, of_kind(4, number)), buffer).expect("accepted");
        worker.queue_completion(request, 100 + number as u64).expect("it is there");
    }
    for ((context, outcome), number) in take_completions(worker, LENGTHS.len()).into_iter().zip(0..) {
        assert_eq!(context, 100 + number as u64);
        match outcome {
            Err(OpError::Truncated(short)) => {
                assert_eq!((number, short.envelope.len, short.room), (SHORT, LENGTHS[SHORT], LENGTHS[SHORT] - 1));
            }
            outcome => check(&outcome.expect("it comes"), of_kind(4, number), LENGTHS[number]),
        }
    }
}

/// Each ends when the other end has met it, whatever becomes of it there.
fn send_synchronously<W: Member>(worker: &mut W, peer: PeerId) {
    let mut sends = Vec::new();
    for (number, len) in LENGTHS.into_iter().enumerate() {
        let tag = of_kind(5, number);
        let mut payload = worker.memory(len);
        payload.copy_from_slice(&bytes(len, tag.get()));
        let options = SendOptions::default().synchronous();
        sends.push(worker.send_with(peer, tag, payload, options).expect("accepted"));
    }
    worker.wait_all(sends).expect("met");
}

/// Of the messages one third is discarded, one third dropped, and one third received.
fn probe_claim_and_discard<W: Member>(worker: &mut W, peer: PeerId) {
    for (number, len) in LENGTHS.into_iter().enumerate() {
        let pattern = Pattern::new(peer, of_kind(5, number));
        assert_eq!(worker.wait_probe(pattern).expect("it comes").len, len);
        assert!(worker.probe(pattern).expect("it lives").is_some(), "it waits still");
        let message = worker.wait_claim(pattern).expect("it waits still");
        assert!(worker.probe(pattern).expect("it lives").is_none(), "it is claimed");
        assert!(worker.claim(pattern).expect("it lives").is_none());
        match number % 3 {
            0 => worker.discard(message),
            1 => drop(message),
            _ => {
                let receive = worker.recv_message(message, worker.memory(len)).expect("accepted");
                check(&worker.wait(receive).expect("it was there"), of_kind(5, number), len);
            }
        }
    }
}

fn inject_and_buffer<W: Member>(worker: &mut W, peer: PeerId) {
    for number in 0..50 {
        let len = worker.inject_size() * number / 49;
        let tag = of_kind(6, number);
        worker.inject(peer, tag, &bytes(len, tag.get()), SendOptions::default()).expect("it is short");
    }
    for (number, len) in LENGTHS.into_iter().enumerate() {
        let tag = of_kind(7, number);
        let send = worker.send_buffered(peer, tag, &bytes(len, tag.get()), SendOptions::default()).expect("room");
        worker.detach(send);
    }
}

fn receive_in_slices_and_in_place<W: Member>(worker: &mut W, peer: PeerId) {
    let most = worker.inject_size();
    for number in 0..50 {
        let (tag, mut into) = (of_kind(6, number), vec![0; most]);
        let envelope = worker.recv_into(Pattern::new(peer, tag), &mut into).expect("it comes");
        assert_eq!(envelope.len, most * number / 49);
        assert!(into[..envelope.len] == *bytes(envelope.len, tag.get()));
    }
    for (number, len) in LENGTHS.into_iter().enumerate() {
        let receive = worker.recv_in_place(Pattern::new(peer, of_kind(7, number))).expect("accepted");
        let done = worker.wait(receive).expect("it comes");
        check(&done, of_kind(7, number), len);
        worker.give_back(done.buffer);
    }
}

fn flush<W: Member>(worker: &mut W, peer: PeerId) {
    for number in 0..20 {
        worker.inject(peer, of_kind(8, number), &[7; 8], SendOptions::default()).expect("it is short");
    }
    worker.flush(Some(peer), PATIENCE).expect("all of it is there");
}

/// Of these no message comes.
fn cancel<W: Member>(worker: &mut W, peer: PeerId) {
    for source in [Source::Any, peer.into()] {
        let pattern = Pattern::new(source, of_kind(9, 0));
        let receive = worker.recv_with(pattern, worker.memory(8)).expect("accepted");
        worker.cancel(receive);
        assert!(worker.wait(receive).expect("taken back").is_cancelled);
    }
    for number in 0..20 {
        let mut into = [0; 8];
        worker.recv_into(Pattern::new(peer, of_kind(8, number)), &mut into).expect("it comes");
        assert_eq!(into, [7; 8]);
    }
}

/// Plays all scenes, and ends them together.
fn play<W: Member>(worker: &mut W, peer: PeerId, is_first: bool) {
    for (first, second) in scenes::<W>() {
        if is_first { first(worker, peer) } else { second(worker, peer) }
    }
    send(worker, peer, (END, 0));
    worker.recv_into(Pattern::new(peer, END), &mut []).expect("it has played, too");
    assert!(worker.injected_faults().expect("it lives") > 0, "frames were lost");
}

fn between_ranks<W: Member>() {
    run_ranks(2, |job, _| {
        let mut worker = W::join(&config(&[LOSSY]), job).expect("it opens");
        let rank = worker.rank();
        play(&mut worker, (1 - rank).into(), rank == 0);
        worker.close().expect("both are there");
    });
}

fn between_strangers<W: Member>() {
    run_strangers(&[LOSSY], |worker: &mut W, peer, is_first| {
        play(worker, peer, is_first);
        worker.flush(None, PATIENCE).expect("the last answer is there");
        assert_eq!(worker.counters().local_ports_opened, 1, "they have met over memif");
    });
}

#[test]
fn between_ranks_all_calls_keep_their_word() {
    between_ranks::<Worker>();
}

#[test]
fn between_ranks_all_calls_keep_their_word_by_a_thread() {
    between_ranks::<DedicatedWorker>();
}

#[test]
fn between_strangers_all_calls_keep_their_word() {
    between_strangers::<Worker>();
}

#[test]
fn between_strangers_all_calls_keep_their_word_by_a_thread() {
    between_strangers::<DedicatedWorker>();
}
