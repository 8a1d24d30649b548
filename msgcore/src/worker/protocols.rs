//! Which protocol serves which lengths, as a table for people: made by asking [`crate::services::tag::select`] at every length where
//! its answer could change.

use roci_driver::link::Link;
use roci_protocol::msg::{self, Capabilities};

use crate::config::Config;
use crate::core::credits::{Credits, Rule};
use crate::core::lane::Lane;
use crate::core::lane::lane_for;
use crate::core::peer_id::PeerId;
use crate::receive_queues::{Kind, ReceiveQueue};
use crate::services::tag::MAX_MESSAGE;
use crate::services::tag::select::{Conditions, MAX_TRANSFER, Protocol, Reason, Rules, select};
use crate::worker::Worker;

/// A row: messages of these lengths, both ends included, go so and for this reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProtocolRange {
    /// The shortest.
    pub from: usize,
    /// The longest.
    pub to: usize,
    /// How they go.
    pub protocol: Protocol,
    /// Why.
    pub reason: Reason,
}

/// What a table is made for, where there is no peer to ask: one of the same configuration, but for this.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Circumstances {
    /// What the peer can do.
    pub peer: Capabilities,
    /// Whether all its credits are at home, or none that an eager message may have.
    pub has_credits: bool,
    /// Whether a key is left to register memory with, if there are any.
    pub has_keys: bool,
}

/// What of a lane bears on the choice.
#[derive(Clone, Copy, Debug)]
struct LaneCapacity {
    /// Bytes that a vbuf holds.
    payload: usize,
    /// Vbufs that the credits allow to an eager message.
    credits: usize,
}

/// The table of a configuration.
pub fn protocol_ranges(config: &Config, circumstances: &Circumstances) -> Vec<ProtocolRange> {
    let &Circumstances { peer, has_credits, has_keys } = circumstances;
    let capacity = |queue: &ReceiveQueue| {
        let credits = usize::from(most_for_eager(config, queue.kind));
        LaneCapacity { payload: queue.size - msg::LEN, credits: if has_credits { credits } else { 0 } }
    };
    let capacities: Vec<_> = config.receive_queues().iter().map(capacity).collect();
    ranges(&config.rules(), &capacities, peer, has_keys && config.ndreg_entries > 0, false)
}

/// The credits that eager messages may have of a peer with such a queue.
fn most_for_eager(config: &Config, kind: Kind) -> u16 {
    let reserve = kind.own().map_or(0, |(_, reserve)| reserve as u16);
    let rule = Rule::of(kind, reserve, config.credit_notify_threshold, config.credit_preserve);
    let mut credits = Credits::new(kind.granted());
    credits.open(kind.granted(), 0, rule);
    credits.most_for_eager()
}

impl<L: Link> Worker<L> {
    /// The table for a peer that is connected, with all credits at home; `None` where it is not connected.
    pub fn protocol_ranges(&self, peer: impl Into<PeerId>) -> Option<Vec<ProtocolRange>> {
        let peer = self.endpoint.peers.get(peer.into()).filter(|peer| peer.is_open())?;
        let capacity =
            |lane: &Lane| LaneCapacity { payload: lane.payload, credits: lane.credits.most_for_eager().into() };
        let capacities: Vec<_> = peer.lanes.iter().map(capacity).collect();
        Some(ranges(
            &self.endpoint.services.tag.rules,
            &capacities,
            peer.connection.capabilities,
            self.endpoint.core.can_register(),
            peer.cma.reads_ours,
        ))
    }
}

