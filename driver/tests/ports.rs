//! Ports that come and go: DPDK has one table and one memory for them in a process, so these tests have one for
//! themselves.

use std::path::Path;
use std::time::Duration;

use roci_driver::link::dpdk::{Attachment, Device, DpdkLink, PortError};
use tempfile::TempDir;

/// Ports that DPDK can have at a time.
const PORTS_MAX: usize = 32;

/// Both ends of a memif port, opened by one call.
fn open_pair(directory: &Path, number: usize) -> Result<Vec<DpdkLink>, PortError> {
    let socket = directory.join(number.to_string());
    let ends = [false, true].map(|is_server| {
        Attachment::pair(Device::Memif, &socket, is_server, [2, 0, 0, 0, number as u8, u8::from(is_server)])
    });
    DpdkLink::open_all(&ends, Duration::from_mins(1), &mut || false)
}

#[test]
fn ports_end_in_a_named_error_and_leave_neither_place_nor_memory_behind() {
    let directory = TempDir::new().expect("a directory");
    // No peer comes, so each call fails after it has made everything.
    let alone = Attachment::pair(Device::Memif, &directory.path().join("alone"), true, [2, 0, 0, 0, 0, 1]);
    for _ in 0..3 * PORTS_MAX {
        let opened = DpdkLink::open_all(std::slice::from_ref(&alone), Duration::ZERO, &mut || false);
        assert_eq!(opened.err(), Some(PortError::NoLink { device: "memif".into(), seconds: 0 }));
    }
    for _ in 0..3 {
        let pairs: Vec<_> = (0..PORTS_MAX / 2).map(|number| open_pair(directory.path(), number)).collect();
        assert_eq!(pairs.iter().find_map(|pair| pair.as_ref().err()), None);
        assert_eq!(open_pair(directory.path(), PORTS_MAX).err(), Some(PortError::TooManyPorts(2)));
    }
}
