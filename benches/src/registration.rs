//! Adopts the application's own memory, for the first time and again.

use std::hint::black_box;
use std::ptr::NonNull;

use roci_driver::link::sim::SimLink;
use roci_driver::{Engine, MonitorChoice, Pin, RegistrationConfig, RegistrationStats, UserMemory};

const LEN: usize = 1 << 16;

/// Registrations that lock the memory in the kernel, so that there is something to register.
pub fn locked() -> RegistrationConfig {
    RegistrationConfig { pin: Pin::Lock, ..RegistrationConfig::default() }
}

/// The same without a monitor: this needs no userfaultfd, and a hit is the same.
pub fn unwatched() -> RegistrationConfig {
    RegistrationConfig { monitor: MonitorChoice::UnsafeNone, ..locked() }
}

/// An engine without ports, and memory that it adopts. The engine goes first: it unlocks the memory.
pub struct Adopter {
    engine: Engine<SimLink>,
    memory: Box<[u8]>,
}

impl Adopter {
    /// Memory that was not adopted yet.
    pub fn new(config: RegistrationConfig) -> Self {
        let mut engine = Engine::new(1 << 20).expect("memory");
        engine.configure_registration(config).expect("a monitor, or none");
        Self { engine, memory: vec![0; LEN].into_boxed_slice() }
    }

    /// The registration is taken and given back within; nothing is sent.
    #[inline]
    pub fn turn(&mut self) {
        let start = NonNull::from(&mut self.memory[..]).cast();
        // SAFETY: these are all bytes of one allocation, and the buffer is dropped here, before anybody else has them.
        let memory = unsafe { UserMemory::new(start, LEN) };
        black_box(self.engine.adopt(memory).expect("it is there"));
    }

    /// What became of it.
    pub fn stats(&self) -> RegistrationStats {
        self.engine.registration_stats()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_registered_once_where_registrations_last() {
        let mut adopter = Adopter::new(unwatched());
        (0..100).for_each(|_| adopter.turn());
        assert_eq!((adopter.stats().registrations, adopter.stats().hits_fast), (1, 99));
        let mut adopter = Adopter::new(RegistrationConfig { cache: false, ..locked() });
        (0..100).for_each(|_| adopter.turn());
        assert_eq!((adopter.stats().registrations, adopter.stats().hits_fast), (100, 0));
    }
}
