//! Several endpoints on one engine: each has its own peers, messages and completions, and they share keys and progress.

use std::ptr::NonNull;
use std::sync::atomic::AtomicU8;

use roci_driver::link::faulty::Faulty;
use roci_driver::link::sim::SimLink;
use roci_msgcore::one_sided::{Offering as _, OneSided as _, RemoteAccess, Segment, SegmentKey};
use roci_msgcore::{
    Domain, DomainError, EndpointId, OpError, Pattern, PeerId, Request, Source, Tag, TagMatch, UserMemory, Worker,
    WorkerEvent,
};
use roci_testkit::World as _;

use super::common::{World, config, pattern};

type Link = Faulty<SimLink>;

const SETTINGS: [(&str, &str); 4] =
    [("connect_method", "rdma_cm"), ("peers", "8"), ("ack_timeout_us", "200"), ("ack_timeout_max_us", "2000")];
const FAULTS: &str = "loss=0.05,dup=0.05,reorder=0.05,corrupt=0.02,seed=11";
const CONDITIONS: [(&str, &str); 4] = [("rdma_cm", ""), ("oob", ""), ("rdma_cm", FAULTS), ("oob", FAULTS)];
const TAG: Tag = Tag::new(7);
const KEY: u64 = 1 << 40;
const LENS: [usize; 4] = [0, 100, 9_000, 100_000];

/// Memory that everybody may access, for ever.
fn memory() -> UserMemory {
    static BYTES: [AtomicU8; 100_000] = [const { AtomicU8::new(0) }; 100_000];
    // SAFETY: they are mapped for ever, and all references to them are to atomics.
    unsafe { UserMemory::target(NonNull::from(&BYTES).cast(), BYTES.len()) }
}

/// Workers alone, and a domain, on one network.
struct Town {
    world: World,
    domain: Domain<Link>,
}

impl Town {
    /// So many workers, and a domain with so many endpoints.
    fn new((workers, endpoints): (usize, usize), settings: &[(&str, &str)]) -> Self {
        let config = config(&[&SETTINGS, settings].concat());
        let (world, domain) = World::with_a_domain(&vec![config; workers + 1], 1);
        let mut town = Self { world, domain };
        for _ in 1..endpoints {
            town.domain.open_endpoint().expect("there is room");
        }
        town
    }

    fn at(&mut self, id: EndpointId) -> &mut Worker<Link> {
        self.domain.endpoint(id).expect("it is open")
    }

    /// A worker inserts an endpoint of the domain.
    fn insert(&mut self, who: usize, id: EndpointId) -> PeerId {
        let address = self.at(id).address();
        self.world.workers[who].insert(address).expect("there is room")
    }

    /// Lets all make progress, of the domain the endpoint at hand, and carries the texts of exchanges.
    fn turn(&mut self) {
        self.world.steps(1);
        self.domain.progress();
        self.carry();
    }

    fn carry(&mut self) {
        let (at_hand, endpoints) = (self.domain.at_hand(), self.domain.endpoints());
        let workers = self.world.workers.len();
        for who in 0..workers {
            while let Some((to, text)) = self.world.workers[who].next_exchange() {
                for &id in &endpoints {
                    if self.at(id).address() == to {
                        let _ = self.at(id).deliver_exchange(&text);
                    }
                }
            }
        }
        for &id in &endpoints {
            while let Some((to, text)) = self.at(id).next_exchange() {
                let there = (0..workers).find(|&who| self.world.workers[who].address() == to);
                if let Some(there) = there {
                    let _ = self.world.workers[there].deliver_exchange(&text);
                }
            }
        }
        self.at(at_hand);
    }

    fn until<T>(&mut self, what: &str, mut look: impl FnMut(&mut Self) -> Option<T>) -> T {
        for _ in 0..400_000 {
            if let Some(found) = look(self) {
                return found;
            }
            self.turn();
        }
        panic!("never: {what}: {}", self.world.describe());
    }

