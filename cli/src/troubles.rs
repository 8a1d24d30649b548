//! Counters that explain a bad figure: what they mean, and what is to be done.

use roci_driver::EngineStats;
use roci_msgcore::WorkerStats;

/// Counters that mean trouble where they rise, with what is to be done about them.
pub(crate) const TROUBLES: [(&str, &str, &str); 14] = [
    ("engine", "retransmitted_packets", "loss, or a receiver without time: see rx_missed"),
    ("engine", "local_ack_timeout_err", "a peer that did not answer in time"),
    ("engine", "rnr_nak", "a peer without receives: raise ROCI_CREDITS there"),
    ("engine", "out_of_buffer", "no receive here: raise ROCI_CREDITS"),
    ("engine", "retry_exceeded_err", "connections lost to silence"),
    ("engine", "rx_unknown_qpn", "packets for no queue pair: an old peer, or a stranger"),
    ("engine", "rx_icrc_error", "packets damaged on their way"),
    ("worker", "credit_stalls", "messages waited for credits: raise ROCI_CREDITS"),
    ("worker", "buffer_stalls", "messages waited for send buffers: raise ROCI_VBUF_MAX"),
    ("worker", "fallback_credit", "eager messages became R3 for want of credits"),
    ("worker", "fallback_registration", "memory could not be registered"),
    ("worker", "registrations_refused", "all keys were in use"),
    ("worker", "peers_gone", "peers lost"),
    ("worker", "local_ports_missed", "peers of this host that are reached over the network"),
];

/// The counters among them that have moved, with what they mean, a line each.
pub(crate) fn of(engine: &EngineStats, worker: &WorkerStats) -> Vec<String> {
    let value = |scope: &str, name: &str| {
        let found = if scope == "worker" {
            worker.iter().find(|(its, _)| *its == name)
        } else {
            engine.iter().find(|(its, _)| *its == name)
        };
        found.map_or(0, |(_, value)| value)
    };
    let moved = TROUBLES.iter().map(|&(scope, name, meaning)| (value(scope, name), name, meaning));
    moved.filter(|(value, ..)| *value > 0).map(|(value, name, meaning)| format!("{name} {value}: {meaning}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_trouble_is_a_counter_that_is_published() {
        let worker: Vec<_> = WorkerStats::default().iter().map(|(name, _)| name).collect();
        let engine = EngineStats::default();
        let engine: Vec<_> = engine.iter().map(|(name, _)| name).collect();
        for (scope, name, _) in TROUBLES {
            assert!(if scope == "worker" { &worker } else { &engine }.contains(&name), "{scope} {name}");
        }
    }

    #[test]
    fn what_has_moved_is_explained_and_nothing_else() {
        let (mut engine, mut worker) = (EngineStats::default(), WorkerStats::default());
        assert_eq!(of(&engine, &worker), [""; 0]);
        engine.queue_pairs.rnr_nak = 3;
        worker.credit_stalls = 1;
        let lines = of(&engine, &worker);
        assert_eq!(lines[0], "rnr_nak 3: a peer without receives: raise ROCI_CREDITS there");
        assert!(lines.len() == 2 && lines[1].starts_with("credit_stalls 1: "), "{lines:?}");
    }
}
