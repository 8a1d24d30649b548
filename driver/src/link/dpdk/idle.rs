//! Ports that are kept for the next link with the same end.
//!
//! memif forgets the listener of a server's port that is closed: its descriptor stays open, and DPDK's interrupt thread
//! keeps a pointer to what was freed. So such a port is not closed, until DPDK has no place or no memory left for another
//! one; only its client is sent away.
//!
//! A port that was started once lets clients in whether it is stopped or not, on the interrupt thread. So it stays started
//! and keeps its queues and its packet buffers: who comes before the next link finds it whole.

use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::configure::{self, Facts};
use super::device::Attachment;
use super::eal::Setup;
use super::gate;
use super::pool::PoolShare;

static IDLE: Mutex<Vec<IdlePort>> = Mutex::new(Vec::new());

/// A port that no link uses.
pub(super) struct IdlePort {
    pub(super) attachment: Attachment,
    pub(super) facts: Facts,
    pub(super) place: PoolShare,
}

/// The port that was kept for this end.
pub(super) fn take(_: &Setup, attachment: &Attachment) -> Option<IdlePort> {
    let mut idle = idle();
    let at = idle.iter().position(|port| port.attachment == *attachment)?;
    Some(idle.swap_remove(at))
}

/// A port that was kept for the server's end of some socket in the same directory.
pub(super) fn take_beside(_: &Setup, attachment: &Attachment) -> Option<IdlePort> {
    let place = attachment.lasting_socket()?.parent()?;
    let mut idle = idle();
    let is_beside = |port: &IdlePort| port.attachment.lasting_socket().and_then(Path::parent) == Some(place);
    let at = idle.iter().position(is_beside)?;
    Some(idle.swap_remove(at))
}

/// Sends the client of a port away, and keeps the port, if it starts again.
pub(super) fn keep(setup: &Setup, port: IdlePort) {
    let number = port.facts.port;
    // SAFETY: the port exists, and no thread uses it any more; the interrupt thread, where it is gated, stays parked.
    let status = gate::held(|| unsafe {
        dpdk_sys::rte_eth_dev_stop(number);
        dpdk_sys::rte_eth_dev_start(number)
    });
    port.place.settle();
    if status == 0 {
        idle().push(port);
    } else {
        configure::close(setup, number);
    }
}

/// Closes the port that has been kept for longest. `false` where there is none.
pub(super) fn close_one(setup: &Setup) -> bool {
    let mut idle = idle();
    if idle.is_empty() {
        return false;
    }
    configure::close(setup, idle.remove(0).facts.port);
    true
}

/// Removes the socket that a process left which has ended: a server cannot make one in its place. One that somebody listens
/// at stays, and DPDK says so.
pub(super) fn remove_stale(socket: &Path) {
    let listening = std::fs::read_to_string("/proc/net/unix").unwrap_or_default();
    let end = format!(" {}", socket.display());
    let is_socket = socket.symlink_metadata().is_ok_and(|file| file.file_type().is_socket());
    if is_socket && !listening.lines().any(|line| line.ends_with(&end)) {
        drop(std::fs::remove_file(socket));
    }
}

fn idle() -> MutexGuard<'static, Vec<IdlePort>> {
    IDLE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn only_a_socket_without_a_listener_is_removed() {
        let directory = tempfile::tempdir().expect("a directory");
        let [live, stale, file] = ["a live one", "stale", "file"].map(|name| directory.path().join(name));
        let _listener = UnixListener::bind(&live).expect("a socket");
        drop(UnixListener::bind(&stale).expect("a socket"));
        std::fs::write(&file, "").expect("a file");
        for path in [&live, &stale, &file] {
            remove_stale(path);
        }
        assert_eq!([&live, &stale, &file].map(|path| path.exists()), [true, false, true]);
    }
}
