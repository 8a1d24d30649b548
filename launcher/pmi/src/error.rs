//! What goes wrong with a process manager.

use std::io;

use thiserror::Error;

/// Why a process could not use its manager.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PmiError {
    /// A variable that the manager sets is missing, though another one is there.
    #[error("PMI_FD is set and {0} is not: the process manager speaks another protocol than PMI-1")]
    Missing(&'static str),
    /// A variable makes no sense.
    #[error("{name}={value} is no number that a process manager sets")]
    Variable {
        /// Which one.
        name: &'static str,
        /// What it holds.
        value: String,
    },
    /// The manager hung up, or the descriptor is none.
    #[error("cannot talk to the process manager: {0}")]
    Io(#[from] io::Error),
    /// The manager has closed the connection before the first request.
    #[error(
        "cannot talk to the process manager: it has closed the connection. Over PMI-1 one program of each task joins the job; perhaps another one has (srun --mpi=pmix has no such limit)"
    )]
    Served,
    /// The manager said something that is no answer to the request.
    #[error("the process manager answered '{answer}' to '{request}'")]
    Answer {
        /// What was asked.
        request: String,
        /// What it said.
        answer: String,
    },
    /// What is to be published is too long.
    #[error("the process manager takes values of {most} bytes at most, and the job's address has {len}")]
    TooLong {
        /// How long it is.
        len: usize,
        /// How long it may be.
        most: usize,
    },
    /// PMIx's library is not there.
    #[error(
        "PMIX_NAMESPACE is set, and {library} cannot be loaded ({source}): install libpmix2, or start with 'roci run' or srun --mpi=pmi2"
    )]
    NoLibrary {
        /// Which library.
        library: &'static str,
        /// Why.
        source: libloading::Error,
    },
    /// PMIx refused a call.
    #[error("{call}: {reason}")]
    Pmix {
        /// Which one.
        call: &'static str,
        /// What it says of that.
        reason: String,
    },
}
