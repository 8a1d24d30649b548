//! Prometheus' text format, for an exporter that runs this command.

#[cfg(test)]
mod tests;

use std::fmt::Write as _;

use roci_msgcore::PublishedStats;

/// A metric for each counter, with its worker as labels.
pub(super) fn text(all: &[PublishedStats]) -> String {
    let keys = all.iter().flat_map(|stats| stats.counters.keys()).filter(|(scope, _)| !HISTOGRAMS.contains(&&**scope));
    let mut metrics: Vec<_> = keys.map(|(scope, name)| (metric(scope, name), kind(scope, name))).collect();
    metrics.sort_unstable();
    metrics.dedup();
    let mut text = String::new();
    for (metric, kind) in &metrics {
        let _ = writeln!(text, "# TYPE {metric} {kind}");
        for stats in all {
            for ((scope, name), value) in &stats.counters {
                if !HISTOGRAMS.contains(&&**scope) && self::metric(scope, name) == *metric {
                    let _ = writeln!(text, "{metric}{{{}}} {value}", labels(stats, scope));
                }
            }
        }
    }
    for scope in HISTOGRAMS {
        histogram(&mut text, scope, all);
    }
    let _ = writeln!(text, "# TYPE roci_age_seconds gauge");
    for stats in all {
        let _ = writeln!(text, "roci_age_seconds{{{}}} {:.3}", labels(stats, ""), stats.age().as_secs_f64());
    }
    text
}

const HISTOGRAMS: [&str; 2] = [PublishedStats::SIZES, PublishedStats::ROUND_TRIPS];
/// Buckets of a histogram before that of all values: the powers of two from 1 on. They are the same each time, or a bucket
/// that is new would seem to have risen from nothing.
const BUCKETS: u32 = 40;

/// A histogram, whose buckets also have what the buckets before them have.
fn histogram(text: &mut String, scope: &str, all: &[PublishedStats]) {
    let _ = writeln!(text, "# TYPE roci_{scope} histogram");
    for stats in all {
        let (labels, buckets) = (labels(stats, scope), stats.histogram(scope));
        let up_to = |bound: u64| buckets.iter().filter(|(most, _)| *most <= bound).map(|(_, count)| count).sum::<u64>();
        for bound in (0..BUCKETS).map(|bucket| 1 << bucket) {
            let _ = writeln!(text, "roci_{scope}_bucket{{{labels},le=\"{bound}\"}} {}", up_to(bound));
        }
        let count = up_to(u64::MAX);
        let _ = writeln!(text, "roci_{scope}_bucket{{{labels},le=\"+Inf\"}} {count}");
        let _ = writeln!(text, "roci_{scope}_sum{{{labels}}} {}", stats.counter(scope, PublishedStats::SUM));
        let _ = writeln!(text, "roci_{scope}_count{{{labels}}} {count}");
    }
}

/// Ports have a metric together and a label each, and so have peers.
fn metric(scope: &str, name: &str) -> String {
    let whose = if port_of(scope).is_some() {
        "port"
    } else if PublishedStats::peer_of(scope).is_some() {
        "peer"
    } else {
        scope
    };
    let end = if PublishedStats::is_gauge(scope, name) { "" } else { "_total" };
    format!("roci_{whose}_{name}{end}")
}

fn kind(scope: &str, name: &str) -> &'static str {
    if PublishedStats::is_gauge(scope, name) { "gauge" } else { "counter" }
}

fn port_of(scope: &str) -> Option<&str> {
    scope.strip_prefix("port")
}

fn labels(stats: &PublishedStats, scope: &str) -> String {
    let port = port_of(scope).map_or_else(String::new, |port| format!(",port=\"{port}\""));
    let peer = PublishedStats::peer_of(scope).map_or_else(String::new, |peer| format!(",peer=\"{peer}\""));
    let escaped = |text: &str| text.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n");
    format!(
        "pid=\"{}\",rank=\"{}\",program=\"{}\",device=\"{}\"{port}{peer}",
        stats.pid,
        stats.rank,
        escaped(&stats.program),
        escaped(&stats.device)
    )
}
