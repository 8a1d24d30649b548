//! The table: every median, and its ratio to the bare port.

use crate::rows::{Kind, Rows, SERIES, show};

/// The whole document.
pub(crate) fn markdown(rows: &Rows, heading: &str, figure: &str) -> String {
    let latency = table(rows, Kind::Latency);
    let bandwidth = table(rows, Kind::Bandwidth);
    let rounds = rows.rounds();
    format!(
        "# Byte streams, step by step\n\n{heading}\n\n![]({figure})\n\nMedians of {rounds} rounds, in each of which \
         everything was measured in turn. Behind each is its ratio to bare frames on the same port: the median of the \
         rounds' own ratios.\n\n## Half a round trip, p50, in us\n\n{latency}\n## Bandwidth, in GB/s\n\n{bandwidth}"
    )
}

fn table(rows: &Rows, kind: Kind) -> String {
    let names: String = SERIES.iter().map(|(_, name)| format!(" {name} |")).collect();
    let lines: String = rows.sizes(kind).into_iter().map(|size| line(rows, kind, size)).collect();
    format!("| |{names}\n|---|{}\n{lines}", "---:|".repeat(SERIES.len()))
}

fn line(rows: &Rows, kind: Kind, size: u64) -> String {
    let cell = |(series, _): (&'static str, _)| {
        let (value, ratio) = (rows.median(kind, series, size), rows.ratio(kind, series, size));
        match (value, ratio) {
            (Some(value), _) if series == "raw" => format!(" {value:.2} |"),
            (Some(value), Some(ratio)) => format!(" {value:.2} ({ratio:.2}) |"),
            _ => " |".to_owned(),
        }
    };
    let cells: String = SERIES.into_iter().map(cell).collect();
    format!("| {} |{cells}\n", show(size))
}
