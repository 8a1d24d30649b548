//! The five states of a bucket at its owner, as a table (the letters are those of GASNet's design notes).
//!
//! `l` counts local operations that use the bucket, `r` the ranks that hold a firehose to it.

use thiserror::Error;

/// What a bucket is to its owner.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BucketState {
    /// Not pinned: it is in no table.
    A,
    /// Pinned, `l = 0`, `r = 0`: a victim, which waits to be used again or unpinned.
    B,
    /// Pinned, `l > 0`, `r = 0`.
    C,
    /// Pinned, `l > 0`, `r > 0`.
    D,
    /// Pinned, `l = 0`, `r > 0`.
    E,
}

/// What happens to a bucket. `last`: the count that falls is zero afterwards.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BucketEvent {
    /// A local operation begins to use it.
    LocalPin,
    /// A local operation has ended.
    LocalUnpin {
        /// It was the last one.
        last: bool,
    },
    /// A rank gets a firehose to it.
    RemotePin,
    /// A rank has moved its firehose elsewhere.
    RemoteUnpin {
        /// It was the last one.
        last: bool,
    },
    /// It is unpinned to make room.
    Evict,
}

/// There is no such transition: our own mistake, never a peer's.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("a bucket in state {from:?} cannot take {event:?}")]
pub struct Illegal {
    /// Where it was.
    pub from: BucketState,
    /// What was to happen.
    pub event: BucketEvent,
}

impl BucketState {
    /// The state of a pinned bucket, by its counts.
    pub const fn of(local: u32, remote: u32) -> Self {
        match (local, remote) {
            (0, 0) => Self::B,
            (_, 0) => Self::C,
            (0, _) => Self::E,
            (_, _) => Self::D,
        }
    }

    /// Where an event leads.
    pub const fn on(self, event: BucketEvent) -> Result<Self, Illegal> {
        use BucketEvent::{Evict, LocalPin, LocalUnpin, RemotePin, RemoteUnpin};
        use BucketState::{A, B, C, D, E};
        Ok(match (self, event) {
            (A | B | C, LocalPin) => C,
            (D | E, LocalPin) => D,
            (A | B | E, RemotePin) => E,
            (C | D, RemotePin) => D,
            (C, LocalUnpin { last: true }) => B,
            (C, LocalUnpin { last: false }) => C,
            (D, LocalUnpin { last: true }) => E,
            (D, LocalUnpin { last: false }) => D,
            (E, RemoteUnpin { last: true }) => B,
            (E, RemoteUnpin { last: false }) => E,
            (D, RemoteUnpin { last: true }) => C,
            (D, RemoteUnpin { last: false }) => D,
            (B, Evict) => A,
            (from, event) => return Err(Illegal { from, event }),
        })
    }

    /// Whether MAXVICTIM bounds it: memory that is pinned for this rank, used or not, and not for peers alone.
    pub const fn is_local_only(self) -> bool {
        matches!(self, Self::B | Self::C | Self::D)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATES: [BucketState; 5] = [BucketState::A, BucketState::B, BucketState::C, BucketState::D, BucketState::E];
    const EVENTS: [BucketEvent; 7] = [
        BucketEvent::LocalPin,
        BucketEvent::LocalUnpin { last: false },
        BucketEvent::LocalUnpin { last: true },
        BucketEvent::RemotePin,
        BucketEvent::RemoteUnpin { last: false },
        BucketEvent::RemoteUnpin { last: true },
        BucketEvent::Evict,
    ];

    /// Rows are states, columns events in the order above; `-` is illegal.
    const TABLE: [&str; 5] = ["C--E---", "C--E--A", "CCBD---", "DDEDDC-", "D--EEB-"];

    #[test]
    fn every_state_takes_every_event_as_the_table_says() {
        for (from, row) in STATES.into_iter().zip(TABLE) {
            for (event, cell) in EVENTS.into_iter().zip(row.chars()) {
                let expected = STATES.into_iter().find(|state| format!("{state:?}") == cell.to_string());
                assert_eq!(from.on(event), expected.ok_or(Illegal { from, event }), "{from:?} on {event:?}");
            }
        }
    }

    #[test]
    fn the_counts_agree_with_the_table() {
        for local in 0..3_u32 {
            for remote in 0..3_u32 {
                let from = BucketState::of(local, remote);
                assert_eq!(from.on(BucketEvent::LocalPin), Ok(BucketState::of(local + 1, remote)));
                assert_eq!(from.on(BucketEvent::RemotePin), Ok(BucketState::of(local, remote + 1)));
                if let Some(left) = local.checked_sub(1) {
                    assert_eq!(from.on(BucketEvent::LocalUnpin { last: left == 0 }), Ok(BucketState::of(left, remote)));
                }
                if let Some(left) = remote.checked_sub(1) {
                    assert_eq!(from.on(BucketEvent::RemoteUnpin { last: left == 0 }), Ok(BucketState::of(local, left)));
                }
            }
        }
    }

    #[test]
    fn an_illegal_transition_names_state_and_event() {
        let error = BucketState::A.on(BucketEvent::Evict).expect_err("nothing to unpin").to_string();
        assert_eq!(error, "a bucket in state A cannot take Evict");
    }
}
