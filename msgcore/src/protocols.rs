//! Which protocol serves which lengths, as a table for people: made by asking [`crate::select`] at every length where
//! its answer could change.

use roci_driver::link::Link;
use roci_protocol::msg::{self, Capabilities};

use crate::Rank;
use crate::config::Config;
use crate::receive_queues::ReceiveQueues;
use crate::select::{Conditions, MAX_TRANSFER, Protocol, Reason, Rules, select};
use crate::worker::{MAX_MESSAGE, Worker};

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

/// What a table is made for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Circumstances {
    /// What the peer can do.
    pub peer: Capabilities,
    /// Vbufs that the peer's credits allow to an eager message.
    pub credits: usize,
    /// Whether a key is left to register memory with.
    pub can_register: bool,
}

/// The table of a configuration.
pub fn protocol_ranges(config: &Config, circumstances: &Circumstances) -> Vec<ProtocolRange> {
    ranges(&config.rules(), &config.receive_queues(), circumstances)
}

impl<L: Link> Worker<L> {
    /// The table for a peer that is connected, with all credits at home; `None` where it is not connected.
    pub fn protocol_ranges(&self, rank: Rank) -> Option<Vec<ProtocolRange>> {
        let endpoint = self.endpoints.get(rank)?.as_deref().filter(|endpoint| endpoint.is_open())?;
        let credits = endpoint.lanes.iter().map(|lane| lane.credits.for_eager()).max()?;
        let peer = endpoint.capabilities;
        let circumstances =
            Circumstances { peer, credits: credits.into(), can_register: self.regions < self.region_limit };
        Some(ranges(&self.rules, &self.queues, &circumstances))
    }
}

fn ranges(rules: &Rules, queues: &ReceiveQueues, circumstances: &Circumstances) -> Vec<ProtocolRange> {
    let &Circumstances { peer, credits, can_register } = circumstances;
    let payload = |len: usize| {
        let fitting = queues.for_len(len + msg::LEN).and_then(|index| queues.get(index));
        fitting.map_or(queues.largest(), |queue| queue.size) - msg::LEN
    };
    let choose = |len: usize| {
        let vbufs = len.div_ceil(payload(len)).max(1);
        select(rules, &Conditions { len, vbufs, credits, can_register, peer })
    };
    let largest = queues.largest() - msg::LEN;
    // The answer changes only here, and where a series takes one vbuf more than there are credits for.
    let mut starts =
        vec![0, rules.eager + 1, rules.r3, rules.pipeline, MAX_TRANSFER + 1, largest.saturating_mul(credits) + 1];
    starts.extend(queues.iter().map(|queue| queue.size - msg::LEN + 1));
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
    use roci_protocol::msg::Way;

    fn config(settings: &[(&str, &str)]) -> Config {
        let mut config = Config::default();
        for (name, value) in settings {
            config.set(name, value, Origin::Code).expect("in range");
        }
        config
    }

    const WELL: Circumstances = Circumstances { peer: Capabilities { rdma: true }, credits: 60, can_register: true };

    #[test]
    fn the_table_has_no_gap_and_says_at_each_length_what_would_be_chosen() {
        let queues = "P,256,64:P,2KiB,32:S,16KiB,256";
        for settings in [
            &[][..],
            &[("receive_queues", queues), ("eager_threshold", "64KiB"), ("r3_threshold", "100KiB")],
            &[("eager_threshold", "0"), ("rndv_protocol", "rput")],
            &[("rdma", "off")],
        ] {
            let config = config(settings);
            for circumstances in [
                WELL,
                Circumstances { credits: 0, ..WELL },
                Circumstances { credits: 3, can_register: false, ..WELL },
                Circumstances { peer: Capabilities { rdma: false }, ..WELL },
            ] {
                let rows = protocol_ranges(&config, &circumstances);
                assert_eq!((rows[0].from, rows[rows.len() - 1].to), (0, MAX_MESSAGE));
                assert!(rows.windows(2).all(|pair| pair[0].to + 1 == pair[1].from), "{rows:?}");
                let queues = config.receive_queues();
                for len in (0..200_000).step_by(7).chain([1 << 20, 64 << 20, MAX_MESSAGE]) {
                    let index = queues.for_len(len + msg::LEN).unwrap_or(queues.len() - 1);
                    let payload = queues.get(index).expect("it exists").size - msg::LEN;
                    let vbufs = len.div_ceil(payload).max(1);
                    let Circumstances { peer, credits, can_register } = circumstances;
                    let chosen = select(&config.rules(), &Conditions { len, vbufs, credits, can_register, peer });
                    let row = rows.iter().find(|row| (row.from..=row.to).contains(&len)).expect("no gap");
                    assert_eq!((row.protocol, row.reason), chosen, "{len} {settings:?} {circumstances:?}");
                }
            }
        }
    }

    #[test]
    fn the_defaults_make_short_eager_and_long_rget() {
        let rows = protocol_ranges(&Config::default(), &WELL);
        let protocols: Vec<_> = rows.iter().map(|row| (row.from, row.protocol)).collect();
        let (rget, pipeline) = (Protocol::Rendezvous(Way::Rget), Protocol::Rendezvous(Way::Pipeline));
        assert_eq!(protocols, [(0, Protocol::Eager), (8153, rget), (64 << 20, pipeline)]);
    }
}
