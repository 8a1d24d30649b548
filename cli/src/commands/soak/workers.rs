//! Several ranks in one process, and what each did at its queue of a port that they share.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::thread;

use roci_driver::link::Link;
use roci_driver::link::dpdk::Description;
use roci_driver::link::live::AnyLink;
use roci_launcher::Job;
use roci_msgcore::Worker;
use serde_json::json;

use crate::failure::Failure;
use crate::output;

/// Runs each rank of this process, on a thread of its own where there are several. Where one of them fails, the others
/// would wait for it: it says why, and the process ends, as that of a single rank would.
pub(super) fn run_all(
    mut jobs: Vec<Job>,
    rank: impl Fn(Job, bool) -> Result<ExitCode, Failure> + Sync,
) -> Result<ExitCode, Failure> {
    let Some(job) = jobs.pop() else { return Ok(ExitCode::SUCCESS) };
    if jobs.is_empty() {
        return rank(job, true);
    }
    jobs.push(job);
    let one_of_several = |job| {
        // The panic hook has printed the message; the panic ends the process.
        let outcome = catch_unwind(AssertUnwindSafe(|| rank(job, false))).unwrap_or_else(|_| std::process::exit(101));
        outcome.unwrap_or_else(|failure| {
            failure.report();
            std::process::exit(i32::from(matches!(failure, Failure::Message(_))))
        })
    };
    let one_of_several = &one_of_several;
    let codes: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> = jobs.into_iter().map(|job| scope.spawn(move || one_of_several(job))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or(ExitCode::FAILURE)).collect()
    });
    Ok(codes.into_iter().find(|code| *code != ExitCode::SUCCESS).unwrap_or(ExitCode::SUCCESS))
}

/// What came in at this rank's queue, and where it went.
pub(super) fn tell_of_queue(worker: &Worker, as_json: bool) -> Result<(), Failure> {
    let Some(link) = worker.link() else { return Ok(()) };
    // A socket is one worker's alone.
    let AnyLink::Dpdk(port) = link.inner().inner() else { return Ok(()) };
    let Description { queue: (queue, queues), spread, checks, .. } = port.description();
    let (rank, stats) = (worker.rank(), link.stats());
    let at_queue = stats.rx_frames - stats.rx_taken_over + stats.rx_handed_over;
    if as_json {
        output::line(json!({
            "test": "soak_queue", "rank": rank, "queue": queue, "queues": queues, "spread": spread, "checks": checks,
            "rx_frames": stats.rx_frames, "at_queue": at_queue, "handed_over": stats.rx_handed_over,
            "taken_over": stats.rx_taken_over, "handover_lost": stats.handover_lost,
            "to_own_station": stats.tx_own_station, "ip_csum_errors": stats.rx_ip_csum_errors,
            "udp_csum_errors": stats.rx_udp_csum_errors,
        }))?;
    } else {
        output::line(format!(
            "rank {rank}: queue {queue} of {queues}, {spread}: {at_queue} frames came in, {} handed over, {} taken over, {} lost; {} sent to ranks beside it",
            stats.rx_handed_over, stats.rx_taken_over, stats.handover_lost, stats.tx_own_station
        ))?;
    }
    Ok(())
}
