//! What must come out, computed from what was posted and from nothing else.

use std::collections::VecDeque;
use std::ops::Range;

use super::deviation::Deviation;
use super::node::{NodeState, WORDS, WRITABLE};
use crate::Rkey;
use crate::rc::{AtomicOperation, Operation, RcCompletion, WcStatus};

/// What one direction, requester to responder, owes.
pub(super) struct Oracle {
    /// Completions of the requester, in the order of posting.
    sends: VecDeque<ExpectedSend>,
    /// Completions of the responder, in the order of posting at the requester.
    receives: VecDeque<ExpectedRecv>,
    /// The responder's writable memory after every WRITE posted so far.
    image: Vec<u8>,
    /// Which WRITE posted so far is the last that touches each byte of it, by its number plus 1.
    writers: Vec<u64>,
    /// The responder's words after every atomic posted so far.
    words: [u64; WORDS],
}

struct ExpectedSend {
    wr_id: u64,
    operation: Operation,
    /// How it may end.
    statuses: &'static [WcStatus],
    /// What a READ or an atomic must have fetched.
    fetched: Option<Vec<u8>>,
    /// Where a WRITE must have written.
    written: Range<usize>,
}

struct ExpectedRecv {
    operation: Operation,
    statuses: &'static [WcStatus],
    imm: Option<u32>,
    invalidated: Option<Rkey>,
    solicited: bool,
    len: u32,
    bytes: Vec<u8>,
    /// Where a WRITE with immediate data must have written, and its number.
    written: (u64, Range<usize>),
}

const NOWHERE: Range<usize> = 0..0;
const SUCCESS: &[WcStatus] = &[WcStatus::Success];

impl Oracle {
    pub(super) fn new() -> Self {
        Self {
            sends: VecDeque::new(),
            receives: VecDeque::new(),
            image: vec![0; WRITABLE],
            writers: vec![0; WRITABLE],
            words: [0; WORDS],
        }
    }

    pub(super) fn expect_send(
        &mut self,
        wr_id: u64,
        bytes: &[u8],
        (imm, invalidated): (Option<u32>, Option<Rkey>),
        solicited: bool,
    ) {
        self.expect(wr_id, Operation::Send);
        let (operation, statuses, len) = (Operation::Recv, SUCCESS, bytes.len() as u32);
        let (bytes, written) = (bytes.to_vec(), (wr_id, NOWHERE));
        self.receives.push_back(ExpectedRecv { operation, statuses, imm, invalidated, solicited, len, bytes, written });
    }

    pub(super) fn expect_write(&mut self, wr_id: u64, va: u64, bytes: &[u8], imm: Option<u32>, solicited: bool) {
        let written = va as usize..va as usize + bytes.len();
        self.expect(wr_id, Operation::Write).written = written.clone();
        self.image[written.clone()].copy_from_slice(bytes);
        self.writers[written.clone()].fill(wr_id + 1);
        if imm.is_some() {
            let (operation, statuses, len) = (Operation::RecvRdmaWithImm, SUCCESS, bytes.len() as u32);
            let (invalidated, bytes, written) = (None, Vec::new(), (wr_id, written));
            self.receives.push_back(ExpectedRecv {
                operation,
                statuses,
                imm,
                invalidated,
                solicited,
                len,
                bytes,
                written,
            });
        }
    }

    pub(super) fn expect_read(&mut self, wr_id: u64, fetched: &[u8]) {
        self.expect(wr_id, Operation::Read).fetched = Some(fetched.to_vec());
    }

    pub(super) fn expect_atomic(&mut self, wr_id: u64, index: usize, atomic: AtomicOperation) {
        let original = self.words[index];
        // By words of its own: what is judged does not judge.
        let (operation, result) = match atomic {
            AtomicOperation::CompareSwap { compare, swap } => {
                (Operation::CompareSwap, if original == compare { swap } else { original })
            }
            AtomicOperation::FetchAdd { add } => (Operation::FetchAdd, original.wrapping_add(add)),
        };
        self.words[index] = result;
        self.expect(wr_id, operation).fetched = Some(original.to_ne_bytes().to_vec());
    }

