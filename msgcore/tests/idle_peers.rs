//! What a peer costs that was connected, has exchanged a message, and is idle: bytes of the heap, counted by the allocator.
//!
//! Rooms of buffers lie in the arena, which is no part of the heap; so of posted receives only the work requests are counted, and
//! what is known of their buffers, and taken off.

mod common;

use std::alloc::System;

use common::{World, config, pattern};
use roci_driver::Buffer;
use roci_driver::link::sim::NetConfig;
use roci_msgcore::{Config, PeerId, Source, Tag};
use roci_protocol::rc::RecvRequest;
use roci_testkit::World as _;
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static HEAP: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Peers that an end has.
const FEW: usize = 64;
const MANY: usize = 256;
const VBUF: usize = 1024;
/// What an idle peer may cost at each end beside its posted receives.
const LIMIT: usize = 4096;

/// How those that meet know each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Ranks,
    Strangers,
}

impl Kind {
    fn world(self, configs: &[Config]) -> World {
        match self {
            Self::Ranks => World::with(configs),
            Self::Strangers => World::of_strangers(NetConfig::default(), configs, 0),
        }
    }

    /// The name that one has for another.
    fn name(self, world: &mut World, who: usize, other: usize) -> PeerId {
        match self {
            Self::Ranks => other.into(),
            Self::Strangers => {
                let address = world.workers[other].address();
                world.workers[who].insert(address).expect("there is room")
            }
        }
    }
}

/// Bytes of the heap that are in use.
fn live_bytes() -> usize {
    let stats = HEAP.stats();
    stats.bytes_allocated - stats.bytes_deallocated
}

fn configs(queues: &str, ranks: usize, kind: Kind) -> Vec<Config> {
    let peers = ranks.to_string();
    let settings = [
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
        let mut settings = settings.to_vec();
        settings.push(("arena_size", if rank == 0 { "64MiB" } else { "16MiB" }));
        if kind == Kind::Strangers {
            settings.extend([("connect_method", "rdma_cm"), ("peers", &peers)]);
        }
        config(&settings)
    };
    (0..ranks).map(of_rank).collect()
}

/// A message goes there, and one comes back; then both are idle.
fn meet(world: &mut World, kind: Kind, one: usize, other: usize) {
    let names = [kind.name(world, one, other), kind.name(world, other, one)];
    for (from, to, [there, here]) in [(one, other, names), (other, one, [names[1], names[0]])] {
        let receive = world.recv_from(to, Source::from(here), Tag::new(1), 100);
        let bytes = pattern(100, from);
        let send = world.workers[from].send_bytes(there, Tag::new(1), &bytes).expect("accepted");
        let done = world.wait(to, receive).expect("it arrives");
        assert!(done.buffer[..done.len] == *bytes, "the bytes differ");
        world.wait(from, send).expect("it leaves");
    }
    world.until("both are idle", |world| {
        world.workers[one].is_connected(names[0]) && world.workers[other].is_connected(names[1])
    });
}

/// What heaps hold.
struct Heaps {
    /// That of each worker, which is not connected.
    opened: usize,
    /// Both ends of each of the hub's connections, without its posted receives.
    connection: usize,
}

/// A hub meets so many peers, each of which has met two others before: what an engine makes once is made.
fn meet_everybody(queues: &str, peers: usize, kind: Kind) -> Heaps {
    let before = live_bytes();
    let mut world = kind.world(&configs(queues, peers + 1, kind));
    let opened = (live_bytes() - before) / (peers + 1);
    for peer in 1..=peers {
        meet(&mut world, kind, peer, peer % peers + 1);
    }
    let before = live_bytes();
    for peer in 1..=peers {
        meet(&mut world, kind, 0, peer);
    }
    let connection = (live_bytes() - before) / peers;
    world.workers.iter().for_each(|worker| worker.inside().check_invariants().expect("what must hold"));
    let first = kind.name(&mut world, 0, 1);
    let receives = world.workers[0].inside().receive_bytes_of(first) / VBUF;
    let room = if receives == 0 { 0 } else { receives.next_power_of_two() };
    let posted = room * size_of::<RecvRequest<Buffer>>() + receives * Buffer::HEAP_BYTES;
    Heaps { opened, connection: connection - 2 * posted }
}

/// All in one test: the heap is the whole process's.
#[test]
fn an_idle_peer_costs_at_most_four_kibibytes_at_each_end() {
    let kinds = [Kind::Ranks, Kind::Strangers].into_iter();
    for (kind, queues) in kinds.flat_map(|kind| ["P,1KiB,8,4,2,7", "S,1KiB,256"].map(|queues| (kind, queues))) {
        let [few, many] = [FEW, MANY].map(|peers| meet_everybody(queues, peers, kind));
        // A stranger that is not inserted costs nothing.
        let unconnected = many.opened.saturating_sub(few.opened) / (MANY - FEW);
        for (peers, heaps) in [(FEW, few), (MANY, many)] {
            let connected = heaps.connection / 2;
            println!("{kind:?}, {queues}: each of {peers} peers costs {unconnected} bytes, connected {connected} more");
            assert!(
                unconnected + connected <= LIMIT,
                "{kind:?}, {queues}: {unconnected} and {connected} bytes for a peer"
            );
        }
    }
}
