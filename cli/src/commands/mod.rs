//! One file a command.

pub(crate) mod decode;
pub(crate) mod doctor;
pub(crate) mod exchange;
pub(crate) mod info;
mod job_directory;
pub(crate) mod lint;
mod oom;
pub(crate) mod perf;
pub(crate) mod rank;
pub(crate) mod run;
pub(crate) mod sim;
pub(crate) mod soak;
