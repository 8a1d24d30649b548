use std::collections::BTreeMap;

use super::*;

/// A worker with a counter of each kind.
fn stats() -> PublishedStats {
    let mut stats = PublishedStats::default();
    (stats.pid, stats.program) = (7, "a \"b\" \\ c".into());
    for (scope, name, value) in [
        ("worker", "tx_eager", 3),
        ("worker", "vbufs", 12),
        ("registration", "hits_fast", 9),
        ("registration", "bytes_registered", 4096),
        ("peers", "left_out", 2),
        ("peer3", "credits", 5),
        ("peer3", "rnr_nak", 1),
        ("peer1.4", "credits", 6),
        ("port0", "tx_bytes", 10),
        ("port1", "tx_bytes", 20),
        ("message_bytes", "8", 10),
        ("message_bytes", "64", 30),
        ("message_bytes", "18446744073709551615", 1),
        ("message_bytes", "sum", 1234),
    ] {
        stats.counters.insert((scope.into(), name.into()), value);
    }
    stats
}

/// A line of the format that is no comment: its name, its labels in their order, and its value.
struct Sample {
    name: String,
    labels: Vec<(String, String)>,
    value: f64,
}

impl Sample {
    fn parse(line: &str) -> Self {
        let (name, rest) = line.split_once('{').expect("every sample has labels");
        let (mut labels, mut rest) = (Vec::new(), rest);
        loop {
            let (label, quoted) = rest.split_once("=\"").expect("a label has a value");
            assert!(is_name(label) && !label.contains(':'), "{line}");
            let (mut value, mut signs) = (String::new(), quoted.char_indices());
            let end = loop {
                match signs.next().expect("a quotation ends") {
                    (_, '\\') => value.push(match signs.next().expect("something is escaped").1 {
                        'n' => '\n',
                        sign @ ('\\' | '"') => sign,
                        other => panic!("\\{other} is no escape: {line}"),
                    }),
                    (end, '"') => break end,
                    (_, sign) => value.push(sign),
                }
            };
            labels.push((label.to_owned(), value));
            match quoted[end + 1..].split_at_checked(1) {
                Some((",", more)) => rest = more,
                Some(("}", value)) => {
                    let value = value.strip_prefix(' ').expect("one space").parse().expect("a number");
                    return Self { name: name.to_owned(), labels, value };
                }
                other => panic!("{other:?} behind a label: {line}"),
            }
        }
    }

    /// The labels without one of them, which come to be compared.
    fn others(&self, without: &str) -> Vec<(String, String)> {
        self.labels.iter().filter(|(name, _)| name != without).cloned().collect()
    }

    fn label(&self, wanted: &str) -> Option<&str> {
        self.labels.iter().find(|(name, _)| name == wanted).map(|(_, value)| &**value)
    }
}

fn is_name(name: &str) -> bool {
    let is_sign = |sign: char| sign.is_ascii_alphanumeric() || sign == '_' || sign == ':';
    !name.is_empty() && !name.starts_with(|sign: char| sign.is_ascii_digit()) && name.chars().all(is_sign)
}

/// Checks a text by the rules of its format and returns its samples: each belongs to the type that was last declared, none is
/// there twice, and histograms add up.
fn checked(text: &str) -> Vec<Sample> {
    let (mut types, mut samples) = (BTreeMap::new(), Vec::new());
    let mut current = None;
    assert!(text.ends_with('\n'), "the last line ends");
    for line in text.lines() {
        if let Some(declared) = line.strip_prefix("# TYPE ") {
            let (name, kind) = declared.split_once(' ').expect("a name and a type");
            assert!(is_name(name) && ["counter", "gauge", "histogram"].contains(&kind), "{line}");
            assert!(types.insert(name, kind).is_none(), "{name} is declared twice");
            assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
            current = Some((name, kind));
            continue;
        }
        let sample = Sample::parse(line);
        let (name, kind) = current.expect("a type comes first");
        let end = sample.name.strip_prefix(name).unwrap_or_else(|| panic!("{line} under {name}"));
        let ends: &[&str] = if kind == "histogram" { &["_bucket", "_sum", "_count"] } else { &[""] };
        assert!(ends.contains(&end) && sample.value >= 0.0, "{line}");
        samples.push(sample);
    }
    let mut seen: Vec<_> = samples.iter().map(|sample| (&sample.name, &sample.labels)).collect();
    seen.sort_unstable();
    assert!(seen.windows(2).all(|pair| pair[0] != pair[1]), "a sample is there twice");
    types.iter().filter(|(_, kind)| **kind == "histogram").for_each(|(name, _)| check_histogram(name, &samples));
    samples
}