    /// Posts a receive at an endpoint.
    fn recv(&mut self, id: EndpointId, source: Source, room: usize) -> Request {
        let worker = self.at(id);
        let buffer = worker.buffer(room).expect("memory");
        worker.recv(source, TagMatch::Any, buffer).expect("accepted")
    }

    /// Waits until an endpoint has received these bytes; returns from whom.
    fn expect(&mut self, id: EndpointId, receive: Request, bytes: &[u8]) -> PeerId {
        let done = self.until("a message", |town| town.at(id).test(receive)).expect("it arrives");
        assert!(done.buffer[..done.len] == *bytes, "another message of {} bytes", done.len);
        done.peer
    }

    /// Exposes memory under the key.
    fn expose(&mut self, id: EndpointId) -> Segment {
        let memory = self.at(id).buffer(64).expect("memory");
        let segment = self.at(id).expose_as(KEY, 0, memory, RemoteAccess::ReadWrite);
        segment.map_err(|refused| refused.why).expect("the key is free")
    }

    fn check(&mut self) {
        for id in self.domain.endpoints() {
            self.at(id).check_invariants().expect("what must hold");
        }
        self.world.workers.iter().for_each(|worker| worker.inside().check_invariants().expect("what must hold"));
    }
}

/// Every worker talks with every endpoint, all under one tag, while the application uses the first endpoint alone: each message is
/// where it was sent to, and each answer where it was asked.
#[test]
fn each_endpoint_has_its_own_peers_and_messages() {
    for (method, faults) in CONDITIONS {
        let mut town = Town::new((2, 3), &[("connect_method", method), ("faults", faults)]);
        let ids = town.domain.endpoints();
        for (round, len) in LENS.into_iter().enumerate() {
            let mut expected = Vec::new();
            for (at, &id) in ids.iter().enumerate() {
                for who in 0..2 {
                    let to = town.insert(who, id);
                    let bytes = pattern(len, round * 100 + at * 10 + who);
                    let send = town.world.workers[who].send_bytes(to, TAG, &bytes).expect("accepted");
                    expected.push((id, who, to, send, bytes));
                }
            }
            // From anybody: only the endpoint says whose it is.
            let receives: Vec<_> = expected.iter().map(|(id, ..)| town.recv(*id, Source::Any, len)).collect();
            town.at(ids[0]);
            for (at, (id, _, _, send, _)) in expected.iter().enumerate() {
                let who = expected[at].1;
                town.until("it is sent", |town| town.world.workers[who].test(*send)).expect("it arrives");
                assert_eq!(*id, expected[at].0);
            }
            let mut got = Vec::new();
            for ((id, ..), receive) in expected.iter().zip(receives) {
                let done = town.until("it comes", |town| town.at(*id).test(receive)).expect("it arrives");
                got.push((*id, done.buffer[..done.len].to_vec()));
                // An answer to who has sent it.
                let answer = pattern(len, 7);
                let to = done.peer;
                let send = town.at(*id).send_bytes(to, TAG, &answer).expect("accepted");
                town.at(*id).detach(send);
            }
            let mut sent: Vec<_> = expected.iter().map(|(id, .., bytes)| (*id, bytes.clone())).collect();
            sent.sort();
            got.sort();
            assert!(got == sent, "{method}, {len} bytes");
            for (_, who, from, ..) in expected {
                let receive = town.world.recv_from(who, from.into(), TAG, len);
                let done = town.until("the answer", |town| town.world.workers[who].test(receive)).expect("it arrives");
                assert!(done.buffer[..] == pattern(len, 7)[..]);
            }
        }
        town.check();
    }
}

