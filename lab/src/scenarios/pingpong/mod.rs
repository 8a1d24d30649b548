//! The `ibv_*_pingpong` programs of rdma-core, unmodified: both sides tell their addresses over TCP, then bounce messages.
//!
//! The guest's program sends from the buffer that it receives in, so it returns what it got, or begins with what it filled
//! the buffer with. All messages of a game are alike: one that the guest repeats is then the one that it sent.

mod datagrams;
mod exchange;
mod reliable;

use roci_driver::{QueuePair, WorkCompletion};

use super::connected::expect;
use super::manager::ended;
use crate::LabError;
use crate::lab::{Lab, pattern};

const ITERATIONS: usize = 100;
const SIZE: usize = 4096;
/// The names of our work requests.
const RECEIVE: u64 = 1;
const SEND: u64 = 2;

/// A program of the guest's.
struct Program {
    name: &'static str,
    /// More words for its command line.
    words: &'static str,
    queue_pairs: usize,
    /// How many addresses each side sends, whether there are so many queue pairs or not.
    addresses: usize,
    /// What it fills its buffer with.
    filling: u8,
}

const RC: Program = Program { name: "ibv_rc_pingpong", words: "", queue_pairs: 1, addresses: 1, filling: 0x7b };
const UD: Program = Program { name: "ibv_ud_pingpong", words: "", queue_pairs: 1, addresses: 1, filling: 0x7b };
/// So few receives that the guest fills its shared queue up again and again.
const SRQ: Program =
    Program { name: "ibv_srq_pingpong", words: "-q 4 -r 16", queue_pairs: 4, addresses: 256, filling: 0 };

/// What we are; the guest is the other one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    /// It connects to the other side, and begins.
    Client,
    Server,
}

pub(super) fn rc_client(lab: &mut Lab) -> Result<(), LabError> {
    reliable::play(lab, &RC, Role::Client)
}

pub(super) fn rc_server(lab: &mut Lab) -> Result<(), LabError> {
    reliable::play(lab, &RC, Role::Server)
}

pub(super) fn srq_client(lab: &mut Lab) -> Result<(), LabError> {
    reliable::play(lab, &SRQ, Role::Client)
}

pub(super) fn srq_server(lab: &mut Lab) -> Result<(), LabError> {
    reliable::play(lab, &SRQ, Role::Server)
}

pub(super) fn ud_client(lab: &mut Lab) -> Result<(), LabError> {
    datagrams::play(lab, &UD, Role::Client)
}

pub(super) fn ud_server(lab: &mut Lab) -> Result<(), LabError> {
    datagrams::play(lab, &UD, Role::Server)
}

/// The message of a game. The guest wants each page to begin with a zero.
fn message(program: &Program, role: Role) -> Vec<u8> {
    let mut message = match role {
        Role::Client => pattern(0, SIZE),
        Role::Server => vec![program.filling; SIZE],
    };
    message[0] = 0;
    message
}

/// The queue pairs of a ping-pong.
trait PingPongQps {
    fn queue_pairs(&self) -> impl Iterator<Item = QueuePair>;
    fn post_receive(&self, lab: &mut Lab, qp: QueuePair) -> Result<(), LabError>;
    fn send(&self, lab: &mut Lab, qp: QueuePair, message: &[u8]) -> Result<(), LabError>;
    /// The message in a receive.
    fn message<'a>(&self, done: &'a WorkCompletion) -> &'a [u8];
}

/// Bounces a message on each queue pair, from when their first receives are posted. As many leave as the guest counts up
/// to; a guest that began may send one more on each queue pair.
fn bounce(lab: &mut Lab, table: &impl PingPongQps, message: &[u8], role: Role) -> Result<(), LabError> {
    let (mut sent, mut delivered, mut received) = (0, 0, 0);
    if role == Role::Client {
        for qp in table.queue_pairs() {
            table.send(lab, qp, message)?;
            sent += 1;
        }
    }
    while delivered < ITERATIONS || received < ITERATIONS {
        let done = lab.wait_ok()?;
        if done.wr_id == SEND {
            delivered += 1;
            continue;
        }
        received += 1;
        expect("that the message is the one that is bounced", table.message(&done) == message, true)?;
        table.post_receive(lab, done.qp)?;
        if sent < ITERATIONS {
            table.send(lab, done.qp, message)?;
            sent += 1;
        }
    }
    Ok(())
}

/// The guest's program counted all iterations, and liked what it got.
fn finish(lab: &mut Lab) -> Result<(), LabError> {
    let output = ended(lab)?;
    let is_content =
        output.contains(&format!("{ITERATIONS} iters")) && output.contains("rc=0") && !output.contains("invalid data");
    expect("that the guest is content", is_content, true).map_err(|failure| format!("{failure}: {output}").into())
}
