//! `roci perf`: latency and bandwidth between two ranks.
//!
//! Outside a job it starts one of two ranks, each on a processor of its own, that run this very command; as a
//! client or a server it makes one with a process on another host. Rank 0 prints. With `--perftest` there are no ranks: the
//! other side is a program of perftest's.

mod atomic;
mod connections;
mod kind;
mod lane;
mod memory;
mod messenger;
mod one_sided;
mod pattern;
mod perftest;
mod raw;
mod raw_header;
mod remote;
mod report;
mod stream;
mod tag;
mod touch;
mod verbs;

use std::process::ExitCode;

use roci_launcher::{Job, JobSpec};
use roci_msgcore::ports::{self, queue_pair_params};
use roci_msgcore::stream::StreamConfig;
use roci_msgcore::{Config, DedicatedWorker, Fabric, Worker};

pub(crate) use self::kind::{EngineMode, PerfTest, UpToStep};
use self::lane::VerbsEnd;
pub(crate) use self::memory::PayloadMemory;
use self::messenger::Messenger;
use self::report::{ReportPrinter, Row};
use super::run::{self, changed_knobs};
use crate::failure::Failure;
use crate::options::PerfOptions;
use crate::resources::cpu_ns;

/// A stream has at most so many messages under way; a queue pair holds as many receives.
pub(crate) const MOST_IN_FLIGHT: usize = 64;

/// One measurement.
#[derive(Clone, Copy)]
struct PerfPlan {
    test: PerfTest,
    size: usize,
    iters: u64,
    verify: bool,
    /// Whether bare frames' payload is written and read; everybody else's always is.
    touch: bool,
    /// The step of byte streams, where those are measured.
    stream: Option<UpToStep>,
    /// Where the worker lives, where there is one.
    engine: Option<EngineMode>,
    /// Queue pairs that take turns, where they are counted.
    connections: Option<usize>,
    /// Messages in flight, where that was asked for.
    depth: Option<usize>,
}

impl PerfPlan {
    /// Messages in flight: enough to hide the way, few enough to stay in the cache.
    fn depth(&self) -> usize {
        self.depth.unwrap_or_else(|| ((4 << 20) / self.size).clamp(2, MOST_IN_FLIGHT))
    }
}

pub(crate) fn run(options: &PerfOptions) -> Result<ExitCode, Failure> {
    if let Some(test) = options.perftest {
        return perftest::run(test, options);
    }
    let has = |is_of: fn(PerfTest) -> bool| tests(options).any(|&test| is_of(test));
    if options.engine == EngineMode::Dedicated && has(|test| !test.is_above_verbs()) {
        let tests = "tests of tags, streams, puts, gets, fadd_lat and active messages";
        return Err(Failure::new(format!("a dedicated engine opens the ports for itself: measure {tests} alone")));
    }
    if has(|test| test == PerfTest::SendRate) && options.size.iter().any(|&size| size < connections::NUMBER) {
        let least = connections::NUMBER;
        return Err(Failure::new(format!("send_rate numbers its messages: a size of at least {least}")));
    }
    if options.memory == PayloadMemory::User && has(|test| !test.is_of_verbs()) {
        return Err(Failure::new("--memory user is for send_lat, send_bw, write_lat, write_bw, read_lat and read_bw"));
    }
    if !options.depth.is_empty() && has(|test| !test.is_stream()) {
        return Err(Failure::new("--depth is for send_bw, write_bw, read_bw, tag_bw, put_bw and get_bw"));
    }
    let config = options.device.config()?.over_its_device();
    match (&options.server.listen, &options.peer) {
        (Some(address), _) => return remote::serve(address, options, &config.for_several_hosts()),
        (None, Some(server)) => return remote::call(server, options, &config.for_several_hosts()),
        (None, None) => {}
    }
    if let Some(job) = ports::join_if_started(&config)? {
        return measure(options, &config, job);
    }
    let arguments: Result<Vec<_>, _> = std::env::args_os().skip(1).map(std::ffi::OsString::into_string).collect();
    let arguments = arguments.map_err(|_| Failure::new("an argument is not UTF-8"))?;
    let program = std::iter::once("roci".to_owned()).chain(arguments).collect();
    run::launch(&JobSpec { environment: changed_knobs(&config), pin: true, ..JobSpec::new(2, program) })
}

fn measure(options: &PerfOptions, config: &Config, mut job: Job) -> Result<ExitCode, Failure> {
    let config = &config.clone().for_job(&job);
    if job.size() != 2 {
        return Err(Failure::new(format!("perf measures between 2 ranks, and this job has {}", job.size())));
    }
    let plans = plans(options);
    let icrc = agree(&mut job, config, &plans)?;
    let report = ReportPrinter::new(options.json, config.device_of(job.rank())?.to_string(), job.rank() == 0);
    let mut report = report.with_icrc(icrc);
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
        let row = measure_verbs(&mut lane, plan)?;
        let ours = cpu_ns() - begun;
        let cpu = ours.saturating_add(lane.exchange_count(ours)?);
        let zero_copy = lane.zero_copy_frames() - zero_copy_before;
        report.add(row.map(|row| row.with_cpu(cpu).with_memory(options.memory, zero_copy)))?;
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
    Ok(())
}