/// Bursts of short messages with receives posted, at all endpoints at once: what the engine takes out of its packets for the endpoint
/// that polls is that one's.
#[test]
fn what_comes_for_one_endpoint_is_not_taken_for_another() {
    let mut town = Town::new((1, 2), &[]);
    let ids = town.domain.endpoints();
    let peers: Vec<_> = ids.iter().map(|&id| town.insert(0, id)).collect();
    for round in 0..50 {
        let mark = |id: usize, number: usize| pattern(16, round * 100 + id * 10 + number);
        let receives = [0, 1].map(|id| [0; 10].map(|_| town.recv(ids[id], Source::Any, 16)));
        town.at(ids[round % 2]);
        for number in 0..10 {
            for (id, &peer) in peers.iter().enumerate() {
                let send = town.world.workers[0].send_bytes(peer, TAG, &mark(id, number)).expect("accepted");
                town.world.workers[0].detach(send);
            }
        }
        for (id, receives) in receives.into_iter().enumerate() {
            for (number, receive) in receives.into_iter().enumerate() {
                town.expect(ids[id], receive, &mark(id, number));
            }
        }
    }
    // The endpoint that polls takes messages as they come, the other one out of its receives.
    assert!(town.at(ids[0]).stats().rx_expected > 100 && town.at(ids[1]).stats().rx_expected > 100);
    town.check();
}

/// Messages that wait for others, to leave with them, have left when another endpoint is taken in hand.
#[test]
fn an_endpoint_that_is_put_aside_leaves_no_message_behind() {
    let mut town = Town::new((1, 2), &[]);
    let ids = town.domain.endpoints();
    let address = town.world.workers[0].address();
    for round in 0..10 {
        let (id, other) = (ids[round % 2], ids[(round + 1) % 2]);
        let to = town.at(id).insert(address).expect("there is room");
        town.at(id).connect(to).expect("it is there");
        town.until("they are connected", |town| town.at(id).is_connected(to).then_some(()));
        for number in 0..9 {
            let send = town.at(id).send_bytes(to, TAG, &pattern(16, number)).expect("accepted");
            town.at(id).detach(send);
        }
        town.check();
        town.at(other);
        // The domain does nothing any more.
        for number in 0..9 {
            let receive = town.world.recv_from(0, Source::Any, TAG, 16);
            let done = town.world.wait(0, receive).expect("it comes");
            assert!(done.buffer[..] == pattern(16, number)[..]);
        }
    }
}

/// What one endpoint exposes the peers of another reach, and learn when it is withdrawn, wherever that is done.
#[test]
fn keys_are_the_domains() {
    let mut town = Town::new((1, 2), &[]);
    let ids = town.domain.endpoints();
    let peer = town.insert(0, ids[1]);
    let segment = town.expose(ids[0]);
    let taken = town.at(ids[1]).buffer(8).expect("memory");
    assert!(town.at(ids[1]).expose_as(KEY, 0, taken, RemoteAccess::ReadWrite).is_err(), "a key has one meaning");

    let put = |town: &mut Town| {
        let mut buffer = town.world.workers[0].buffer(8).expect("memory");
        buffer.copy_from_slice(b"by a key");
        let put = town.world.workers[0].put_with(peer, buffer, SegmentKey::requested(KEY).at(16), None);
        let put = put.map_err(|refused| refused.why).expect("accepted");
        town.until("the put's end", |town| town.world.workers[0].test(put)).map(|done| done.len)
    };
    assert_eq!(put(&mut town), Ok(8));
    let mut bytes = [0; 8];
    town.at(ids[1]).read_segment(segment, 16, &mut bytes).expect("it is the domain's");
    assert_eq!(&bytes, b"by a key");
    town.at(ids[0]).withdraw(segment).expect("it is there");
    assert_eq!(put(&mut town), Err(OpError::Denied { peer }));
    // The key may stand for other memory now, exposed by the other endpoint.
    let segment = town.expose(ids[1]);
    assert_eq!(put(&mut town), Ok(8));
    town.at(ids[0]).withdraw(segment).expect("it is there");
    assert_eq!(put(&mut town), Err(OpError::Denied { peer }));
    town.check();
}

