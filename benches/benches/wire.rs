//! Frames: emitting with the ICRC, parsing, verifying.
#![allow(missing_docs)] // criterion's macros

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use roci_benches::wire::OneFrame;

const SIZES: [usize; 4] = [8, 64, 1024, 4096];

fn frames(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("frame");
    for size in SIZES {
        let mut frame = OneFrame::new(size);
        group.throughput(Throughput::Bytes(size as u64));
        group.bench_function(BenchmarkId::new("emit", size), |bencher| bencher.iter(|| black_box(&mut frame).emit()));
        group.bench_function(BenchmarkId::new("parse_and_verify", size), |bencher| {
            bencher.iter(|| black_box(&frame).read());
        });
    }
    group.finish();
}

criterion_group!(benches, frames);
criterion_main!(benches);