    pub(super) fn expect_local(&mut self, wr_id: u64, operation: Operation) {
        self.expect(wr_id, operation);
    }

    /// The request that was expected last may end otherwise.
    pub(super) fn or_ends_with(&mut self, statuses: &'static [WcStatus]) {
        self.sends.back_mut().expect("one was expected").statuses = statuses;
    }

    /// A receive at the responder that no message fills.
    pub(super) fn expect_failed_receive(&mut self, statuses: &'static [WcStatus]) {
        let (operation, bytes, written) = (Operation::Recv, Vec::new(), (0, NOWHERE));
        let (imm, invalidated, solicited, len) = (None, None, false, 0);
        self.receives.push_back(ExpectedRecv { operation, statuses, imm, invalidated, solicited, len, bytes, written });
    }

    fn expect(&mut self, wr_id: u64, operation: Operation) -> &mut ExpectedSend {
        let expected = ExpectedSend { wr_id, operation, statuses: SUCCESS, fetched: None, written: NOWHERE };
        self.sends.push_back(expected);
        self.sends.back_mut().expect("it was pushed")
    }

    /// How long the message is that takes the receive after `before` others.
    pub(super) fn receive_len(&self, before: usize) -> Option<usize> {
        self.receives.get(before).map(|expected| expected.bytes.len())
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
    pub(super) fn check_send(&mut self, done: &RcCompletion<Vec<u8>>, responder: &NodeState) -> Result<(), Deviation> {
        let Some(expected) = self.sends.pop_front() else { return Err(Deviation::one_too_many(done)) };
        if !expected.statuses.contains(&done.status) {
            return Err(Deviation::SendStatus { wr_id: done.wr_id, status: done.status });
        }
        if (done.wr_id, done.operation) != (expected.wr_id, expected.operation) {
            return Err(Deviation::Order { wr_id: done.wr_id, due: expected.wr_id });
        }
        if !done.status.is_success() {
            return Ok(());
        }
        match expected.fetched {
            Some(bytes) if bytes != done.buffer => Err(Deviation::Fetched(done.wr_id)),
            _ => self.check_written(expected.wr_id, expected.written, responder),
        }
    }

    /// A receive queue completion at the responder.
    pub(super) fn check_recv(&mut self, done: &RcCompletion<Vec<u8>>, responder: &NodeState) -> Result<(), Deviation> {
        let Some(expected) = self.receives.pop_front() else { return Err(Deviation::one_too_many(done)) };
        if !expected.statuses.contains(&done.status) {
            return Err(Deviation::ReceiveStatus { wr_id: done.wr_id, status: done.status });
        }
        if !done.status.is_success() {
            return Ok(());
        }
        let got = (done.operation, done.imm, done.invalidated, done.len, done.solicited);
        let due = (expected.operation, expected.imm, expected.invalidated, expected.len, expected.solicited);
        if got != due {
            return Err(Deviation::Received { got, due });
        }
        if done.buffer[..expected.bytes.len()] != expected.bytes[..] {
            return Err(Deviation::Bytes(done.wr_id));
        }
        let (wr_id, written) = expected.written;
        self.check_written(wr_id, written, responder)
    }

    /// A WRITE is visible by the time that anybody hears of it, but where a later one may have written already.
    fn check_written(&self, wr_id: u64, written: Range<usize>, responder: &NodeState) -> Result<(), Deviation> {
        let is_missing = |&at: &usize| self.writers[at] == wr_id + 1 && self.image[at] != responder.writable[at];
        match written.clone().find(is_missing) {
            Some(at) => Err(Deviation::Unwritten { wr_id, node: responder.index, at }),
            None => Ok(()),
        }
    }

    /// The responder's memory at the end.
    pub(super) fn check_image(&self, responder: &NodeState) -> Result<(), Deviation> {
        if self.words != responder.words {
            let (words, due) = (responder.words.to_vec(), self.words.to_vec());
            return Err(Deviation::Words { node: responder.index, words, due });
        }
        match self.image.iter().zip(&responder.writable).position(|(want, have)| want != have) {
            Some(at) => Err(Deviation::Memory { node: responder.index, at }),
            None => Ok(()),
        }
    }
}
