//! Worlds that follow from seeds.

use std::fmt::Debug;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs of one world, each with another seed. `ROCI_SEEDS=A..B` in the environment asks for other seeds than the usual ones.
#[derive(Clone, Debug)]
pub struct Swarm {
    seeds: Range<u64>,
    is_usual: bool,
    command: String,
}

impl Swarm {
    /// The usual seeds of an integration test of a package.
    ///
    /// # Panics
    /// When `ROCI_SEEDS` is not two numbers with `..` between them.
    pub fn new(package: &str, test: &str, usual: Range<u64>) -> Self {
        let asked = std::env::var("ROCI_SEEDS").ok().map(|text| parse(&text).expect("ROCI_SEEDS=A..B"));
        let command = format!("cargo test -p {package} --test {test}");
        Self { is_usual: asked.is_none(), seeds: asked.unwrap_or(usual), command }
    }

    /// Whether these are the seeds of every day: only of them it is known what they must show together.
    pub fn is_usual(&self) -> bool {
        self.is_usual
    }

    /// Runs the world of every seed twice, and returns what the runs were like.
    ///
    /// # Panics
    /// When any run has panicked, or differs from the other run of its seed: after all of them, with one line for each that
    /// replays it.
    pub fn run<T: PartialEq + Debug>(&self, world: impl Fn(u64) -> T) -> Vec<T> {
        let mut reports = Vec::new();
        let mut failed = Vec::new();
        for seed in self.seeds.clone() {
            let run = || catch_unwind(AssertUnwindSafe(|| world(seed)));
            match run().and_then(|first| Ok((first, run()?))) {
                Ok((first, second)) if first == second => reports.push(first),
                Ok((first, second)) => {
                    eprintln!("seed {seed} did not replay: {first:?} and then {second:?}");
                    failed.push(seed);
                }
                Err(_) => failed.push(seed),
            }
        }
        let replay = |seed: &u64| format!("ROCI_SEEDS={seed}..{} {}\n", seed + 1, self.command);
        assert!(
            failed.is_empty(),
            "so many seeds failed: {}\n{}",
            failed.len(),
            failed.iter().map(replay).collect::<String>()
        );
        reports
    }
}

fn parse(text: &str) -> Option<Range<u64>> {
    let (first, end) = text.split_once("..")?;
    Some(first.parse().ok()?..end.parse().ok()?)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn swarm(seeds: Range<u64>) -> Swarm {
        Swarm { seeds, is_usual: true, command: "cargo test -p some --test thing".into() }
    }

    fn complaint(world: impl Fn(u64) -> u64) -> String {
        let outcome = catch_unwind(AssertUnwindSafe(|| swarm(3..6).run(world)));
        *outcome.expect_err("a seed has failed").downcast::<String>().expect("a message")
    }

    #[test]
    fn every_seed_runs_twice_and_reports_once() {
        let runs = Cell::new(0);
        let world = |seed| {
            runs.set(runs.get() + 1);
            seed * 2
        };
        assert_eq!((swarm(1..4).run(world), runs.get()), (vec![2, 4, 6], 6));
    }

    #[test]
    fn a_world_that_does_not_replay_is_named_with_the_line_that_runs_it() {
        let runs = Cell::new(0);
        let world = |seed| {
            runs.set(runs.get() + 1);
            if seed == 4 { runs.get() } else { 0 }
        };
        let said = complaint(world);
        assert!(said.ends_with("so many seeds failed: 1\nROCI_SEEDS=4..5 cargo test -p some --test thing\n"), "{said}");
    }

    #[test]
    fn a_world_that_panics_does_not_keep_the_others_from_running() {
        let runs = Cell::new(0);
        let world = |seed| {
            runs.set(runs.get() + 1);
            assert_ne!(seed, 3);
            seed
        };
        assert!(complaint(world).contains("ROCI_SEEDS=3..4 "));
        assert_eq!(runs.get(), 5, "one of the first, two of each other");
    }

    #[test]
    fn seeds_are_asked_for_as_a_range() {
        assert_eq!(parse("7..9"), Some(7..9));
        for text in ["", "7", "7..", "..9", "7...9", "a..b"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
