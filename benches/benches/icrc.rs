//! The ICRC with a copy and without, and the copy alone.
#![allow(missing_docs)] // criterion's macros

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use roci_benches::icrc::IcrcPayload;

const SIZES: [usize; 4] = [64, 1024, 4096, 8192];

/// A copy alone, the ICRC in a second pass over the copy, both in one pass by blocks, and the ICRC without a copy.
/// The second and the last are what the stack does; blocks are what it might do.
fn ways(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("icrc");
    for size in SIZES {
        let mut payload = IcrcPayload::new(size);
        group.throughput(Throughput::Bytes(size as u64));
        group.bench_function(BenchmarkId::new("copy", size), |bencher| bencher.iter(|| black_box(&mut payload).copy()));
        group.bench_function(BenchmarkId::new("copy_then_icrc", size), |bencher| {
            bencher.iter(|| black_box(&mut payload).copy_then_cover());
        });
        group.bench_function(BenchmarkId::new("copy_and_icrc_by_blocks", size), |bencher| {
            bencher.iter(|| black_box(&mut payload).copy_by_blocks());
        });
        group.bench_function(BenchmarkId::new("icrc_in_place", size), |bencher| {
            bencher.iter(|| black_box(&payload).cover_in_place());
        });
    }
    group.finish();
}

criterion_group!(benches, ways);
criterion_main!(benches);
