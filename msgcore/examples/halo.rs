//! Heat in a plate whose rows are spread over all ranks. In each step a rank puts its first and last row into its neighbours' memory,
//! each with a signal behind it, and goes on when theirs have come: no rank receives anything. Rank 0 compares all with a plate of
//! its own.
//!
//! Run it with: `roci run -n 4 target/release/examples/halo`

use std::error::Error;

use roci_msgcore::collectives::Collectives as _;
use roci_msgcore::one_sided::{OneSided as _, Segment, SegmentKey, Signal};
use roci_msgcore::{Config, Request, Worker};

/// Cells of a row.
const WIDTH: usize = 64;
/// Rows of a rank.
const ROWS: usize = 16;
const STEPS: usize = 200;
/// Bytes of a row.
const ROW: usize = WIDTH * size_of::<f64>();

type Row = [f64; WIDTH];

/// Where a rank's segment has the signals of the rank above and below, and behind them their rows: of even steps and of odd ones, since
/// a neighbour may be a step ahead.
fn signal(from: usize) -> usize {
    8 * from
}

fn halo(from: usize, step: usize) -> usize {
    16 + (2 * from + step % 2) * ROW
}

/// One step of all rows but the first and the last, which are the neighbours' or the edge.
fn relax(rows: &[Row]) -> Vec<Row> {
    let mut next = rows.to_vec();
    for (at, three) in rows.windows(3).enumerate() {
        for x in 1..WIDTH - 1 {
            next[at + 1][x] = (three[0][x] + three[2][x] + three[1][x - 1] + three[1][x + 1]) / 4.0;
        }
    }
    next
}

/// The rows of all ranks at the start: the upper edge is hot.
fn plate(size: usize) -> Vec<Row> {
    let mut rows = vec![[0.0; WIDTH]; size * ROWS + 2];
    rows[0] = [100.0; WIDTH];
    rows
}

fn to_bytes(row: &Row) -> Vec<u8> {
    row.iter().flat_map(|cell| cell.to_ne_bytes()).collect()
}

fn to_row(bytes: &[u8]) -> Row {
    let mut cells = bytes.chunks_exact(8).map(|cell| f64::from_ne_bytes(cell.try_into().unwrap_or_default()));
    std::array::from_fn(|_| cells.next().unwrap_or_default())
}

/// Puts a row into the memory of a neighbour, who knows this rank as `from`.
fn put_row(
    worker: &mut Worker,
    to: usize,
    key: SegmentKey,
    (from, step): (usize, usize),
    row: &Row,
) -> Result<Request, Box<dyn Error>> {
    let mut buffer = worker.buffer(ROW)?;
    buffer.copy_from_slice(&to_bytes(row));
    let news = (Signal::Add(1), key.at(signal(from)));
    Ok(worker.put_with(to.into(), buffer, key.at(halo(from, step)), Some(news))?)
}

/// Waits for a neighbour's row.
fn row_from(worker: &mut Worker, segment: Segment, from: usize, step: usize) -> Result<Row, Box<dyn Error>> {
    let neighbour = if from == 0 { worker.rank() - 1 } else { worker.rank() + 1 };
    worker.wait_for_at_least(neighbour.into(), segment, signal(from), step as u64 + 1)?;
    let mut bytes = [0; ROW];
    worker.read_segment(segment, halo(from, step), &mut bytes)?;
    Ok(to_row(&bytes))
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut worker = Worker::open(&Config::load(None)?)?;
    let (rank, size) = (worker.rank(), worker.size());
    let segment = worker.expose(worker.buffer(16 + 4 * ROW)?)?;
    worker.write_segment(segment, 0, &[0; 16])?;
    let keys = worker.gather_keys(segment)?;

    let mut rows = plate(size)[rank * ROWS..][..ROWS + 2].to_vec();
    for step in 0..STEPS {
        let mut puts = Vec::new();
        if rank > 0 {
            puts.push(put_row(&mut worker, rank - 1, keys[rank - 1], (1, step), &rows[1])?);
        }
        if rank + 1 < size {
            puts.push(put_row(&mut worker, rank + 1, keys[rank + 1], (0, step), &rows[ROWS])?);
            rows[ROWS + 1] = row_from(&mut worker, segment, 1, step)?;
        }
        if rank > 0 {
            rows[0] = row_from(&mut worker, segment, 0, step)?;
        }
        rows = relax(&rows);
        worker.wait_all(puts)?;
    }

    let all = worker.all_gather(&rows[1..=ROWS].iter().flat_map(to_bytes).collect::<Vec<_>>())?;
    if rank == 0 {
        let alone = (0..STEPS).fold(plate(size), |rows, _| relax(&rows));
        let together = all.iter().flat_map(|bytes| bytes.chunks_exact(ROW).map(to_row));
        assert!(together.eq(alone[1..=size * ROWS].iter().copied()), "the plates differ");
        println!("{size} ranks have the same plate as one: {:.3} degrees under the edge", alone[1][WIDTH / 2]);
    }
    worker.close()?;
    Ok(())
}
