//! Messages that are taken from the packets they came in, and memory of SENDs that is taken back: which are offered, in which
//! order, and what becomes of the others.

use roci_driver::{Buffer, Notify, Operation, Rkey, SendWr, Sink, WcStatus};

use crate::common::Wire;

/// What every receive here is named, and how long it is.
const NAME: u64 = 7;
const ROOM: usize = 64;

/// Notes what it is offered, and takes what it is to take.
#[derive(Default)]
struct Script {
    takes: &'static [u8],
    offered: Vec<u8>,
}

impl Sink for Script {
    fn take(&mut self, wr_id: u64, message: &[u8]) -> bool {
        assert_eq!((wr_id, message.len()), (NAME, 8));
        assert!(message.iter().all(|byte| *byte == message[0]));
        self.offered.push(message[0]);
        self.takes.contains(&message[0])
    }

    fn take_back(&mut self, _: u64, _: Operation, memory: Buffer) -> Option<Buffer> {
        Some(memory)
    }
}

/// The same for the memory of SENDs, by their names.
#[derive(Default)]
struct Hoard {
    takes: &'static [u64],
    offered: Vec<u64>,
}

impl Sink for Hoard {
    fn take(&mut self, _: u64, _: &[u8]) -> bool {
        false
    }

    fn take_back(&mut self, wr_id: u64, operation: Operation, memory: Buffer) -> Option<Buffer> {
        assert!(memory.iter().all(|&byte| byte == wr_id as u8));
        assert_eq!(operation == Operation::Write, memory.is_empty());
        self.offered.push(wr_id);
        (!self.takes.contains(&wr_id)).then_some(memory)
    }
}

fn send(wire: &mut Wire, mark: u8) {
    let payload = wire.buffer(0, &[mark; 8]);
    wire.post(0, SendWr::send(mark.into(), payload));
}

/// Two ends that know what each other's frames look like.
fn acquainted() -> Wire {
    let mut wire = Wire::new(None);
    for mark in [100, 101] {
        wire.post_recv(1, ROOM);
        send(&mut wire, mark);
        assert_eq!(wire.wait(1).buffer[0], mark);
        assert_eq!(wire.wait(0).wr_id, mark.into());
    }
    wire
}

/// The same, with a few receives at the second.
fn with_receives() -> Wire {
    let mut wire = acquainted();
    (0..4).for_each(|_| wire.post_recv(1, ROOM));
    wire
}

/// Lets both ends poll, the second with a sink that takes these, until nothing comes any more; returns what that was offered.
fn poll_into(wire: &mut Wire, takes: &'static [u8]) -> Vec<u8> {
    let mut script = Script { takes, ..Script::default() };
    let [near, far] = &mut wire.ends;
    while far.engine.poll_into(&mut script) + near.engine.poll() > 0 {
        far.engine.check();
    }
    script.offered
}

/// The marks of the messages that have filled a receive.
fn received(wire: &mut Wire) -> Vec<u8> {
    let end = &mut wire.ends[1];
    std::iter::from_fn(|| end.engine.poll_cq(end.cq)).map(|done| done.buffer[0]).collect()
}

#[test]
fn what_is_taken_fills_no_receive_and_is_acknowledged() {
    let mut wire = with_receives();
    (1..=3).for_each(|mark| send(&mut wire, mark));
    assert_eq!(poll_into(&mut wire, &[1, 2, 3]), [1, 2, 3]);
    assert_eq!(received(&mut wire), []);
    for mark in 1..=3 {
        assert_eq!(wire.wait(0).wr_id, mark);
    }
    // The four receives are still posted.
    (11..=14).for_each(|mark| send(&mut wire, mark));
    assert_eq!(poll_into(&mut wire, &[]), [11]);
    assert_eq!(received(&mut wire), [11, 12, 13, 14]);
}

#[test]
fn nothing_overtakes_a_message_that_has_filled_a_receive() {
    let mut wire = with_receives();
    (1..=4).for_each(|mark| send(&mut wire, mark));
    assert_eq!(poll_into(&mut wire, &[1, 3, 4]), [1, 2], "the second one waits in the completion queue");
    assert_eq!(received(&mut wire), [2, 3, 4]);
    send(&mut wire, 5);
    assert_eq!(poll_into(&mut wire, &[5]), [5], "and nothing waits there any more");
}

#[test]
fn nothing_is_taken_from_who_waits_for_an_event() {
    let mut wire = with_receives();
    let cq = wire.ends[1].cq;
    wire.ends[1].engine.request_notify(cq, Notify::Any);
    send(&mut wire, 1);
    assert_eq!(poll_into(&mut wire, &[1]), []);
    assert_eq!(received(&mut wire), [1]);
}

#[test]
fn nothing_is_taken_from_a_queue_that_the_sink_does_not_know() {
    let mut wire = with_receives();
    let cq = wire.ends[1].cq;
    wire.ends[1].engine.offer_to_sinks(cq, false);
    send(&mut wire, 1);
    assert_eq!(poll_into(&mut wire, &[1]), []);
    assert_eq!(received(&mut wire), [1]);
    // Nor once an event that was asked for has come.
    wire.ends[1].engine.request_notify(cq, Notify::Any);
    send(&mut wire, 2);
    assert_eq!(poll_into(&mut wire, &[2]), []);
    assert_eq!(received(&mut wire), [2]);
    send(&mut wire, 3);
    assert_eq!(poll_into(&mut wire, &[3]), []);
    assert_eq!(received(&mut wire), [3]);
    wire.ends[1].engine.offer_to_sinks(cq, true);
    send(&mut wire, 4);
    assert_eq!(poll_into(&mut wire, &[4]), [4]);
}

