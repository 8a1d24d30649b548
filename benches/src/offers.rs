//! Puts to memory of another worker's, of which a working set as large as is asked for is in use: offered to peers, so that Firehose
//! registers it, or exposed. Two workers, polled by one thread over a wire in memory: what they take is the processor of both ends.

use std::time::Instant;

use roci_msgcore::one_sided::{Offering as _, OneSided as _, SegmentKey};
use roci_msgcore::{Buffer, Request, Worker};

use crate::cq::wire::{ManualClock, WireEnd};
use crate::tags::{ROUND_NS, connected_workers_with};

/// Bytes of a put.
const LEN: usize = 64;
/// Puts that are under way at once.
const DEPTH: usize = 4;
/// Puts between two looks at the time.
const SLICE: usize = 4_000;
/// Such slices; the one in the middle counts.
const SLICES: usize = 5;

/// How the memory of the working set is registered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Registration {
    /// All of it, for as long as it is exposed.
    Whole,
    /// As Firehose sees fit.
    Firehose {
        /// Bytes of a bucket.
        bucket: usize,
        /// M in bytes.
        m: usize,
        /// MAXVICTIM in bytes.
        max_victim: usize,
    },
}

/// What was measured.
#[derive(Clone, Copy, Debug)]
pub struct PutMeasure {
    /// Of the puts, those that found their memory registered.
    pub hit_rate: f64,
    /// Registrations for each put.
    pub pins: f64,
    /// Puts per second of a processor that does the work of both ends.
    pub rate: f64,
}

/// Two connected workers, of which the second has the memory.
struct PutPair {
    clock: ManualClock,
    near: Worker<WireEnd>,
    far: Worker<WireEnd>,
    theirs: SegmentKey,
    bucket: usize,
    spare: Vec<Buffer>,
    under_way: Vec<Request>,
}

impl PutPair {
    fn new(registration: Registration, working_set: usize) -> Self {
        let (bucket, m, max_victim) = match registration {
            Registration::Whole => (4 << 10, 1 << 20, 1 << 20),
            Registration::Firehose { bucket, m, max_victim } => (bucket, m, max_victim),
        };
        let [bucket_text, m_text, max_victim_text] = [bucket, m >> 20, max_victim >> 20].map(|value| value.to_string());
        // Each registration is one of the kernel's, which locks the pages; none outlives its bucket.
        let settings = [
            ("firehose_bucket", bucket_text.as_str()),
            ("firehose_m", &m_text),
            ("firehose_maxvictim_m", &max_victim_text),
            ("dreg_pin", "lock"),
            ("dreg_cache", "off"),
        ];
        let (clock, [near, mut far]) = connected_workers_with(&settings);
        let memory: &'static mut [u8] = vec![1; working_set * bucket].leak();
        let theirs = if registration == Registration::Whole {
            let buffer = far.adopt(memory.into()).expect("it is there");
            far.expose(buffer).expect("a key").key()
        } else {
            far.offer(memory.into()).expect("keys are left").key()
        };
        let spare = (0..DEPTH).map(|_| near.buffer(LEN).expect("room")).collect();
        Self { clock, near, far, theirs, bucket, spare, under_way: Vec::with_capacity(DEPTH) }
    }

    /// Puts to a bucket; once as many are under way as may be, waits for all of them.
    fn put(&mut self, bucket: usize) {
        let at = self.theirs.at(bucket * self.bucket);
        let buffer = self.spare.pop().expect("as many as needed");
        self.under_way.push(self.near.put(1, buffer, at).expect("accepted"));
        if self.spare.is_empty() {
            for at in 0..self.under_way.len() {
                let buffer = self.end(self.under_way[at]);
                self.spare.push(buffer);
            }
            self.under_way.clear();
        }
    }

    fn end(&mut self, put: Request) -> Buffer {
        loop {
            if let Some(done) = self.near.test(put) {
                return done.expect("it arrives").buffer;
            }
            self.clock.advance(ROUND_NS);
            self.far.progress();
            self.near.progress();
        }
    }
}

/// Measures puts of 64 bytes to the buckets of a working set that `choose` names.
pub fn measure(registration: Registration, working_set: usize, mut choose: impl FnMut() -> usize) -> PutMeasure {
    let mut pair = PutPair::new(registration, working_set);
    // Each bucket is touched eight times: then one in three thousand was not touched yet.
    (0..8 * working_set).for_each(|_| pair.put(choose()));
    let before = [&mut pair.near, &mut pair.far].map(|worker| worker.firehose_stats().expect("it lives"));
    let mut times: Vec<_> = (0..SLICES)
        .map(|_| {
            let since = Instant::now();
            (0..SLICE).for_each(|_| pair.put(choose()));
            since.elapsed()
        })
        .collect();
    times.sort_unstable();
    let after = [&mut pair.near, &mut pair.far].map(|worker| worker.firehose_stats().expect("it lives"));
    let puts = (SLICES * SLICE) as f64;
    let hits = if registration == Registration::Whole { puts } else { (after[0].hits - before[0].hits) as f64 };
    let pins = (after[1].pins - before[1].pins) as f64;
    PutMeasure { hit_rate: hits / puts, pins: pins / puts, rate: SLICE as f64 / times[SLICES / 2].as_secs_f64() }
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    fn at_random(registration: Registration, working_set: usize) -> PutMeasure {
        let mut dice = StdRng::seed_from_u64(1);
        measure(registration, working_set, || dice.random_range(0..working_set))
    }

    #[test]
    fn a_working_set_within_m_is_hit_and_one_beyond_it_is_not() {
        let firehose = Registration::Firehose { bucket: 4 << 10, m: 1 << 20, max_victim: 1 << 20 };
        let within = at_random(firehose, 200);
        assert!(within.hit_rate > 0.99 && within.pins < 0.01, "{within:?}");
        let beyond = at_random(firehose, 1024);
        assert!((0.2..0.3).contains(&beyond.hit_rate) && (0.4..0.6).contains(&beyond.pins), "{beyond:?}");
        assert!(at_random(Registration::Whole, 100).pins.abs() < f64::EPSILON);
    }
}
