use roci_driver::RegistrationStats;
use roci_driver::link::LinkStats;

use super::*;

/// Counters that are no trouble: what is sent and received, what follows from a trouble that has its own counter, and what is as
/// it should be.
const HARMLESS: [(&str, &str); 70] = [
    ("engine", "rx_frames"),
    ("engine", "rx_delivered"),
    ("engine", "rx_unchecked"),
    ("engine", "rx_neighbour"),
    ("engine", "rx_datagrams"),
    ("engine", "tx_datagrams"),
    ("engine", "tx_requests"),
    ("engine", "tx_read_responses"),
    ("engine", "tx_acks"),
    ("engine", "rx_requests"),
    // A peer has moved, and was found.
    ("engine", "peers_followed"),
    // Any peer's stack may write them.
    ("engine", "rx_other_identification"),
    // They come behind the end of every connection.
    ("engine", "rx_wrong_state"),
    // What loss and another order lead to: the sender counts retransmitted_packets.
    ("engine", "rx_held"),
    ("engine", "rx_held_executed"),
    ("engine", "out_of_sequence"),
    ("engine", "duplicate_request"),
    ("engine", "packet_seq_err"),
    ("engine", "implied_nak_seq_err"),
    ("engine", "tail_loss_probes"),
    ("engine", "stale_ack"),
    ("engine", "stale_response"),
    // The sender is asked to send less, and counts rp_cnp_handled.
    ("engine", "np_cnp_sent"),
    ("engine", "np_ecn_marked_roce_packets"),
    ("engine", "rp_cnp_ignored"),
    ("worker", "tx_eager"),
    ("worker", "tx_coalesced"),
    ("worker", "tx_r3"),
    ("worker", "tx_rget"),
    ("worker", "tx_cma"),
    ("worker", "tx_rput"),
    ("worker", "tx_pipeline"),
    ("worker", "tx_credit"),
    ("worker", "tx_keepalive"),
    ("worker", "tx_one_sided"),
    ("worker", "tx_by_message"),
    ("worker", "tx_active"),
    ("worker", "rx_expected"),
    ("worker", "rx_unexpected"),
    ("worker", "rx_staged"),
    ("worker", "rx_cma"),
    ("worker", "rx_active"),
    ("worker", "discarded"),
    ("worker", "cancelled"),
    ("worker", "unknown_admitted"),
    ("worker", "local_ports_opened"),
    ("worker", "vbufs"),
    // An end has no RDMA, as it was configured.
    ("worker", "fallback_peer"),
    ("registration", "adopted"),
    ("registration", "hits_fast"),
    ("registration", "hits_slow"),
    ("registration", "misses"),
    ("registration", "bypassed"),
    ("registration", "merges"),
    ("registration", "registrations"),
    ("registration", "deregistrations"),
    ("registration", "regions"),
    ("registration", "bytes_registered"),
    ("port", "rx_frames"),
    ("port", "rx_bytes"),
    ("port", "tx_frames"),
    ("port", "tx_bytes"),
    ("port", "tx_bursts"),
    ("port", "tx_zero_copy"),
    // A link that is full is a link that is used.
    ("port", "tx_full"),
    // Frames of other protocols, which no socket carries.
    ("port", "tx_not_roce"),
    ("port", "rx_handed_over"),
    ("port", "rx_taken_over"),
    ("port", "tx_own_station"),
    ("port", "injected_faults"),
];

/// Every counter that is published, by scope.
fn published() -> Vec<(&'static str, &'static str)> {
    let names = |scope, names: Vec<&'static str>| names.into_iter().map(move |name| (scope, name));
    let engine = names("engine", EngineStats::default().iter().map(|(name, _)| name).collect());
    let worker = names("worker", WorkerStats::default().iter().map(|(name, _)| name).collect());
    let registration = names("registration", RegistrationStats::default().iter().map(|(name, _)| name).collect());
    let port = names("port", LinkStats::default().iter().map(|(name, _)| name).collect());
    engine.chain(worker).chain(registration).chain(port).collect()
}

#[test]
fn every_counter_is_a_trouble_with_its_sentence_or_is_known_to_be_none() {
    let published = published();
    let troubles: Vec<_> = TROUBLES.iter().map(|&(scope, name, _)| (scope, name)).collect();
    for counter in &published {
        let places = troubles.iter().chain(&HARMLESS).filter(|its| *its == counter).count();
        assert_eq!(places, 1, "{counter:?} belongs into TROUBLES or into HARMLESS");
    }
    let unknown: Vec<_> = troubles.iter().chain(&HARMLESS).filter(|counter| !published.contains(counter)).collect();
    assert!(unknown.is_empty(), "nothing counts {unknown:?}");
}

#[test]
fn every_reason_to_drop_a_frame_is_a_trouble() {
    for reason in roci_protocol::wire::Malformed::ALL {
        assert!(TROUBLES.iter().any(|(scope, name, _)| (*scope, *name) == ("engine", reason.name())), "{reason}");
    }
}

#[test]
fn what_has_moved_is_explained_and_nothing_else() {
    let (mut engine, mut worker) = (EngineStats::default(), WorkerStats::default());
    assert_eq!(of(&engine, &worker), [""; 0]);
    engine.queue_pairs.rnr_nak = 3;
    (worker.credit_stalls, worker.rx_truncated) = (1, 2);
    let lines = of(&engine, &worker);
    assert_eq!(lines[0], "rnr_nak 3: a peer without receives: raise ROCI_CREDITS there");
    assert!(lines.len() == 3 && lines[1].starts_with("credit_stalls 1: "), "{lines:?}");
    assert_eq!(lines[2], "rx_truncated 2: messages were longer than their receives", "the worker's, not the engine's");
}

/// A sentence that names a counter sends its reader there: `roci perf` and `roci soak` print no other counters.
#[test]
fn no_sentence_names_another_counter() {
    for (_, name, meaning) in TROUBLES {
        let named = |word: &str| word.contains('_') && published().iter().any(|(_, its)| *its == word);
        assert!(!meaning.split(|sign: char| !(sign.is_alphanumeric() || sign == '_')).any(named), "{name}: {meaning}");
    }
}
