//! What a one-sided transfer pays Firehose when it finds its memory pinned: the case that all else is for.
#![allow(missing_docs)] // criterion's macros

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use roci_msgcore::PeerId;
use roci_msgcore::firehose::{Bucket, Environment, Failed, FirehoseEngine, Grain, Hold, Limits, PinError, Span};
use roci_protocol::Rkey;

const BUCKET: u64 = 64 << 10;
/// Firehoses to the peer, all of them in use by turns.
const FIREHOSES: u64 = 4096;

/// A rank whose memory can always be pinned; the bench carries its messages.
#[derive(Default)]
struct Memory {
    outbox: Vec<Vec<u8>>,
    ended: Vec<Hold>,
    keys: u32,
}

impl Environment for Memory {
    fn send(&mut self, _: PeerId, message: &[u8]) {
        self.outbox.push(message.to_vec());
    }

    fn pin(&mut self, _: Bucket) -> Result<Rkey, PinError> {
        self.keys += 1;
        Ok(Rkey(self.keys))
    }

    fn unpin(&mut self, _: Bucket, _: Rkey) {}

    fn ended(&mut self, _: u64, outcome: Result<Hold, Failed>) {
        self.ended.push(outcome.expect("it can be pinned"));
    }
}

fn span(first: u64, count: u64) -> Span {
    Span { va: first * BUCKET, len: count * BUCKET }
}

/// A rank whose firehoses lead to all of its peer's memory.
fn warm() -> (FirehoseEngine, Memory) {
    let limits = Limits::exact(Grain::new(BUCKET).expect("a power of two"), FIREHOSES, 16);
    let [mut near, mut far] = [0, 1].map(|_| FirehoseEngine::new(limits));
    let (mut here, mut there) = (Memory::default(), Memory::default());
    for bucket in 0..FIREHOSES {
        let pending = near.acquire(&mut here, 1.into(), limits.share(), span(bucket, 1), 0).expect("within the limits");
        assert!(pending.is_none());
        far.on_message(&mut there, 0.into(), &here.outbox.pop().expect("a move")).expect("of the protocol");
        near.on_message(&mut here, 1.into(), &there.outbox.pop().expect("an answer")).expect("of the protocol");
        let hold = here.ended.pop().expect("granted");
        near.release(&mut here, hold);
    }
    (near, here)
}

fn hits(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("firehose");
    for count in [1, 4, 16] {
        let (mut near, mut here) = warm();
        let share = near.limits().share();
        let mut at = 0;
        group.bench_function(BenchmarkId::new("hit_and_release", count), |bencher| {
            bencher.iter(|| {
                // Strides that come to all buckets, in no order that a cache likes.
                at = (at + 1021) & (FIREHOSES / 2 - 1);
                let hold = near.acquire(&mut here, 1.into(), share, span(at, count), 0);
                let hold = hold.expect("within the limits").expect("a hit");
                for piece in near.pieces(&hold) {
                    black_box(piece);
                }
                near.release(&mut here, hold);
            });
        });
    }
    group.finish();
}

criterion_group!(benches, hits);
criterion_main!(benches);
