//! The screen: a row for each worker with its rates, then what has gone wrong, then what each waits for.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use roci_msgcore::PublishedStats;

use super::tables;
use crate::output;
use crate::troubles::TROUBLES;

/// A worker that has not published for so long computes, is stopped, or hangs.
const STALE: Duration = Duration::from_secs(2);
/// Columns of the page: those of the smallest terminal, less the one that some of them wrap at.
const WIDTH: usize = 79;

/// What was read last, to which rates are the difference.
pub(super) struct Screen {
    before: Vec<PublishedStats>,
    is_wide: bool,
}

impl Screen {
    pub(super) fn new(before: Vec<PublishedStats>, is_wide: bool) -> Self {
        Self { before, is_wide }
    }

    /// The page for what was read now.
    pub(super) fn update(&mut self, now: Vec<PublishedStats>) -> String {
        let mut page = header();
        if now.is_empty() {
            page.push_str("no worker of this user runs here\n");
        }
        for stats in &now {
            row(&mut page, stats, self.rates(stats).as_ref());
        }
        let troubles: String = now.iter().map(|stats| troubles(stats, self.before_of(stats), self.is_wide)).collect();
        if !troubles.is_empty() {
            let _ = write!(page, "\nTroubles: counter VALUE (+RISE since the last look): what it means\n{troubles}");
        }
        if self.is_wide {
            for stats in &now {
                report(&mut page, stats);
                tables::peers(&mut page, stats);
                tables::registration(&mut page, stats);
                histogram(&mut page, stats, "messages sent, by size", PublishedStats::SIZES, output::bytes);
                histogram(&mut page, stats, "round trips", PublishedStats::ROUND_TRIPS, output::nanoseconds);
            }
        }
        self.before = now;
        page
    }

    fn before_of(&self, stats: &PublishedStats) -> Option<&PublishedStats> {
        self.before.iter().find(|before| (before.pid, before.rank) == (stats.pid, stats.rank))
    }

    /// Rates since what was read before, where something was published since.
    fn rates(&self, stats: &PublishedStats) -> Option<Rates> {
        let before = self.before_of(stats)?;
        let seconds = stats.written.checked_sub(before.written)?.as_secs_f64();
        (seconds > 0.0).then(|| Rates {
            messages: per_second(messages(stats), messages(before), seconds),
            tx: per_second(stats.of_ports("tx_bytes"), before.of_ports("tx_bytes"), seconds),
            rx: per_second(stats.of_ports("rx_bytes"), before.of_ports("rx_bytes"), seconds),
        })
    }
}

struct Rates {
    messages: f64,
    tx: f64,
    rx: f64,
}

/// Messages of all kinds, in both directions.
fn messages(stats: &PublishedStats) -> u64 {
    const KINDS: [&str; 10] = [
        "tx_eager",
        "tx_r3",
        "tx_rget",
        "tx_rput",
        "tx_pipeline",
        "tx_one_sided",
        "tx_active",
        "rx_expected",
        "rx_unexpected",
        "rx_active",
    ];
    KINDS.iter().map(|name| stats.counter("worker", name)).sum()
}

fn per_second(now: u64, before: u64, seconds: f64) -> f64 {
    now.saturating_sub(before) as f64 / seconds
}

fn header() -> String {
    format!(
        "{:>7} {:>9} {:11} {:10} {:>10} {:>9} {:>9} {:>7}\n",
        "PID", "RANK", "PROGRAM", "DEVICE", "MESSAGES/S", "TX/S", "RX/S", "RESENT"
    )
}

fn row(page: &mut String, stats: &PublishedStats, rates: Option<&Rates>) {
    let program = Path::new(&stats.program)
        .file_name()
        .map_or_else(|| stats.program.clone(), |name| name.to_string_lossy().into_owned());
    let rank = format!("{}/{}", stats.rank, stats.size);
    let resent = stats.counter("engine", "retransmitted_packets");
    let [messages, tx, rx] = match rates {
        Some(Rates { messages, tx, rx }) => {
            [format!("{messages:.0}"), output::bytes(*tx as u64), output::bytes(*rx as u64)]
        }
        None => ["-".into(), "-".into(), "-".into()],
    };
    let _ = writeln!(
        page,
        "{:>7} {rank:>9} {:11.11} {:10.10} {messages:>10} {tx:>9} {rx:>9} {resent:>7}",
        stats.pid, program, stats.device
    );
}

/// What has gone wrong: all of it where that was asked for, else what is new.
fn troubles(stats: &PublishedStats, before: Option<&PublishedStats>, is_wide: bool) -> String {
    let mut lines = String::new();
    let mut add = |what: &str| {
        let options = indented("  ", "      ");
        let _ = writeln!(lines, "{}", textwrap::fill(&format!("{} rank {}: {what}", stats.pid, stats.rank), options));
    };
    if stats.age() > STALE {
        add(&format!("silent for {} s: it computes, is stopped, or hangs", stats.age().as_secs()));
    }
    for (scope, name, meaning) in TROUBLES {
        let of = |stats: &PublishedStats| match scope {
            "port" => stats.of_ports(name),
            _ => stats.counter(scope, name),
        };
        let value = of(stats);
        let rise = before.map_or(0, |before| value.saturating_sub(of(before)));
        if rise > 0 || is_wide && value > 0 {
            add(&format!("{name} {value} (+{rise}): {meaning}"));
        }
    }
    lines
}

