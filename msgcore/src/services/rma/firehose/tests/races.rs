//! The two races of GASNet's notes: closed, and found again where the mistake is put back in.

use super::super::firehoses::Mistake;
use super::super::sim::{BrokenWorld, FirehoseWorld, Plan, Report};
use super::*;

const SEEDS: u64 = 64;

/// Few firehoses, wanted by many: what is given up is soon wanted again.
fn plan(seed: u64, jitter: u64) -> Plan {
    let plan = Plan { ranks: 3, firehoses: 4, working_set: 8, longest: 1, depth: 6, jitter, ..Plan::of_seed(seed) };
    Plan { victims: 8, refused_percent: 0, death: None, ..plan }
}

fn run(plan: Plan, mistake: Option<Mistake>) -> Result<Report, Box<BrokenWorld>> {
    let mut world = FirehoseWorld::new(plan);
    world.engines().for_each(|engine| engine.make(mistake));
    world.run()
}

impl FirehoseEngine {
    fn make(&mut self, mistake: Option<Mistake>) {
        self.mistake = mistake;
    }
}

/// The first seed whose world breaks, and how.
fn first_broken(jitter: u64, mistake: Option<Mistake>) -> Option<(u64, String)> {
    (0..SEEDS).find_map(|seed| run(plan(seed, jitter), mistake).err().map(|what| (seed, what.to_string())))
}

#[test]
fn what_is_given_up_is_not_asked_for_before_the_answer() {
    let (mut one, mut other) = End::pair(2, 8);
    touch(&mut one, &mut other, 0, 1);
    touch(&mut one, &mut other, 1, 1);
    assert!(one.acquire(2, 1, 7).is_none(), "a move, in place of bucket 0");
    let first = one.take_messages();
    // There is a firehose for it, that of bucket 1, and still it waits.
    assert!(one.acquire(0, 1, 8).is_none());
    assert!(one.take_messages().is_empty());
    assert_eq!(one.engine.stats().stalls, 1);
    other.on_message(&first[0]).expect("a move");
    settle(&mut one, &mut other);
    let ended: Vec<u64> = one.take_ended().into_iter().map(|(context, _)| context).collect();
    assert_eq!(ended, [7, 8]);
}

#[test]
fn asked_for_earlier_it_would_overtake() {
    let (mut one, mut other) = End::pair(2, 8);
    one.engine.make(Some(Mistake::ForgetsLeaving));
    touch(&mut one, &mut other, 0, 1);
    touch(&mut one, &mut other, 1, 1);
    assert!(one.acquire(2, 1, 7).is_none() && one.acquire(0, 1, 8).is_none());
    let messages = one.take_messages();
    assert_eq!(other.on_message(&messages[1]), Err(FirehoseBreach::HeldAlready(Bucket(0))));
}

#[test]
fn worlds_break_without_that_and_only_where_messages_overtake() {
    let broken = first_broken(10_000, Some(Mistake::ForgetsLeaving));
    assert!(
        broken.as_ref().is_some_and(|(_, what)| what.contains("to which it holds a firehose already")),
        "{broken:?}"
    );
    assert_eq!(first_broken(0, Some(Mistake::ForgetsLeaving)), None);
    assert_eq!(first_broken(10_000, None), None);
}

#[test]
fn worlds_break_where_what_is_used_again_stays_a_victim() {
    let broken = first_broken(0, Some(Mistake::StaysVictim));
    assert!(broken.as_ref().is_some_and(|(_, what)| what.contains("is InUse, and in the queue: true")), "{broken:?}");
    assert_eq!(first_broken(0, None), None);
}
