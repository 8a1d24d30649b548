//! Ports that come and go: DPDK has one table and one memory for them in a process, so these tests have one for
//! themselves.

use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use roci_driver::link::dpdk::{Attachment, Device, DpdkLink, PendingLink, PortError};
use roci_driver::link::{Batch, Link};
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

/// The tests take turns: each uses up all that there is.
static TURN: Mutex<()> = Mutex::new(());

#[test]
fn ports_end_in_a_named_error_and_leave_neither_place_nor_memory_behind() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
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

/// Both ends of a memif port, each opened by a call that does not wait.
fn begin_pair(directory: &Path, number: usize) -> [DpdkLink; 2] {
    let attachment = |socket: &Path, is_server| {
        Attachment::pair(Device::Memif, socket, is_server, [2, 0, 0, 0, 0, u8::from(is_server)])
    };
    let server = DpdkLink::begin(&attachment(&directory.join(number.to_string()), true)).expect("a place");
    let client = DpdkLink::begin(&attachment(server.socket(), false)).expect("the server is there");
    let mut pending = [server, client];
    while !pending.iter_mut().all(PendingLink::is_up) {
        std::thread::yield_now();
    }
    pending.map(|end| end.finish().expect("the gate closes"))
}

fn carry(links: &mut [DpdkLink; 2]) {
    let [near, far] = links;
    let mut batch = Batch::new();
    while batch.is_empty() {
        // Nothing moves while the gate is open.
        let _ = near.transmit(60, |frame| frame.fill(7));
        near.flush();
        far.receive(&mut batch);
    }
    assert!(batch.iter().all(|frame| frame.as_ref() == [7; 60]));
}

#[test]
fn ports_beside_working_ones_come_and_go_as_often_as_they_like() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let directory = TempDir::new().expect("a directory");
    let mut first = begin_pair(directory.path(), 0);
    let descriptors = || std::fs::read_dir("/proc/self/fd").expect("it is there").count();
    let mut before = None;
    for number in 1..3 * PORTS_MAX {
        let mut other = begin_pair(directory.path(), number);
        carry(&mut other);
        carry(&mut first);
        assert_eq!(*before.get_or_insert_with(descriptors), descriptors(), "pair {number} has left descriptors");
    }
    assert!(DpdkLink::begin(&Attachment::pair(Device::Memif, &directory.path().join("none"), false, [2; 6])).is_err());
    // No client comes: the port is kept, and gives its place up when another needs it.
    for number in 0..3 * PORTS_MAX {
        let socket = directory.path().join(format!("alone{number}"));
        let mut alone = DpdkLink::begin(&Attachment::pair(Device::Memif, &socket, true, [2; 6])).expect("a place");
        assert!(!alone.is_up());
    }
    carry(&mut first);
}

/// DPDK refuses the second client of a server in the middle of making its port, whose place it does not give back by itself.
#[test]
fn a_client_that_is_there_twice_is_refused_and_leaves_no_place_behind() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let directory = TempDir::new().expect("a directory");
    let mut first = begin_pair(directory.path(), 0);
    let again = Attachment::pair(Device::Memif, &directory.path().join("0"), false, [2; 6]);
    for _ in 0..2 * PORTS_MAX {
        let refusal = DpdkLink::begin(&again).err().expect("it is there").to_string();
        assert!(refusal.contains("can not have the same role"), "{refusal}");
    }
    carry(&mut begin_pair(directory.path(), 1));
    carry(&mut first);
}