/// An endpoint that is closed is gone for its peers, and for no other; the next one is another endpoint at the same service, and
/// takes no memory that the one before did not.
#[test]
fn an_endpoint_is_closed_and_opened_again() {
    for (method, faults) in CONDITIONS {
        let mut town = Town::new((2, 2), &[("connect_method", method), ("faults", faults)]);
        let first = town.domain.endpoints()[0];
        let stays = town.insert(0, first);
        let (mut free, mut addresses) = (None, Vec::new());
        for round in 0..6 {
            let id = *town.domain.endpoints().last().expect("two");
            let address = town.at(id).address();
            assert!(!addresses.contains(&address), "{method}");
            addresses.push(address);
            let (goes, mut here) = (town.insert(1, id), None);
            for (who, to, id) in [(0, stays, first), (1, goes, id)] {
                let bytes = pattern(20_000, round);
                let receive = town.recv(id, Source::Any, bytes.len());
                let send = town.world.workers[who].send_bytes(to, TAG, &bytes).expect("accepted");
                here = Some(town.expect(id, receive, &bytes));
                town.until("it is sent", |town| town.world.workers[who].test(send)).expect("it arrives");
            }
            // One of each that will not be met: a receive, and a message without one.
            let _unmet = town.recv(id, Source::Any, 10);
            // And memory that is registered for a peer by and by.
            let offer = town.at(id).offer(memory()).map_err(|refused| refused.why).expect("it can be offered");
            let payload = town.world.workers[1].buffer(100).expect("memory");
            let put = town.world.workers[1].put_with(goes, payload, offer.key().at(5000), None);
            let put = put.map_err(|refused| refused.why).expect("accepted");
            town.until("it is put", |town| town.world.workers[1].test(put)).expect("it arrives");
            let waits = town.world.recv_from(1, goes.into(), TAG, 10);
            // Closing waits until this is so, and the world's time stands still meanwhile.
            let here = here.expect("it has sent something");
            town.until("all is acknowledged", |town| town.at(id).is_flushed(here).then_some(()));
            let dropped = town.domain.close_endpoint(id).unwrap_or_else(|error| panic!("{method}: {error}"));
            assert_eq!((dropped.receives, dropped.sends), (1, 0), "{method}");
            assert!(matches!(town.domain.endpoint(id), Err(DomainError::NoEndpoint)));
            assert!(matches!(town.domain.close_endpoint(first), Err(DomainError::LastEndpoint)));
            if method == "rdma_cm" {
                let end = town.until("its peer learns of it", |town| town.world.workers[1].test(waits));
                assert!(matches!(end, Err(OpError::PeerGone { .. } | OpError::GivenUp { .. })), "{end:?}");
            }
            town.world.workers[1].remove(goes).expect("it is known");
            assert_eq!(town.domain.open_endpoint().expect("there is room"), town.domain.at_hand());
            let now = town.at(first).free_bytes();
            // Pools grow by batches, and by no more than one or two for the worst that the network does.
            let before = *free.get_or_insert(now);
            assert!(now + (1 << 20) > before, "{method}, {round}: {before} bytes were free, and {now} are");
        }
        assert_eq!(town.at(first).poll_event().map(|event| matches!(event, WorkerEvent::Connected { .. })), Some(true));
        assert_eq!(town.at(first).poll_event(), None, "{method}: it has lost no peer");
        town.check();
        assert!(town.domain.close().is_ok());
    }
}

/// Endpoints share send buffers: one that has them all, for a peer whose cable is cut, does not stop the others.
#[test]
fn an_endpoint_whose_peer_takes_nothing_does_not_stop_another() {
    let mut town = Town::new((2, 2), &[("vbuf_max", "16"), ("vbuf_pool", "16"), ("credits", "64")]);
    let ids = town.domain.endpoints();
    for (who, &id) in ids.iter().enumerate() {
        let to = town.insert(who, id);
        let receive = town.recv(id, Source::Any, 8);
        let send = town.world.workers[who].send_bytes(to, TAG, &[1; 8]).expect("accepted");
        let here = town.expect(id, receive, &[1; 8]);
        town.until("it is sent", |town| town.world.workers[who].test(send)).expect("it arrives");
        if who == 0 {
            town.until("it is connected", |town| town.at(id).is_connected(here).then_some(()));
            town.world.cut(0);
            for _ in 0..50 {
                let send = town.at(id).send_bytes(here, TAG, &pattern(1_000, 1)).expect("accepted");
                town.at(id).detach(send);
            }
            continue;
        }
        for round in 0..20 {
            let bytes = pattern(1_000, round);
            let receive = town.world.recv_from(who, to.into(), TAG, 1_000);
            let send = town.at(id).send_bytes(here, TAG, &bytes).expect("accepted");
            town.at(id).detach(send);
            // Whichever of the two the application uses.
            town.at(ids[round % 2]);
            let done = town.until("it comes", |town| town.world.workers[who].test(receive)).expect("it arrives");
            assert!(done.buffer[..] == bytes[..]);
        }
    }
    assert!(town.at(ids[0]).stats().buffer_stalls > 0, "it has used up what there is");
    town.check();
}

