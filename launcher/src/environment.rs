//! What this process's environment says of its job, and of the processors that it shares.

use rustix::process::getppid;
use rustix::thread::sched_getaffinity;

use crate::JobError;

pub(crate) fn available_cpus() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Processors that the ranks of this host share. A manager may have bound this process to one of them, and not itself.
pub(crate) fn shared_cpus() -> usize {
    let own = available_cpus();
    let managers = getppid().and_then(|parent| sched_getaffinity(Some(parent)).ok());
    managers.map_or(own, |set| own.max(set.count() as usize))
}

pub(crate) fn variable(name: &'static str) -> Result<String, JobError> {
    std::env::var(name).map_err(|_| JobError::NotInJob(name))
}

pub(crate) fn number(name: &'static str) -> Result<usize, JobError> {
    let value = variable(name)?;
    value.parse().map_err(|_| JobError::Variable { name, value, problem: "is not a whole number" })
}

/// The same, of a variable that need not be there.
pub(crate) fn number_if_set(name: &'static str) -> Result<Option<usize>, JobError> {
    std::env::var_os(name).map(|_| number(name)).transpose()
}
