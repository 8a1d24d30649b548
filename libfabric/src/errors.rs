//! Errors of the messaging core as libfabric's.

use std::ffi::c_int;

use roci_msgcore::{CallError, OpError};

use crate::abi::queues::{FI_ENOKEY, FI_ETRUNC};
use crate::object::Errno;

impl From<CallError> for Errno {
    /// Why a call was not accepted. What may be accepted later is `FI_EAGAIN`: the application reads its completions, and tries again.
    fn from(error: CallError) -> Self {
        Self(match error {
            CallError::TooMany(_) | CallError::BufferFull { .. } | CallError::Arena(_) => libc::EAGAIN,
            CallError::TooLong(_) | CallError::TooLongToInject { .. } => libc::EMSGSIZE,
            CallError::NoPeer(_) => libc::EINVAL,
            CallError::KeyTaken(_) => FI_ENOKEY,
            CallError::NoMessage => libc::ENOMSG,
            CallError::Adopt(_) => libc::EFAULT,
            CallError::Peer(error) => number_of(&error),
            CallError::Forked => libc::EPERM,
            _ => libc::EINVAL,
        })
    }
}

/// Why an operation has failed.
pub(crate) fn number_of(error: &OpError) -> c_int {
    match error {
        OpError::Truncated(_) => FI_ETRUNC,
        OpError::NotConnected { .. } => libc::EHOSTUNREACH,
        OpError::PeerRemoved { .. } => libc::ECANCELED,
        OpError::PeerGone { .. }
        | OpError::PeerLeft { .. }
        | OpError::PeerReplaced { .. }
        | OpError::GivenUp { .. } => libc::ECONNABORTED,
        OpError::MultiReceive(failed) => number_of(&failed.why),
        OpError::Denied { .. } => libc::EACCES,
        OpError::NoMemory { .. } => libc::ENOMEM,
        OpError::Forked => libc::EPERM,
        OpError::NobodyLeft => libc::ENOTCONN,
        _ => libc::EIO,
    }
}