#[test]
fn a_rank_is_in_no_domain() {
    let config = config(&[]);
    let (_world, ports) = World::with_a_late_rank(&config);
    let rank = Worker::assemble(ports, &config).unwrap_or_else(|error| panic!("{error}"));
    assert!(matches!(Domain::of(rank, &config), Err(DomainError::Rank)));
}

/// Requests and addresses name one endpoint for ever, in whatever order endpoints are used and come and go.
#[test]
fn no_two_endpoints_share_a_name() {
    let mut town = Town::new((1, 3), &[]);
    let ids = town.domain.endpoints();
    let old = town.recv(ids[2], Source::Any, 8);
    let mut addresses: Vec<_> = ids.iter().map(|&id| town.at(id).address()).collect();
    town.domain.close_endpoint(ids[2]).expect("it ends");
    town.at(ids[0]);
    for _ in 0..2 {
        let id = town.domain.open_endpoint().expect("there is room");
        addresses.push(town.at(id).address());
        let new = town.recv(id, Source::Any, 8);
        assert_ne!(new, old);
        assert!(matches!(town.at(id).test(old), Some(Err(OpError::NoRequest))));
        town.at(ids[1]);
    }
    addresses.sort();
    addresses.dedup_by_key(|address| address.incarnation);
    assert_eq!(addresses.len(), 5);
}

/// Returns how many calls it takes until a worker is connected with an endpoint, where the application calls so often.
fn calls_until_connected(town: &mut Town, pause: u64, to: EndpointId, mut call: impl FnMut(&mut Town)) -> usize {
    let peer = town.insert(0, to);
    town.world.workers[0].connect(peer).expect("it is there");
    let first = town.domain.endpoints()[0];
    town.at(first);
    (0..100_000)
        .find(|_| {
            town.world.clock().advance(pause);
            for _ in 0..50 {
                town.world.workers[0].progress();
            }
            call(town);
            town.world.workers[0].is_connected(peer)
        })
        .expect("it is connected")
}

#[test]
fn an_application_that_calls_seldom_serves_all_endpoints() {
    let [at_hand, other] = [0, 1].map(|at| {
        let mut town = Town::new((1, 2), &[]);
        let to = town.domain.endpoints()[at];
        calls_until_connected(&mut town, 5_000_000, to, |town| {
            town.domain.progress();
        })
    });
    assert!(other < 3 * at_hand + 10, "{at_hand} calls, and {other} for the endpoint that is not at hand");
}

#[test]
fn endpoints_that_are_used_in_turn_are_looked_at_as_often_as_one_alone() {
    let small = [("receive_queues", "S,1KiB,64"), ("vbuf_pool", "1"), ("peers", "1"), ("pipeline_chunk", "64KiB")];
    let few = [("pipeline_depth", "1"), ("unexpected_limit", "1MiB"), ("arena_size", "256MiB")];
    let [alone, many] = [1, 32].map(|endpoints| {
        let mut town = Town::new((1, endpoints), &[small.as_slice(), few.as_slice()].concat());
        let ids = town.domain.endpoints();
        let mut turns = ids.iter().cycle();
        calls_until_connected(&mut town, 1_000, ids[0], |town| {
            let &id = turns.next().expect("it has no end");
            town.at(id).progress();
        })
    });
    assert!(many < 3 * alone, "{alone} calls with one endpoint, and {many} with 32");
}

