//! `roci perf`: latency and bandwidth between two ranks.
//!
//! Outside a job it starts one of two ranks, each on a processor of its own, that run this very command; as a
//! client or a server it makes one with a process on another host. Rank 0 prints. With `--perftest` there are no ranks: the
//! other side is a program of perftest's.

mod atomic;
mod bandwidth;
mod connections;
mod datagrams;
mod kind;
mod lane;
mod memory;
mod messenger;
mod one_sided;
mod pattern;
mod perftest;
mod ping_clock;
mod plan;
mod raw;
mod raw_header;
mod remote;
mod report;
mod stream;
mod tag;
mod timed;
mod touch;
mod verbs;

use std::process::ExitCode;

use roci_launcher::{Job, JobSpec};
use roci_msgcore::ports::{self, queue_pair_params};
use roci_msgcore::stream::StreamConfig;
use roci_msgcore::{Config, DedicatedWorker, Fabric, Worker, WorkerStats};

pub(crate) use self::kind::{EngineMode, PerfTest, UpToStep};
use self::lane::VerbsEnd;
pub(crate) use self::memory::PayloadMemory;
use self::messenger::Messenger;
pub(crate) use self::plan::MOST_IN_FLIGHT;
use self::plan::PerfPlan;
use self::report::{ReportPrinter, Row};
use super::run::{self, changed_knobs};
use crate::failure::Failure;
use crate::options::PerfOptions;
use crate::resources::cpu_ns;
use crate::troubles;

pub(crate) fn run(options: &PerfOptions) -> Result<ExitCode, Failure> {
    if let Some(test) = options.perftest {
        return perftest::run(test, options);
    }
    plan::check(options)?;
    let config = options.device.config()?.over_its_device();
    match (&options.server.listen, &options.peer) {
        (Some(address), _) => return remote::serve(address, options, &config.for_several_hosts()),
        (None, Some(server)) => return remote::call(server, options, &config.for_several_hosts()),
        (None, None) => {}
    }
    if let Some(job) = ports::join_if_started(&config)? {
        return measure(options, &config, job, Printing::First);
    }
    let arguments: Result<Vec<_>, _> = std::env::args_os().skip(1).map(std::ffi::OsString::into_string).collect();
    let arguments = arguments.map_err(|_| Failure::new("an argument is not UTF-8"))?;
    let program = std::iter::once("roci".to_owned()).chain(arguments).collect();
    run::launch(&JobSpec { environment: changed_knobs(&config), pin: true, ..JobSpec::new(2, program) })
}

/// Who prints the rows.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Printing {
    /// The first rank.
    First,
    /// A client, which is the first rank, and its server.
    Both,
}

fn measure(options: &PerfOptions, config: &Config, mut job: Job, printing: Printing) -> Result<ExitCode, Failure> {
    let config = &config.clone().for_job(&job);
    if job.size() != 2 {
        return Err(Failure::new(format!("perf measures between 2 ranks, and this job has {}", job.size())));
    }
    let plans = plan::plans(options);
    let icrc = plan::agree(&mut job, config, &plans)?;
    let report = ReportPrinter::new(options.json, config.device_of(job.rank())?.to_string(), job.rank() == 0);
    let report = report.with_icrc(icrc);
    let mut report = if printing == Printing::Both { report.with_sharing() } else { report };
    if options.engine == EngineMode::Dedicated {
        let mut worker = DedicatedWorker::spawn(config, job)?;
        measure_worker(&mut worker, options.stream.config(), &plans, &mut report)?;
        worker.close()?;
        return Ok(report.exit_code());
    }
    let fabric = Fabric::connect(config, job)?;
    let (above, verbs): (Vec<_>, Vec<_>) = plans.into_iter().partition(|plan| plan.test.is_above_verbs());
    let mut lane = VerbsEnd::new(fabric, queue_pair_params(config))?;
    if options.memory == PayloadMemory::User {
        lane.use_own_memory(config)?;
    }
    for plan in verbs {
        let (begun, zero_copy_before) = (cpu_ns(), lane.zero_copy_frames());
        let row = connections::over_several(&mut lane, plan, |lane, plan| {
            let is_first = lane.is_active();
            timed::measure(lane, plan, is_first, measure_verbs, VerbsEnd::exchange_count)
        })?;
        let ours = cpu_ns() - begun;
        let cpu = ours.saturating_add(lane.exchange_count(ours)?);
        let zero_copy = lane.zero_copy_frames() - zero_copy_before;
        report.add(row.map(|row| row.with_cpu(cpu).with_memory(options.memory, zero_copy)))?;
        report.share(|ours| lane.exchange(ours))?;
    }
    if above.is_empty() {
        report.explain(&troubles::of(&lane.engine_stats(), &WorkerStats::default()))?;
    }
    let fabric = lane.finish()?;
    if !above.is_empty() {
        let mut worker = Worker::assemble(fabric.into_ports(), config)?;
        worker.connect_all()?;
        measure_worker(&mut worker, options.stream.config(), &above, &mut report)?;
        worker.close()?;
    }
    Ok(report.exit_code())
}

