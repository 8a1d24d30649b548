//! The application's own memory, and what applications do to it: unmap it, in part or whole, move it, discard it, from
//! any thread, between transfers and during others', and fork.
//!
//! An oracle knows what the monitor has to find out: which pages were replaced since they were registered. Without a
//! monitor the same steps must make it complain, or it would be of no use.

#[path = "registration/areas.rs"]
mod areas;
mod common;
#[path = "registration/forks.rs"]
mod forks;
#[path = "registration/gaps.rs"]
mod gaps;
#[path = "registration/huge.rs"]
mod huge;
#[path = "registration/messy.rs"]
mod messy;
#[path = "registration/oracle.rs"]
mod oracle;
#[path = "registration/transfers.rs"]
mod transfers;

use std::sync::{Mutex, MutexGuard, PoisonError};

use roci_driver::link::sim::SimLink;
use roci_driver::{Engine, MonitorChoice, Pin, RegistrationConfig};

/// Registrations that are counted, memory that is locked up to a limit of the process, and forks: one at a time.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

fn config(monitor: MonitorChoice) -> RegistrationConfig {
    RegistrationConfig { pin: Pin::Lock, monitor, ..RegistrationConfig::default() }
}

/// An engine that locks what it registers, and has it watched like this.
fn engine(monitor: MonitorChoice) -> Engine<SimLink> {
    let mut engine = Engine::new(1 << 20).expect("memory");
    engine.configure_registration(config(monitor)).expect("such a monitor");
    engine
}

/// An engine with a monitor; `None`, and the reason is printed, where the machine gives none.
fn watched() -> Option<Engine<SimLink>> {
    let mut engine = Engine::new(1 << 20).expect("memory");
    match engine.configure_registration(config(MonitorChoice::Userfaultfd)) {
        Ok(()) => Some(engine),
        Err(error) => {
            eprintln!("skipped: {error}");
            None
        }
    }
}