#[test]
fn immediate_data_and_longer_messages_fill_their_receives() {
    let mut wire = with_receives();
    for round in 0..2 {
        let payload = wire.buffer(0, &[1; 8]);
        wire.post(0, SendWr::send(round, payload).with_imm(5));
        assert_eq!(poll_into(&mut wire, &[1]), []);
        assert_eq!(received(&mut wire), [1]);
        assert_eq!(wire.wait(0).status, WcStatus::Success);
    }
    let mut wire = Wire::new(None);
    for _ in 0..3 {
        wire.post_recv(1, 3000);
        let payload = wire.buffer(0, &[9; 3000]);
        wire.post(0, SendWr::send(1, payload));
        assert_eq!(poll_into(&mut wire, &[9]), []);
        assert_eq!(received(&mut wire), [9]);
        assert_eq!(wire.wait(0).status, WcStatus::Success);
    }
}

#[test]
fn what_no_receive_waits_for_is_not_offered_before_one_does() {
    let mut wire = acquainted();
    send(&mut wire, 1);
    assert_eq!(poll_into(&mut wire, &[1]), [], "the peer has to try again");
    wire.post_recv(1, ROOM);
    let offered = (0..1000).find_map(|_| {
        wire.clock.advance(100_000);
        Some(poll_into(&mut wire, &[1])).filter(|offered| !offered.is_empty())
    });
    assert_eq!((offered, received(&mut wire)), (Some(vec![1]), vec![]));
}

#[test]
fn a_message_longer_than_its_receive_is_refused_as_ever() {
    let mut wire = acquainted();
    wire.post_recv(1, 4);
    send(&mut wire, 1);
    assert_eq!(poll_into(&mut wire, &[1]), []);
    assert_eq!(wire.wait(1).status, WcStatus::LocLenErr);
    assert_eq!(wire.wait(0).status, WcStatus::RemInvReqErr);
}

/// Sends messages with these marks, lets the first end poll with a sink that takes the memory of `takes` back, and returns what that
/// was offered.
fn take_back(wire: &mut Wire, marks: &[u8], takes: &'static [u64]) -> Vec<u64> {
    for &mark in marks {
        wire.post_recv(1, ROOM);
        send(wire, mark);
    }
    let mut hoard = Hoard { takes, ..Hoard::default() };
    let [near, far] = &mut wire.ends;
    while far.engine.poll() + near.engine.poll_into(&mut hoard) > 0 {
        near.engine.check();
    }
    assert_eq!(received(wire), marks);
    hoard.offered
}

/// The names of the SENDs that have completed.
fn completed(wire: &mut Wire) -> Vec<u64> {
    let end = &mut wire.ends[0];
    std::iter::from_fn(|| end.engine.poll_cq(end.cq)).map(|done| done.wr_id).collect()
}

#[test]
fn a_send_whose_memory_is_taken_back_leaves_its_place_in_the_completion_queue() {
    let mut wire = acquainted();
    // The queue has 64 places.
    for _ in 0..100 {
        assert_eq!(take_back(&mut wire, &[1, 2, 3], &[1, 2, 3]), [1, 2, 3]);
        assert_eq!(completed(&mut wire), []);
    }
}

#[test]
fn no_end_overtakes_one_that_waits_in_the_completion_queue() {
    let mut wire = acquainted();
    assert_eq!(take_back(&mut wire, &[1, 2, 3], &[1, 3]), [1, 2], "the second one waits in the completion queue");
    assert_eq!(completed(&mut wire), [2, 3]);
    assert_eq!(take_back(&mut wire, &[4], &[4]), [4], "and nothing waits there any more");
}

#[test]
fn no_memory_is_taken_back_from_who_waits_for_an_event() {
    let mut wire = acquainted();
    let cq = wire.ends[0].cq;
    wire.ends[0].engine.request_notify(cq, Notify::Any);
    assert_eq!(take_back(&mut wire, &[1], &[1]), []);
    assert_eq!(completed(&mut wire), [1]);
}

#[test]
fn only_the_memory_of_sends_and_writes_that_complete_is_offered() {
    let mut wire = acquainted();
    wire.post_recv(1, ROOM);
    let quiet = SendWr::send(5, wire.buffer(0, &[5; 8])).unsignaled();
    wire.post(0, quiet);
    let mut hoard = Hoard { takes: &[5, 6], ..Hoard::default() };
    let [near, far] = &mut wire.ends;
    while far.engine.poll() + near.engine.poll_into(&mut hoard) > 0 {}
    assert_eq!((received(&mut wire), hoard.offered), (vec![5], vec![]));
    let write = SendWr::write(6, wire.buffer(0, &[]), Rkey(0), 0);
    wire.post(0, write);
    assert_eq!(take_back(&mut wire, &[7], &[6, 7]), [6, 7], "an RDMA WRITE of nothing, and what is behind it");
    assert_eq!(completed(&mut wire), []);
    let read = SendWr::read(8, wire.buffer(0, &[]), Rkey(0), 0);
    wire.post(0, read);
    assert_eq!(take_back(&mut wire, &[9], &[8, 9]), [], "an RDMA READ completes, and so does what is behind it");
    assert_eq!(completed(&mut wire), [8, 9]);
}
