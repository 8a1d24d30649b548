//! A receive and a message that meet, among 1 to 10,000 that wait for others.
#![allow(missing_docs)] // criterion's macros

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use roci_benches::matching::{Meeting, Queues};

const OTHERS: [u32; 4] = [0, 1, 100, 10_000];

/// Posting and matching together; what meets is gone afterwards.
fn meetings(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("matching");
    for (name, meeting) in Meeting::ALL {
        for others in OTHERS {
            let mut queues = Queues::new(meeting, others);
            group.bench_function(BenchmarkId::new(name, others), |bencher| bencher.iter(|| queues.meet()));
        }
    }
    group.finish();
}

criterion_group!(benches, meetings);
criterion_main!(benches);
