//! Nodes under one clock.

use roci_driver::link::Link;
use roci_driver::link::sim::Clock;
use roci_driver::{Arena, Engine};
use roci_protocol::Nanos;

/// Nodes on a simulated network, which go on only as far as the test lets them.
pub trait World {
    /// Virtual time that a step takes, in nanoseconds.
    const STEP_NS: Nanos = 1_000;
    /// Steps after which what has not happened never will.
    const PATIENCE: usize = 1_000_000;

    /// The time that all nodes know.
    fn clock(&self) -> &Clock;

    /// Lets every node do what is due, and asserts what holds between steps.
    fn run(&mut self);

    /// What a failure's message says about the nodes.
    fn describe(&self) -> String {
        String::new()
    }

    /// Lets a moment pass.
    fn step(&mut self) {
        self.clock().advance(Self::STEP_NS);
        self.run();
    }

    /// Lets so many moments pass.
    fn steps(&mut self, count: usize) {
        (0..count).for_each(|_| self.step());
    }

    /// Lets time pass until something is so.
    ///
    /// # Panics
    /// Where it never is.
    #[track_caller]
    fn until(&mut self, what: &str, mut is_so: impl FnMut(&Self) -> bool) {
        self.find(what, |world| is_so(world).then_some(()));
    }

    /// Lets time pass until `look` finds what it looks for.
    ///
    /// # Panics
    /// Where it never does.
    #[track_caller]
    fn find<T>(&mut self, what: &str, mut look: impl FnMut(&mut Self) -> Option<T>) -> T {
        for _ in 0..Self::PATIENCE {
            if let Some(found) = look(self) {
                return found;
            }
            self.step();
        }
        panic!("never: {what}: {}", self.describe());
    }
}

/// An engine without ports that does the same in each run: what engines choose by chance follows from `seed`, which must differ
/// between those that meet.
///
/// # Panics
/// When there is no memory for an arena of `arena_bytes`.
pub fn engine<L: Link>(arena_bytes: usize, seed: u64) -> Engine<L> {
    let arena = Arena::new(arena_bytes).expect("memory");
    Engine::seeded(arena, seed).expect("memory")
}

/// Lets an engine do what is due, and asserts its invariants.
pub fn poll_and_check<L: Link>(engine: &mut Engine<L>) {
    engine.poll();
    engine.check();
}
