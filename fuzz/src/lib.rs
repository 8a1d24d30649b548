//! Fuzz targets: whatever the bytes are, nothing panics, nothing is lost, and no memory changes that was not granted.
//!
//! ```console
//! $ cargo test -p roci-fuzz                                       # what is committed, and 2000 random inputs each
//! $ BOLERO_RANDOM_TEST_TIME_MS=600000 BOLERO_RANDOM_ITERATIONS=1000000000 cargo test -p roci-fuzz --test frames
//! $ cargo bolero test -p roci-fuzz --sanitizer NONE frames        # guided by coverage, with cargo-bolero installed
//! $ cargo run -p roci-fuzz --example seeds                        # writes the corpora anew
//! ```
//!
//! A failure prints its bytes, or a `BOLERO_RANDOM_SEED` that repeats it: put the bytes under `crashes` beside `corpus`,
//! and make the smallest test of it where the bug is.
//!
//! Each target is a function from bytes to assertions. The tests in `tests/` replay what is committed under
//! `tests/__fuzz__` and then try random bytes. Numbers and keys are random in every run, so bytes name them by index.

pub mod api;
pub mod frames;
pub mod mads;
mod tape;
