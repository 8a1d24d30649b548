//! Management datagrams: any bytes are read without panic, what is read can be said again, and a connection manager in
//! the middle of its work survives them, forgets nothing and fills up nowhere.

use std::net::IpAddr;

use roci_protocol::cm::{CmConfig, ConnId, ConnectRequest, ConnectionEvent, ConnectionManager, Offer};
use roci_protocol::wire::cm::{Mad, PortSpace, RejReason, ServiceId};
use roci_protocol::wire::mad;
use roci_protocol::{Mtu, Nanos, Psn, Qpn};

use crate::tape::Tape;

/// Runs one input: a datagram alone, and the same bytes as a story.
pub fn run(bytes: &[u8]) {
    if let Ok(mad) = Mad::parse(bytes) {
        assert_eq!(mad.emit()[..], bytes[..]);
        assert!(!mad.to_string().is_empty());
    }
    Story::new().run(Tape::new(bytes));
}

/// A connection manager with a listener and connections of its own, and a peer that says anything.
struct Story {
    cm: ConnectionManager<(IpAddr, IpAddr)>,
    now: Nanos,
    ids: Vec<ConnId>,
    /// Datagrams that it sent: an answer must carry its identifiers.
    sent: Vec<[u8; mad::LEN]>,
}

fn offer() -> Offer {
    Offer {
        qpn: Qpn::new(0x1234),
        starting_psn: Psn::new(7),
        responder_resources: 1,
        initiator_depth: 1,
        retry_count: 7,
        rnr_retry_count: 7,
        srq: false,
        end_to_end_credits: true,
        mtu: Mtu::Mtu1024,
        ack_timeout: 14,
        flow_label: 0,
        traffic_class: 0,
        hop_limit: 64,
    }
}

impl Story {
    fn new() -> Self {
        let mut config = CmConfig::new(1, 2);
        (config.max_connections, config.max_queued_events, config.max_queued_datagrams) = (16, 32, 32);
        let mut cm = ConnectionManager::new(config);
        cm.listen(ServiceId::of_port(PortSpace::Tcp, 7174)).expect("room");
        cm.sidr_listen(ServiceId::of_port(PortSpace::Udp, 7174), Qpn::new(5), 6).expect("room");
        Self { cm, now: 0, ids: Vec::new(), sent: Vec::new() }
    }

    fn run(mut self, mut tape: Tape<'_>) {
        while !tape.is_empty() {
            self.step(&mut tape);
            self.listen();
            assert!(self.cm.len() <= 16, "more connections than allowed");
        }
        // Everything ends: what is undecided is refused, and time passes.
        for id in self.ids.clone() {
            self.end(id);
        }
        for _ in 0..200 {
            self.now += 10_000_000_000;
            self.cm.on_timer(self.now);
            self.listen();
            for id in self.ids.clone() {
                self.end(id);
            }
        }
        assert!(self.cm.is_empty(), "{} connections are left", self.cm.len());
    }

    /// What the manager refuses is as it should be.
    fn step(&mut self, tape: &mut Tape<'_>) {
        let route: (IpAddr, IpAddr) = ([10, 0, 0, 2].into(), [10, 0, 0, 1 + (tape.byte() & 1) * 2].into());
        match tape.below(8) {
            0 => {
                let service = ServiceId::of_port(PortSpace::Tcp, 7000);
                let request = ConnectRequest { service, source_port: 9, offer: offer(), private_data: &[] };
                self.ids.extend(self.cm.connect(self.now, route, request));
            }
            1 => self.with_id(tape, |cm, now, id| {
                let _ = cm.accept(now, id, offer(), b"yes");
            }),
            2 => self.with_id(tape, |cm, now, id| {
                let _ = cm.confirm(now, id);
            }),
            3 => self.with_id(tape, |cm, now, id| {
                let _ = cm.disconnect(now, id, &[]);
            }),
            4 => {
                self.now += Nanos::from(tape.byte()) * 100_000_000;
                self.cm.on_timer(self.now);
            }
            // What it said itself, with bytes changed: names that exist, in messages that do not fit.
            5 | 6 => {
                let Some(mut datagram) = tape.pick(&self.sent) else { return };
                for _ in 0..tape.below(6) {
                    datagram[tape.below(mad::LEN)] = tape.byte();
                }
                self.cm.on_mad(self.now, route, &datagram);
            }
            _ => self.cm.on_mad(self.now, route, tape.take(mad::LEN)),
        }
    }

    fn with_id(
        &mut self,
        tape: &mut Tape<'_>,
        action: impl FnOnce(&mut ConnectionManager<(IpAddr, IpAddr)>, Nanos, ConnId),
    ) {
        if let Some(id) = tape.pick(&self.ids) {
            action(&mut self.cm, self.now, id);
        }
    }

    /// Whatever state the connection is in, one of these ends it.
    fn end(&mut self, id: ConnId) {
        let _ = self.cm.reject(self.now, id, RejReason::CONSUMER_DEFINED, &[]);
        let _ = self.cm.refuse(self.now, id, RejReason::CONSUMER_DEFINED, &[]);
        let _ = self.cm.disconnect(self.now, id, &[]);
        let _ = self.cm.abandon(self.now, id);
    }

    fn listen(&mut self) {
        while let Some((_, datagram)) = self.cm.poll_transmit() {
            assert!(Mad::parse(&datagram).is_ok(), "it sends a datagram that does not parse");
            if self.sent.len() < 64 {
                self.sent.push(datagram);
            }
        }
        while let Some(event) = self.cm.poll_event() {
            match event {
                ConnectionEvent::Request { id, .. } => self.ids.push(id),
                ConnectionEvent::TimewaitExit { id } => self.ids.retain(|&other| other != id),
                _ => {}
            }
        }
    }
}
