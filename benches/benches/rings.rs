//! The rings and boards between threads and between posts: commands and ends of a dedicated worker, receives that queue
//! pairs share, and what the monitor of registered memory says.
#![allow(missing_docs)] // criterion's macros

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use roci_benches::rings::{Commands, answer, buffers, hear, post};
use roci_driver::internals::{SharedReceives, Watched};
use roci_msgcore::internals::CommandRings;

const BATCHES: [usize; 3] = [1, 16, 64];
/// Regions that are watched.
const REGIONS: [usize; 3] = [1, 100, 10_000];

/// A batch of SENDs through the ring of commands, and their ends back, with both sides on one thread.
fn commands(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("rings");
    for batch in BATCHES {
        let mut commands = Commands::new(batch);
        group.throughput(Throughput::Elements(batch as u64));
        group.bench_function(BenchmarkId::new("command_and_end", batch), |bencher| bencher.iter(|| commands.turn()));
    }
    group.finish();
}

/// The same with the engine's side on a thread of its own, which does nothing but answer.
fn commands_between_threads(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("rings");
    for batch in BATCHES {
        let (rings, is_over, mut buffers) = (CommandRings::default(), AtomicBool::new(false), buffers(batch));
        thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    if !answer(&rings) {
                        std::hint::spin_loop();
                    }
                }
            });
            group.throughput(Throughput::Elements(batch as u64));
            group.bench_function(BenchmarkId::new("command_and_end, two threads", batch), |bencher| {
                bencher.iter(|| {
                    post(&rings, &mut buffers);
                    while buffers.len() < batch {
                        hear(&rings, &mut buffers);
                    }
                });
            });
            is_over.store(true, Ordering::Relaxed);
        });
    }
    group.finish();
}

/// Receives posted to a shared queue, and taken from it.
fn receives(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("rings");
    for batch in BATCHES {
        let (mut queue, mut buffers) = (SharedReceives::new(batch), buffers(batch));
        group.throughput(Throughput::Elements(batch as u64));
        group.bench_function(BenchmarkId::new("post_and_take_receive", batch), |bencher| {
            bencher.iter(|| {
                buffers.drain(..).for_each(|buffer| assert!(queue.post(1, buffer)));
                buffers.extend(std::iter::from_fn(|| queue.take()));
            });
        });
    }
    group.finish();
}

/// The board: its word, a slot more, and the monitor's walk through all slots.
fn board(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("board");
    for regions in REGIONS {
        let watched = Watched::new(regions).expect("memory");
        group
            .bench_function(BenchmarkId::new("epoch", regions), |bencher| bencher.iter(|| black_box(&watched).epoch()));
        group.bench_function(BenchmarkId::new("claim_and_release", regions), |bencher| {
            bencher.iter(|| assert!(watched.claim_and_release()));
        });
        group.bench_function(BenchmarkId::new("touch", regions), |bencher| {
            bencher.iter(|| watched.touch(regions / 2));
        });
    }
    group.finish();
}

criterion_group!(benches, commands, commands_between_threads, receives, board);
criterion_main!(benches);
