//! What peers do for each other, above what the core does for all of it. A service does not know the others.

pub(crate) mod tag;
