//! Ports that are kept for the next link with the same end.
//!
//! memif forgets the listener of a server's port that is closed: its descriptor stays open, and DPDK's interrupt thread
//! keeps a pointer to what was freed. So such a port is not closed, until DPDK has no place left for another one; only its
//! client is sent away.
//!
//! A port that was started once lets clients in whether it is stopped or not, on the interrupt thread. So it stays started
//! and keeps its queues and its packet buffers: who comes before the next link finds it whole.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::configure::Facts;
use super::device::Attachment;
use super::eal::Setup;
use super::gate;
use super::pool::Pool;

static IDLE: Mutex<Vec<IdlePort>> = Mutex::new(Vec::new());

/// A port that no link uses.
pub(super) struct IdlePort {
    pub(super) attachment: Attachment,
    pub(super) facts: Facts,
    pub(super) pool: Arc<Pool>,
}

/// The port that was kept for this end.
pub(super) fn take(_: &Setup, attachment: &Attachment) -> Option<IdlePort> {
    let mut idle = idle();
    let at = idle.iter().position(|port| port.attachment == *attachment)?;
    Some(idle.swap_remove(at))
}

/// Sends the client of a port away, and keeps the port, if it starts again.
pub(super) fn keep(_: &Setup, port: IdlePort) {
    let number = port.facts.port;
    // SAFETY: the port exists, and no thread uses it any more; the interrupt thread, where it is gated, stays parked.
    let status = gate::held(|| unsafe {
        dpdk_sys::rte_eth_dev_stop(number);
        dpdk_sys::rte_eth_dev_start(number)
    });
    if status == 0 {
        port.pool.keep();
        idle().push(port);
    } else {
        close(number);
    }
}

/// Closes the port that has been kept for longest. `false` where there is none.
pub(super) fn close_one(_: &Setup) -> bool {
    let mut idle = idle();
    if idle.is_empty() {
        return false;
    }
    close(idle.remove(0).facts.port);
    true
}

fn close(port: u16) {
    // SAFETY: the port exists, no thread uses it, and no other thread creates or closes one; the interrupt thread, where it is
    // gated, stays parked.
    gate::held(|| unsafe {
        dpdk_sys::rte_eth_dev_stop(port);
        dpdk_sys::rte_eth_dev_close(port);
    });
}

/// Removes the socket that a process left which has ended: a server cannot make one in its place. One that somebody listens
/// at stays, and DPDK says so.
pub(super) fn remove_stale(socket: &Path) {
    let listening = std::fs::read_to_string("/proc/net/unix").unwrap_or_default();
    let is_live =
        listening.lines().any(|line| line.split_whitespace().nth(7).is_some_and(|path| Path::new(path) == socket));
    if !is_live && socket.exists() {
        drop(std::fs::remove_file(socket));
    }
}

fn idle() -> MutexGuard<'static, Vec<IdlePort>> {
    IDLE.lock().unwrap_or_else(PoisonError::into_inner)
}
