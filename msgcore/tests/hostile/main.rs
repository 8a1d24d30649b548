//! A peer that keeps to nothing: a bare engine that connects like a worker, and then says what dice have it say. The
//! worker fails it by name, loses no memory, and goes on with an honest one.

mod mail;
mod messages;
mod scene;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use roci_msgcore::{OpError, WorkerEvent};
use scene::Scene;

/// Scenes of each configuration; each ends with its first breach.
const SCENES: u64 = 1_000;
/// Messages of a scene at most.
const MESSAGES: usize = 60;

const CONFIGS: [&[(&str, &str)]; 5] = [
    &[("receive_queues", "P,512,16"), ("eager_threshold", "3000")],
    &[("receive_queues", "S,512,16,8,8,2"), ("eager_threshold", "3000"), ("rndv_protocol", "rput")],
    &[("receive_queues", "P,256,8,1,7,2:S,4096,16"), ("rndv_protocol", "pipeline"), ("pipeline_chunk", "4KiB")],
    &[("receive_queues", "P,512,16:P,8192,4"), ("ndreg_entries", "0"), ("rndv_protocol", "pipeline")],
    &[("receive_queues", "S,256,4,2,2,1:S,1024,4,2,2,1"), ("eager_threshold", "5000"), ("unexpected_limit", "1MiB")],
];

/// One conversation, until the victim has had enough; returns how many messages that took, and its reason.
fn converse(seed: u64, settings: &[(&str, &str)]) -> (usize, String) {
    let mut scene = Scene::new(settings);
    let mut dice = StdRng::seed_from_u64(seed);
    scene.connect(dice.random_ratio(1, 16).then_some(&mut dice));
    let mut count = 0;
    while scene.victim_talks() && count < MESSAGES {
        scene.provoke(&mut dice);
        scene.say_something(&mut dice);
        scene.steps(dice.random_range(0..20));
        count += 1;
    }
    let reason = scene.end_of_peer();
    scene.expect_honest_conversation();
    scene.expect_no_leak();
    (count, reason)
}

#[test]
fn whatever_a_peer_says_it_is_failed_by_name_and_nobody_else_notices() {
    let (mut messages, mut reasons) = (0, std::collections::BTreeSet::new());
    for (index, settings) in CONFIGS.iter().enumerate() {
        for seed in 0..SCENES {
            let seed = seed + 10_000 * index as u64;
            let replay = scopeguard(seed);
            let (count, reason) = converse(seed, settings);
            drop(replay);
            messages += count;
            reasons.insert(reason.split(|c: char| c.is_ascii_digit()).collect::<String>());
        }
    }
    // Dice find many a way to be wrong.
    assert!(messages > 10_000, "{messages} messages");
    assert!(reasons.len() > 12, "{reasons:#?}");
}

#[test]
fn whatever_a_peer_mails_costs_nobody_else_anything() {
    for seed in 0..300 {
        let replay = scopeguard(seed);
        let mut scene = Scene::new(&[("connect", ["client-server", "peer-to-peer"][seed as usize % 2])]);
        let mut dice = StdRng::seed_from_u64(seed);
        for _ in 0..40 {
            let text = mail::nonsense(&mut dice, &scene.address());
            scene.mail(&text);
            scene.steps(dice.random_range(0..5));
            if dice.random_ratio(1, 10) {
                scene.provoke(&mut dice);
            }
        }
        scene.expect_honest_conversation();
        scene.cut_peer();
        while let Some(event) = scene.victim.poll_event() {
            assert!(!matches!(event, WorkerEvent::PeerGone { rank: 2, .. }), "the honest one is not to blame");
        }
        drop(replay);
    }
}

#[test]
fn a_word_that_all_is_over_concerns_the_connection_that_it_names() {
    let mut scene = Scene::new(&[]);
    scene.connect(None);
    let other = scene.address();
    let ours = scene.told.clone();
    for rest in [String::new(), ";".into(), "x;y".into(), format!("{other};late"), other, ours.clone()] {
        scene.mail(&format!("gone {rest}"));
        scene.steps(70_000);
        assert!(scene.victim_talks(), "{rest}");
    }
    scene.mail(&format!("gone {ours};enough"));
    scene.steps(70_000);
    let events: Vec<_> = std::iter::from_fn(|| scene.victim.poll_event()).collect();
    let error = OpError::GivenUp { rank: 1, why: "enough".into() };
    assert!(events.contains(&WorkerEvent::PeerGone { rank: 1, error }), "{events:?}");
    scene.expect_honest_conversation();
}

/// Says which seed it was, should the test fail.
fn scopeguard(seed: u64) -> impl Drop {
    struct Said(u64);
    impl Drop for Said {
        fn drop(&mut self) {
            if std::thread::panicking() {
                eprintln!("it was seed {}", self.0);
            }
        }
    }
    Said(seed)
}
