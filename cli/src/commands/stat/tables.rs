//! What a wide page has beside words: the peers that wait first, and how registered memory was found.

use std::fmt::Write as _;

use roci_msgcore::PublishedStats;

use crate::output;

/// A row for each peer whose figures are published, those that wait first.
pub(super) fn peers(page: &mut String, stats: &PublishedStats) {
    let peers = stats.peers();
    if peers.is_empty() {
        return;
    }
    let _ = writeln!(page, "\n{} rank {}: peers, those that wait first", stats.pid, stats.rank);
    let _ = writeln!(
        page,
        "    {:>9} {:10} {:>11} {:>9} {:>9} {:>9} {:>9}",
        "PEER", "STATE", "CREDITS", "IN FLIGHT", "QUEUED", "RESENT", "RNR NAKS"
    );
    for peer in peers {
        let figure = |name: &str| stats.counter(&format!("peer{peer}"), name);
        let state = match (figure("gone"), figure("connected")) {
            (0, 0) => "connecting",
            (0, _) => "connected",
            _ => "gone",
        };
        let credits = format!("{}/{}", figure("credits"), figure("credits_granted"));
        let [in_flight, queued] = ["work_requests_in_flight", "messages_queued"].map(figure);
        let [resent, rnr_naks] = ["retransmitted_packets", "rnr_nak"].map(figure);
        let _ = writeln!(
            page,
            "    {peer:>9} {state:10} {credits:>11} {in_flight:>9} {queued:>9} {resent:>9} {rnr_naks:>9}"
        );
    }
    let left_out = stats.counter(PublishedStats::PEERS, "left_out");
    if left_out > 0 {
        let _ = writeln!(page, "    and {left_out} more, which wait less");
    }
}

/// How the application's memory was found registered, where it has sent any.
pub(super) fn registration(page: &mut String, stats: &PublishedStats) {
    let figure = |name: &str| stats.counter(PublishedStats::REGISTRATION, name);
    let adopted = figure("adopted");
    if adopted == 0 {
        return;
    }
    let _ = writeln!(page, "\n{} rank {}: memory of the application's own", stats.pid, stats.rank);
    let hits = figure("hits_fast") + figure("hits_slow");
    for (name, count) in [
        ("hits", hits),
        ("misses", figure("misses")),
        ("bypassed", figure("bypassed")),
        ("registered_once", figure("registered_once")),
        ("unregistered", figure("unregistered")),
    ] {
        if count > 0 {
            let _ = writeln!(page, "    {name:16} {count:>12} {:>5.1} %", count as f64 / adopted as f64 * 100.0);
        }
    }
    for name in ["evictions", "invalidations"] {
        let _ = writeln!(page, "    {name:16} {:>12}", figure(name));
    }
    let (regions, bytes) = (figure("regions"), output::bytes(figure("bytes_registered")));
    let _ = writeln!(page, "    {:16} {regions:>12} of {bytes}", "regions");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stats(counters: &[(&str, &str, u64)]) -> PublishedStats {
        let mut stats = PublishedStats::default();
        stats.pid = 7;
        for &(scope, name, value) in counters {
            stats.counters.insert((scope.into(), name.into()), value);
        }
        stats
    }

    #[test]
    fn the_peers_that_wait_come_first_and_those_left_out_are_counted() {
        let mut page = String::new();
        peers(&mut page, &stats(&[]));
        assert_eq!(page, "", "a worker without peers");
        let counters = [
            ("peer2", "connected", 1),
            ("peer2", "credits", 60),
            ("peer2", "credits_granted", 64),
            ("peer10", "connected", 1),
            ("peer10", "messages_queued", 9),
            ("peer10", "rnr_nak", 3),
            ("peer1.2", "gone", 1),
            ("peers", "left_out", 8),
        ];
        peers(&mut page, &stats(&counters));
        let rows: Vec<Vec<_>> = page.lines().skip(3).map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows[0], ["10", "connected", "0/0", "0", "9", "0", "3"], "{page}");
        assert_eq!(rows[1], ["1.2", "gone", "0/0", "0", "0", "0", "0"], "{page}");
        assert_eq!(rows[2], ["2", "connected", "60/64", "0", "0", "0", "0"], "{page}");
        assert!(
            page.ends_with("    and 8 more, which wait less\n") && page.lines().all(|line| line.len() < 80),
            "{page}"
        );
    }

    #[test]
    fn registered_memory_is_shown_as_parts_of_what_was_adopted() {
        let mut page = String::new();
        registration(&mut page, &stats(&[("registration", "regions", 2)]));
        assert_eq!(page, "", "nothing was adopted");
        let counters = [("adopted", 8), ("hits_fast", 5), ("hits_slow", 1), ("misses", 2), ("invalidations", 4)];
        registration(&mut page, &stats(&counters.map(|(name, value)| ("registration", name, value))));
        let rows: Vec<Vec<_>> = page.lines().skip(2).map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows[..2], [["hits", "6", "75.0", "%"], ["misses", "2", "25.0", "%"]], "{page}");
        assert_eq!(rows[2..4], [["evictions", "0"], ["invalidations", "4"]], "{page}");
    }
}
