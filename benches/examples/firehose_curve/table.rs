//! The document: what was asked, the figure and the table.

use crate::rows::{BUCKET, FIREHOSES, Row, Rows};

pub(crate) fn markdown(rows: &Rows, figure: &str) -> String {
    let lines: String = rows.firehose.iter().map(|row| line(row, rows.exposed.rate)).collect();
    let (exposed, registered) = (rows.exposed.rate / 1e6, rows.registered.rate / 1e6);
    let (part, pins) = (rows.registered.rate / rows.exposed.rate, rows.registered.pins);
    let head = "| working set / M | hits | registrations a put | million puts/s | of all registered |";
    format!(
        "# Firehose beyond M\n\n{intro}\n\n![]({figure})\n\n{head}\n|---:|---:|---:|---:|---:|\n{lines}\nFor comparison: \
         the largest working set exposed, and so registered whole, {exposed:.2} million puts a second; offered with as few \
         firehoses as there may be, so that nearly each put asks and is registered ({pins:.2} registrations each), \
         {registered:.2}, or {part:.2} of that.\n\n{model}",
        intro = intro(),
        model = SHAPE,
    )
}

fn intro() -> String {
    format!(
        "Written by `scripts/firehose-curve`, which measures two workers. One offers memory; the other puts 64 bytes into \
         buckets of {} KiB of it, four at a time, spread evenly over a working set. That is the worst of patterns: no \
         bucket is wanted more than another. There are {FIREHOSES} firehoses, which is M, and MAXVICTIM is a third of M: \
         up to 1.33 M memory that was registered is often registered still, and a miss costs only two messages. Each \
         registration locks its pages (`dreg_pin=lock`), and none outlives its bucket (`dreg_cache=off`).\n\nOne thread \
         polls both workers, over a wire in memory: a second is a second of a processor that does the work of both ends, and \
         there is no distance. Compare the rows of one table, not those of two machines.",
        BUCKET >> 10
    )
}

fn line(Row { share, measured }: &Row, exposed: f64) -> String {
    let (hits, pins, rate) = (measured.hit_rate * 100.0, measured.pins, measured.rate / 1e6);
    format!("| {share:.2} | {hits:.1} % | {pins:.3} | {rate:.2} | {:.2} |\n", measured.rate / exposed)
}

const SHAPE: &str = "## What it should look like\n\nThe paper (Bell and Bonachea, 2003) promises the cost of a hit up to M, and a \
                     decline with the misses beyond it, never worse than asking each time. Of a working set of x times M a put \
                     finds 1/x by a hit; of the rest a third of M is registered still. The same shape in virtual time, with a \
                     distance between the ranks, is what `msgcore/tests/firehose.rs` asserts in each run.\n";
