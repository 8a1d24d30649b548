//! Conversations with a hostile peer, by its messages and by its mail.

use std::collections::BTreeSet;
use std::ops::Range;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use roci_msgcore::{OpError, Tag, WorkerEvent};
use roci_testkit::{Swarm, World as _};

use super::scene::Scene;
use crate::mail;

/// Scenes of all configurations; each ends with its first breach.
const SCENES: Range<u64> = 0..2_500;
/// Messages of a scene at most.
const MESSAGES: usize = 60;

const CONFIGS: [&[(&str, &str)]; 6] = [
    &[("receive_queues", "P,512,16"), ("eager_threshold", "3000"), ("rdma_gets", "off")],
    &[("receive_queues", "S,512,16,8,8,2"), ("eager_threshold", "3000"), ("rndv_protocol", "rput")],
    &[("receive_queues", "P,256,8,1,7,2:S,4096,16"), ("rndv_protocol", "pipeline"), ("pipeline_chunk", "4KiB")],
    &[("receive_queues", "P,512,16:P,8192,4"), ("ndreg_entries", "0"), ("rndv_protocol", "pipeline")],
    &[("receive_queues", "S,256,4,2,2,1:S,1024,4,2,2,1"), ("eager_threshold", "5000"), ("unexpected_limit", "1MiB")],
    &[("receive_queues", "P,512,16"), ("rdma", "off")],
];

/// What a conversation was like.
#[derive(PartialEq, Debug)]
struct Conversation {
    messages: usize,
    /// Why the victim has had enough.
    reason: String,
    trace: Option<u64>,
}

/// One conversation, until the victim has had enough.
fn converse(seed: u64) -> Conversation {
    let settings = CONFIGS[seed as usize % CONFIGS.len()];
    let mut scene = Scene::new(settings, seed);
    let mut dice = StdRng::seed_from_u64(seed);
    scene.connect(dice.random_ratio(1, 16).then_some(&mut dice));
    let mut messages = 0;
    while scene.victim_talks() && messages < MESSAGES {
        scene.provoke(&mut dice);
        scene.say_something(&mut dice);
        scene.steps(dice.random_range(0..20));
        messages += 1;
    }
    let reason = scene.end_of_peer();
    scene.expect_honest_conversation();
    scene.expect_no_leak();
    Conversation { messages, reason, trace: scene.trace() }
}

#[test]
fn whatever_a_peer_says_it_is_failed_by_name_and_no_one_else_notices() {
    let swarm = Swarm::new("roci-msgcore", "hostile", SCENES);
    let conversations = swarm.run(converse);
    let messages: usize = conversations.iter().map(|conversation| conversation.messages).sum();
    let kind =
        |conversation: &Conversation| conversation.reason.split(|c: char| c.is_ascii_digit()).collect::<String>();
    let reasons: BTreeSet<_> = conversations.iter().map(kind).collect();
    // Dice find many a way to be wrong.
    assert!(!swarm.is_usual() || messages > 5_000, "{messages} messages");
    assert!(!swarm.is_usual() || reasons.len() > 12, "{reasons:#?}");
}

/// Receives wait for all of its messages, so that they go from their packets into the receives.
#[test]
fn credits_are_counted_of_messages_that_receives_wait_for() {
    let settings = CONFIGS[0];
    let tag = Tag::new(1);
    let begin = || {
        let mut scene = Scene::new(settings, 1);
        scene.connect(None);
        scene.expect_messages(60, tag);
        for _ in 0..3 {
            scene.say_eagerly(tag, 0);
            scene.steps(10);
        }
        assert_eq!((scene.take_received(), scene.victim_talks()), (3, true), "so far all is well");
        scene
    };
    let mut scene = begin();
    // Of sixteen credits it spends twice as many at once: what is beyond them fills vbufs, and by then they have come back.
    (0..32).for_each(|_| scene.say_eagerly(tag, 0));
    scene.steps(100);
    assert_eq!((scene.take_received(), scene.victim_talks()), (32, true));
    scene.expect_honest_conversation();
    let mut scene = begin();
    scene.say_eagerly(tag, 1_000);
    assert!(scene.end_of_peer().contains("it gave back 1000 credits too many for its queue 0"));
    scene.expect_honest_conversation();
}

