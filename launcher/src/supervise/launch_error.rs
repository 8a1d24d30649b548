//! Why a job could not be started.

use std::io;

use thiserror::Error;

/// Why a job could not be started.
#[derive(Error)]
#[non_exhaustive]
pub enum LaunchError {
    /// The kernel refused something.
    #[error("{doing}: {source}")]
    System {
        /// What was being done.
        doing: String,
        /// Why it failed.
        source: io::Error,
    },
    /// The job names no program.
    #[error("no program")]
    NoProgram,
    /// A word is no host.
    #[error("{place}: '{text}' is no host: HOST, or HOST:N for N processes")]
    Host {
        /// Where it stands.
        place: String,
        /// What stands there.
        text: String,
    },
    /// A file of hosts is empty.
    #[error("{0} names no host")]
    NoHost(String),
    /// The remote shell is an empty text.
    #[error("the remote shell has no command")]
    NoRemoteShell,
    /// An agent finds no board.
    #[error("the launcher is at none of its addresses: {0}")]
    NoBoard(String),
    /// Other hosts are silent.
    #[error("other hosts have not started their ranks within {0} s")]
    NoStart(u64),
    /// A signal came before the job had begun.
    #[error("signal {0} came before all ranks had started")]
    Interrupted(i32),
    /// The ranks of a host cannot be started.
    #[error("cannot start ranks on {host}: {reason}")]
    Remote {
        /// Which one.
        host: String,
        /// Why.
        reason: String,
    },
}

impl LaunchError {
    pub(super) fn system<E: Into<io::Error>>(doing: impl Into<String>) -> impl FnOnce(E) -> Self {
        let doing = doing.into();
        move |source| Self::System { doing, source: source.into() }
    }
}