fn indented<'a>(first: &'a str, others: &'a str) -> textwrap::Options<'a> {
    textwrap::Options::new(WIDTH).initial_indent(first).subsequent_indent(others)
}

/// The longest bar of a histogram, in columns.
const BAR: u64 = 30;

/// A row for each magnitude, with its share of all.
fn histogram(page: &mut String, stats: &PublishedStats, what: &str, scope: &str, unit: impl Fn(u64) -> String) {
    let buckets = stats.histogram(scope);
    let all: u64 = buckets.iter().map(|(_, count)| count).sum();
    if all == 0 {
        return;
    }
    let _ = writeln!(page, "\n{} rank {}: {what}", stats.pid, stats.rank);
    for (most, count) in buckets {
        let share = count as f64 / all as f64;
        let bar = "#".repeat((BAR * count).div_ceil(all) as usize);
        let line = format!("    up to {:>10} {count:>12} {:>5.1} % {bar}", unit(most), share * 100.0);
        let _ = writeln!(page, "{line}");
    }
}

/// What it has under way, and its peers.
fn report(page: &mut String, stats: &PublishedStats) {
    page.push('\n');
    for line in &stats.report {
        page.push_str(&textwrap::fill(line, indented("", "    ")));
        page.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stats(seconds: u64, eager: u64, bytes: u64) -> PublishedStats {
        let mut stats = PublishedStats::default();
        (stats.pid, stats.size, stats.program, stats.device) = (7, 2, "/usr/bin/solver".into(), "memif".into());
        stats.written = Duration::from_secs(seconds);
        for (scope, name, value) in [
            ("worker", "tx_eager", eager),
            ("worker", "credit_stalls", eager / 10),
            ("port0", "tx_bytes", bytes),
            ("engine", "retransmitted_packets", 4),
        ] {
            stats.counters.insert((scope.into(), name.into()), value);
        }
        for (most, count) in [("64", 30), ("8", 10)] {
            stats.counters.insert((PublishedStats::SIZES.into(), most.into()), count);
        }
        stats.counters.insert(("peer1".into(), "connected".into()), 1);
        stats.report = vec!["rank 0 of 2: 1 requests under way".into()];
        stats
    }

    #[test]
    fn rates_are_what_has_changed_and_troubles_what_has_risen() {
        let mut screen = Screen::new(vec![stats(10, 100, 0)], false);
        let page = screen.update(vec![stats(12, 300, 4 << 20)]);
        let row: Vec<_> = page.lines().nth(1).expect("a row").split_whitespace().collect();
        assert_eq!(row[..9], ["7", "0/2", "solver", "memif", "100", "2", "MiB", "0", "B"], "{page}");
        let unwrapped = page.split_whitespace().collect::<Vec<_>>().join(" ");
        let trouble = "credit_stalls 30 (+20): messages waited for credits: raise ROCI_CREDITS";
        assert!(unwrapped.contains(trouble), "{page}");
        assert!(!page.contains("retransmitted_packets") && !page.contains("under way"), "it has not risen: {page}");
        let page = screen.update(vec![stats(12, 300, 4 << 20)]);
        assert!(page.lines().nth(1).expect("a row").contains(" - "), "nothing was published since: {page}");
        assert!(screen.update(Vec::new()).contains("no worker of this user runs here"));
    }

    #[test]
    fn troubles_of_memory_and_of_all_ports_are_seen_too() {
        let (before, mut now) = (stats(1, 10, 0), stats(2, 10, 0));
        for (scope, name, value) in
            [("registration", "invalidations", 5), ("port0", "rx_missed", 2), ("port1", "rx_missed", 3)]
        {
            now.counters.insert((scope.into(), name.into()), value);
        }
        let page = Screen::new(vec![before], false).update(vec![now]);
        let unwrapped = page.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(unwrapped.contains("invalidations 5 (+5): registered memory was unmapped"), "{page}");
        assert!(unwrapped.contains("rx_missed 5 (+5): a full receive buffer dropped frames"), "{page}");
    }

    #[test]
    fn a_wide_page_has_all_troubles_what_is_waited_for_and_the_peers() {
        let page = Screen::new(Vec::new(), true).update(vec![stats(1, 10, 0)]);
        assert!(
            page.contains("retransmitted_packets 4 (+0)") && page.contains("\nrank 0 of 2: 1 requests under way"),
            "{page}"
        );
        assert!(page.lines().all(|line| line.len() <= WIDTH), "{page}");
        let sizes: Vec<_> = page.lines().filter(|line| line.contains("up to")).collect();
        assert!(sizes[0].contains("8 B           10  25.0 % ########"), "the smaller first: {page}");
        assert!(sizes[1].contains("64 B           30  75.0 %"), "{page}");
        assert!(page.contains("\n            1 connected"), "{page}");
    }
}
