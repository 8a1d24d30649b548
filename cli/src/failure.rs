//! How a command fails: one line on stderr, a status that is not 0.

use std::fmt::Display;
use std::io;
use std::process::ExitCode;

use crate::output;

/// The end of a command that could not do its work.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Something went wrong.
    Message(String),
    /// The reader of stdout has gone: this is no error, and there is nothing to report.
    ReaderGone,
}

impl Failure {
    pub(crate) fn new(cause: impl Display) -> Self {
        Self::Message(cause.to_string())
    }

    pub(crate) fn report(&self) -> ExitCode {
        match self {
            Self::Message(text) => {
                output::complain(text);
                ExitCode::FAILURE
            }
            Self::ReaderGone => ExitCode::SUCCESS,
        }
    }
}

/// Adds to an error what the command was doing.
pub(crate) trait FailureContext<T> {
    fn context(self, doing: impl Display) -> Result<T, Failure>;
}

impl<T, E: Display> FailureContext<T> for Result<T, E> {
    fn context(self, doing: impl Display) -> Result<T, Failure> {
        self.map_err(|cause| Failure::Message(format!("{doing}: {cause}")))
    }
}

macro_rules! failures {
    ($($error:ty),*) => {
        $(impl From<$error> for Failure {
            fn from(cause: $error) -> Self {
                Self::new(cause)
            }
        })*
    };
}

failures!(
    roci_msgcore::WireupError,
    roci_msgcore::ConfigError,
    roci_msgcore::CallError,
    roci_msgcore::OpError,
    roci_msgcore::CloseError,
    roci_msgcore::FlushError,
    roci_msgcore::SomeFailed,
    roci_msgcore::stream::StreamError,
    roci_launcher::JobError,
    roci_launcher::LaunchError,
    roci_launcher::RankError,
    roci_driver::ArenaError,
    roci_perftest::SettingsError,
    roci_perftest::ServeError
);

impl<T, E: Display> From<roci_driver::Refused<T, E>> for Failure {
    fn from(refused: roci_driver::Refused<T, E>) -> Self {
        Self::new(refused.why)
    }
}

/// An error while writing to stdout.
impl From<io::Error> for Failure {
    fn from(cause: io::Error) -> Self {
        match cause.kind() {
            io::ErrorKind::BrokenPipe => Self::ReaderGone,
            _ => Self::Message(format!("cannot write: {cause}")),
        }
    }
}
