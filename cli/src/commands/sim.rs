//! `roci sim`: the reliable connection in the simulated world; a violation is one line that names its seed.

use std::process::ExitCode;

use roci_protocol::sim;

use crate::failure::Failure;
use crate::options::SimOptions;
use crate::output;

pub(crate) fn run(options: &SimOptions) -> Result<ExitCode, Failure> {
    let (first, last) = options.seeds.or(options.seed.map(|seed| (seed, seed))).unwrap_or((0, 0));
    let mut violations = 0u64;
    for seed in first..=last {
        match sim::run(seed, None) {
            Ok(report) if first == last => {
                let (trace, ms) = (report.trace, report.finished_ns / 1_000_000);
                output::line(format!("seed {seed}: ok, {} frames, {ms} ms, trace {trace:08x}", report.frames))?;
            }
            Ok(_) => {}
            Err(violation) => {
                violations += 1;
                output::line(format!("{violation} (replay: roci sim --seed {seed})"))?;
            }
        }
    }
    if first != last {
        output::line(format!("{} seeds, {violations} violations", last - first + 1))?;
    }
    Ok(if violations == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
