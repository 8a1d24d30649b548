//! The private data of answers by RDMA-CM: a session with what is granted, and a reason with what is not.

use roci_driver::link::Link;
use roci_driver::{ConnId, RejReason};

use super::method::{Refusal, Site};
use crate::core::no_connection::NoConnection;

/// How a refusal says that both have asked.
pub(super) const CROSSED: &str = "crossed";
/// The longest text of a refusal.
const REFUSAL_LEN: usize = 140;

/// The number that a peer which grants what we asked for has given the session; 0 where it does not say.
pub(super) fn session_of(private_data: &[u8]) -> u64 {
    private_data.first_chunk().map_or(0, |&session| u64::from_be_bytes(session))
}

/// Why a peer refuses, in its own words where it has any.
pub(super) fn refusal_of(reason: RejReason, private_data: &[u8]) -> Refusal {
    let said = String::from_utf8_lossy(private_data);
    match said.trim_end_matches('\0') {
        CROSSED => Refusal::Crossed,
        "" => Refusal::Because(NoConnection::Rejected(reason)),
        said => Refusal::Because(NoConnection::Refused(said.to_owned())),
    }
}

pub(super) fn reject<L: Link>(site: &mut Site<'_, L>, id: ConnId, text: &str) {
    // Where it has ended meanwhile there is nothing to refuse.
    let _ = site.engine.cm_reject(id, RejReason::CONSUMER_DEFINED, said(text));
}

/// As much of a refusal as goes with it.
pub(super) fn said(text: &str) -> &[u8] {
    &text.as_bytes()[..text.len().min(REFUSAL_LEN)]
}
