//! The states of a queue pair (IBTA 10.3.1) and the moves between them.

use thiserror::Error;

/// A queue pair's state. Send queue error (SQE) is absent: it belongs to unreliable services.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// Nothing works.
    Reset,
    /// Receives may be posted.
    Init,
    /// Ready to receive: requests are executed.
    Rtr,
    /// Ready to send: everything works.
    Rts,
    /// Send queue drain: messages that have begun are finished, no other is started. It has drained once nothing is
    /// outstanding ([`super::RcQueuePair::is_drained`]); then attributes may change.
    Sqd,
    /// Every work request is flushed.
    Error,
}

/// A move that the table does not have.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("a queue pair cannot go from {from:?} to {to:?}")]
pub struct IllegalTransition {
    /// The present state.
    pub from: State,
    /// The state asked for.
    pub to: State,
}

impl State {
    /// Every state.
    pub const ALL: [Self; 6] = [Self::Reset, Self::Init, Self::Rtr, Self::Rts, Self::Sqd, Self::Error];

    /// The state after a move to `next`, or why there is none.
    pub fn to(self, next: Self) -> Result<Self, IllegalTransition> {
        match (self, next) {
            (_, Self::Reset | Self::Error)
            | (Self::Reset | Self::Init, Self::Init)
            | (Self::Init, Self::Rtr)
            | (Self::Rtr | Self::Rts | Self::Sqd, Self::Rts)
            | (Self::Rts | Self::Sqd, Self::Sqd) => Ok(next),
            _ => Err(IllegalTransition { from: self, to: next }),
        }
    }

    /// Whether the responder works.
    #[inline]
    pub const fn accepts_requests(self) -> bool {
        matches!(self, Self::Rtr | Self::Rts | Self::Sqd)
    }

    /// Whether the requester works.
    #[inline]
    pub const fn accepts_responses(self) -> bool {
        matches!(self, Self::Rts | Self::Sqd)
    }

    /// Whether receives may be posted; in the error state they are flushed.
    pub const fn takes_receives(self) -> bool {
        !matches!(self, Self::Reset)
    }
}

#[cfg(test)]
mod tests {
    use super::State;

    /// Rows are from, columns are to, in the order of `State::ALL`.
    const TABLE: [&str; 6] = [
        "x x . . . x", // Reset
        "x x x . . x", // Init
        "x . . x . x", // Rtr
        "x . . x x x", // Rts
        "x . . x x x", // Sqd
        "x . . . . x", // Error
    ];

    #[test]
    fn every_move_is_as_the_table_says() {
        for (from, row) in State::ALL.into_iter().zip(TABLE) {
            for (to, cell) in State::ALL.into_iter().zip(row.split(' ')) {
                match from.to(to) {
                    Ok(next) => assert!(cell == "x" && next == to, "{from:?} -> {to:?}"),
                    Err(error) => assert!(cell == "." && error.from == from && error.to == to, "{error}"),
                }
            }
        }
    }
}