fn ranges(
    rules: &Rules,
    capacities: &[LaneCapacity],
    peer: Capabilities,
    can_register: bool,
    is_readable: bool,
) -> Vec<ProtocolRange> {
    let choose = |len: usize| {
        let (lane, vbufs) = lane_for(len, capacities.iter().map(|capacity| capacity.payload));
        let credits = capacities[lane].credits;
        let (has_buffers, can_be_cut) = (true, true);
        let conditions = Conditions { len, vbufs, credits, has_buffers, can_register, can_be_cut, is_readable, peer };
        select(rules, &conditions)
    };
    // The answer changes only here, and where a series takes one vbuf more than there are credits for.
    let mut starts = vec![0, rules.eager + 1, rules.r3, rules.pipeline, MAX_TRANSFER + 1];
    starts.extend(capacities.iter().map(|capacity| capacity.payload + 1));
    starts.extend(capacities.last().map(|capacity| capacity.payload.saturating_mul(capacity.credits) + 1));
    starts.retain(|&start| start <= MAX_MESSAGE);
    starts.sort_unstable();
    starts.dedup();
    let mut rows: Vec<ProtocolRange> = Vec::new();
    for (index, &from) in starts.iter().enumerate() {
        let to = starts.get(index + 1).map_or(MAX_MESSAGE, |next| next - 1);
        let (protocol, reason) = choose(from);
        match rows.last_mut() {
            Some(last) if (last.protocol, last.reason) == (protocol, reason) => last.to = to,
            _ => rows.push(ProtocolRange { from, to, protocol, reason }),
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Origin;
    use roci_protocol::msg::RendezvousProtocol;

    fn config(settings: &[(&str, &str)]) -> Config {
        let mut config = Config::default();
        for (name, value) in settings {
            config.set(name, value, Origin::Code).expect("in range");
        }
        config
    }

    const WELL: Circumstances = Circumstances { peer: Capabilities { rdma: true }, has_credits: true, has_keys: true };

    #[test]
    fn the_table_has_no_gap_and_no_two_rows_that_say_the_same() {
        let queues = "P,256,64:P,2KiB,32:S,16KiB,256";
        for settings in [
            &[][..],
            &[("receive_queues", queues), ("eager_threshold", "64KiB"), ("r3_threshold", "100KiB")],
            &[("eager_threshold", "0"), ("rndv_protocol", "rput")],
            &[("rdma", "off")],
        ] {
            for circumstances in [
                WELL,
                Circumstances { has_credits: false, ..WELL },
                Circumstances { has_keys: false, ..WELL },
                Circumstances { peer: Capabilities { rdma: false }, ..WELL },
            ] {
                let rows = protocol_ranges(&config(settings), &circumstances);
                assert_eq!((rows[0].from, rows[rows.len() - 1].to), (0, MAX_MESSAGE));
                for pair in rows.windows(2) {
                    assert_eq!(pair[0].to + 1, pair[1].from, "{rows:?}");
                    assert_ne!((pair[0].protocol, pair[0].reason), (pair[1].protocol, pair[1].reason), "{rows:?}");
                }
            }
        }
    }

    fn protocols(settings: &[(&str, &str)]) -> Vec<(usize, Protocol)> {
        protocol_ranges(&config(settings), &WELL).iter().map(|row| (row.from, row.protocol)).collect()
    }

    const R3: Protocol = Protocol::Rendezvous(RendezvousProtocol::R3);
    const RGET: Protocol = Protocol::Rendezvous(RendezvousProtocol::Rget);
    const PIPELINE: Protocol = Protocol::Rendezvous(RendezvousProtocol::Pipeline);

    #[test]
    fn the_defaults_make_short_eager_and_long_rget() {
        assert_eq!(protocols(&[]), [(0, Protocol::Eager), (8153, RGET), (64 << 20, PIPELINE)]);
    }

    /// Sixteen credits, of which four are kept for requests.
    #[test]
    fn a_series_is_no_longer_than_the_credits_that_it_may_have() {
        let settings = [("credits", "16"), ("eager_threshold", "1MiB")];
        let eager = (0, Protocol::Eager);
        assert_eq!(protocols(&settings), [eager, (12 * 8152 + 1, R3), ((1 << 20) + 1, RGET), (64 << 20, PIPELINE)]);
    }

    #[test]
    fn without_any_keys_long_messages_are_streamed() {
        assert_eq!(protocols(&[("ndreg_entries", "0")]), [(0, Protocol::Eager), (8153, R3), (64 << 20, PIPELINE)]);
    }
}
