//! A hash table in the memory of all ranks. A slot is a key and a value. To insert, a rank takes a free one by compare-and-swap, with no
//! call of the rank that has it; to look up, it gets. Active messages count at each rank what was inserted there.
//!
//! Run it with: `roci run -n 4 target/release/examples/hash_table`

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use roci_msgcore::active::{ActiveMessages as _, HandlerId};
use roci_msgcore::collectives::Collectives as _;
use roci_msgcore::one_sided::{AtomicOp, OneSided as _, RemoteAddress, SegmentKey};
use roci_msgcore::{Config, Worker};

/// Slots of a rank, of which half are used.
const SLOTS: usize = 2048;
/// Bytes of a slot: a key, which is 0 where it is free, and a value.
const SLOT: usize = 16;
/// Keys that each rank inserts.
const INSERTS: usize = 1024;
const INSERTED: &str = "inserted";

struct Table {
    keys: Vec<SegmentKey>,
}

impl Table {
    /// The slots that a key may be in, from the likeliest on: which rank's, and where.
    fn slots(&self, key: u64) -> impl Iterator<Item = (usize, RemoteAddress)> + use<'_> {
        let hash = key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
        let rank = hash as usize % self.keys.len();
        let first = hash as usize / self.keys.len();
        (0..SLOTS).map(move |step| (rank, self.keys[rank].at((first + step) % SLOTS * SLOT)))
    }

    /// Inserts a key that is not there. The value is there after a flush.
    fn insert(&self, worker: &mut Worker, key: u64, value: u64) -> Result<(), Box<dyn Error>> {
        for (rank, slot) in self.slots(key) {
            if worker.fetch(rank, AtomicOp::CompareSwap { compare: 0, swap: key }, slot)? == 0 {
                worker.put_value(rank, value, slot.plus(8))?;
                worker.send_active(rank.into(), HandlerId::of(INSERTED), &[key], &[])?;
                return Ok(());
            }
        }
        Err("the table is full".into())
    }

    /// Returns a key's value.
    fn get(&self, worker: &mut Worker, key: u64) -> Result<Option<u64>, Box<dyn Error>> {
        for (rank, slot) in self.slots(key) {
            let mut bytes = [0; SLOT];
            worker.get_blocking(rank, &mut bytes, slot)?;
            let number = |half: &[u8]| u64::from_ne_bytes(half.try_into().unwrap_or_default());
            match number(&bytes[..8]) {
                0 => return Ok(None),
                found if found == key => return Ok(Some(number(&bytes[8..]))),
                _ => {}
            }
        }
        Ok(None)
    }
}

fn key_of(rank: usize, number: usize) -> u64 {
    (rank as u64 + 1) << 32 | number as u64
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut worker = Worker::open(&Config::load(None)?)?;
    let (rank, size) = (worker.rank(), worker.size());
    let here = Arc::new(AtomicU64::new(0));
    let count = here.clone();
    worker.register_handler(
        INSERTED,
        Box::new(move |_, _| {
            count.fetch_add(1, Ordering::Relaxed);
        }),
    )?;
    let segment = worker.expose(worker.buffer(SLOTS * SLOT)?)?;
    worker.write_segment(segment, 0, &vec![0; SLOTS * SLOT])?;
    let table = Table { keys: worker.gather_keys(segment)? };

    for number in 0..INSERTS {
        table.insert(&mut worker, key_of(rank, number), (rank * number) as u64)?;
    }
    worker.flush(None, Duration::from_mins(1))?;
    worker.barrier()?;

    // Every rank looks for what the next one has inserted, and for what none has.
    let next = (rank + 1) % size;
    for number in 0..INSERTS {
        let found = table.get(&mut worker, key_of(next, number))?;
        assert_eq!(found, Some((next * number) as u64), "key {number} of rank {next}");
        assert_eq!(table.get(&mut worker, key_of(size, number))?, None);
    }
    worker.barrier()?;
    let counts = worker.all_gather(&here.load(Ordering::Relaxed).to_le_bytes())?;
    if rank == 0 {
        let counts: Vec<u64> =
            counts.iter().map(|count| u64::from_le_bytes(count[..].try_into().unwrap_or_default())).collect();
        assert_eq!(counts.iter().sum::<u64>(), (size * INSERTS) as u64, "every insertion was counted");
        println!("{size} ranks found all of {} keys, of which {counts:?} are at each", size * INSERTS);
    }
    worker.close()?;
    Ok(())
}
