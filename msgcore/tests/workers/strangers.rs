//! Strangers over real memif ports that lose frames, with workers of both kinds: one forgets the other and meets it again.

use roci_msgcore::{DedicatedWorker, Pattern, PeerId, Source, Tag, Worker};

use crate::ranks::{Member, PATIENCE, run_strangers};

/// Places for ports are for a peer that has just gone and the one that comes.
const KNOBS: &[(&str, &str)] = &[("faults", "loss=0.05,dup=0.05,reorder=0.05,seed=9"), ("local_ports", "2")];
const ROUNDS: usize = 6;
/// Nothing, what is injected, eager messages, and some by rendezvous.
const LENGTHS: [usize; 5] = [0, 8, 4_000, 20_000, 150_001];

fn bytes(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 13 + seed * 29 + at / 256) as u8).collect()
}

fn tag(round: usize) -> Tag {
    Tag::new(round as u64)
}

fn send_all<W: Member>(worker: &mut W, to: PeerId, round: usize) {
    for len in LENGTHS {
        worker.send_from(to, tag(round), &bytes(len, round)).expect("it arrives");
    }
}

/// Takes what [`send_all`] has sent; returns who that was.
fn receive_all<W: Member>(worker: &mut W, source: impl Into<Source>, round: usize) -> PeerId {
    let source = source.into();
    let sources = LENGTHS.map(|len| {
        let mut into = vec![0; len];
        let envelope = worker.recv_into(Pattern::new(source, tag(round)), &mut into).expect("it comes");
        assert!(envelope.len == len && into == bytes(len, round), "{len} bytes in round {round}");
        envelope.source
    });
    assert!(sources.iter().all(|&one| one == sources[0]), "it has one name: {sources:?}");
    sources[0]
}

/// Removes the peer after each exchange, and inserts it again.
fn forget_and_meet_again<W: Member>(worker: &mut W, mut peer: PeerId) {
    let address = worker.address_of(peer).expect("it lives").expect("it was inserted");
    for round in 0..ROUNDS {
        send_all(worker, peer, round);
        receive_all(worker, peer, round);
        worker.flush(Some(peer), PATIENCE).expect("it arrives");
        worker.remove(peer).expect("it is there");
        worker.send_from(peer, tag(round), &[]).expect_err("it is forgotten");
        peer = worker.insert(address).expect("there is room");
        assert_eq!(worker.address_of(peer).expect("it lives"), Some(address));
    }
    send_all(worker, peer, ROUNDS);
    // None has waited in vain for an answer.
    assert_eq!(worker.counters().local_ports_missed, 0);
}

/// Answers all that is asked: the asker may have another name here each time.
fn answer<W: Member>(worker: &mut W) {
    for round in 0..ROUNDS {
        let asker = receive_all(worker, Source::Any, round);
        send_all(worker, asker, round);
    }
    receive_all(worker, Source::Any, ROUNDS);
    let sent_again = worker.engine_stats().expect("it lives").queue_pairs.retransmitted_packets;
    assert!(sent_again > 0, "frames were lost");
    worker.flush(None, PATIENCE).expect("the last answer arrives");
    // It has had a port for each of the asker's names, though the one before was still open when the next was offered.
    assert_eq!(worker.counters().local_ports_missed, 0);
}

/// Who forgets has the server's end of each port, or the client's.
fn removed_and_inserted_again<W: Member>() {
    for forgets_first in [true, false] {
        run_strangers(KNOBS, move |worker: &mut W, peer, is_first| {
            if is_first == forgets_first { forget_and_meet_again(worker, peer) } else { answer(worker) }
        });
    }
}

#[test]
fn a_peer_that_was_removed_is_inserted_again() {
    removed_and_inserted_again::<Worker>();
}

#[test]
fn a_peer_that_was_removed_is_inserted_again_by_a_thread() {
    removed_and_inserted_again::<DedicatedWorker>();
}
