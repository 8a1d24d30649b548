//! How a work request ends (`ibv_wc_status`).

use thiserror::Error;

/// The status of a completion, with the numbers and the names of `ibv_wc_status`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[repr(u8)]
pub enum WcStatus {
    /// It worked.
    #[error("success")]
    Success = 0,
    /// A message was longer than the receive that it met.
    #[error("local length error")]
    LocLenErr = 1,
    /// The queue pair met an inconsistency of its own.
    #[error("local QP operation error")]
    LocQpOpErr = 2,
    /// A work request named local memory that it may not use.
    #[error("local protection error")]
    LocProtErr = 4,
    /// Flushed: the queue pair is in the error state.
    #[error("work request flushed")]
    WrFlushErr = 5,
    /// A memory window could not be bound.
    #[error("memory window bind error")]
    MwBindErr = 6,
    /// A response that does not fit its request.
    #[error("bad response")]
    BadRespErr = 7,
    /// The peer's request broke a key, bounds or rights.
    #[error("local access error")]
    LocAccessErr = 8,
    /// The peer found the request invalid.
    #[error("remote invalid request")]
    RemInvReqErr = 9,
    /// The peer denied the access.
    #[error("remote access error")]
    RemAccessErr = 10,
    /// The peer failed.
    #[error("remote operation error")]
    RemOpErr = 11,
    /// The peer did not answer within the retry budget.
    #[error("transport retry counter exceeded: the peer does not answer")]
    RetryExcErr = 12,
    /// The peer posted no receive within the retry budget.
    #[error("RNR retry counter exceeded: the peer posts no receives")]
    RnrRetryExcErr = 13,
}

impl WcStatus {
    /// The name in `infiniband/verbs.h`.
    pub const fn verbs_name(self) -> &'static str {
        match self {
            Self::Success => "IBV_WC_SUCCESS",
            Self::LocLenErr => "IBV_WC_LOC_LEN_ERR",
            Self::LocQpOpErr => "IBV_WC_LOC_QP_OP_ERR",
            Self::LocProtErr => "IBV_WC_LOC_PROT_ERR",
            Self::MwBindErr => "IBV_WC_MW_BIND_ERR",
            Self::WrFlushErr => "IBV_WC_WR_FLUSH_ERR",
            Self::BadRespErr => "IBV_WC_BAD_RESP_ERR",
            Self::LocAccessErr => "IBV_WC_LOC_ACCESS_ERR",
            Self::RemInvReqErr => "IBV_WC_REM_INV_REQ_ERR",
            Self::RemAccessErr => "IBV_WC_REM_ACCESS_ERR",
            Self::RemOpErr => "IBV_WC_REM_OP_ERR",
            Self::RetryExcErr => "IBV_WC_RETRY_EXC_ERR",
            Self::RnrRetryExcErr => "IBV_WC_RNR_RETRY_EXC_ERR",
        }
    }

    /// Whether it worked.
    #[inline]
    pub const fn is_success(self) -> bool {
        matches!(self, Self::Success)
    }
}
