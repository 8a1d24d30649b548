//! What a worker takes of the arena before the application has any of it, and whether that leaves enough.

use thiserror::Error;

use super::{Config, WireupTime, show_size};
use crate::receive_queues::Kind;

/// The application has at least this part of the arena.
const ITS_SHARE: usize = 8;

/// Memory that a worker is certain to need.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Demand {
    /// The arena that it is to come from.
    pub arena: usize,
    /// Peers that are sure to be connected: all of them at the start, or one where that is left to the first message.
    pub peers: usize,
    /// Receives of those, and those that all peers share, as many as are posted at the start.
    pub receives: usize,
    /// Send buffers that are made at the start.
    pub send_buffers: usize,
    /// Staging memory.
    pub staging: usize,
    /// Messages without a receive on shared queues, as many as all peers have credits for.
    pub storable: usize,
}

/// Why the knobs cannot work together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error(
    "an arena of {} does not hold {} of receives for {}, {} of send buffers, {} of staging memory and {} of messages that wait \
     for a receive, together {}, and leave the application an eighth: raise ROCI_ARENA_SIZE, or lower {}",
    mebibytes(.0.arena), mebibytes(.0.receives), peers(.0.peers), mebibytes(.0.send_buffers), mebibytes(.0.staging),
    mebibytes(.0.storable), mebibytes(.0.together()), .0.remedy()
)]
pub struct TooMuch(Demand);

impl Demand {
    /// What a worker of a job of `size` takes of `arena` bytes.
    pub fn of(config: &Config, size: usize, arena: usize) -> Self {
        let all = size.saturating_sub(1);
        let peers = if config.wireup == WireupTime::Lazy { all.min(1) } else { all };
        let queues = config.receive_queues_for(size);
        let receives = |kind: Kind| match kind {
            Kind::PerPeer { num, reserve, .. } => (num as usize + reserve as usize) * peers,
            Kind::Shared { init, .. } => init as usize,
        };
        let sends = config.vbuf_pool.min(config.vbuf_max);
        Self {
            arena,
            peers,
            receives: queues.iter().map(|queue| receives(queue.kind) * queue.size).sum(),
            send_buffers: queues.iter().map(|queue| sends * queue.size).sum(),
            staging: if config.rdma { config.pipeline_chunk * config.pipeline_depth } else { 0 },
            storable: queues.bytes_storable(all),
        }
    }

    /// Whether it leaves the application its part.
    pub fn check(self) -> Result<(), TooMuch> {
        if self.together() <= self.arena - self.arena / ITS_SHARE { Ok(()) } else { Err(TooMuch(self)) }
    }

    fn together(&self) -> usize {
        self.receives + self.send_buffers + self.staging + self.storable
    }

    /// The knobs of what takes the most.
    fn remedy(&self) -> &'static str {
        match self.receives.max(self.send_buffers).max(self.staging).max(self.storable) {
            most if most == self.storable => "ROCI_VBUF_SIZE (ROCI_RECEIVE_QUEUES)",
            most if most == self.staging => "ROCI_PIPELINE_CHUNK or ROCI_PIPELINE_DEPTH",
            most if most == self.send_buffers => "ROCI_VBUF_POOL or ROCI_VBUF_SIZE",
            _ if self.peers > 1 => "ROCI_CREDITS or ROCI_VBUF_SIZE (ROCI_RECEIVE_QUEUES), or set ROCI_WIREUP=lazy",
            _ => "ROCI_CREDITS or ROCI_VBUF_SIZE (ROCI_RECEIVE_QUEUES)",
        }
    }
}

fn peers(count: usize) -> String {
    if count == 1 { "a peer".into() } else { format!("{count} peers") }
}

/// Rounded up: whole mebibytes are precise enough.
fn mebibytes(bytes: usize) -> String {
    show_size(&bytes.next_multiple_of(1 << 20))
}

#[cfg(test)]
mod tests {
    use super::super::Origin;
    use super::*;

    fn refusal(settings: &[(&str, &str)], size: usize) -> Option<String> {
        let mut config = Config::default();
        for (name, value) in settings {
            config.set(name, value, Origin::Code).expect("in range");
        }
        Demand::of(&config, size, config.arena_size).check().err().map(|error| error.to_string())
    }

    #[test]
    fn the_defaults_hold_many_peers_and_lazy_ones_any_number() {
        assert_eq!(refusal(&[], 10_000), None, "many share their receives");
        let own = ("credits", "128");
        assert_eq!(refusal(&[own], 600), None);
        let many = refusal(&[own], 1_000).expect("they take more than a GiB");
        assert!(many.ends_with("or set ROCI_WIREUP=lazy"), "{many}");
        assert_eq!(refusal(&[own, ("wireup", "lazy")], 10_000), None);
        assert_eq!(refusal(&[("receive_queues", "S,8KiB,1024")], 10_000), None);
    }

    #[test]
    fn what_cannot_fit_is_refused_with_its_sum_and_the_knobs_that_matter() {
        let staging = [("pipeline_chunk", "64MiB"), ("pipeline_depth", "64")];
        assert_eq!(
            refusal(&staging, 2).expect("4 GiB of staging memory"),
            "an arena of 1GiB does not hold 2MiB of receives for a peer, 1MiB of send buffers, 4GiB of staging \
             memory and 0 of messages that wait for a receive, together 4099MiB, and leave the application an eighth: raise ROCI_ARENA_SIZE, or lower \
             ROCI_PIPELINE_CHUNK or ROCI_PIPELINE_DEPTH"
        );
        assert_eq!(refusal(&[staging[0], staging[1], ("rdma", "off")], 2), None);
        for (settings, size, knobs) in [
            (&[("credits", "4096"), ("vbuf_size", "1MiB")][..], 2, "lower ROCI_CREDITS or ROCI_VBUF_SIZE"),
            (&[("credits", "4096"), ("vbuf_size", "1MiB"), ("wireup", "lazy")], 9, "lower ROCI_CREDITS or"),
            (&[("vbuf_size", "64KiB"), ("arena_size", "64MiB")], 8, "ROCI_WIREUP=lazy"),
            (
                &[("receive_queues", "S,8KiB,1024"), ("arena_size", "24MiB")],
                2_000,
                "lower ROCI_VBUF_SIZE (ROCI_RECEIVE",
            ),
            (&[("vbuf_pool", "65536"), ("vbuf_max", "65536"), ("vbuf_size", "64KiB")], 2, "lower ROCI_VBUF_POOL"),
        ] {
            let error = refusal(settings, size).expect("it does not fit");
            assert!(error.contains(knobs), "{error}");
        }
    }
}
