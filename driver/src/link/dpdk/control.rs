//! memif's control channels, found from outside: its driver does not expose their descriptors.

use std::fs::read_dir;
use std::os::fd::BorrowedFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::{socket_domain, socket_type};
use rustix::net::{AddressFamily, SocketType};

/// Whether something waits to be read on any socket of the kind that memif's control channels are.
pub(super) fn is_any_readable() -> bool {
    let Ok(entries) = read_dir("/proc/self/fd") else { return false };
    entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).any(is_readable)
}

fn is_readable(number: i32) -> bool {
    // SAFETY: the number is no -1. It is only asked what it is: should it be closed or be another one by now, the
    // answer is about that, or an error, and nothing is read or changed.
    let descriptor = unsafe { BorrowedFd::borrow_raw(number) };
    if socket_domain(descriptor) != Ok(AddressFamily::UNIX) || socket_type(descriptor) != Ok(SocketType::SEQPACKET) {
        return false;
    }
    let mut asked = [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)];
    poll(&mut asked, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|ready| ready > 0)
}