/// An answer has a key for each bucket, and must fit what the victim sends in.
#[test]
fn a_move_whose_answer_fits_no_vbuf_is_a_breach() {
    for (count, is_breach) in [(50, false), (51, true), (64, true)] {
        let mut scene = Scene::new(&[("receive_queues", "P,256,16")], 1);
        scene.connect(None);
        scene.say_long_move(count);
        scene.steps(100);
        assert_eq!(scene.victim_talks(), !is_breach, "{count} buckets");
        scene.expect_honest_conversation();
    }
}

/// Each is right by itself, and costs the victim an answer, which the peer does not take.
#[test]
fn a_flood_of_moves_ends_with_a_breach() {
    let mut scene = Scene::new(CONFIGS[1], 1);
    scene.connect(None);
    scene.say_move(1, None);
    scene.steps(10);
    assert!(scene.victim_talks());
    scene.is_deaf = true;
    let mut moves = 0;
    while scene.victim_talks() && moves < 3_000 {
        scene.say_move(2 - moves % 2, Some(1 + moves % 2));
        scene.steps(1);
        moves += 1;
    }
    assert!(scene.end_of_peer().contains("it asks for more answers than it lets us give"), "after {moves}");
    assert!((200..1_000).contains(&moves), "{moves} moves");
    scene.expect_honest_conversation();
    scene.expect_no_leak();
}

/// Where receives are shared a question costs no credit, and the answers would wait for ever.
#[test]
fn a_flood_of_questions_ends_with_a_breach() {
    let mut scene = Scene::new(&[("receive_queues", "S,1024,64,48"), ("retry_limit", "99999")], 1);
    scene.connect(None);
    scene.say_find_key(5);
    scene.steps(10);
    assert!(scene.victim_talks());
    scene.is_deaf = true;
    let mut questions = 0;
    while scene.victim_talks() && questions < 200_000 {
        scene.say_find_key(20);
        scene.steps(1);
        questions += 20;
    }
    assert!(scene.end_of_peer().contains("it asks for more answers than it lets us give"), "after {questions}");
    assert!(questions > 100_000, "{questions} questions");
    scene.expect_honest_conversation();
    scene.expect_no_leak();
}

#[test]
fn whatever_a_peer_mails_costs_no_one_else_anything() {
    Swarm::new("roci-msgcore", "hostile", 0..150).run(|seed| {
        let mut scene = Scene::new(&[("connect", ["client-server", "peer-to-peer"][seed as usize % 2])], seed);
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
        while let Some(event) = scene.next_event() {
            assert!(
                !matches!(event, WorkerEvent::PeerGone { peer, .. } if peer == 2),
                "the honest one is not to blame"
            );
        }
        scene.trace()
    });
}

#[test]
fn a_word_that_all_is_over_concerns_the_connection_that_it_names() {
    let mut scene = Scene::new(&[], 0);
    scene.connect(None);
    let other = scene.address();
    let ours = scene.first_address.clone();
    for rest in [String::new(), ";".into(), "x;y".into(), format!("{other};late"), other, ours.clone()] {
        scene.mail(&format!("gone {rest}"));
        scene.steps(70_000);
        assert!(scene.victim_talks(), "{rest}");
    }
    scene.mail(&format!("gone {ours};enough"));
    scene.steps(70_000);
    let events: Vec<_> = std::iter::from_fn(|| scene.next_event()).collect();
    let error = OpError::GivenUp { peer: 1.into(), why: "enough".into() };
    assert!(events.contains(&WorkerEvent::PeerGone { peer: 1.into(), error }), "{events:?}");
    scene.expect_honest_conversation();
}
