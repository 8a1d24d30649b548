//! Our half: what we request, and the memory that the guest's requests lead to.

use roci_driver::{MemoryRegion, SendWr, WorkCompletion};

use super::RECEIVES;
use super::plan::{MixedOperation, MixedPlan, MixedRequest};
use crate::LabError;
use crate::lab::{GuestMemory, GuestPair, Lab, pattern};
use crate::scenarios::connected::expect;

/// The value of bytes of our memory that are not written.
const FILL: u8 = 0xa5;

/// A region for the requests of `theirs`, and receives for its messages.
pub(super) fn prepare_region(lab: &mut Lab, pair: GuestPair, theirs: &MixedPlan) -> Result<MemoryRegion, LabError> {
    for (wr_id, job) in (RECEIVES..).zip(theirs.receives()) {
        lab.post_recv(pair, wr_id, job.len)?;
    }
    lab.region(&image(theirs, 0, |job| job.kind == MixedOperation::Read))
}

/// What the region holds: the word, and the pattern in some slots.
fn image(plan: &MixedPlan, word: u64, is_there: impl Fn(&MixedRequest) -> bool) -> Vec<u8> {
    let mut image = vec![FILL; plan.size];
    image[..8].copy_from_slice(&word.to_ne_bytes());
    for job in plan.jobs.iter().filter(|job| is_there(job)) {
        image[job.at..job.at + job.len].copy_from_slice(&pattern(job.seed, job.len));
    }
    image
}

/// Posts a request of ours that leads to the guest's `target`.
pub(super) fn post(
    lab: &mut Lab,
    pair: GuestPair,
    index: usize,
    job: &MixedRequest,
    target: GuestMemory,
) -> Result<(), LabError> {
    let GuestMemory { addr, rkey, .. } = target;
    let (wr_id, va) = (index as u64, addr + job.at as u64);
    let is_payload = matches!(job.kind, MixedOperation::Send { .. } | MixedOperation::Write { .. });
    let buffer = lab.buffer(&if is_payload { pattern(job.seed, job.len) } else { vec![FILL; job.len] })?;
    let wr = match job.kind {
        MixedOperation::Send { .. } => SendWr::send(wr_id, buffer),
        MixedOperation::Write { .. } => SendWr::write(wr_id, buffer, rkey, va),
        MixedOperation::Read => SendWr::read(wr_id, buffer, rkey, va),
        MixedOperation::FetchAdd { add } => SendWr::fetch_add(wr_id, buffer, rkey, addr, add),
        MixedOperation::CompareSwap { compare, swap } => SendWr::compare_swap(wr_id, buffer, rkey, addr, compare, swap),
    };
    lab.post(pair, job.imm().into_iter().fold(wr, SendWr::with_imm))
}

/// Waits for the end of our requests and of our receives, each in their order, and looks at what they brought.
pub(super) fn complete(lab: &mut Lab, ours: &MixedPlan, theirs: &MixedPlan) -> Result<(), LabError> {
    let (mut requests, mut receives) = ((0..).zip(&ours.jobs), (RECEIVES..).zip(theirs.receives()));
    for _ in 0..ours.jobs.len() + theirs.receives().count() {
        let done = lab.wait_ok()?;
        let is_receive = done.wr_id >= RECEIVES;
        let next = if is_receive { receives.next() } else { requests.next() };
        let (wr_id, job) = next.ok_or("a completion too many")?;
        expect("the order of our completions", done.wr_id, wr_id)?;
        let verify = if is_receive { verify_receive } else { verify_request };
        verify(&done, job).map_err(|failure| format!("our {wr_id}, {job:?}: {failure}"))?;
    }
    Ok(())
}

fn verify_request(done: &WorkCompletion, job: &MixedRequest) -> Result<(), LabError> {
    if job.is_atomic() {
        return expect("what the atomic found", u64::from_ne_bytes(done.buffer[..8].try_into()?), job.found);
    }
    // Of what we have sent this is still there.
    expect("our buffer", done.buffer[..job.len] == pattern(job.seed, job.len), true)
}

fn verify_receive(done: &WorkCompletion, job: &MixedRequest) -> Result<(), LabError> {
    expect("the length", done.len, job.len)?;
    expect("the immediate data", done.imm, job.imm())?;
    let is_send = matches!(job.kind, MixedOperation::Send { .. });
    expect("the message", !is_send || done.buffer[..job.len] == pattern(job.seed, job.len), true)
}

/// All of the region is as the guest's requests should leave it.
pub(super) fn verify_region(lab: &mut Lab, theirs: &MixedPlan, region: MemoryRegion) -> Result<(), LabError> {
    let due = image(theirs, theirs.word, |job| matches!(job.kind, MixedOperation::Read | MixedOperation::Write { .. }));
    let found = lab.content(region)?;
    let wrong = (0..due.len()).find(|&at| found[at] != due[at]);
    expect("the first wrong byte of our region", wrong, None)?;
    lab.engine.deregister(region);
    Ok(())
}
