//! `roci rank`: becomes one rank of a job. It dies with its launcher, and runs where it was told.

use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};
use rustix::thread::{CpuSet, sched_setaffinity};

use crate::failure::{Context, Failure};
use crate::options::RankOptions;

pub(crate) fn run(options: &RankOptions) -> Result<ExitCode, Failure> {
    set_parent_process_death_signal(Some(Signal::KILL)).context("cannot tie the rank to its launcher")?;
    // It may have died before it could be tied.
    if getppid().map(Pid::as_raw_pid) != Some(options.launcher) {
        return Err(Failure::new("the launcher is gone"));
    }
    if !options.cpus.is_empty() {
        let mut set = CpuSet::new();
        options.cpus.iter().for_each(|&cpu| set.set(cpu));
        sched_setaffinity(None, &set).context(format!("cannot run on processors {:?}", options.cpus))?;
    }
    let (program, arguments) = options.program.split_first().ok_or_else(|| Failure::new("no program"))?;
    // Returns only where it failed.
    let cause = Command::new(program).args(arguments).exec();
    Err(Failure::new(format!("cannot start {program}: {cause}")))
}
