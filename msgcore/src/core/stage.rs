//! How far a connection is, as a table.
//!
//! A wire-up method posts no receives: the endpoint does, and then sends its *terms* (Open MPI's openib says CTS), for
//! which the peer has posted one small receive and nothing else. A connection is open once ours have arrived there and
//! theirs here. Messages that the application sends meanwhile wait, and go then.

use thiserror::Error;

/// How far a connection is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Debug, Default)]
pub(crate) enum Stage {
    /// Neither end has asked for it.
    #[default]
    Idle,
    /// We have asked, or wait to be asked.
    Asking,
    /// The peer has asked, and we have answered.
    Answering,
    /// Their terms have come before the news that our answer did: they are executed as soon as receives are posted, and the
    /// word that the queue pairs are up may come behind it, or be lost and repeated. Out of band there is no such word, and
    /// the terms stand for it.
    EarlyTerms,
    /// The queue pairs are up, and receives are posted; our terms are on their way, theirs have not come.
    Greeting,
    /// Ours have arrived.
    Greeted,
    /// Theirs have come.
    Welcomed,
    /// Both.
    Open,
}

/// What moves it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// We ask.
    Ask,
    /// The peer asks, and we answer.
    Answer,
    /// The queue pairs are up.
    Up,
    /// Our terms have arrived.
    Sent,
    /// Theirs have come.
    Terms,
}

/// A step that the table does not know.
#[derive(Clone, Copy, PartialEq, Eq, Error)]
#[error("a connection that is {stage:?} does not {step:?}")]
pub struct IllegalStep {
    stage: Stage,
    step: Step,
}

impl Stage {
    /// The next stage.
    pub(crate) fn on(self, step: Step) -> Result<Self, IllegalStep> {
        Ok(match (self, step) {
            (Self::Idle, Step::Ask) => Self::Asking,
            (Self::Idle | Self::Asking, Step::Answer) => Self::Answering,
            (Self::Asking | Self::Answering, Step::Up) => Self::Greeting,
            (Self::Answering, Step::Terms) => Self::EarlyTerms,
            (Self::EarlyTerms, Step::Up) => Self::Welcomed,
            (Self::Greeting, Step::Sent) => Self::Greeted,
            (Self::Greeting, Step::Terms) => Self::Welcomed,
            (Self::Greeted, Step::Terms) | (Self::Welcomed, Step::Sent) => Self::Open,
            (stage, step) => return Err(IllegalStep { stage, step }),
        })
    }

    /// The peer's terms have come.
    #[inline]
    pub(crate) fn has_terms(self) -> bool {
        matches!(self, Self::EarlyTerms | Self::Welcomed | Self::Open)
    }

    /// Somebody has asked for it, and it is not open yet.
    pub(crate) fn is_under_way(self) -> bool {
        !matches!(self, Self::Idle | Self::Open)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_at_every_stage_is_in_the_table_or_refused_by_name() {
        use Stage::{Answering, Asking, EarlyTerms, Greeted, Greeting, Idle, Open, Welcomed};
        use Step::{Answer, Ask, Sent, Terms, Up};
        let table = [
            (Idle, [Some(Asking), Some(Answering), None, None, None]),
            (Asking, [None, Some(Answering), Some(Greeting), None, None]),
            (Answering, [None, None, Some(Greeting), None, Some(EarlyTerms)]),
            (EarlyTerms, [None, None, Some(Welcomed), None, None]),
            (Greeting, [None, None, None, Some(Greeted), Some(Welcomed)]),
            (Greeted, [None, None, None, None, Some(Open)]),
            (Welcomed, [None, None, None, Some(Open), None]),
            (Open, [None, None, None, None, None]),
        ];
        for (stage, row) in table {
            for (step, next) in [Ask, Answer, Up, Sent, Terms].into_iter().zip(row) {
                assert_eq!(stage.on(step).ok(), next, "{stage:?} {step:?}");
            }
            assert_eq!(stage.has_terms(), matches!(stage, EarlyTerms | Welcomed | Open));
        }
        let refusal = Open.on(Ask).expect_err("it is open").to_string();
        assert_eq!(refusal, "a connection that is Open does not Ask");
    }
}
