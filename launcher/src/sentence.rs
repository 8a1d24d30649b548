//! How errors show themselves: a `main` that returns one prints its `Debug` form, so that is the sentence that `Display` has.

use std::fmt::{Debug, Display, Formatter, Result};

use crate::{JobError, LaunchError, RankError};

impl Debug for JobError {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        Display::fmt(self, f)
    }
}

impl Debug for LaunchError {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        Display::fmt(self, f)
    }
}

impl Debug for RankError {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        Display::fmt(self, f)
    }
}
