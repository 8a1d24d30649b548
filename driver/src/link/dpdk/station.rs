//! Who sends from a kernel's interface.
//!
//! What one process sends from an interface leaves by it, and comes back to no other process there: two that try to talk over
//! it would wait for each other in vain. So each that has a port on one holds a name, of which the kernel keeps one in each
//! network namespace, and gives it up with the process. Who finds it taken is warned, not refused: both may talk to others,
//! and any user may take a name.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::device::Device;

/// Names that this process holds, by interface.
static HELD: Mutex<BTreeMap<String, Weak<InterfaceClaim>>> = Mutex::new(BTreeMap::new());

/// The name that this process holds on an interface, for all of its ports there.
#[derive(Debug)]
pub(super) struct InterfaceClaim(#[allow(dead_code)] UnixDatagram);

impl InterfaceClaim {
    /// The station of a port on `device`, if that is an interface. Warns where another process has it.
    pub(super) fn take(device: &Device) -> Option<Arc<Self>> {
        let Device::AfPacket(interface) = device else { return None };
        let mut held = HELD.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(station) = held.get(interface).and_then(Weak::upgrade) {
            return Some(station);
        }
        let station = name(interface).map(Self).map(Arc::new);
        if station.as_ref().is_err_and(|error| error.kind() == ErrorKind::AddrInUse) {
            tracing::warn!(
                "device {device}: another process has a port on this interface: the two cannot reach each other over it; \
                 give each an interface of its own, or make them workers of one process (ROCI_QUEUES)"
            );
        }
        let station = station.ok()?;
        held.insert(interface.clone(), Arc::downgrade(&station));
        Some(station)
    }
}

/// A socket of a name that no other process in this network namespace has.
fn name(interface: &str) -> io::Result<UnixDatagram> {
    let address = SocketAddr::from_abstract_name(format!("roci/station/{interface}"))?;
    UnixDatagram::bind_addr(&address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_is_one_process_s_until_its_last_port_goes() {
        let interface = format!("t{}", std::process::id());
        let device = Device::AfPacket(interface.clone());
        let other = name(&interface).expect("the name is free");
        assert!(InterfaceClaim::take(&device).is_none(), "another has it");
        drop(other);
        let ports = [InterfaceClaim::take(&device), InterfaceClaim::take(&device)];
        assert!(ports.iter().all(Option::is_some), "it is this process's");
        let [first, second] = ports;
        drop(first);
        assert!(name(&interface).is_err(), "the second port has it still");
        drop(second);
        assert!(name(&interface).is_ok());
        assert!(InterfaceClaim::take(&Device::Memif).is_none(), "memif is no interface");
    }
}
