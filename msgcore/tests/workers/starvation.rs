//! No message starves: ranks on threads of their own, over real memif ports, with workers of both kinds.

use std::time::Instant;

use roci_msgcore::{DedicatedWorker, Dropped, Request, Tag, Worker};

use crate::ranks::{Member, PATIENCE, config, run_ranks};

const DATA: Tag = Tag::new(1);
const WANTED: Tag = Tag::new(2);
const LEN: usize = 1000;

/// A flood that has no receive, and behind it a message that has one, from each rank to the other; then the flood is received.
fn survives_a_flood<W: Member>(settings: &'static [(&str, &str)]) {
    const FLOOD: usize = 6_000;
    let config = config(&[settings, &[("unexpected_limit", "1MiB")]].concat());
    run_ranks(2, move |job, _| {
        let mut worker = W::join(&config, job).expect("a worker");
        let peer = 1 - worker.rank();
        let wanted = worker.recv(peer, WANTED, worker.memory(LEN)).expect("accepted");
        let mut sends = Vec::new();
        for tag in [vec![DATA; FLOOD], vec![WANTED]].concat() {
            sends.push(send(&mut worker, peer, tag));
        }
        let done = worker.wait(wanted).expect("it arrives");
        assert!(done.buffer[..] == [WANTED.get() as u8; LEN]);
        for _ in 0..FLOOD {
            receive(&mut worker, peer, DATA);
        }
        for send in sends {
            worker.wait(send).expect("it arrived");
        }
        assert_eq!(worker.close().expect("both close"), Dropped::default());
    });
}

/// Sends a message whose bytes are its tag.
fn send<W: Member>(worker: &mut W, to: usize, tag: Tag) -> Request {
    let mut payload = worker.memory(LEN);
    payload.fill(tag.get() as u8);
    worker.send(to.into(), tag, payload).expect("accepted")
}

fn receive<W: Member>(worker: &mut W, from: usize, tag: Tag) {
    let receive = worker.recv(from, tag, worker.memory(LEN)).expect("accepted");
    assert!(worker.wait(receive).expect("it arrives").buffer[..] == [tag.get() as u8; LEN]);
}

#[test]
fn a_message_whose_receive_is_posted_arrives_behind_a_flood() {
    for settings in [&[][..], &[("credits", "2")], &[("receive_queues", "S,8KiB,512")]] {
        survives_a_flood::<Worker>(settings);
        survives_a_flood::<DedicatedWorker>(settings);
    }
}

/// Rank 0 streams to rank 1 and never pauses, until rank 2 has answered the one message that it was sent.
fn gets_past_a_stream<W: Member>() {
    const UNDER_WAY: usize = 256;
    let config = config(&[("vbuf_max", "16"), ("vbuf_pool", "16")]);
    run_ranks(3, move |job, _| {
        let mut worker = W::join(&config, job).expect("a worker");
        match worker.rank() {
            0 => {
                let answer = worker.recv(2, WANTED, worker.memory(LEN)).expect("accepted");
                let mut stream: Vec<_> = (0..UNDER_WAY).map(|_| send(&mut worker, 1, DATA)).collect();
                let asked = send(&mut worker, 2, DATA);
                let deadline = Instant::now() + PATIENCE / 2;
                loop {
                    if let Some(answered) = worker.test(answer) {
                        answered.expect("it comes");
                        break;
                    }
                    assert!(Instant::now() < deadline, "rank 2 has not answered");
                    worker.progress();
                    for request in &mut stream {
                        if let Some(sent) = worker.test(*request) {
                            sent.expect("sent");
                            *request = send(&mut worker, 1, DATA);
                        }
                    }
                }
                stream.push(send(&mut worker, 1, WANTED));
                stream.push(asked);
                worker.wait_all(stream).expect("sent");
            }
            1 => {
                let last = worker.recv(0, WANTED, worker.memory(LEN)).expect("accepted");
                let mut next = worker.recv(0, DATA, worker.memory(LEN)).expect("accepted");
                loop {
                    if let Some(received) = worker.test(last) {
                        received.expect("it comes");
                        break;
                    }
                    worker.progress();
                    if let Some(received) = worker.test(next) {
                        let Ok(received) = received else { panic!("it comes") };
                        next = worker.recv(0, DATA, received.buffer).expect("accepted");
                    }
                }
                worker.cancel(next);
                worker.wait(next).expect("taken back");
            }
            _ => {
                receive(&mut worker, 0, DATA);
                let answer = send(&mut worker, 0, WANTED);
                worker.wait(answer).expect("sent");
            }
        }
        worker.close().expect("all close");
    });
}

#[test]
fn a_stream_to_one_rank_keeps_no_message_to_another_waiting() {
    gets_past_a_stream::<Worker>();
    gets_past_a_stream::<DedicatedWorker>();
}

/// Three ranks flood one, whose application has no receive: a sixteenth of its arena stays the application's.
fn keeps_the_floor<W: Member>(settings: &'static [(&str, &str)]) {
    const EACH: usize = 1_600;
    let config = config(&[settings, &[("arena_size", "24MiB")]].concat());
    let floor = config.arena_size / 16;
    run_ranks(4, move |job, _| {
        let mut worker = W::join(&config, job).expect("a worker");
        if worker.rank() > 0 {
            let sends: Vec<_> = (0..EACH).map(|_| send(&mut worker, 0, DATA)).collect();
            worker.wait_all(sends).expect("received");
        } else {
            while worker.counters().rx_unexpected < 3 * EACH as u64 {
                worker.progress();
            }
            let free = worker.free_bytes();
            assert!(free >= floor - floor / 8, "{free} bytes are free, and the floor is {floor}");
            for from in (1..4).cycle().take(3 * EACH) {
                receive(&mut worker, from, DATA);
            }
        }
        assert_eq!(worker.close().expect("all close"), Dropped::default());
    });
}

#[test]
fn a_flood_leaves_the_application_its_memory() {
    for settings in [&[][..], &[("credits", "240")], &[("receive_queues", "S,8KiB,512")]] {
        keeps_the_floor::<Worker>(settings);
        keeps_the_floor::<DedicatedWorker>(settings);
    }
}

/// Tens of thousands of messages that have arrived and have no receive are taken back.
fn takes_all_back<W: Member>() {
    const COUNT: usize = 20_000;
    run_ranks(2, |job, _| {
        let mut worker = W::join(&config(&[]), job).expect("a worker");
        if worker.rank() == 0 {
            let sends: Vec<_> = (0..COUNT).map(|_| send(&mut worker, 1, DATA)).collect();
            worker.barrier().expect("both are here");
            for &send in &sends {
                worker.cancel(send);
            }
            for send in sends {
                assert!(worker.wait(send).expect("it ends").is_cancelled);
            }
        } else {
            while worker.counters().rx_unexpected < COUNT as u64 {
                worker.progress();
            }
            worker.barrier().expect("both are here");
        }
        assert_eq!(worker.close().expect("both close"), Dropped::default());
    });
}

#[test]
fn tens_of_thousands_of_messages_are_taken_back() {
    takes_all_back::<Worker>();
    takes_all_back::<DedicatedWorker>();
}
