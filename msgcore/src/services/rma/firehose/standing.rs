//! The states of a firehose at the rank that holds it, as a table.

use thiserror::Error;

/// What a bucket of a peer is to this rank.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// No firehose leads to it.
    Absent,
    /// A firehose was moved to it, and the peer has not answered yet: there is no key.
    Pending,
    /// Operations use it.
    InUse,
    /// It is not in use: the firehose may be moved. The peer keeps it pinned.
    Idle,
    /// Its firehose was moved elsewhere, and the peer has not answered yet. It may still count the firehose here, so none
    /// is asked for anew: that request might overtake the other one.
    Leaving,
}

/// What happens to a firehose.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Turn {
    /// The peer is asked for it.
    Ask,
    /// Another operation wants it.
    Hit,
    /// The peer has granted it; operations wait for it, unless all of them have failed meanwhile.
    Granted {
        /// None waits.
        unused: bool,
    },
    /// The peer has refused it.
    Refused,
    /// An operation ends.
    Release {
        /// It was the last one.
        last: bool,
    },
    /// Its firehose is moved elsewhere.
    Replace,
    /// The peer has answered that move.
    Answered,
}

/// There is no such transition: our own mistake, never a peer's.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("a firehose that is {from:?} cannot take {turn:?}")]
pub struct IllegalTurn {
    /// What it was.
    pub from: Standing,
    /// What was to happen.
    pub turn: Turn,
}

impl Standing {
    /// Where a turn leads.
    pub const fn on(self, turn: Turn) -> Result<Self, IllegalTurn> {
        use Standing::{Absent, Idle, InUse, Leaving, Pending};
        Ok(match (self, turn) {
            (Absent, Turn::Ask) => Pending,
            (Pending, Turn::Hit | Turn::Release { .. }) => Pending,
            (Pending, Turn::Granted { unused: false }) => InUse,
            (Pending, Turn::Granted { unused: true }) => Idle,
            (Pending, Turn::Refused) => Absent,
            (InUse | Idle, Turn::Hit) => InUse,
            (InUse, Turn::Release { last: false }) => InUse,
            (InUse, Turn::Release { last: true }) => Idle,
            (Idle, Turn::Replace) => Leaving,
            (Leaving, Turn::Answered) => Absent,
            (from, turn) => return Err(IllegalTurn { from, turn }),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STANDINGS: [Standing; 5] =
        [Standing::Absent, Standing::Pending, Standing::InUse, Standing::Idle, Standing::Leaving];
    const TURNS: [Turn; 9] = [
        Turn::Ask,
        Turn::Hit,
        Turn::Granted { unused: false },
        Turn::Granted { unused: true },
        Turn::Refused,
        Turn::Release { last: false },
        Turn::Release { last: true },
        Turn::Replace,
        Turn::Answered,
    ];

    /// Rows are standings, columns turns in the order above; letters are those that standings begin with, `U` is in use,
    /// and `-` is illegal.
    const TABLE: [&str; 5] = ["P--------", "-PUIAPP--", "-U---UI--", "-U-----L-", "--------A"];

    #[test]
    fn every_standing_takes_every_turn_as_the_table_says() {
        for (from, row) in STANDINGS.into_iter().zip(TABLE) {
            for (turn, cell) in TURNS.into_iter().zip(row.chars()) {
                let expected = "APUIL".find(cell).map(|at| STANDINGS[at]);
                assert_eq!(from.on(turn), expected.ok_or(IllegalTurn { from, turn }), "{from:?} on {turn:?}");
            }
        }
    }
}
