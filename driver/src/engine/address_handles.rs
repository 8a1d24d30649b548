//! The addresses that an engine sends datagrams to.

use std::net::IpAddr;

use roci_protocol::wire::Flow;
use thiserror::Error;

/// Addresses that one engine sends datagrams to, at most.
const MAX_HANDLES: usize = 4096;

/// Where datagrams go to: a host, and the way to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AddressHandle {
    index: usize,
    serial: u64,
}

/// Why there is no address handle.
#[derive(Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum AddressHandleError {
    /// IPv4 here and IPv6 there.
    #[error("{0} and {1} are of different IP versions")]
    IpVersion(IpAddr, IpAddr),
    /// The engine holds as many as it may.
    #[error("the engine has {MAX_HANDLES} address handles, and holds no more")]
    Full,
}

/// The path of an address handle.
pub(super) struct AhPath {
    serial: u64,
    pub(super) port: usize,
    pub(super) flow: Flow,
}

/// The paths of all address handles. A place is used again, and by its serial number a handle that was destroyed names nothing.
#[derive(Default)]
pub(super) struct AddressHandles {
    paths: Vec<Option<AhPath>>,
    /// Address handles made so far.
    serial: u64,
}

impl AddressHandles {
    pub(super) fn insert(&mut self, port: usize, flow: Flow) -> Result<AddressHandle, AddressHandleError> {
        let index = match self.paths.iter().position(Option::is_none) {
            Some(free) => free,
            None if self.paths.len() == MAX_HANDLES => return Err(AddressHandleError::Full),
            None => {
                self.paths.push(None);
                self.paths.len() - 1
            }
        };
        self.serial += 1;
        let serial = self.serial;
        self.paths[index] = Some(AhPath { serial, port, flow });
        Ok(AddressHandle { index, serial })
    }

    pub(super) fn remove(&mut self, handle: AddressHandle) {
        if self.path_of(handle).is_some() {
            self.paths[handle.index] = None;
        }
    }

    /// What a handle names, unless it was destroyed.
    pub(super) fn path_of(&mut self, handle: AddressHandle) -> Option<&mut AhPath> {
        self.paths.get_mut(handle.index)?.as_mut().filter(|path| path.serial == handle.serial)
    }
}
