//! The document: what was asked, the figure and the table.

use crate::rows::{BUCKET, FIREHOSES, Row, Rows};

pub(crate) fn markdown(rows: &Rows, figure: &str) -> String {
    let lines: String = rows.firehose.iter().map(|row| line(row, rows.exposed.rate)).collect();
    let (exposed, registered) = (rows.exposed.rate / 1e6, rows.registered.rate / 1e6);
    let (part, pins) = (rows.registered.rate / rows.exposed.rate, rows.registered.pins);
    let head = "| working set / M | hits | registrations a put | million puts/s | of all registered |";
    format!(
        "# Firehose beyond M\n\n{intro}\n\n![Hits, registrations and puts by working set]({figure})\n\n{head}\n\
         |---:|---:|---:|---:|---:|\n{lines}\nThe last column compares with memory that is exposed, and so registered as a \
         whole: {exposed:.2} million puts a second, of the largest working set. With as few firehoses as there may be, nearly \
         each put asks for its bucket and has it registered ({pins:.2} registrations a put): {registered:.2} million, or \
         {part:.2} of that.\n\n{model}",
        intro = intro(),
        model = SHAPE,
    )
}

fn intro() -> String {
    format!(
        "[Firehose](one-sided.md#memory-that-is-offered) lets a rank offer more memory than can be registered at once. M is \
         how many firehoses its peers may hold together: each is a bucket that is registered for a peer. MAXVICTIM is how many \
         buckets may stay registered that no peer holds any more. `scripts/firehose-curve` measures what a working set \
         beyond M costs, and writes this page.\n\n\
         There are two workers. One offers memory; the other puts 64 bytes into buckets of {} KiB of it, four at a time, spread \
         evenly over a working set. That is the worst of patterns: no bucket is wanted more than another. M is \
         {FIREHOSES}, and MAXVICTIM is a third of M. So up to 1.33 M a bucket that is asked for again is often registered \
         still, and a miss costs only two messages. Each registration locks its pages (`ROCI_DREG_PIN=lock`), and none \
         outlives its bucket (`ROCI_DREG_CACHE=off`).\n\n\
         One thread polls both workers, over a wire in memory. So a second is a second of a processor that does the work of \
         both ends, and no time passes on the way. Compare the rows of one table, not those of two machines.",
        BUCKET >> 10
    )
}

fn line(Row { share, measured }: &Row, exposed: f64) -> String {
    let (hits, pins, rate) = (measured.hit_rate * 100.0, measured.pins, measured.rate / 1e6);
    format!("| {share:.2} | {hits:.1} % | {pins:.3} | {rate:.2} | {:.2} |\n", measured.rate / exposed)
}

const SHAPE: &str = "## What it should look like\n\nThe paper (Bell and Bonachea, 2003) promises the cost of a hit up to M, and a \
                     decline with the misses beyond it, never worse than asking each time. Of a working set of x times M, 1/x of \
                     the puts are hits; of the other buckets a third of M is registered still. `msgcore/tests/firehose.rs` asserts \
                     the same shape in virtual time, with a distance between the ranks.\n";
