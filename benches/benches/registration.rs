//! Adopts the application's own memory again, which is registered already.
#![allow(missing_docs)] // criterion's macros

use criterion::{Criterion, criterion_group, criterion_main};
use roci_benches::registration::{Adopter, locked, unwatched};
use roci_driver::RegistrationConfig;

/// The registration is taken and given back within; nothing is sent.
fn adopts(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("adopt");
    let configs = [
        ("cache hit", locked()),
        ("cache off", RegistrationConfig { cache: false, ..locked() }),
        ("unwatched hit", unwatched()),
        ("nothing to register", RegistrationConfig::default()),
    ];
    for (name, config) in configs {
        let mut adopter = Adopter::new(config);
        group.bench_function(name, |bencher| bencher.iter(|| adopter.turn()));
    }
    group.finish();
}

criterion_group!(benches, adopts);
criterion_main!(benches);
