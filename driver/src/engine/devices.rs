//! The devices of an engine's ports as one registrar: it registers the application's memory with each of them.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use crate::link::{ZeroCopyError, ZeroCopyRanges};
use crate::mem::{RegisterError, Registrar};

/// Registers memory with every device that reads it itself.
#[derive(Debug)]
pub(super) struct Devices {
    ports: Vec<Box<dyn ZeroCopyRanges>>,
}

/// Names given so far, by all engines: their ports may be behind one map.
static NAMES: AtomicU64 = AtomicU64::new(0);

impl Devices {
    /// `None` where no device reads memory itself.
    pub(super) fn of(ports: Vec<Box<dyn ZeroCopyRanges>>) -> Option<Box<dyn Registrar>> {
        if ports.is_empty() { None } else { Some(Box::new(Self { ports })) }
    }
}

impl Registrar for Devices {
    /// All of them, or none.
    fn register(&mut self, base: usize, len: usize) -> Result<u64, RegisterError> {
        let name = NAMES.fetch_add(1, Relaxed) + 1;
        for index in 0..self.ports.len() {
            if let Err(error) = self.ports[index].attach(name, base, len) {
                self.ports[..index].iter_mut().rev().for_each(|port| port.detach(name));
                return Err(why_not(error));
            }
        }
        Ok(name)
    }

    /// A device keeps the pages that were registered, and its map is undone by their old addresses: it makes no
    /// difference what lies there now.
    fn unregister(&mut self, token: u64, _is_gone: bool) {
        self.ports.iter_mut().rev().for_each(|port| port.detach(token));
    }
}

/// What fewer or smaller registrations would mend, and what nothing would.
fn why_not(error: ZeroCopyError) -> RegisterError {
    match error {
        ZeroCopyError::NoSlot => RegisterError::NoSlot,
        ZeroCopyError::NoMap { .. } => RegisterError::NoMemory(error.to_string()),
        _ => RegisterError::Refused(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::{Arc, Mutex};

    use super::*;

    type Table = Arc<Mutex<BTreeMap<u64, (usize, usize)>>>;

    /// A device with a table of so many places.
    #[derive(Debug)]
    struct Device(Table, usize);

    impl ZeroCopyRanges for Device {
        fn attach(&mut self, name: u64, base: usize, len: usize) -> Result<(), ZeroCopyError> {
            if self.0.lock().expect("no panic").len() == self.1 {
                return Err(ZeroCopyError::NoSlot);
            }
            assert_eq!(self.0.lock().expect("no panic").insert(name, (base, len)), None, "a name of its own");
            Ok(())
        }

        fn detach(&mut self, name: u64) {
            assert!(self.0.lock().expect("no panic").remove(&name).is_some(), "it was attached");
        }
    }

    #[test]
    fn every_device_learns_of_a_range_or_none_does() {
        let tables = [Table::default(), Table::default()];
        let device =
            |(table, places): (&Table, usize)| Box::new(Device(table.clone(), places)) as Box<dyn ZeroCopyRanges>;
        let mut devices = Devices::of(tables.iter().zip([8, 1]).map(device).collect()).expect("there are two");
        let first = devices.register(0x1000, 0x2000).expect("room");
        assert_eq!(devices.register(0x8000, 0x1000), Err(RegisterError::NoSlot), "the second has no place");
        for table in &tables {
            assert_eq!(*table.lock().expect("no panic"), BTreeMap::from([(first, (0x1000, 0x2000))]));
        }
        devices.unregister(first, true);
        assert!(tables.iter().all(|table| table.lock().expect("no panic").is_empty()));
        let second = devices.register(0x1000, 0x2000).expect("room again");
        assert_ne!(first, second);
    }

    #[test]
    fn only_what_fewer_registrations_would_mend_makes_others_end() {
        let cause = || "of the kernel".to_owned();
        assert!(matches!(
            why_not(ZeroCopyError::NoMap { base: 0, len: 1, cause: cause() }),
            RegisterError::NoMemory(_)
        ));
        let refused = ZeroCopyError::Refused { call: "rte_dev_dma_map", base: 0, len: 1, cause: cause() };
        assert!(matches!(why_not(refused), RegisterError::Refused(_)));
        assert_eq!(why_not(ZeroCopyError::NoSlot), RegisterError::NoSlot);
    }

    #[test]
    fn links_that_copy_need_no_registrar() {
        assert!(Devices::of(Vec::new()).is_none());
    }
}
