//! No bytes, in whatever state they find a connection, make the manager panic, loop, or outgrow its limits.

use proptest::prelude::*;
use proptest::sample::Index;
use roci_protocol::cm::{CmConfig, ConnId, ConnectRequest, ConnectionEvent, ConnectionManager};
use roci_protocol::wire::cm::{PortSpace, RejReason, ServiceId};
use roci_protocol::{Nanos, Qpn};

use super::{Manager, SERVICE, Way, back, offer, there};

const DATAGRAMS: ServiceId = ServiceId::of_port(PortSpace::Udp, 53);

/// One thing that happens, at either host.
#[derive(Clone, Debug)]
enum Act {
    Connect,
    Resolve,
    Call(u8, Index),
    /// The next datagram arrives, bits of it flipped.
    Deliver(Vec<(Index, u8)>),
    /// One that was delivered arrives again, bits of it flipped.
    Replay(Index, Vec<(Index, u8)>),
    Lose,
    Noise(Vec<u8>, Option<u8>),
    Timer(bool),
}

fn flips() -> impl Strategy<Value = Vec<(Index, u8)>> {
    proptest::collection::vec((any::<Index>(), 0u8..8), 0..4)
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        Just(Act::Connect),
        Just(Act::Resolve),
        (0u8..8, any::<Index>()).prop_map(|(call, which)| Act::Call(call, which)),
        Just(Act::Deliver(Vec::new())),
        Just(Act::Deliver(Vec::new())),
        flips().prop_map(Act::Deliver),
        (any::<Index>(), flips()).prop_map(|(which, flips)| Act::Replay(which, flips)),
        Just(Act::Lose),
        (proptest::collection::vec(any::<u8>(), 256), proptest::option::of(0x0fu8..0x1c))
            .prop_map(|(bytes, attr_id)| Act::Noise(bytes, attr_id)),
        any::<bool>().prop_map(Act::Timer),
    ]
}

struct Host {
    manager: Manager,
    ids: Vec<ConnId>,
    way: Way,
}

impl Host {
    fn new(ca_guid: u64, way: Way) -> Self {
        let limits = CmConfig {
            max_connections: 6,
            reserved_connections: 2,
            max_pending_requests: 3,
            max_queued_datagrams: 8,
            max_queued_events: 5,
            max_retries: 3,
            ..CmConfig::new(ca_guid, ca_guid)
        };
        let mut manager = ConnectionManager::new(limits);
        manager.listen(SERVICE).expect("a free service");
        manager.sidr_listen(DATAGRAMS, Qpn::new(5), 6).expect("a free service");
        Self { manager, ids: Vec::new(), way }
    }

    fn call(&mut self, now: Nanos, call: u8, which: Index) {
        let manager = &mut self.manager;
        if let Some(&id) = self.ids.get(which.index(self.ids.len().max(1))) {
            let _ = match call {
                0 | 1 => manager.accept(now, id, offer(id.comm_id()), &[1; 196]),
                2 | 3 => manager.confirm(now, id),
                4 => manager.reject(now, id, RejReason::CONSUMER_DEFINED, &[]),
                5 => manager.refuse(now, id, RejReason::CONSUMER_DEFINED, &[]),
                6 => manager.disconnect(now, id, &[]),
                _ => {
                    manager.on_communication_established(now, id);
                    manager.abandon(now, id)
                }
            };
        }
    }

    fn take_events(&mut self) {
        while let Some(event) = self.manager.poll_event() {
            if let ConnectionEvent::Request { id, .. } = event {
                self.ids.push(id);
            }
        }
    }
}

fn flip(bytes: &mut [u8], flips: &[(Index, u8)]) {
    for (at, bit) in flips {
        bytes[at.index(bytes.len())] ^= 1 << bit;
    }
}

fn run(acts: Vec<(bool, Act)>) {
    let mut hosts = [Host::new(1, there()), Host::new(2, back())];
    let (mut now, mut seen) = (0, Vec::new());
    for (at, act) in acts {
        let at = usize::from(at);
        let [here, other] = &mut hosts;
        let (here, other) = if at == 0 { (here, other) } else { (other, here) };
        match act {
            Act::Connect => {
                let request = ConnectRequest {
                    service: SERVICE,
                    source_port: 1,
                    offer: offer(now as u32 & 3),
                    private_data: &[2; 56],
                };
                here.ids.extend(here.manager.connect(now, here.way, request));
            }
            Act::Resolve => drop(here.manager.sidr_resolve(now, here.way, DATAGRAMS, 1, &[])),
            Act::Call(call, which) => here.call(now, call, which),
            Act::Deliver(flips) => {
                if let Some((_, mut bytes)) = other.manager.poll_transmit() {
                    seen.push(bytes);
                    flip(&mut bytes, &flips);
                    here.manager.on_mad(now, here.way, &bytes);
                }
            }
            Act::Replay(which, flips) if !seen.is_empty() => {
                let mut bytes = seen[which.index(seen.len())];
                flip(&mut bytes, &flips);
                here.manager.on_mad(now, here.way, &bytes);
            }
            Act::Replay(..) => {}
            Act::Lose => drop(other.manager.poll_transmit()),
            Act::Noise(mut bytes, attr_id) => {
                if let Some(attr_id) = attr_id {
                    bytes[..4].copy_from_slice(&[1, 7, 2, 3]);
                    bytes[16..18].copy_from_slice(&[0, attr_id]);
                }
                here.manager.on_mad(now, here.way, &bytes);
            }
            Act::Timer(takes_events) => {
                now = here.manager.deadline().unwrap_or(now).max(now) + 1;
                here.manager.on_timer(now);
                if takes_events {
                    here.take_events();
                }
            }
        }
        assert!(here.manager.len() <= 6);
    }
    for host in hosts {
        wind_down(now, host);
    }
}

/// Whatever happened: once its connections are given up, a host is empty again.
fn wind_down(mut now: Nanos, mut host: Host) {
    host.take_events();
    for round in 0..1000 {
        assert!(round < 999, "timers without end");
        for index in 0..host.ids.len() {
            let id = host.ids[index];
            let manager = &mut host.manager;
            let _ = manager.reject(now, id, RejReason::NO_QP, &[]);
            let _ = manager.refuse(now, id, RejReason::NO_QP, &[]);
            let _ = manager.disconnect(now, id, &[]);
        }
        match host.manager.deadline() {
            Some(due) => now = now.max(due),
            None => break,
        }
        host.manager.on_timer(now);
        host.take_events();
        while host.manager.poll_transmit().is_some() {}
    }
    assert!(host.manager.is_empty());
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let mut host = Host::new(1, there());
        host.manager.on_mad(0, there(), &bytes);
        prop_assert!(host.manager.is_empty() && host.manager.poll_event().is_none());
    }

    #[test]
    fn whatever_happens_in_whatever_order_nothing_breaks_or_is_left(
        acts in proptest::collection::vec((any::<bool>(), act()), 0..120)
    ) {
        run(acts);
    }
}
