//! What is known of one request.

use crate::services::tag::completion_list::ReportTo;
use crate::services::tag::operation::TagOperation;

#[derive(Debug)]
pub(super) struct RequestSlot {
    pub(super) operation: TagOperation,
    /// Of an eager send: it has left, and could be taken back.
    pub(super) has_left: bool,
    /// The peer was asked to give it back.
    pub(super) is_cancelling: bool,
    pub(super) report: ReportTo,
    /// Bytes of a buffered send that has not ended.
    pub(super) buffered: usize,
}

impl RequestSlot {
    #[inline(always)]
    pub(super) const fn new(operation: TagOperation, has_left: bool) -> Self {
        Self { operation, has_left, is_cancelling: false, report: ReportTo::ByName, buffered: 0 }
    }
}
