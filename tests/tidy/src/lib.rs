//! Reads the tree's own sources, for the tests beside it: which file imports which, which names there are, and how long and
//! how deep things have grown. What stands under `#[cfg(test)]` is left out, and so are folders of tests.
#![forbid(unsafe_code)]

mod figures;
mod graph;
mod source;

pub use figures::{Figures, Sized, count_words};
pub use graph::{Graph, Import};
pub use source::{Crate, Source, root, rust_files};
