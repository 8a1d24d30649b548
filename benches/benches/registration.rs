//! Memory of the application's own: lent again, where it is registered already.
#![allow(missing_docs)] // criterion's macros

use std::ptr::NonNull;

use criterion::{Criterion, criterion_group, criterion_main};
use roci_driver::link::sim::SimLink;
use roci_driver::{Engine, MonitorChoice, Pin, RegistrationConfig, UserMemory};

const LEN: usize = 1 << 16;

fn engine(config: RegistrationConfig) -> Engine<SimLink> {
    let mut engine = Engine::new(1 << 20).expect("memory");
    engine.configure_registration(config).expect("a monitor, or none");
    engine
}

/// The registration is taken and given back within; nothing is sent.
fn adopts(criterion: &mut Criterion) {
    let mut memory = vec![0u8; LEN].into_boxed_slice();
    let start = NonNull::from(&mut memory[..]).cast();
    let mut group = criterion.benchmark_group("adopt");
    let locked = RegistrationConfig { pin: Pin::Lock, ..RegistrationConfig::default() };
    let configs = [
        ("cache hit", locked),
        ("cache off", RegistrationConfig { cache: false, ..locked }),
        ("unwatched hit", RegistrationConfig { monitor: MonitorChoice::UnsafeNone, ..locked }),
        ("nothing to register", RegistrationConfig::default()),
    ];
    for (name, config) in configs {
        let mut engine = engine(config);
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                // SAFETY: the buffer is dropped before the next one is made, and nobody else has the memory meanwhile.
                engine.adopt(unsafe { UserMemory::new(start, LEN) }).expect("it is there")
            });
        });
    }
    group.finish();
}

criterion_group!(benches, adopts);
criterion_main!(benches);
