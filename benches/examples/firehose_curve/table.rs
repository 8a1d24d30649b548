//! The document: what was asked, the figure, the table, and what the model is made of.

use roci_msgcore::firehose::sim::costs;

use crate::rows::{FIREHOSES, RANKS, Row, Rows, TRANSFERS};

pub(crate) fn markdown(rows: &Rows, figure: &str) -> String {
    let lines: String = rows.firehose.iter().map(|row| line(row, rows.pinned.rate)).collect();
    let part = |rate: f64| rate / rows.pinned.rate;
    let (pinned, registered) = (rows.pinned.rate / 1e6, rows.registered.rate / 1e6);
    let (registered_part, registrations) = (part(rows.registered.rate), rows.registered.pins);
    let head = "| working set / M | hits | registrations a transfer | million transfers/s | of all pinned |";
    format!(
        "# Firehose beyond M\n\n{intro}\n\n![]({figure})\n\n{head}\n|---:|---:|---:|---:|---:|\n{lines}\nFor comparison: \
         with all of the largest working set pinned, {pinned:.2} million transfers a second; with nothing that stays \
         pinned, so that each transfer asks and is registered ({registrations:.2} registrations each), {registered:.2}, \
         or {registered_part:.2} of that.\n\n{model}",
        intro = intro(),
        model = model(),
    )
}

fn intro() -> String {
    format!(
        "Written by `scripts/firehose-curve`. **This is a model, in virtual time**, and not a measurement: Firehose itself \
         runs, in a simulated world in which each step costs what it was measured to cost.\n\n{RANKS} ranks transfer \
         single buckets to and from one another, four at a time, {TRANSFERS} each after a warm-up, spread evenly over a \
         working set of each peer's memory that no other rank touches. That is the worst of patterns: no bucket is wanted \
         more than another. Each rank has {FIREHOSES} firehoses to each peer, which is M there, and MAXVICTIM is a third \
         of M, as by default: up to 1.33 M memory that was pinned is often pinned still, and a miss costs only two \
         messages."
    )
}

fn line(Row { share, measured }: &Row, pinned: f64) -> String {
    let (hits, pins, rate) = (measured.hit_rate * 100.0, measured.pins, measured.rate / 1e6);
    format!("| {share:.2} | {hits:.1} % | {pins:.3} | {rate:.2} | {:.2} |\n", measured.rate / pinned)
}

fn model() -> String {
    let row = |what: &str, nanoseconds: u64| format!("| {what} | {:.2} us |\n", nanoseconds as f64 / 1e3);
    [
        "## The model\n\n| | |\n|---|---:|\n".to_owned(),
        row("processor, to post an RDMA of 64 B and poll its completion", costs::POST),
        row("until it lands, and as long until that is known", costs::RDMA),
        row("processor, to send or to take a message", costs::MESSAGE),
        row("until a message has arrived", costs::CROSSING),
        row("processor, to register 4 KiB", costs::PIN),
        row("processor, to unregister them", costs::UNPIN),
        "\nThey come from measurements between two processes over memif: an RDMA WRITE of 64 B in 0.92 us and 2.4 million \
         a second, messages at 2.5 million a second and 2 us a round trip, and registrations of one page. The target's \
         processor pays for messages and registrations, not for RDMA.\n"
            .to_owned(),
    ]
    .concat()
}
