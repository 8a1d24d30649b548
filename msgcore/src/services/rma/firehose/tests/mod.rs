//! The engine by hand: two ranks, whose messages the test carries, and may hold back.

mod exhaustion;
mod hostile;
mod knowledge;
mod races;

use rand::SeedableRng;
use rand::rngs::StdRng;

use super::sim::host::Host;
use super::*;
use crate::Rank;

const PAGE: u64 = 4096;
const SEGMENT: u64 = 64;

/// A rank of two, and its memory.
struct End {
    engine: FirehoseEngine,
    host: Host,
    me: Rank,
}

impl End {
    fn new(me: Rank, firehoses: u64, victims: usize) -> Self {
        let limits = Limits::exact(Grain::new(PAGE).expect("a power of two"), firehoses, victims);
        let host = Host::new(SEGMENT, 0, StdRng::seed_from_u64(me as u64));
        Self { engine: FirehoseEngine::new(limits), host, me }
    }

    fn pair(firehoses: u64, victims: usize) -> (Self, Self) {
        (Self::new(0, firehoses, victims), Self::new(1, firehoses, victims))
    }

    fn acquire(&mut self, first: u64, count: u64, context: u64) -> Option<Hold> {
        let span = Span { va: first * PAGE, len: count * PAGE };
        let outcome = self.acquire_from(1 - self.me, span, context);
        self.check();
        outcome.expect("within the limits")
    }

    fn acquire_from(&mut self, peer: Rank, span: Span, context: u64) -> Result<Option<Hold>, AcquireError> {
        let share = self.engine.limits().share();
        self.engine.acquire(&mut self.host, peer.into(), share, span, context)
    }

    fn release(&mut self, hold: Hold) {
        self.engine.release(&mut self.host, hold);
        self.check();
    }

    /// What the engine wants sent.
    fn take_messages(&mut self) -> Vec<Vec<u8>> {
        self.host.outbox.drain(..).map(|(_, message)| message).collect()
    }

    fn on_message(&mut self, message: &[u8]) -> Result<(), FirehoseBreach> {
        let outcome = self.engine.on_message(&mut self.host, (1 - self.me).into(), message);
        self.check();
        outcome
    }

    /// What has ended, by its context.
    fn take_ended(&mut self) -> Vec<(u64, Hold)> {
        self.host.ended.drain(..).map(|(context, outcome)| (context, outcome.expect("granted"))).collect()
    }

    fn check(&self) {
        self.engine.check_invariants().unwrap_or_else(|what| panic!("rank {}: {what}", self.me));
    }
}

/// Carries everything to and fro until nothing is under way.
fn settle(one: &mut End, other: &mut End) {
    while !(one.host.outbox.is_empty() && other.host.outbox.is_empty()) {
        for message in one.take_messages() {
            other.on_message(&message).expect("a message of the protocol");
        }
        for message in other.take_messages() {
            one.on_message(&message).expect("a message of the protocol");
        }
    }
}

/// Acquires, waits if need be, and releases.
fn touch(one: &mut End, other: &mut End, first: u64, count: u64) {
    let hold = one.acquire(first, count, 0).or_else(|| {
        settle(one, other);
        one.take_ended().pop().map(|(_, hold)| hold)
    });
    one.release(hold.expect("the other has answered"));
}
