//! The guest's half: what it requests, and the memory that our requests lead to.

use roci_driver::MemoryRegion;

use super::RECEIVES;
use super::plan::{GUARD, Job, Kind, Plan};
use crate::Failure;
use crate::lab::{Answer, Lab, Pair, Remote, completions, number, wide};
use crate::scenarios::connected::expect;

/// The pattern that lies behind every slot.
const GUARD_SEED: u8 = 0x5a;

/// Memory for our requests, and receives for our messages.
pub(super) fn prepare_target(lab: &mut Lab, pair: Pair, ours: &Plan) -> Result<Remote, Failure> {
    let target = lab.remote(ours.size)?;
    let mut questions = on_guards("fill", target, ours);
    questions.extend(on_slots("fill", target, ours, |job| job.kind == Kind::Read));
    for (wr, job) in (RECEIVES..).zip(ours.receives()) {
        let receive = format!("recv qp={} wr={wr}", pair.theirs);
        let is_send = matches!(job.kind, Kind::Send { .. });
        questions.push(if is_send { format!("{receive} {}", slot(target, job)) } else { receive });
    }
    lab.ask_all(&questions)?;
    Ok(target)
}

/// Memory that the guest's requests take payloads from, and bring results to.
pub(super) fn prepare_source(lab: &mut Lab, theirs: &Plan) -> Result<Remote, Failure> {
    let source = lab.remote(theirs.size)?;
    let mut questions = on_guards("fill", source, theirs);
    questions.extend(on_slots("fill", source, theirs, is_payload));
    lab.ask_all(&questions)?;
    Ok(source)
}

/// The guest's requests, which lead to our `region`.
pub(super) fn requests(pair: Pair, theirs: &Plan, source: Remote, region: MemoryRegion) -> Vec<String> {
    let words = |(wr, job): (usize, &Job)| {
        let operation = match job.kind {
            Kind::Send { imm: None } => "op=send".to_owned(),
            Kind::Send { imm: Some(imm) } => format!("op=send_imm imm={imm}"),
            Kind::Write { imm: None } => "op=write".to_owned(),
            Kind::Write { imm: Some(imm) } => format!("op=write_imm imm={imm}"),
            Kind::Read => "op=read".to_owned(),
            Kind::FetchAdd { add } => format!("op=fadd add={add}"),
            Kind::CompareSwap { compare, swap } => format!("op=cas compare={compare} swap={swap}"),
        };
        let at = if job.is_atomic() { 0 } else { job.at };
        let to = format!("raddr={at} rkey={}", region.rkey().0);
        format!("send qp={} wr={wr} {operation} {} {to}", pair.theirs, slot(source, job))
    };
    theirs.jobs.iter().enumerate().map(words).collect()
}

/// Waits for the end of the guest's requests and of its receives, each in their order.
pub(super) fn complete(lab: &mut Lab, ours: &Plan, theirs: &Plan) -> Result<(), Failure> {
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

fn verify_completion(done: &Answer, wr: u64, job: &Job, is_receive: bool) -> Result<(), Failure> {
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
pub(super) fn verify_target(lab: &mut Lab, ours: &Plan, target: Remote) -> Result<(), Failure> {
    let mut questions = on_guards("check", target, ours);
    questions.extend(on_slots("check", target, ours, |job| !job.is_atomic()));
    lab.ask_all(&questions)?;
    expect("the guest's word", peek(lab, target, 0)?, ours.word)
}

/// What the guest's requests fetched is there.
pub(super) fn verify_source(lab: &mut Lab, theirs: &Plan, source: Remote) -> Result<(), Failure> {
    let mut questions = on_guards("check", source, theirs);
    questions.extend(on_slots("check", source, theirs, |job| !job.is_atomic()));
    lab.ask_all(&questions)?;
    for job in theirs.jobs.iter().filter(|job| job.is_atomic()) {
        expect("what the guest's atomic found", peek(lab, source, job.at)?, job.found)?;
    }
    Ok(())
}

fn peek(lab: &mut Lab, memory: Remote, at: usize) -> Result<u64, Failure> {
    let answer = lab.ask(&format!("peek mr={} off={at} len=8", memory.mr))?;
    let hex = answer.get("hex").ok_or("the answer lacks hex")?;
    Ok(u64::from_str_radix(hex, 16)?.swap_bytes())
}

fn is_payload(job: &Job) -> bool {
    matches!(job.kind, Kind::Send { .. } | Kind::Write { .. })
}

fn slot(memory: Remote, job: &Job) -> String {
    format!("mr={} off={} len={}", memory.mr, job.at, job.len)
}

fn on_slots<'a>(
    verb: &'a str,
    memory: Remote,
    plan: &'a Plan,
    is_meant: impl Fn(&Job) -> bool + 'a,
) -> impl Iterator<Item = String> + 'a {
    let jobs = plan.jobs.iter().filter(move |job| is_meant(job));
    jobs.map(move |job| format!("{verb} {} seed={}", slot(memory, job), job.seed))
}

fn on_guards(verb: &str, memory: Remote, plan: &Plan) -> Vec<String> {
    let line = |job: &Job| format!("{verb} mr={} off={} len={GUARD} seed={GUARD_SEED}", memory.mr, job.at + job.len);
    plan.jobs.iter().map(line).collect()
}
