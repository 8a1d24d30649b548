//! What one end requests in a round, and what must come of it.

use rand::Rng;
use rand::rngs::StdRng;
use roci_driver::Mtu;

/// Requests of one end.
const REQUESTS: usize = 24;
/// Bytes behind every slot that must not change.
pub(super) const GUARD: usize = 16;
/// The first slot comes behind the word that atomics change, which is at 0.
const FIRST_SLOT: usize = 64;
/// Full packets of the longest message.
const LONGEST: usize = 6;

/// The operation of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum MixedOperation {
    Send { imm: Option<u32> },
    Write { imm: Option<u32> },
    Read,
    FetchAdd { add: u64 },
    CompareSwap { compare: u64, swap: u64 },
}

/// A request. Its bytes are the pattern of `seed`; an atomic finds `found`.
#[derive(Clone, Copy, Debug)]
pub(super) struct MixedRequest {
    pub(super) kind: MixedOperation,
    /// Where its slot is, in the memory of either end.
    pub(super) at: usize,
    pub(super) len: usize,
    pub(super) seed: u8,
    pub(super) found: u64,
}

impl MixedRequest {
    /// Whether the other end must have posted a receive.
    pub(super) fn takes_receive(&self) -> bool {
        matches!(self.kind, MixedOperation::Send { .. } | MixedOperation::Write { imm: Some(_) })
    }

    pub(super) fn imm(&self) -> Option<u32> {
        match self.kind {
            MixedOperation::Send { imm } | MixedOperation::Write { imm } => imm,
            _ => None,
        }
    }

    pub(super) fn is_atomic(&self) -> bool {
        matches!(self.kind, MixedOperation::FetchAdd { .. } | MixedOperation::CompareSwap { .. })
    }
}

/// The requests of one end, in order.
pub(super) struct MixedPlan {
    pub(super) jobs: Vec<MixedRequest>,
    /// Bytes of memory that the slots take.
    pub(super) size: usize,
    /// What the word becomes.
    pub(super) word: u64,
    mtu: usize,
}

impl MixedPlan {
    /// Draws a plan whose READs and WRITEs are of `shortest` bytes or more. Every kind comes.
    pub(super) fn draw(dice: &mut StdRng, mtu: Mtu, shortest: usize) -> Self {
        let mut plan = Self { jobs: Vec::new(), size: FIRST_SLOT, word: 0, mtu: mtu.bytes() };
        for index in 0..REQUESTS {
            let number = if index < KINDS { index } else { dice.random_range(0..KINDS) };
            plan.add(dice, number, shortest);
        }
        plan
    }

    fn add(&mut self, dice: &mut StdRng, number: usize, shortest: usize) {
        let kind = draw_kind(dice, number, self.word);
        let len = match kind {
            MixedOperation::FetchAdd { .. } | MixedOperation::CompareSwap { .. } => 8,
            MixedOperation::Read | MixedOperation::Write { .. } => draw_len(dice, self.mtu).max(shortest),
            MixedOperation::Send { .. } => draw_len(dice, self.mtu),
        };
        let job = MixedRequest { kind, at: self.size, len, seed: dice.random(), found: self.word };
        match kind {
            MixedOperation::FetchAdd { add } => self.word = self.word.wrapping_add(add),
            MixedOperation::CompareSwap { compare, swap } if compare == self.word => self.word = swap,
            _ => {}
        }
        self.size += (len + GUARD).next_multiple_of(8);
        self.jobs.push(job);
    }

    /// PSNs that the requests take.
    pub(super) fn psns(&self) -> u32 {
        self.jobs.iter().map(|job| job.len.div_ceil(self.mtu).max(1) as u32).sum()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.jobs.iter().map(|job| job.len as u64).sum()
    }

    pub(super) fn receives(&self) -> impl Iterator<Item = &MixedRequest> {
        self.jobs.iter().filter(|job| job.takes_receive())
    }
}

/// Kinds of requests, of which `draw_kind` knows each by a number.
const KINDS: usize = 8;

/// A request on a word that holds `word`.
fn draw_kind(dice: &mut StdRng, number: usize, word: u64) -> MixedOperation {
    match number {
        0 => MixedOperation::Send { imm: None },
        1 => MixedOperation::Send { imm: Some(dice.random()) },
        2 => MixedOperation::Write { imm: None },
        3 => MixedOperation::Write { imm: Some(dice.random()) },
        4 => MixedOperation::Read,
        5 => MixedOperation::FetchAdd { add: dice.random() },
        6 => MixedOperation::CompareSwap { compare: word, swap: dice.random() },
        _ => MixedOperation::CompareSwap { compare: !word, swap: dice.random() },
    }
}

/// At the edges of packets, or anywhere.
fn draw_len(dice: &mut StdRng, mtu: usize) -> usize {
    match dice.random_range(0..6) {
        0 => 0,
        1 => 1,
        2 => mtu,
        3 => mtu + 1,
        _ => dice.random_range(0..=LONGEST * mtu),
    }
}
