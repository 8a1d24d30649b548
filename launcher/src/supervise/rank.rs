//! A process that becomes one rank of a job. It dies with its launcher, and runs on the processors that it was given.

use std::convert::Infallible;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};
use rustix::thread::{CpuSet, sched_setaffinity};
use thiserror::Error;

/// Why a process could not become a rank.
#[derive(Error)]
#[non_exhaustive]
pub enum RankError {
    /// The kernel refused to end it with its launcher.
    #[error("cannot tie the rank to its launcher: {0}")]
    Tie(#[source] io::Error),
    /// The launcher has ended.
    #[error("the launcher is gone")]
    LauncherGone,
    /// It may not run there.
    #[error("cannot run on processors {cpus:?}: {source}")]
    Cpus {
        /// Where.
        cpus: Vec<usize>,
        /// Why.
        source: io::Error,
    },
    /// No program was named.
    #[error("no program")]
    NoProgram,
    /// The program cannot be started.
    #[error("cannot start {program}: {source}")]
    Program {
        /// Which.
        program: String,
        /// Why.
        source: io::Error,
    },
}

/// Becomes `program`, a rank whose launcher is the process `launcher`, on these processors, or on all where none are named.
///
/// # Errors
/// Returns only where it failed.
pub fn become_rank(launcher: i32, cpus: &[usize], program: &[String]) -> Result<Infallible, RankError> {
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(|errno| RankError::Tie(errno.into()))?;
    // It may have died before it could be tied.
    if getppid().map(Pid::as_raw_pid) != Some(launcher) {
        return Err(RankError::LauncherGone);
    }
    if !cpus.is_empty() {
        let mut set = CpuSet::new();
        for &cpu in cpus {
            set.set(cpu);
        }
        sched_setaffinity(None, &set).map_err(|errno| RankError::Cpus { cpus: cpus.to_vec(), source: errno.into() })?;
    }
    let (name, arguments) = program.split_first().ok_or(RankError::NoProgram)?;
    let source = Command::new(name).args(arguments).exec();
    Err(RankError::Program { program: name.clone(), source })
}
