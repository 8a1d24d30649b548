//! `roci sim`: the reliable connection in the simulated world; a violation is one line that names its seed.
//!
//! Of many seeds it prints how often each counter moved, and how many worlds had each dimension.

use std::collections::BTreeMap;
use std::process::ExitCode;

use roci_protocol::rc::Stats;
use roci_protocol::sim;

use crate::failure::Failure;
use crate::options::SimOptions;
use crate::output;

pub(crate) fn run(options: &SimOptions) -> Result<ExitCode, Failure> {
    let (first, last) = options.seeds.or(options.seed.map(|seed| (seed, seed))).unwrap_or((0, 0));
    let (mut violations, mut total) = (0u64, Stats::default());
    let mut worlds: BTreeMap<_, u64> = sim::dimensions().map(|name| (name, 0)).collect();
    for seed in first..=last {
        match sim::run(seed, None) {
            Ok(report) if first == last => {
                let (trace, ms) = (report.trace, report.finished_ns / 1_000_000);
                output::line(format!("seed {seed}: ok, {} frames, {ms} ms, trace {trace:08x}", report.frames))?;
            }
            Ok(report) => {
                total.add(&report.stats);
                report.dimensions.iter().for_each(|name| *worlds.entry(name).or_default() += 1);
            }
            Err(violation) => {
                violations += 1;
                output::line(format!("{violation} (replay: roci sim --seed {seed})"))?;
            }
        }
    }
    if first != last {
        let worlds = sim::dimensions().map(|name| (name, worlds[name]));
        let counts: Vec<_> = total.iter().chain(worlds).collect();
        for (name, count) in counts.iter().filter(|(_, count)| *count > 0) {
            output::line(format!("{name:<32} {count:>14}"))?;
        }
        let never: Vec<_> = counts.iter().filter(|(_, count)| *count == 0).map(|(name, _)| *name).collect();
        output::line(format!("never: {}", if never.is_empty() { "nothing".into() } else { never.join(", ") }))?;
        output::line(format!("{} seeds, {violations} violations", last - first + 1))?;
    }
    Ok(if violations == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
