//! How a run ends once all its work is done: in peace, or with one error that its victim has earned.

use rand::Rng;
use rand::rngs::StdRng;

use crate::rc::WcStatus;

/// The fault of the last request of one node, the victim. All requests behind it are flushed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum VictimFault {
    /// There is no such request.
    Peace,
    /// It names memory that the peer has not granted.
    WrongKey,
    /// A long READ, under which the peer's region goes.
    Revoked,
    /// A SEND that is longer than the receive it meets.
    TooLong,
    /// Its opcode becomes a reserved one on the way.
    Reserved,
    /// The wire is cut for ever.
    Silence,
    /// A SEND for which no receive is ever posted.
    NotReady,
    /// A READ whose answer comes short of what was asked for.
    BadResponse,
    /// A memory window that is bound already.
    NotBound,
    /// The peer fails by a fault of its own.
    OwnFault,
}

impl VictimFault {
    const ALL: [Self; 10] = [
        Self::Peace,
        Self::WrongKey,
        Self::Revoked,
        Self::TooLong,
        Self::Reserved,
        Self::Silence,
        Self::NotReady,
        Self::BadResponse,
        Self::NotBound,
        Self::OwnFault,
    ];

    pub(super) fn draw(dice: &mut StdRng) -> Self {
        Self::ALL[dice.random_range(0..Self::ALL.len())]
    }

    /// Returns the statuses that the request may end with. A refusal is sent once: where it may be lost, silence
    /// follows it.
    pub(super) const fn statuses(self, is_received: bool) -> &'static [WcStatus] {
        use WcStatus::{
            BadRespErr, MwBindErr, RemAccessErr, RemInvReqErr, RemOpErr, RetryExcErr, RnrRetryExcErr, Success,
        };
        match (self, is_received) {
            (Self::Peace, _) => &[Success],
            (Self::WrongKey, true) => &[RemAccessErr],
            (Self::WrongKey, false) => &[RemAccessErr, RetryExcErr],
            (Self::Revoked, true) => &[Success, RemAccessErr],
            (Self::Revoked, false) => &[Success, RemAccessErr, RetryExcErr],
            (Self::TooLong | Self::Reserved, true) => &[RemInvReqErr],
            (Self::TooLong | Self::Reserved, false) => &[RemInvReqErr, RetryExcErr],
            (Self::Silence, _) => &[RetryExcErr],
            (Self::NotReady, _) => &[RnrRetryExcErr],
            (Self::BadResponse, _) => &[BadRespErr],
            (Self::NotBound, _) => &[MwBindErr],
            (Self::OwnFault, true) => &[RemOpErr],
            (Self::OwnFault, false) => &[RemOpErr, RetryExcErr],
        }
    }
}
