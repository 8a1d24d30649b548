//! One file a command.

pub(crate) mod board;
pub(crate) mod decode;
pub(crate) mod doctor;
pub(crate) mod exchange;
pub(crate) mod info;
pub(crate) mod lint;
pub(crate) mod manual;
pub(crate) mod perf;
pub(crate) mod run;
pub(crate) mod sim;
pub(crate) mod soak;
pub(crate) mod stat;
pub(crate) mod tools;
