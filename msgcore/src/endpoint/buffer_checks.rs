//! What a buffer must be for a call that is given it. Both facades ask, so that it comes back at once.

use roci_driver::Buffer;

use crate::core::refused::CallError;
use crate::services::tag::MAX_MESSAGE;

/// Whether a message may arrive in a buffer, if there is one.
#[inline]
pub(crate) fn check_room(buffer: Option<&Buffer>) -> Result<(), CallError> {
    Ok(buffer.map_or(Ok(()), Buffer::check_filled)?)
}

/// Whether a buffer can be cut into pieces that messages may arrive in.
pub(crate) fn check_multi(buffer: &Buffer) -> Result<(), CallError> {
    check_room(Some(buffer))?;
    if buffer.can_be_cut() { Ok(()) } else { Err(CallError::CannotBeCut) }
}

/// Whether a buffer can be sent.
#[inline]
pub(crate) fn check_payload(payload: &Buffer) -> Result<(), CallError> {
    payload.check_sent()?;
    if payload.len() > MAX_MESSAGE { Err(CallError::TooLong(payload.len())) } else { Ok(()) }
}
