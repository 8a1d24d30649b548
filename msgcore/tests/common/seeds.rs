//! Seeds of simulated worlds: which are run, and how one is run again.

use std::ops::Range;

/// Says how to repeat a run that panics.
pub(crate) struct Replay {
    /// What decided everything in it.
    pub(crate) seed: u64,
    /// Which of the package's tests it is.
    pub(crate) test: &'static str,
}

impl Drop for Replay {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let Self { seed, test } = *self;
            eprintln!("replay: ROCI_SEEDS={seed}..{} cargo test -p roci-msgcore --test {test}", seed + 1);
        }
    }
}

/// Whether somebody asked for seeds of their own: then what the usual ones must show is not looked at.
pub(crate) fn is_survey() -> bool {
    std::env::var_os("ROCI_SEEDS").is_some()
}

/// The seeds of `ROCI_SEEDS=A..B`, or the usual ones.
pub(crate) fn seeds(usual: Range<u64>) -> Range<u64> {
    let Ok(text) = std::env::var("ROCI_SEEDS") else { return usual };
    let (first, end) = text.split_once("..").expect("ROCI_SEEDS=A..B");
    first.parse().expect("a number")..end.parse().expect("a number")
}
