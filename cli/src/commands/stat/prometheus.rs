//! Prometheus' text format, for an exporter that runs this command.

use std::fmt::Write as _;

use roci_msgcore::PublishedStats;

/// A metric for each counter, with its worker as labels.
pub(super) fn text(all: &[PublishedStats]) -> String {
    let keys = all.iter().flat_map(|stats| stats.counters.keys()).filter(|(scope, _)| !HISTOGRAMS.contains(&&**scope));
    let mut names: Vec<_> = keys.map(|(scope, name)| (metric(scope, name), name)).collect();
    names.sort_unstable();
    names.dedup();
    let mut text = String::new();
    for (metric, _) in &names {
        let _ = writeln!(text, "# TYPE {metric} counter");
        for stats in all {
            for ((scope, name), value) in &stats.counters {
                if self::metric(scope, name) == *metric {
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

/// A histogram, whose buckets also have what the buckets before them have.
fn histogram(text: &mut String, scope: &str, all: &[PublishedStats]) {
    let _ = writeln!(text, "# TYPE roci_{scope} histogram");
    for stats in all {
        let (labels, mut sum) = (labels(stats, scope), 0);
        for (most, count) in stats.histogram(scope) {
            sum += count;
            let _ = writeln!(text, "roci_{scope}_bucket{{{labels},le=\"{most}\"}} {sum}");
        }
        let _ = writeln!(text, "roci_{scope}_bucket{{{labels},le=\"+Inf\"}} {sum}");
        let _ = writeln!(text, "roci_{scope}_count{{{labels}}} {sum}");
    }
}

/// Ports have a metric together, and a label each.
fn metric(scope: &str, name: &str) -> String {
    format!("roci_{}_{name}_total", if scope.starts_with("port") { "port" } else { scope })
}

fn labels(stats: &PublishedStats, scope: &str) -> String {
    let port = scope.strip_prefix("port").map_or_else(String::new, |port| format!(",port=\"{port}\""));
    let escaped = |text: &str| text.replace('\\', r"\\").replace('"', "\\\"");
    format!(
        "pid=\"{}\",rank=\"{}\",program=\"{}\",device=\"{}\"{port}",
        stats.pid,
        stats.rank,
        escaped(&stats.program),
        escaped(&stats.device)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_counter_is_a_metric_with_its_worker_as_labels() {
        let mut stats = PublishedStats::default();
        (stats.pid, stats.program) = (7, "a \"b\"".into());
        for (scope, name, value) in [("worker", "tx_eager", 3), ("port0", "tx_bytes", 10), ("port1", "tx_bytes", 20)] {
            stats.counters.insert((scope.into(), name.into()), value);
        }
        let text = text(&[stats]);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[0], "# TYPE roci_port_tx_bytes_total counter");
        assert!(lines[1].ends_with("port=\"0\"} 10") && lines[2].ends_with("port=\"1\"} 20"), "{text}");
        assert!(
            lines.contains(&"roci_worker_tx_eager_total{pid=\"7\",rank=\"0\",program=\"a \\\"b\\\"\",device=\"\"} 3"),
            "{text}"
        );
        assert_eq!(text.matches("# TYPE roci_port_tx_bytes_total").count(), 1);
    }
}
