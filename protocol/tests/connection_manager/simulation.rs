//! Two managers talk over a network that loses, repeats and reorders. Each connection ends open on both sides, or
//! failed by name, and leaves nothing behind.

use std::collections::BTreeMap;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use roci_protocol::Nanos;
use roci_protocol::cm::{CmState, ConnId, ConnectRequest, ConnectionEvent};
use roci_protocol::wire::cm::{CmMessage, Mad, RejReason};

use super::{Manager, SERVICE, Way, back, manager, offer, there};

const CONNECTIONS: u32 = 8;
const MS: Nanos = 1_000_000;
const HOURS: Nanos = 3_600_000 * MS;

/// What became of a connection, according to its application's events.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Life {
    established: u32,
    ends: u32,
    exits: u32,
}

struct Host {
    manager: Manager,
    way: Way,
    lives: BTreeMap<ConnId, Life>,
    rejects: bool,
}

impl Host {
    fn life(&mut self, id: ConnId) -> &mut Life {
        self.lives.get_mut(&id).expect("a known connection")
    }
}

struct World {
    rng: StdRng,
    hosts: [Host; 2],
    /// By arrival: to which host, what.
    flying: BTreeMap<(Nanos, u64), (usize, [u8; 256])>,
    sent: u64,
    loss: f64,
    now: Nanos,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let host = |at: u64, way| Host {
            manager: manager(at, seed << 1 | at),
            way,
            lives: BTreeMap::new(),
            rejects: seed % 5 == 1,
        };
        let mut hosts = [host(0, there()), host(1, back())];
        hosts[1].manager.listen(SERVICE).expect("a free service");
        let loss = [0.0, 0.1, 0.3, 0.6, 0.97][rng.random_range(0..5)];
        Self { rng, hosts, flying: BTreeMap::new(), sent: 0, loss, now: 0 }
    }

    /// Lets everything happen until nothing more will, or until `end`.
    fn run(&mut self, end: Nanos) {
        loop {
            (0..2).for_each(|at| self.empty_queues(at));
            let arrival = self.flying.first_key_value().map(|(&(at, _), _)| at);
            let timers = self.hosts.iter().filter_map(|host| host.manager.deadline());
            match timers.chain(arrival).min() {
                Some(next) if next <= end => self.now = self.now.max(next),
                _ => return,
            }
            while let Some(entry) = self.flying.first_entry().filter(|entry| entry.key().0 <= self.now) {
                let (to, datagram) = entry.remove();
                let host = &mut self.hosts[to];
                host.manager.on_mad(self.now, host.way, &datagram);
            }
            self.hosts.iter_mut().for_each(|host| host.manager.on_timer(self.now));
        }
    }

    fn empty_queues(&mut self, at: usize) {
        while let Some(event) = self.hosts[at].manager.poll_event() {
            self.on_event(at, &event);
        }
        while let Some((way, datagram)) = self.hosts[at].manager.poll_transmit() {
            assert_eq!(way, self.hosts[at].way);
            for _ in 0..=u8::from(self.rng.random_bool(0.1)) {
                if !self.rng.random_bool(self.loss) {
                    let delay = self.rng.random_range(1..400) * MS;
                    self.sent += 1;
                    self.flying.insert((self.now + delay, self.sent), (1 - at, datagram));
                }
            }
        }
    }

    fn on_event(&mut self, at: usize, event: &ConnectionEvent) {
        let (now, host) = (self.now, &mut self.hosts[at]);
        match *event {
            ConnectionEvent::Request { id, .. } => {
                host.lives.insert(id, Life::default());
                let decided = if host.rejects {
                    host.manager.reject(now, id, RejReason::CONSUMER_DEFINED, b"no")
                } else {
                    host.manager.accept(now, id, offer(id.comm_id()), b"yes")
                };
                decided.expect("an undecided request");
            }
            ConnectionEvent::Reply { id, .. } => host.manager.confirm(now, id).expect("an unconfirmed reply"),
            ConnectionEvent::Established { id } => host.life(id).established += 1,
            ConnectionEvent::Rejected { id, .. }
            | ConnectionEvent::Unreachable { id }
            | ConnectionEvent::Disconnected { id, .. } => {
                host.life(id).ends += 1;
            }
            ConnectionEvent::TimewaitExit { id } => host.life(id).exits += 1,
            ConnectionEvent::SidrResolved { .. } | ConnectionEvent::SidrFailed { .. } => {
                panic!("there was no SIDR request")
            }
        }
    }

    fn connect(&mut self) {
        for qpn in 1..=CONNECTIONS {
            let host = &mut self.hosts[0];
            let request = ConnectRequest { service: SERVICE, source_port: 1, offer: offer(qpn), private_data: &[] };
            let id = host.manager.connect(self.now, host.way, request).expect("a connection");
            host.lives.insert(id, Life::default());
        }
    }

    /// Ends what is open, from either side or both.
    fn disconnect(&mut self) {
        for host in &mut self.hosts {
            for &id in host.lives.keys() {
                if host.manager.state(id) == CmState::Established && self.rng.random_bool(0.7) {
                    host.manager.disconnect(self.now, id, b"bye").expect("an open connection");
                }
            }
        }
    }

    fn open(&self, at: usize) -> usize {
        let host = &self.hosts[at];
        host.lives.keys().filter(|&&id| host.manager.state(id) == CmState::Established).count()
    }
}

