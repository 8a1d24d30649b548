//! One rank that speaks to 999 others, each connected at its first message, and what a connection costs.
//!
//! Three things are counted. The receives posted for a peer alone are the worker's own count. The arena's bytes are
//! those that are no longer free at rank 0, its own vbufs included. Resident memory is the kernel's count of the whole
//! process (`RssAnon`), so of both ends of each connection together, and of only what was touched.

mod common;

use common::{World, config, pattern};
use roci_msgcore::{Config, SendOptions, Source, Tag};
use roci_testkit::World as _;

const RANKS: usize = 1_000;

struct Cost {
    receives: usize,
    arena: usize,
    resident: usize,
}

fn configs(queues: &str) -> Vec<Config> {
    let common = [
        ("receive_queues", queues),
        ("wireup", "lazy"),
        ("vbuf_pool", "1"),
        ("vbuf_secondary_pool", "1"),
        ("pipeline_chunk", "4KiB"),
        ("pipeline_depth", "1"),
        // A greeting that comes before its peer is up is repeated soon.
        ("ack_timeout_us", "200"),
    ];
    let of_rank = |rank| {
        let mut settings = common.to_vec();
        settings.push(("arena_size", if rank == 0 { "256MiB" } else { "16MiB" }));
        config(&settings)
    };
    (0..RANKS).map(of_rank).collect()
}

/// Exchanges a message with everybody; returns what each connection has cost.
fn meet_everybody(queues: &str) -> Cost {
    let mut world = World::with(&configs(queues));
    let (free, resident) = (world.workers[0].free_bytes(), resident_bytes());
    let mut requests = Vec::new();
    for peer in 1..RANKS {
        requests.push((0, peer, world.recv_from(0, Source::from(peer), Tag::new(2), 100), None));
        requests.push((peer, 0, world.recv_from(peer, Source::from(0), Tag::new(1), 100), None));
        let there = world.send_with(0, peer, 1, &pattern(100, peer), SendOptions::default());
        let back = world.send_with(peer, 0, 2, &pattern(100, peer), SendOptions::default());
        requests.extend([(0, peer, there, Some(())), (peer, 0, back, Some(()))]);
    }
    for (who, peer, request, is_send) in requests {
        let done = world.wait(who, request).expect("it arrives");
        assert_eq!((done.len, done.peer), (100, peer.into()));
        assert!(is_send.is_some() || done.buffer[..100] == *pattern(100, who.max(peer)), "the bytes differ");
    }
    world.until("acknowledged", |world| (1..RANKS).all(|peer| world.workers[0].is_connected(peer)));
    world.workers.iter().for_each(|worker| worker.inside().check_invariants().expect("what must hold"));
    let hub = &world.workers[0];
    let per_peer = |bytes: usize| bytes / (RANKS - 1);
    Cost {
        receives: hub.inside().receive_bytes_of(1),
        arena: per_peer(free - hub.free_bytes()),
        resident: per_peer(resident_bytes().saturating_sub(resident)),
    }
}

fn resident_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find(|line| line.starts_with("RssAnon:")).expect("Linux 4.5");
    let kibibytes: usize = line.split_whitespace().nth(1).and_then(|word| word.parse().ok()).expect("a number");
    kibibytes << 10
}

/// One after the other: what is resident is the whole process's.
#[test]
fn a_thousand_peers_cost_what_their_queues_say_and_little_more() {
    for (queues, receives) in [("P,1KiB,8,4,2,7", 15 << 10), ("S,1KiB,256", 0)] {
        let cost = meet_everybody(queues);
        println!(
            "{queues}: a connection has {} bytes of receives, {} of the arena, {} resident at both ends",
            cost.receives, cost.arena, cost.resident
        );
        assert_eq!(cost.receives, receives);
        // Send buffers may have grown by one for each message that left at once.
        assert!(cost.arena <= receives + 3 * 1024, "{} bytes of the arena", cost.arena);
        // Two queue pairs, their receives, and what was touched.
        assert!(cost.resident < 256 << 10, "{} bytes resident", cost.resident);
    }
}