/// The buckets of each series rise up to +Inf, which is the count; and there is a sum.
fn check_histogram(name: &str, samples: &[Sample]) {
    for count in samples.iter().filter(|sample| sample.name == format!("{name}_count")) {
        let is_of_series = |sample: &&Sample| sample.others("le") == count.labels;
        let of = |end: &str| {
            let name = format!("{name}{end}");
            samples.iter().filter(is_of_series).filter(move |sample| sample.name == name).collect::<Vec<_>>()
        };
        assert_eq!(of("_sum").len(), 1, "{name} has a sum");
        let buckets = of("_bucket");
        let bound = |sample: &Sample| match sample.label("le").expect("a bucket has a bound") {
            "+Inf" => f64::INFINITY,
            bound => bound.parse().expect("a number"),
        };
        let last = buckets.last().expect("there are buckets");
        assert!(bound(last).is_infinite() && (last.value - count.value).abs() < 0.5, "{name}: the last one has all");
        let rise = |pair: &[&Sample]| bound(pair[0]) < bound(pair[1]) && pair[0].value <= pair[1].value;
        assert!(buckets.windows(2).all(rise), "{name}: buckets rise");
    }
    let series = |end| samples.iter().filter(|sample| sample.name == format!("{name}{end}")).count();
    assert!(series("_count") > 0 && series("_count") == series("_sum"), "{name}");
}

fn value(samples: &[Sample], name: &str, (label, its): (&str, &str)) -> Option<f64> {
    let is_it = |sample: &&Sample| sample.name == name && sample.label(label) == Some(its);
    samples.iter().find(is_it).map(|sample| sample.value)
}

#[test]
fn the_text_keeps_the_rules_of_the_format() {
    let mut other = stats();
    other.pid = 8;
    let text = text(&[stats(), other]);
    let samples = checked(&text);
    assert_eq!(value(&samples, "roci_worker_tx_eager_total", ("program", "a \"b\" \\ c")), Some(3.0), "{text}");
    assert_eq!(value(&samples, "roci_worker_vbufs", ("pid", "8")), Some(12.0), "{text}");
    assert_eq!(value(&samples, "roci_port_tx_bytes_total", ("port", "1")), Some(20.0), "{text}");
    assert_eq!(value(&samples, "roci_peer_credits", ("peer", "3")), Some(5.0), "{text}");
    assert_eq!(value(&samples, "roci_peer_credits", ("peer", "1.4")), Some(6.0), "{text}");
    assert_eq!(value(&samples, "roci_peer_rnr_nak_total", ("peer", "3")), Some(1.0), "{text}");
    assert!(text.contains("# TYPE roci_registration_bytes_registered gauge\n"), "{text}");
    assert!(text.contains("# TYPE roci_registration_hits_fast_total counter\n"), "{text}");
    assert!(text.contains("# TYPE roci_peers_left_out gauge\n"), "{text}");
}

#[test]
fn a_histogram_has_its_sum_and_every_bucket_those_before_it() {
    let samples = checked(&text(&[stats()]));
    let bucket = |le| value(&samples, "roci_message_bytes_bucket", ("le", le));
    assert_eq!([bucket("4"), bucket("8"), bucket("16"), bucket("64")], [0.0, 10.0, 10.0, 40.0].map(Some));
    assert_eq!([bucket("549755813888"), bucket("+Inf")], [40.0, 41.0].map(Some));
    assert_eq!(value(&samples, "roci_message_bytes_sum", ("pid", "7")), Some(1234.0));
    assert_eq!(value(&samples, "roci_message_bytes_count", ("pid", "7")), Some(41.0));
    // Of the other one there is nothing, which is a histogram too.
    assert_eq!(value(&samples, "roci_round_trip_ns_count", ("pid", "7")), Some(0.0));
}

#[test]
fn no_worker_is_no_sample() {
    let text = text(&[]);
    let lines: Vec<_> = text.lines().collect();
    assert!(lines.iter().all(|line| line.starts_with("# TYPE ")), "{text}");
}
