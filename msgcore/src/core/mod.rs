//! What every service needs: peers and their lanes, credits, buffers, what goes out and what comes in.

pub(crate) mod credit;
pub(crate) mod keepalive;
pub(crate) mod peer;
pub(crate) mod receives;
pub(crate) mod rx;
pub(crate) mod slab;
pub(crate) mod stats;
pub(crate) mod tx;
pub(crate) mod vbuf;
