//! One 64 B message through two RC machines, requester and responder together.
#![allow(missing_docs)] // criterion's macros

use criterion::{Criterion, criterion_group, criterion_main};
use roci_benches::rc;

/// From post to completion and the acknowledgement between; a SEND's receive is posted again within.
fn exchanges(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("rc");
    for name in rc::NAMES {
        let mut exchange = rc::exchange(name).expect("it is in the table");
        group.bench_function(name, |bencher| bencher.iter(&mut exchange));
    }
    group.finish();
}

criterion_group!(benches, exchanges);
criterion_main!(benches);
