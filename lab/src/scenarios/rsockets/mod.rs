//! Streams over RDMA: rdma-core's `rstream` against a small peer of ours that speaks the protocol of its rsockets.
//!
//! Either side has an inbox of two halves. The other one fills them in turns, front to back, by WRITE with immediate data,
//! which is a [`RsocketMessage`](wire::RsocketMessage): how many bytes have come. It needs a
//! [`RemoteSegment`](wire::RemoteSegment) for that: where a free half lies. The first half is announced with the
//! connection, in the private data of REQ and REP; later ones are written into one of its two slots, in turns as well, and
//! an announcement carries the number of receives, too: a side may send as many messages of data as were announced since
//! the beginning. Where receives run out before a half does, they are announced alone, by a WRITE of no bytes. Such
//! announcements have receives of their own, so only four of them may be on their way. A side that has no more to send says
//! so in a message, and the connection ends.

mod stream;
mod wire;

use std::iter;

use roci_driver::{CmEvent, ConnId};

use super::connected::expect;
use super::manager::{PORT, ask, ends, event, finished, prepare, service, start, start_listener};
use crate::LabError;
use crate::lab::{Lab, V4};
use stream::{RsocketMemory, RsocketStream};
use wire::Hello;

/// The bytes by which `rstream` begins, and with which each of its turns goes on: some wraps of any inbox.
const SYNC: usize = 16;
const TURN: usize = TRANSFERS * TRANSFER;
const TURNS: usize = 2;
const TRANSFERS: usize = 20;
/// No divisor of an inbox, so that a message now and then ends where a half does.
const TRANSFER: usize = 6000;
/// The guest's inbox is twice as large.
const THEIR_HALF: usize = 8192;

pub(super) fn client(lab: &mut Lab) -> Result<(), LabError> {
    start_listener(lab, &command("-b", V4.theirs))?;
    let memory = RsocketMemory::new(lab)?;
    let id = ask(lab, V4, &memory.hello().written())?;
    let CmEvent::Replied { qp, private_data, .. } = event(lab)? else { return Err("the guest does not reply".into()) };
    let mut stream = RsocketStream::new(lab, qp, memory, &Hello::read(&private_data)?)?;
    lab.engine.cm_confirm(id)?;
    expect("what follows", event(lab)?, CmEvent::Established { id, qp })?;
    for (begin, len) in turns() {
        stream.say(lab, &counting(begin, len))?;
        hear(lab, &mut stream, begin, len)?;
    }
    part(lab, id, stream)
}

pub(super) fn server(lab: &mut Lab) -> Result<(), LabError> {
    lab.engine.cm_listen(service())?;
    start(lab, &command("-s", V4.ours))?;
    let CmEvent::Request { id, place, private_data, .. } = event(lab)? else {
        return Err("the guest does not ask".into());
    };
    lab.engine.cm_unlisten(service());
    let qp = prepare(lab, id, place)?;
    let memory = RsocketMemory::new(lab)?;
    let hello = memory.hello();
    let mut stream = RsocketStream::new(lab, qp, memory, &Hello::read(&private_data)?)?;
    lab.engine.cm_accept(id, &hello.written())?;
    expect("what follows", event(lab)?, CmEvent::Established { id, qp })?;
    for (begin, len) in turns() {
        hear(lab, &mut stream, begin, len)?;
        stream.say(lab, &counting(begin, len))?;
    }
    part(lab, id, stream)
}

/// The guest says that it has done, and ends the connection.
fn part(lab: &mut Lab, id: ConnId, mut stream: RsocketStream) -> Result<(), LabError> {
    stream.hear_the_end(lab)?;
    ends(lab, id)?;
    stream.close(lab);
    finished(lab, &["custom", "rc=0"])
}

/// `rstream` that compares what it gets, sleeps while it waits, and says in the end what it has done.
fn command(role: &str, address: &str) -> String {
    format!("rstream {role} {address} -p {PORT} -T v -T b -B {THEIR_HALF} -S {TRANSFER} -C {TRANSFERS} -I {TURNS}")
}

/// Where each turn begins in the stream of either side, and its length.
fn turns() -> impl Iterator<Item = (usize, usize)> {
    let later = (0..TURNS).map(|turn| (SYNC + turn * TURN, TURN));
    iter::once((0, SYNC)).chain(later)
}

/// What `rstream` sends, and wants: all its bytes are numbered.
fn counting(begin: usize, len: usize) -> Vec<u8> {
    (begin..begin + len).map(|at| at as u8).collect()
}

fn hear(lab: &mut Lab, stream: &mut RsocketStream, begin: usize, len: usize) -> Result<(), LabError> {
    let received = stream.hear(lab, len)?;
    expect("that the bytes are as sent", received == counting(begin, len), true)
        .map_err(|failure| format!("from {begin} on: {failure}").into())
}
