//! `roci run`: starts the ranks of a job here, passes signals on, and returns the worst of their statuses.

use std::process::ExitCode;
use std::time::Duration;

use roci_driver::link::dpdk::room_for_descriptors;
use roci_launcher::{JobSpec, MAX_RANKS, allowed_cpus};
use roci_msgcore::Config;
use roci_msgcore::config::{KNOBS, Origin};

use crate::failure::{Failure, FailureContext};
use crate::options::RunOptions;
use crate::output;

/// Ports of a process that DPDK has (`RTE_MAX_ETHPORTS`).
const MOST_PORTS: usize = 32;

pub(crate) fn run(options: &RunOptions) -> Result<ExitCode, Failure> {
    let mut config = Config::load(options.paramfile.as_deref())?;
    for (name, value) in options.device.knobs() {
        config.set(name, &value, Origin::Code)?;
    }
    let (size, workers) = (options.ranks as usize, options.workers as usize);
    if !size.is_multiple_of(workers) {
        return Err(Failure::new(format!("{size} ranks are no whole processes of {workers} workers")));
    }
    let names_its_device = |word: &String| ["--device", "--eal"].iter().any(|option| word.starts_with(option));
    if !options.program.iter().any(names_its_device) {
        check_ports(&config, size)?;
    }
    let job = JobSpec {
        size,
        workers,
        program: options.program.clone(),
        environment: changed_knobs(&config),
        prefix: options.prefix,
        cpus: if options.pin { allowed_cpus()? } else { Vec::new() },
        exit_timeout: Duration::from_secs(options.exit_timeout),
    };
    if options.show {
        for rank in job.firsts() {
            output::line(job.describe(rank))?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    launch(&job)
}

/// Over a device that joins two processes a rank has a port to every other one, and DPDK has so many for a process.
fn check_ports(config: &Config, size: usize) -> Result<(), Failure> {
    let device = config.device_of(0)?;
    if size > MOST_PORTS && device.is_point_to_point() {
        return Err(Failure::new(format!(
            "{size} ranks over {device}: each has a port to every other, and DPDK has {MOST_PORTS}: --device udp takes up to {MAX_RANKS}"
        )));
    }
    Ok(())
}

/// Runs a job to its end.
pub(crate) fn launch(job: &JobSpec) -> Result<ExitCode, Failure> {
    room_for_descriptors(job.descriptors()).context(format!("for a job of {} ranks", job.size))?;
    Ok(roci_launcher::launch(job, |line| output::complain(line))?)
}

/// The knobs that differ from their defaults, as environment variables.
pub(crate) fn changed_knobs(config: &Config) -> Vec<(String, String)> {
    let changed = KNOBS.iter().filter(|knob| config.origin(knob.name) != Origin::Default);
    changed.map(|knob| (knob.environment_name(), knob.value(config))).collect()
}
