//! The table: every median, and its ratio to the bare port.

use crate::rows::{Kind, Rows, SERIES, show};

/// What is measured.
const STEPS: &str = "A byte stream is a ring in registered memory at the receiver ([protocols](protocols.md#byte-streams)). This \
                     page measures what each of its optimizations buys; each column has those before it as well.\n\n\
                     - *basic*: the data, the new head and the new tail are three WRITEs.\n\
                     - *piggyback*: one WRITE for a chunk. Tails are delayed, and go with chunks of the other direction.\n\
                     - *pipelining*: a chunk is copied while the one before it is on its way.\n\
                     - *zero-copy*: a long payload stays where it is, and the receiver fetches it by a READ.";

/// The whole document.
pub(crate) fn markdown(rows: &Rows, heading: &str, figure: &str) -> String {
    let latency = table(rows, Kind::Latency);
    let bandwidth = table(rows, Kind::Bandwidth);
    let rounds = rows.rounds();
    format!(
        "# Byte streams, step by step\n\n{STEPS}\n\n{heading}\n\n![Latency and bandwidth of each step]({figure})\n\nMedians of {rounds} rounds, in each of which \
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
