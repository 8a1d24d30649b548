//! The blocking calls, which take slices: each rank on a thread of its own, over real memif ports that may lose frames, with workers of both
//! kinds.

use roci_msgcore::{CallError, DedicatedWorker, Dropped, OpError, Pattern, Source, Tag, TagMatch, Worker};

use crate::ranks::{Member, config, run_ranks};

const LOSSY: (&str, &str) = ("faults", "loss=0.03,dup=0.03,reorder=0.03,seed=2");
const OWN: Tag = Tag::new(99);
const TAG: Tag = Tag::new(1);
/// Nothing, eager messages, and each kind of rendezvous that this length leads to.
const SIZES: [usize; 5] = [0, 8, 4_000, 20_000, 300_001];

fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 + at / 251 + len) as u8).collect()
}

/// Any message from the other rank.
fn from(rank: usize) -> Pattern {
    Pattern::new(rank, TagMatch::Any)
}

/// The first rank sends, the second one sends back.
fn there_and_back<W: Member>() {
    run_ranks(2, |job, _| {
        let mut worker = W::join(&config(&[LOSSY]), job).expect("it opens");
        let other = 1 - worker.rank();
        for len in SIZES {
            // Longer than the message: the rest of it stays as it is.
            let mut into = vec![0xee; len + 3];
            if worker.rank() == 0 {
                worker.send_from(other.into(), TAG, &bytes(len)).expect("sent");
            }
            let envelope = worker.recv_into(from(other), &mut into).expect("received");
            assert_eq!((envelope.source, envelope.tag, envelope.len), (other.into(), TAG, len));
            assert_eq!(into, [bytes(len), vec![0xee; 3]].concat());
            if worker.rank() == 1 {
                worker.send_from(other.into(), TAG, &into[..len]).expect("sent");
            }
        }
        let free = worker.free_bytes();
        for _ in 0..100 {
            let (mut into, mine) = ([0; 8], [worker.rank() as u8; 8]);
            worker.send_from(other.into(), TAG, &mine).expect("sent");
            worker.recv_into(from(other), &mut into).expect("received");
        }
        assert!(worker.free_bytes() + (1 << 20) > free, "memory comes back");
        worker.close().expect("both are there");
    });
}

#[test]
fn slices_go_there_and_back() {
    there_and_back::<Worker>();
}

#[test]
fn slices_go_there_and_back_with_threads() {
    there_and_back::<DedicatedWorker>();
}

/// What is wrong is said, and nothing is left behind: the worker goes on, and closes over nothing.
fn mistakes<W: Member>() {
    let dropped = run_ranks(2, |job, _| {
        let mut worker = W::join(&config(&[]), job).expect("it opens");
        let (us, other) = (worker.rank(), 1 - worker.rank());
        assert!(matches!(worker.send_from(9.into(), TAG, &[1]), Err(CallError::NoRank { rank: 9, size: 2 })));
        assert!(matches!(worker.recv_into(from(9), &mut [0]), Err(CallError::NoRank { rank: 9, size: 2 })));
        let mut into = [7; 4];
        // Under a tag of its own: the other rank's message may be here already.
        worker.send_from(us.into(), OWN, &[1; 8]).expect("to this rank itself");
        let long = worker.recv_into(Pattern::new(Source::Any, OWN), &mut into);
        assert!(matches!(long, Err(CallError::Peer(OpError::Truncated(_)))), "{long:?}");
        assert_eq!(into, [7; 4]);
        worker.send_from(other.into(), TAG, &[2; 4]).expect("sent");
        worker.recv_into(from(other), &mut into).expect("received");
        assert_eq!(into, [2; 4]);
        worker.close().expect("both are there")
    });
    assert_eq!(dropped, [Dropped::default(); 2]);
}

#[test]
fn mistakes_are_named_and_leave_nothing_behind() {
    mistakes::<Worker>();
}

#[test]
fn mistakes_are_named_and_leave_nothing_behind_with_threads() {
    mistakes::<DedicatedWorker>();
}

/// The peer goes while this rank waits for it, and for anybody.
fn partings<W: Member>() {
    run_ranks(2, |job, _| {
        let mut worker = W::join(&config(&[]), job).expect("it opens");
        let mut into = [0; 8];
        if worker.rank() == 1 {
            worker.recv_into(from(0), &mut into).expect("received");
            worker.abort().expect("it lives");
            return;
        }
        worker.send_from(1.into(), TAG, &[1; 8]).expect("sent");
        for source in [Source::from(1), Source::Any] {
            let gone = worker.recv_into(Pattern::new(source, TAG), &mut into);
            assert!(matches!(gone, Err(CallError::Peer(_))), "{gone:?}");
        }
        let dropped = worker.abort().expect("it lives");
        assert_eq!((dropped.receives, dropped.sends), (0, 0), "what was waited for is taken back");
    });
}

#[test]
fn who_waits_for_a_peer_that_goes_is_not_left_waiting() {
    partings::<Worker>();
}

#[test]
fn who_waits_for_a_peer_that_goes_is_not_left_waiting_with_a_thread() {
    partings::<DedicatedWorker>();
}
