//! Tagged messages: what MPI's point-to-point layer needs.

pub(crate) mod cancel;
pub(crate) mod cancels;
pub(crate) mod eager;
pub(crate) mod matching;
pub(crate) mod receive;
pub(crate) mod refused;
pub(crate) mod rendezvous;
pub(crate) mod request;
pub(crate) mod requests;
pub mod select;
pub(crate) mod send;
