//! The states of a bucket at its owner, as a table. The letters are those of GASNet's design notes; C and D, in which operations of
//! the owner's own use a bucket, are none here: the memory of those is the registration cache's.
//!
//! `held` counts the ranks that hold a firehose to it.

use thiserror::Error;

/// What a bucket is to its owner.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BucketState {
    /// Not pinned: it is in no table.
    A,
    /// Pinned, and held by no rank: a victim, which waits to be held again or unpinned.
    B,
    /// Pinned, and held.
    E,
}

/// What happens to a bucket. `last`: no rank holds it afterwards.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BucketEvent {
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
    /// The state of a pinned bucket, by its count.
    pub const fn of(held: u32) -> Self {
        if held == 0 { Self::B } else { Self::E }
    }

    /// Where an event leads.
    pub const fn on(self, event: BucketEvent) -> Result<Self, Illegal> {
        use BucketEvent::{Evict, RemotePin, RemoteUnpin};
        use BucketState::{A, B, E};
        Ok(match (self, event) {
            (A | B | E, RemotePin) => E,
            (E, RemoteUnpin { last: true }) => B,
            (E, RemoteUnpin { last: false }) => E,
            (B, Evict) => A,
            (from, event) => return Err(Illegal { from, event }),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATES: [BucketState; 3] = [BucketState::A, BucketState::B, BucketState::E];
    const EVENTS: [BucketEvent; 4] = [
        BucketEvent::RemotePin,
        BucketEvent::RemoteUnpin { last: false },
        BucketEvent::RemoteUnpin { last: true },
        BucketEvent::Evict,
    ];

    /// Rows are states, columns events in the order above; `-` is illegal.
    const TABLE: [&str; 3] = ["E---", "E--A", "EEB-"];

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
    fn the_count_agrees_with_the_table() {
        for held in 0..3_u32 {
            let from = BucketState::of(held);
            assert_eq!(from.on(BucketEvent::RemotePin), Ok(BucketState::of(held + 1)));
            if let Some(left) = held.checked_sub(1) {
                assert_eq!(from.on(BucketEvent::RemoteUnpin { last: left == 0 }), Ok(BucketState::of(left)));
            }
        }
    }

    #[test]
    fn an_illegal_transition_names_state_and_event() {
        let error = BucketState::A.on(BucketEvent::Evict).expect_err("nothing to unpin").to_string();
        assert_eq!(error, "a bucket in state A cannot take Evict");
    }
}