#[test]
fn every_connection_opens_on_both_sides_or_fails_by_name_and_nothing_is_left() {
    let (mut opened, mut failed) = (0, 0);
    for seed in 0..400 {
        let mut world = World::new(seed);
        world.connect();
        world.run(HOURS);
        // A side cannot know whether its last word arrived; but with that many repetitions it does.
        assert!(world.loss > 0.5 || world.open(0) == world.open(1), "seed {seed}: half-open without need");
        opened += world.open(0);
        for life in world.hosts[0].lives.values() {
            assert!(life.established == 1 || life.ends == 1, "seed {seed}: {life:?}");
            failed += life.ends;
        }
        for round in 1..=20 {
            world.now = world.now.max(round * HOURS);
            world.disconnect();
            world.run((round + 1) * HOURS);
        }
        for host in &world.hosts {
            assert_eq!((host.manager.len(), host.manager.deadline()), (0, None), "seed {seed}");
            for (id, life) in &host.lives {
                assert!(life.exits == 1 && life.established <= 1 && life.ends <= 1, "seed {seed}: {id:?} {life:?}");
                let refused_here = host.rejects && life.ends == 0;
                assert!(life.ends == 1 || refused_here, "seed {seed}: {id:?} ended without a word");
            }
        }
    }
    assert!(opened > 1000 && failed > 100, "{opened} opened, {failed} failed");
}

#[test]
fn a_connection_over_a_good_network_takes_five_messages() {
    let mut world = World::new(0);
    world.loss = 0.0;
    let mut names = Vec::new();
    let [Host { manager: active, .. }, Host { manager: passive, .. }] = &mut world.hosts;
    let request = ConnectRequest { service: SERVICE, source_port: 1, offer: offer(1), private_data: &[] };
    active.connect(0, there(), request).expect("a connection");
    loop {
        let (from, to, way) = match active.poll_transmit() {
            Some((_, datagram)) => (datagram, &mut *passive, back()),
            None => match passive.poll_transmit() {
                Some((_, datagram)) => (datagram, &mut *active, there()),
                None => break,
            },
        };
        let mad = Mad::parse(&from).expect("a datagram of ours");
        names.push(mad.message.name());
        to.on_mad(0, way, &from);
        for event in super::events(to) {
            match event {
                ConnectionEvent::Request { id, .. } => to.accept(0, id, offer(2), &[]),
                ConnectionEvent::Reply { id, .. } => to.confirm(0, id),
                ConnectionEvent::Established { id } if matches!(mad.message, CmMessage::Rtu(_)) => {
                    to.disconnect(0, id, &[])
                }
                _ => Ok(()),
            }
            .expect("the right state");
        }
        super::events(active);
    }
    assert_eq!(names, ["REQ", "REP", "RTU", "DREQ", "DREP"]);
}