/// Messages and streams side by side, over the connections of one worker.
fn measure_worker(
    worker: &mut impl Messenger,
    streams: StreamConfig,
    plans: &[PerfPlan],
    report: &mut ReportPrinter,
) -> Result<(), Failure> {
    worker.configure_streams(streams)?;
    worker.barrier()?;
    for &plan in plans {
        if plan.test.is_of_streams() {
            measure_plan(worker, plan, report, |worker, plan| stream::measure(worker, &streams, plan))?;
        } else if plan.test.is_one_sided() {
            measure_plan(worker, plan, report, one_sided::measure)?;
        } else {
            measure_plan(worker, plan, report, measure_tagged)?;
        }
    }
    report.explain(&troubles::of(&worker.engine_stats()?, &worker.stats()?))
}

fn measure_plan<M: Messenger>(
    worker: &mut M,
    plan: PerfPlan,
    report: &mut ReportPrinter,
    measure: impl Fn(&mut M, PerfPlan) -> Result<Option<Row>, Failure>,
) -> Result<(), Failure> {
    let (begun, is_first) = (cpu_ns(), worker.rank() == 0);
    let row = timed::measure(worker, plan, is_first, measure, tag::exchange)?;
    let ours = cpu_ns() - begun;
    let cpu = ours.saturating_add(tag::exchange(worker, ours)?);
    report.add(row.map(|row| row.with_cpu(cpu)))?;
    report.share(|ours| tag::exchange_words(worker, ours))
}

/// Latency and bandwidth of messages between ranks 0 and 1, for a worker that has other things to do as well.
/// Returns how many payloads were wrong.
pub(crate) fn table(worker: &mut Worker, device: &str, sizes: &[usize]) -> Result<u64, Failure> {
    let is_ours = worker.rank() == 0;
    let mut report = ReportPrinter::new(false, device.to_owned(), is_ours);
    for test in [PerfTest::TagLat, PerfTest::TagBw] {
        for &size in sizes {
            report.add(measure_tagged(worker, PerfPlan::new(test, size))?)?;
        }
    }
    Ok(report.errors())
}

fn measure_verbs(lane: &mut VerbsEnd, plan: PerfPlan) -> Result<Option<Row>, Failure> {
    match plan.test {
        PerfTest::SendLat if plan.is_of_datagrams => datagrams::latency(lane, plan),
        PerfTest::SendBw if plan.is_of_datagrams => datagrams::bandwidth(lane, plan),
        PerfTest::RawLat => raw::latency(lane, plan),
        PerfTest::RawBw => raw::bandwidth(lane, plan),
        PerfTest::SendLat => verbs::send_latency(lane, plan),
        PerfTest::SendBw => bandwidth::sends(lane, plan),
        PerfTest::WriteLat => verbs::write_latency(lane, plan),
        PerfTest::ReadLat => verbs::read_latency(lane, plan),
        PerfTest::AtomicLat => atomic::latency(lane, plan),
        PerfTest::SendRate => connections::rate(lane, plan),
        PerfTest::WriteBw | PerfTest::ReadBw => bandwidth::one_sided(lane, plan),
        _ => Ok(None),
    }
}

fn measure_tagged(worker: &mut impl Messenger, plan: PerfPlan) -> Result<Option<Row>, Failure> {
    if plan.test.is_latency() { tag::latency(worker, plan) } else { tag::bandwidth(worker, plan) }
}
