//! What goes wrong between a rank and its launcher.

use std::io;

use thiserror::Error;

use crate::Rank;

/// Why a rank is in no job, or no longer, or cannot write to another.
#[derive(Error)]
#[non_exhaustive]
pub enum JobError {
    /// The variables are not there.
    #[error(
        "{0} is not set: start this program with 'roci run -n N PROGRAM', or with mpiexec, mpirun or srun; by hand, 'roci board' prints what to set"
    )]
    NotInJob(&'static str),
    /// The launcher starts more ranks than a job may have, or none.
    #[error("the launcher has started {0} ranks: a job has 1 to 1024")]
    Size(usize),
    /// The process manager that has started this process does not carry the job.
    #[error(transparent)]
    Manager(#[from] roci_pmi::PmiError),
    /// Rank 0 of this job published something else at the process manager.
    #[error("rank 0 says at the process manager where the job is, but not in this release's words: '{0}'")]
    BoardAddress(String),
    /// This rank serves the job, and cannot.
    #[error("rank 0 cannot serve the job: {0}")]
    NoBoard(#[source] io::Error),
    /// Slurm carries no secret from node to node.
    #[error(
        "srun carries no secret from node to node by itself: start with srun --mpi=pmi2 or --mpi=pmix, or give every task one: export {0}=$(openssl rand -hex 16)"
    )]
    NoToken(&'static str),
    /// A variable makes no sense.
    #[error("{name}={value}: {problem}")]
    Variable {
        /// Which one.
        name: &'static str,
        /// What it holds.
        value: String,
        /// What is wrong.
        problem: &'static str,
    },
    /// The launcher cannot be reached.
    #[error("cannot reach the launcher at {place}: {source}")]
    Unreachable {
        /// Where it should be.
        place: String,
        /// Why.
        source: io::Error,
    },
    /// The launcher does not take this process for that rank.
    #[error("the launcher refuses rank {rank}: {reason}")]
    Refused {
        /// Which one.
        rank: Rank,
        /// Why.
        reason: String,
    },
    /// The job has another number of ranks than this one was started with.
    #[error("rank {rank} was started as one of {size} (ROCI_SIZE={size}), and its job has {ranks}")]
    OtherSize {
        /// Which one.
        rank: Rank,
        /// How many it knows of.
        size: usize,
        /// How many there are.
        ranks: usize,
    },
    /// The launcher did not answer in time.
    #[error("the launcher did not answer within {0} s: a peer is missing")]
    Timeout(u64),
    /// The launcher has gone.
    #[error("the launcher is gone")]
    Gone,
    /// The launcher says that the job has failed.
    #[error("the job has failed: {0}")]
    Failed(String),
    /// One mail was refused; the job goes on.
    #[error("no mail to rank {to}: {reason}")]
    Unmailed {
        /// Whom it was for.
        to: Rank,
        /// Why it was refused.
        reason: String,
    },
    /// So many mails wait for [`Job::poll_mail`](super::Job::poll_mail) that nothing behind them can be read. None
    /// is lost: once some have been taken, the job goes on.
    #[error("{0} mails have come and none has been taken")]
    MailOverflow(usize),
}