fn measure_plan<M: Messenger>(
    worker: &mut M,
    plan: PerfPlan,
    report: &mut ReportPrinter,
    measure: impl Fn(&mut M, PerfPlan) -> Result<Option<Row>, Failure>,
) -> Result<(), Failure> {
    let begun = cpu_ns();
    let row = measure(worker, plan)?;
    let ours = cpu_ns() - begun;
    let cpu = ours.saturating_add(tag::exchange(worker, ours)?);
    report.add(row.map(|row| row.with_cpu(cpu)))
}

/// Latency and bandwidth of messages between ranks 0 and 1, for a worker that has other things to do as well.
/// Returns how many payloads were wrong.
pub(crate) fn table(worker: &mut Worker, device: &str, sizes: &[usize]) -> Result<u64, Failure> {
    let is_ours = worker.rank() == 0;
    let mut report = ReportPrinter::new(false, device.to_owned(), is_ours);
    for test in [PerfTest::TagLat, PerfTest::TagBw] {
        for &size in sizes {
            let iters = test.default_iters(size);
            let (stream, engine, connections, depth) = (None, None, None, None);
            let plan = PerfPlan { test, size, iters, verify: true, touch: false, stream, engine, connections, depth };
            report.add(measure_tagged(worker, plan)?)?;
        }
    }
    Ok(report.errors())
}

fn plans(options: &PerfOptions) -> Vec<PerfPlan> {
    let of_test = |&test: &PerfTest| {
        let mut sizes = if options.size.is_empty() { test.default_sizes() } else { options.size.clone() };
        if matches!(test, PerfTest::AtomicLat | PerfTest::FaddLat) {
            sizes = vec![atomic::SIZE];
        }
        // Of connections, or of messages under way.
        let counts = match test {
            PerfTest::SendRate => &options.connections,
            _ => &options.depth,
        };
        let counts = if counts.is_empty() { vec![None] } else { counts.iter().copied().map(Some).collect() };
        let cells = sizes.into_iter().flat_map(move |size| counts.clone().into_iter().map(move |count| (size, count)));
        let plan = move |(size, count)| {
            let (connections, depth) = if test == PerfTest::SendRate { (count, None) } else { (None, count) };
            let iters = options.iters.unwrap_or_else(|| test.default_iters(size));
            let stream = test.is_of_streams().then_some(options.stream);
            let engine = test.is_above_verbs().then_some(options.engine);
            PerfPlan {
                test,
                size,
                iters,
                verify: !options.no_verify,
                touch: options.touch && test.is_raw(),
                stream,
                engine,
                connections,
                depth,
            }
        };
        cells.map(plan).collect::<Vec<_>>()
    };
    tests(options).flat_map(of_test).collect()
}

fn tests(options: &PerfOptions) -> impl Iterator<Item = &PerfTest> {
    options.tests.iter().flat_map(|tests| &tests.0)
}

/// Both sides must measure the same, or each would wait for the other. Returns whether packets will carry an ICRC, as
/// both will also tell each other when they connect.
fn agree(job: &mut Job, config: &Config, plans: &[PerfPlan]) -> Result<bool, Failure> {
    let words = |&PerfPlan { test, size, iters, verify, touch, stream, engine: _, connections, depth }: &PerfPlan| {
        let step = stream.map_or_else(String::new, UpToStep::name);
        let count = connections.or(depth).unwrap_or(0);
        format!("{} {size} {iters} {verify} {touch} {step} {count};", test.name())
    };
    let plans: String = plans.iter().map(words).collect();
    let ours = format!("{plans}{}", config.receive_queues());
    let ours = format!("{:016x}", ours.bytes().fold(0xcbf2_9ce4_8422_2325, fnv));
    job.put(&format!("perf/{}", job.rank()), &format!("{ours} {}", config.icrc))?;
    let theirs = job.get(&format!("perf/{}", 1 - job.rank()))?;
    let (theirs, peer_icrc) = theirs.split_once(' ').unwrap_or((&theirs, "true"));
    if ours == theirs {
        Ok(config.icrc || peer_icrc != "false")
    } else {
        Err(Failure::new(
            "the peer was given other tests, sizes, counts, connections, depths, touch, stream or receive queues",
        ))
    }
}

const fn fnv(hash: u64, byte: u8) -> u64 {
    (hash ^ byte as u64).wrapping_mul(0x0100_0000_01b3)
}

fn measure_verbs(lane: &mut VerbsEnd, plan: PerfPlan) -> Result<Option<Row>, Failure> {
    match plan.test {
        PerfTest::RawLat => raw::latency(lane, plan),
        PerfTest::RawBw => raw::bandwidth(lane, plan),
        PerfTest::SendLat => verbs::send_latency(lane, plan),
        PerfTest::SendBw => verbs::send_bandwidth(lane, plan),
        PerfTest::WriteLat => verbs::write_latency(lane, plan),
        PerfTest::ReadLat => verbs::read_latency(lane, plan),
        PerfTest::AtomicLat => atomic::latency(lane, plan),
        PerfTest::SendRate => connections::rate(lane, plan),
        PerfTest::WriteBw | PerfTest::ReadBw => verbs::one_sided_bandwidth(lane, plan),
        _ => Ok(None),
    }
}

fn measure_tagged(worker: &mut impl Messenger, plan: PerfPlan) -> Result<Option<Row>, Failure> {
    if plan.test.is_latency() { tag::latency(worker, plan) } else { tag::bandwidth(worker, plan) }
}
