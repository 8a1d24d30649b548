//! The screen: a row for each worker with its rates, then what has gone wrong, then what each waits for.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use roci_msgcore::PublishedStats;

use crate::output;
use crate::troubles::TROUBLES;

/// A worker that has not published for so long computes, is stopped, or hangs.
const STALE: Duration = Duration::from_secs(2);
/// Columns of the page.
const WIDTH: usize = 100;

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
        for stats in &now {
            troubles(&mut page, stats, self.before_of(stats), self.is_wide);
        }
        if self.is_wide {
            for stats in &now {
                histogram(&mut page, stats, "messages sent, by size", PublishedStats::SIZES, output::bytes);
                histogram(&mut page, stats, "round trips", PublishedStats::ROUND_TRIPS, microseconds);
                report(&mut page, stats);
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
        "{:>8} {:>9} {:16} {:12} {:>12} {:>11} {:>11} {:>11}\n",
        "PID", "RANK", "PROGRAM", "DEVICE", "MESSAGES/S", "TX", "RX", "RESENT"
    )
}

fn row(page: &mut String, stats: &PublishedStats, rates: Option<&Rates>) {
    let program = Path::new(&stats.program)
        .file_name()
        .map_or_else(|| stats.program.clone(), |name| name.to_string_lossy().into_owned());
    let rank = format!("{}/{}", stats.rank, stats.size);
    let resent = stats.counter("engine", "retransmitted_packets");
    let [messages, tx, rx] = match rates {
        Some(Rates { messages, tx, rx }) => [format!("{messages:.0}"), volume(*tx), volume(*rx)],
        None => ["-".into(), "-".into(), "-".into()],
    };
    let age = if stats.age() > STALE { format!("  silent for {} s", stats.age().as_secs()) } else { String::new() };
    let _ = writeln!(
        page,
        "{:>8} {rank:>9} {:16.16} {:12.12} {messages:>12} {tx:>11} {rx:>11} {resent:>11}{age}",
        stats.pid, program, stats.device
    );
}

fn volume(bytes_per_second: f64) -> String {
    format!("{}/s", output::bytes(bytes_per_second as u64))
}

/// What has gone wrong: all of it where that was asked for, else what is new.
fn troubles(page: &mut String, stats: &PublishedStats, before: Option<&PublishedStats>, is_wide: bool) {
    for (scope, name, meaning) in TROUBLES {
        let value = stats.counter(scope, name);
        let rise = before.map_or(0, |before| value.saturating_sub(before.counter(scope, name)));
        if rise > 0 || is_wide && value > 0 {
            let _ = writeln!(page, "  {} rank {}: {name} {value} (+{rise}): {meaning}", stats.pid, stats.rank);
        }
    }
    let missed = stats.of_ports("rx_missed");
    let rise = before.map_or(0, |before| missed.saturating_sub(before.of_ports("rx_missed")));
    if rise > 0 || is_wide && missed > 0 {
        let _ = writeln!(
            page,
            "  {} rank {}: rx_missed {missed} (+{rise}): a full receive buffer dropped frames",
            stats.pid, stats.rank
        );
    }
}

/// The longest bar of a histogram, in columns.
const BAR: u64 = 40;

/// A row for each magnitude, with its share of all.
fn histogram(page: &mut String, stats: &PublishedStats, what: &str, scope: &str, unit: impl Fn(u64) -> String) {
    let buckets = stats.histogram(scope);
    let all: u64 = buckets.iter().map(|(_, count)| count).sum();
    if all == 0 {
        return;
    }
    let _ = writeln!(page, "  {} rank {}: {what}", stats.pid, stats.rank);
    for (most, count) in buckets {
        let share = count as f64 / all as f64;
        let bar = "#".repeat((BAR * count).div_ceil(all) as usize);
        let line = format!("    up to {:>10} {count:>12} {:>5.1} % {bar}", unit(most), share * 100.0);
        let _ = writeln!(page, "{line}");
    }
}

fn microseconds(ns: u64) -> String {
    format!("{:.1} us", ns as f64 / 1000.0)
}

/// What it has under way, and its peers.
fn report(page: &mut String, stats: &PublishedStats) {
    let indented = textwrap::Options::new(WIDTH).initial_indent("  ").subsequent_indent("      ");
    for line in &stats.report {
        page.push_str(&textwrap::fill(line, &indented));
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
        stats.report = vec!["rank 0 of 2: 1 requests under way".into()];
        stats
    }

    #[test]
    fn rates_are_what_has_changed_and_troubles_what_has_risen() {
        let mut screen = Screen::new(vec![stats(10, 100, 0)], false);
        let page = screen.update(vec![stats(12, 300, 4 << 20)]);
        let row: Vec<_> = page.lines().nth(1).expect("a row").split_whitespace().collect();
        assert_eq!(row[..9], ["7", "0/2", "solver", "memif", "100", "2", "MiB/s", "0", "B/s"], "{page}");
        assert!(page.contains("credit_stalls 30 (+20): messages waited for credits: raise ROCI_CREDITS"), "{page}");
        assert!(!page.contains("retransmitted_packets") && !page.contains("under way"), "it has not risen: {page}");
        let page = screen.update(vec![stats(12, 300, 4 << 20)]);
        assert!(page.lines().nth(1).expect("a row").contains(" - "), "nothing was published since: {page}");
        assert!(screen.update(Vec::new()).contains("no worker of this user runs here"));
    }

    #[test]
    fn a_wide_page_has_all_troubles_and_what_is_waited_for() {
        let page = Screen::new(Vec::new(), true).update(vec![stats(1, 10, 0)]);
        assert!(
            page.contains("retransmitted_packets 4 (+0)") && page.contains("  rank 0 of 2: 1 requests under way"),
            "{page}"
        );
        assert!(page.lines().skip(2).all(|line| line.len() <= WIDTH), "{page}");
        let sizes: Vec<_> = page.lines().filter(|line| line.contains("up to")).collect();
        assert!(sizes[0].contains("8 B           10  25.0 % ##########"), "the smaller first: {page}");
        assert!(sizes[1].contains("64 B           30  75.0 %"), "{page}");
    }
}
