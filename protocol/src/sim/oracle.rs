//! What must come out, computed from what was posted and from nothing else.

use std::collections::VecDeque;

use super::node::{Host, WORDS, WRITABLE};
use crate::Rkey;
use crate::rc::{AtomicOperation, Completion, Operation};

/// What one direction, requester to responder, owes.
pub(super) struct Oracle {
    /// Completions of the requester, in the order of posting.
    sends: VecDeque<ExpectedSend>,
    /// Completions of the responder, in the order of posting at the requester.
    receives: VecDeque<ExpectedRecv>,
    /// The responder's writable memory after every WRITE posted so far.
    image: Vec<u8>,
    /// The responder's words after every atomic posted so far.
    words: [u64; WORDS],
}

struct ExpectedSend {
    wr_id: u64,
    operation: Operation,
    /// What a READ or an atomic must have fetched.
    fetched: Option<Vec<u8>>,
}

struct ExpectedRecv {
    operation: Operation,
    imm: Option<u32>,
    invalidated: Option<Rkey>,
    len: u32,
    bytes: Vec<u8>,
}

impl Oracle {
    pub(super) fn new() -> Self {
        Self { sends: VecDeque::new(), receives: VecDeque::new(), image: vec![0; WRITABLE], words: [0; WORDS] }
    }

    pub(super) fn expect_send(&mut self, wr_id: u64, bytes: &[u8], imm: Option<u32>, invalidated: Option<Rkey>) {
        self.sends.push_back(ExpectedSend { wr_id, operation: Operation::Send, fetched: None });
        let len = bytes.len() as u32;
        let bytes = bytes.to_vec();
        self.receives.push_back(ExpectedRecv { operation: Operation::Recv, imm, invalidated, len, bytes });
    }

    pub(super) fn expect_write(&mut self, wr_id: u64, va: u64, bytes: &[u8], imm: Option<u32>) {
        self.sends.push_back(ExpectedSend { wr_id, operation: Operation::Write, fetched: None });
        self.image[va as usize..][..bytes.len()].copy_from_slice(bytes);
        if imm.is_some() {
            let operation = Operation::RecvRdmaWithImm;
            let len = bytes.len() as u32;
            self.receives.push_back(ExpectedRecv { operation, imm, invalidated: None, len, bytes: Vec::new() });
        }
    }

    pub(super) fn expect_read(&mut self, wr_id: u64, fetched: &[u8]) {
        let fetched = Some(fetched.to_vec());
        self.sends.push_back(ExpectedSend { wr_id, operation: Operation::Read, fetched });
    }

    pub(super) fn expect_atomic(&mut self, wr_id: u64, index: usize, atomic: AtomicOperation) {
        let original = self.words[index];
        self.words[index] = atomic.apply(original);
        let operation = match atomic {
            AtomicOperation::CompareSwap { .. } => Operation::CompareSwap,
            AtomicOperation::FetchAdd { .. } => Operation::FetchAdd,
        };
        self.sends.push_back(ExpectedSend { wr_id, operation, fetched: Some(original.to_ne_bytes().to_vec()) });
    }

    pub(super) fn expect_local(&mut self, wr_id: u64, operation: Operation) {
        self.sends.push_back(ExpectedSend { wr_id, operation, fetched: None });
    }

    /// What a word holds once everything posted so far is done.
    pub(super) fn word(&self, index: usize) -> u64 {
        self.words[index]
    }

    /// Receives that messages under way will still take.
    pub(super) fn receives_due(&self) -> usize {
        self.receives.len()
    }

    pub(super) fn is_satisfied(&self) -> bool {
        self.sends.is_empty() && self.receives.is_empty()
    }

    /// A send queue completion at the requester.
    pub(super) fn check_send(&mut self, done: &Completion<Vec<u8>>) -> Result<(), String> {
        let Some(expected) = self.sends.pop_front() else { return Err(format!("a completion too many: {done:?}")) };
        if !done.status.is_success() {
            return Err(format!("wr {} ended with {}", done.wr_id, done.status.verbs_name()));
        }
        if (done.wr_id, done.operation) != (expected.wr_id, expected.operation) {
            return Err(format!("wr {} completed where wr {} was due", done.wr_id, expected.wr_id));
        }
        match expected.fetched {
            Some(bytes) if bytes != done.buffer => Err(format!("wr {} fetched wrong bytes", done.wr_id)),
            _ => Ok(()),
        }
    }

    /// A receive queue completion at the responder.
    pub(super) fn check_recv(&mut self, done: &Completion<Vec<u8>>) -> Result<(), String> {
        let Some(expected) = self.receives.pop_front() else { return Err(format!("a message too many: {done:?}")) };
        let got = (done.status.is_success(), done.operation, done.imm, done.invalidated, done.len);
        let due = (true, expected.operation, expected.imm, expected.invalidated, expected.len);
        if got != due {
            return Err(format!("received {got:?} where {due:?} was due"));
        }
        if done.buffer[..expected.bytes.len()] != expected.bytes[..] {
            return Err(format!("receive {} holds wrong bytes", done.wr_id));
        }
        Ok(())
    }

    /// The responder's memory at the end.
    pub(super) fn check_image(&self, responder: &Host) -> Result<(), String> {
        if self.words != responder.words {
            return Err(format!("node {}'s words are {:?} and not {:?}", responder.index, responder.words, self.words));
        }
        match self.image.iter().zip(&responder.writable).position(|(want, have)| want != have) {
            Some(at) => Err(format!("node {}'s memory differs at {at:#x}", responder.index)),
            None => Ok(()),
        }
    }
}
