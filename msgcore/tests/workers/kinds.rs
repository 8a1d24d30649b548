//! Sources, targets, lists and multi-receives over real memif ports that lose frames, with workers of both kinds.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use roci_msgcore::{Buffer, Completion, DedicatedWorker, MemoryKind, Pattern, Tag, TagMatch, UserMemory, Worker};

use crate::ranks::{Member, config, run_ranks};

const LOSSY: (&str, &str) = ("faults", "loss=0.02,dup=0.02,reorder=0.02,seed=3");
/// Eager messages, and some by rendezvous.
const LENGTHS: [usize; 6] = [0, 8, 1_000, 20_000, 100_000, 300_001];
const MANY: Tag = Tag::new(100);

fn bytes() -> &'static [u8] {
    (0..LENGTHS[5]).map(|at| (at * 13 + at / 251) as u8).collect::<Vec<_>>().leak()
}

/// Sends each length from a source that all sends share, and then as a list of it and of the arena's.
fn send_all<W: Member>(worker: &mut W, bytes: &'static [u8]) {
    let mut sends = Vec::new();
    for tag in [Tag::new(1), Tag::new(2), MANY] {
        for len in LENGTHS {
            let whole = worker.adopt(bytes[..len].into()).expect("it is there");
            sends.push(worker.send(1.into(), tag, whole).expect("accepted"));
            let mut rest = worker.memory(len - len / 3);
            rest.copy_from_slice(&bytes[len / 3..len]);
            let first = worker.adopt(bytes[..len / 3].into()).expect("it is there");
            let list = Buffer::list(vec![first, rest]).expect("two");
            sends.push(worker.send(1.into(), tag, list).expect("accepted"));
        }
    }
    for send in sends {
        let kind = worker.wait(send).expect("over").buffer.kind();
        assert!(matches!(kind, MemoryKind::Source | MemoryKind::List));
    }
}

/// Receives each length into a target that the application has, too, and into a list; and then many by one receive.
fn receive_all<W: Member>(worker: &mut W, bytes: &[u8]) {
    let words: &'static [AtomicU64] = (0..LENGTHS[5].div_ceil(8)).map(|_| AtomicU64::new(0)).collect::<Vec<_>>().leak();
    for tag in [Tag::new(1), Tag::new(2)] {
        for len in LENGTHS.into_iter().flat_map(|len| [len, len]) {
            let room = if tag == Tag::new(1) {
                // SAFETY: they are mapped for ever, and all references to them are to atomics.
                let memory = unsafe { UserMemory::target(NonNull::from(words).cast(), len) };
                worker.adopt(memory).expect("it is there")
            } else {
                Buffer::list([len / 2, 0, len - len / 2].map(|len| worker.memory(len)).into()).expect("three")
            };
            let receive = worker.recv(0, tag, room).expect("accepted");
            expect(&worker.wait(receive).expect("it comes").buffer, &bytes[..len]);
        }
    }
    // After the last one less than the minimum is left.
    let room = worker.memory(4 * LENGTHS[5]);
    let _ = worker.recv_multi(Pattern::new(0, TagMatch::from(MANY)), room, 400_000, 7).expect("accepted");
    let mut lens = LENGTHS.into_iter().flat_map(|len| [len, len]).collect::<Vec<_>>();
    loop {
        let Completion { context, outcome, is_last } = worker.wait_completion().expect("it comes");
        let done = outcome.expect("good");
        assert_eq!(context, 7);
        if is_last {
            break;
        }
        let at = lens.iter().position(|&len| len == done.len).expect("it was sent");
        lens.swap_remove(at);
        expect(&done.buffer, &bytes[..done.len]);
    }
    assert!(lens.is_empty(), "not received: {lens:?}");
    assert!(words.iter().any(|word| word.load(Ordering::Relaxed) != 0));
}

fn expect(buffer: &Buffer, bytes: &[u8]) {
    let mut content = vec![0; bytes.len()];
    buffer.copy_out(0, &mut content);
    assert!(content == bytes, "{} bytes differ", bytes.len());
}

fn kinds_go_over_memif<W: Member>() {
    run_ranks(2, |job, _| {
        let mut worker = W::join(&config(&[LOSSY]), job).expect("it opens");
        let bytes = bytes();
        match worker.rank() {
            0 => send_all(&mut worker, bytes),
            _ => receive_all(&mut worker, bytes),
        }
        worker.close().expect("both are there");
    });
}

#[test]
fn every_kind_of_memory_goes_over_memif() {
    kinds_go_over_memif::<Worker>();
}

#[test]
fn every_kind_of_memory_goes_over_memif_by_a_thread() {
    kinds_go_over_memif::<DedicatedWorker>();
}