#[test]
fn messages_that_were_claimed_at_a_closed_endpoint_give_their_memory_back() {
    let mut town = Town::new((1, 2), &[("receive_queues", "S,1KiB,64"), ("vbuf_secondary_pool", "16")]);
    let mut bytes = Vec::new();
    for _ in 0..12 {
        let id = *town.domain.endpoints().last().expect("two");
        let to = town.insert(0, id);
        let anything = Pattern::new(Source::Any, TagMatch::Any);
        let claims = [0; 10].map(|_| {
            let send = town.world.workers[0].send_bytes(to, TAG, &pattern(900, 1)).expect("accepted");
            town.world.workers[0].detach(send);
            town.until("a claim", |town| town.at(id).claim(anything))
        });
        let here = claims[0].envelope().source;
        town.until("all is acknowledged", |town| town.at(id).is_flushed(here).then_some(()));
        assert_eq!(town.domain.close_endpoint(id).expect("it ends").claimed, 10);
        drop(claims);
        // It may have seen the end already.
        let _ = town.world.workers[0].remove(to);
        let opened = town.domain.open_endpoint().expect("there is room");
        bytes.push(town.at(opened).vbuf_bytes());
    }
    assert!(bytes[11] <= bytes[1] + (32 << 10), "{bytes:?}");
}

/// With texts that the application carries those of a closed endpoint are carried with another's.
#[test]
fn peers_that_texts_have_connected_see_an_endpoint_go() {
    let mut town = Town::new((1, 2), &[("connect_method", "oob")]);
    let id = town.domain.endpoints()[1];
    let to = town.insert(0, id);
    let receive = town.recv(id, Source::Any, 8);
    let send = town.world.workers[0].send_bytes(to, TAG, &[1; 8]).expect("accepted");
    let here = town.expect(id, receive, &[1; 8]);
    town.until("it is sent", |town| town.world.workers[0].test(send)).expect("it arrives");
    town.until("all is acknowledged", |town| town.at(id).is_flushed(here).then_some(()));
    let waits = town.world.recv_from(0, to.into(), TAG, 10);
    town.domain.close_endpoint(id).expect("it ends");
    assert!(town.until("its peer learns of it", |town| town.world.workers[0].test(waits)).is_err());
}

/// What two endpoints offer has different addresses, so a key to one's opens nothing of the other's.
#[test]
fn what_one_endpoint_offers_is_not_reached_through_another() {
    let mut town = Town::new((1, 2), &[]);
    let ids = town.domain.endpoints();
    let offers = [0, 1].map(|at| town.at(ids[at]).offer(memory()).map_err(|refused| refused.why).expect("it can be"));
    for (at, outcome) in [(1, true), (0, false)] {
        let peer = town.insert(0, ids[1]);
        let payload = town.world.workers[0].buffer(8).expect("memory");
        let put = town.world.workers[0].put_with(peer, payload, offers[at].key().at(16), None);
        let put = put.map_err(|refused| refused.why).expect("accepted");
        let end = town.until("the put's end", |town| town.world.workers[0].test(put));
        assert_eq!(end.is_ok(), outcome, "{at}: {end:?}");
    }
    assert!(town.at(ids[0]).retract(offers[1]).is_err() && town.at(ids[1]).retract(offers[1]).is_ok());
}

/// What each endpoint gives up is counted once, whichever is at hand.
#[test]
fn a_domain_that_closes_counts_what_each_endpoint_gives_up() {
    let mut town = Town::new((0, 3), &[]);
    for (count, id) in (1..).zip(town.domain.endpoints()) {
        for _ in 0..count {
            let _unmet = town.recv(id, Source::Any, 8);
        }
    }
    let first = town.domain.endpoints()[0];
    town.at(first);
    assert_eq!(town.domain.close().unwrap_or_else(|error| panic!("{error}")).receives, 1 + 2 + 3);
}
