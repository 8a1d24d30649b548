//! The guest's half: what it requests, and the memory that our requests lead to.

use roci_driver::MemoryRegion;

use super::RECEIVES;
use super::plan::{GUARD, MixedOperation, MixedPlan, MixedRequest};
use crate::LabError;
use crate::lab::{GuestMemory, GuestPair, GuestReply, Lab, completions, number, wide};
use crate::scenarios::connected::expect;

/// The pattern that lies behind every slot.
const GUARD_SEED: u8 = 0x5a;

/// Memory for our requests, and receives for our messages.
pub(super) fn prepare_target(lab: &mut Lab, pair: GuestPair, ours: &MixedPlan) -> Result<GuestMemory, LabError> {
    let target = lab.remote(ours.size)?;
    let mut questions = on_guards("fill", target, ours);
    questions.extend(on_slots("fill", target, ours, |job| job.kind == MixedOperation::Read));
    for (wr, job) in (RECEIVES..).zip(ours.receives()) {
        let receive = format!("recv qp={} wr={wr}", pair.theirs);
        let is_send = matches!(job.kind, MixedOperation::Send { .. });
        questions.push(if is_send { format!("{receive} {}", slot(target, job)) } else { receive });
    }
    lab.ask_all(&questions)?;
    Ok(target)
}

/// Memory that the guest's requests take payloads from, and bring results to.
pub(super) fn prepare_source(lab: &mut Lab, theirs: &MixedPlan) -> Result<GuestMemory, LabError> {
    let source = lab.remote(theirs.size)?;
    let mut questions = on_guards("fill", source, theirs);
    questions.extend(on_slots("fill", source, theirs, is_payload));
    lab.ask_all(&questions)?;
    Ok(source)
}

/// The guest's requests, which lead to our `region`.
pub(super) fn requests(pair: GuestPair, theirs: &MixedPlan, source: GuestMemory, region: MemoryRegion) -> Vec<String> {
    let words = |(wr, job): (usize, &MixedRequest)| {
        let operation = match job.kind {
            MixedOperation::Send { imm: None } => "op=send".to_owned(),
            MixedOperation::Send { imm: Some(imm) } => format!("op=send_imm imm={imm}"),
            MixedOperation::Write { imm: None } => "op=write".to_owned(),
            MixedOperation::Write { imm: Some(imm) } => format!("op=write_imm imm={imm}"),
            MixedOperation::Read => "op=read".to_owned(),
            MixedOperation::FetchAdd { add } => format!("op=fadd add={add}"),
            MixedOperation::CompareSwap { compare, swap } => format!("op=cas compare={compare} swap={swap}"),
        };
        let at = if job.is_atomic() { 0 } else { job.at };
        let to = format!("raddr={at} rkey={}", region.rkey().0);
        format!("send qp={} wr={wr} {operation} {} {to}", pair.theirs, slot(source, job))
    };
    theirs.jobs.iter().enumerate().map(words).collect()
}

/// Waits for the end of the guest's requests and of its receives, each in their order.
pub(super) fn complete(lab: &mut Lab, ours: &MixedPlan, theirs: &MixedPlan) -> Result<(), LabError> {
    let (mut requests, mut receives) = ((0..).zip(&theirs.jobs), (RECEIVES..).zip(ours.receives()));
    let count = theirs.jobs.len() + ours.receives().count();
    let line = lab.ask_line(&format!("poll n={count} ms=50000"))?;
    for done in completions(&line, count)? {
        let is_receive = wide(&done, "wr")? >= RECEIVES;
        let next = if is_receive { receives.next() } else { requests.next() };
        let (wr, job) = next.ok_or("a completion too many")?;
        verify_completion(&done, wr, job, is_receive)
            .map_err(|failure| format!("the guest's {wr}, {job:?}: {failure}"))?;
    }
    Ok(())
}

fn verify_completion(done: &GuestReply, wr: u64, job: &MixedRequest, is_receive: bool) -> Result<(), LabError> {
    expect("the status", done.get("status").map(String::as_str), Some("IBV_WC_SUCCESS"))?;
    expect("the order", wide(done, "wr")?, wr)?;
    if !is_receive {
        return Ok(());
    }
    expect("the length", number(done, "len")? as usize, job.len)?;
    let imm = if done.contains_key("imm") { Some(number(done, "imm")?) } else { None };
    expect("the immediate data", imm, job.imm())
}

/// What our requests brought is there, and nothing else was changed.
pub(super) fn verify_target(lab: &mut Lab, ours: &MixedPlan, target: GuestMemory) -> Result<(), LabError> {
    let mut questions = on_guards("check", target, ours);
    questions.extend(on_slots("check", target, ours, |job| !job.is_atomic()));
    lab.ask_all(&questions)?;
    expect("the guest's word", peek(lab, target, 0)?, ours.word)
}

/// What the guest's requests fetched is there.
pub(super) fn verify_source(lab: &mut Lab, theirs: &MixedPlan, source: GuestMemory) -> Result<(), LabError> {
    let mut questions = on_guards("check", source, theirs);
    questions.extend(on_slots("check", source, theirs, |job| !job.is_atomic()));
    lab.ask_all(&questions)?;
    for job in theirs.jobs.iter().filter(|job| job.is_atomic()) {
        expect("what the guest's atomic found", peek(lab, source, job.at)?, job.found)?;
    }
    Ok(())
}

fn peek(lab: &mut Lab, memory: GuestMemory, at: usize) -> Result<u64, LabError> {
    let answer = lab.ask(&format!("peek mr={} off={at} len=8", memory.mr))?;
    let hex = answer.get("hex").ok_or("the answer lacks hex")?;
    Ok(u64::from_str_radix(hex, 16)?.swap_bytes())
}

fn is_payload(job: &MixedRequest) -> bool {
    matches!(job.kind, MixedOperation::Send { .. } | MixedOperation::Write { .. })
}

fn slot(memory: GuestMemory, job: &MixedRequest) -> String {
    format!("mr={} off={} len={}", memory.mr, job.at, job.len)
}

fn on_slots<'a>(
    verb: &'a str,
    memory: GuestMemory,
    plan: &'a MixedPlan,
    is_meant: impl Fn(&MixedRequest) -> bool + 'a,
) -> impl Iterator<Item = String> + 'a {
    let jobs = plan.jobs.iter().filter(move |job| is_meant(job));
    jobs.map(move |job| format!("{verb} {} seed={}", slot(memory, job), job.seed))
}

fn on_guards(verb: &str, memory: GuestMemory, plan: &MixedPlan) -> Vec<String> {
    let line =
        |job: &MixedRequest| format!("{verb} mr={} off={} len={GUARD} seed={GUARD_SEED}", memory.mr, job.at + job.len);
    plan.jobs.iter().map(line).collect()
}
