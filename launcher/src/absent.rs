//! Who is missed.

use std::fmt::{self, Display, Formatter};

use crate::Rank;

/// Ranks that are missed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Absent {
    /// In the job, and not in the barrier that some have entered.
    pub from_barrier: Vec<Rank>,
    /// Not in the job: not yet, or no longer.
    pub from_job: Vec<Rank>,
}

/// Ranks that a text names of each list.
const NAMED: usize = 32;

impl Display for Absent {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let list = |ranks: &[Rank]| ranks.iter().take(NAMED).map(ToString::to_string).collect::<Vec<_>>().join(", ");
        if !self.from_barrier.is_empty() {
            write!(f, "; not there yet: rank {}", list(&self.from_barrier))?;
        }
        if !self.from_job.is_empty() {
            write!(f, "; not in the job yet: rank {}", list(&self.from_job))?;
        }
        Ok(())
    }
}
