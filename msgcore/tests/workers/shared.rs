//! A worker behind a lock: the threads of a rank share it, over real memif ports, and the last one to go drops it.

use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;

use roci_msgcore::{DedicatedWorker, PeerId, Source, Tag, Worker};

use crate::ranks::{Member, config, run_ranks};

const MESSAGES: usize = 300;
const THREADS: u64 = 3;
/// Eager ones, and some by rendezvous.
const LENGTHS: [usize; 3] = [8, 3_000, 100_000];

fn locked<W>(worker: &Mutex<W>) -> MutexGuard<'_, W> {
    worker.lock().expect("no thread has panicked")
}

fn len_of(number: usize) -> usize {
    if number % 50 == 7 { LENGTHS[2] } else { LENGTHS[number % 2] }
}

/// Exchanges messages with the same thread of the other rank: sends all of them, and receives as many.
fn exchange<W: Member>(worker: &Mutex<W>, other: PeerId, thread: u64) {
    let tag = Tag::new(thread);
    for number in 0..MESSAGES {
        let mut it = locked(worker);
        let mut payload = it.memory(len_of(number));
        payload.fill(number as u8 ^ thread as u8);
        let send = it.send(other.slot().into(), tag, payload).expect("accepted");
        let room = it.memory(LENGTHS[2]);
        let receive = it.recv(Source::Peer(other), tag, room).expect("accepted");
        drop(it);
        for request in [send, receive] {
            let done = loop {
                // What one thread takes from the network may be what another one waits for.
                let mut it = locked(worker);
                it.progress();
                if let Some(outcome) = it.test(request) {
                    break outcome.unwrap_or_else(|error| panic!("{error}"));
                }
                drop(it);
                thread::yield_now();
            };
            assert_eq!(done.len, len_of(number));
            assert!(
                done.buffer[..done.len].iter().all(|&byte| byte == number as u8 ^ thread as u8),
                "message {number}"
            );
        }
    }
}

fn threads_share_a_worker<W: Member + Send>() {
    run_ranks(2, |job, _| {
        // Opened here, used by others.
        let worker = W::join(&config(&[]), job).expect("it opens");
        let other = PeerId::from(1 - worker.rank());
        let worker = Arc::new(Mutex::new(worker));
        let threads: Vec<_> = (0..THREADS)
            .map(|number| {
                let worker = worker.clone();
                thread::spawn(move || exchange(&worker, other, number))
            })
            .collect();
        drop(worker);
        for thread in threads {
            thread.join().expect("all messages came");
        }
    });
}

#[test]
fn threads_share_a_worker_behind_a_lock() {
    threads_share_a_worker::<Worker>();
}

#[test]
fn threads_share_a_worker_with_a_thread_of_its_own() {
    threads_share_a_worker::<DedicatedWorker>();
}
