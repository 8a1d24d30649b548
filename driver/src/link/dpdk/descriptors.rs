//! Descriptors that DPDK and its ports will take, counted before it starts: its interrupt thread aborts the process where it
//! is refused one, and drivers that are refused one leave half a port.

use std::fs::read_dir;

use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use super::device::{Attachment, Device};
use super::error::{PortError, TooFewDescriptors};

/// What the first call takes: the interrupt thread's pipe and epoll instance, the alarms' timer, the memory, and the gate.
const START: usize = 6;
/// The pipe of vhost's thread, which serves all ports.
const VHOST_THREAD: usize = 2;
/// Files that are read in passing.
const SPARE: usize = 2;

/// Whether this process may open so many descriptors beside those that are open.
///
/// # Errors
/// When its limit is lower.
pub fn room_for_descriptors(more: usize) -> Result<(), TooFewDescriptors> {
    let Some(limit) = getrlimit(Resource::Nofile).current else { return Ok(()) };
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let needed = open_below(limit) + more;
    if needed <= limit { Ok(()) } else { Err(TooFewDescriptors { needed, limit }) }
}

/// Whether there is room for what ports will take.
pub(super) fn check(attachments: &[Attachment], is_running: bool) -> Result<(), PortError> {
    let ports = attachments.len();
    room_for_descriptors(demand(attachments, is_running)).map_err(|cause| PortError::Descriptors { ports, cause })
}

/// The limit is one of numbers: what is open beyond it, from before it was lowered, takes none of them.
fn open_below(limit: usize) -> usize {
    match read_dir("/proc/self/fd") {
        Ok(entries) => {
            let numbers = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
            // One of them is the directory's own.
            numbers.filter(|&number: &usize| number < limit).count().saturating_sub(1)
        }
        Err(error) if error.raw_os_error() == Some(Errno::MFILE.raw_os_error()) => limit,
        // Without /proc the number is unknown.
        Err(_) => 0,
    }
}

fn demand(attachments: &[Attachment], is_running: bool) -> usize {
    let start = if is_running { 0 } else { START };
    let serves_vhost = attachments.iter().any(|port| *port.device() == Device::Vhost && port.is_server());
    let thread = if serves_vhost && !is_running { VHOST_THREAD } else { 0 };
    start + thread + SPARE + attachments.iter().map(Attachment::descriptors).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn port(device: Device, is_server: bool) -> Attachment {
        Attachment::pair(device, Path::new("/run/x"), is_server, [2, 0, 0, 0, 0, 1])
    }

    #[test]
    fn each_port_adds_to_the_demand_and_what_runs_already_does_not() {
        let memif = [port(Device::Memif, true), port(Device::Memif, false)];
        assert_eq!(demand(&memif, false), START + SPARE + 9);
        assert_eq!(demand(&memif, true), SPARE + 9);
        let vhost = [port(Device::Vhost, true), port(Device::Vhost, false)];
        assert_eq!(demand(&vhost, false), START + VHOST_THREAD + SPARE + 12);
    }

    #[test]
    fn numbers_at_the_limit_or_beyond_are_not_counted() {
        let all = open_below(usize::MAX);
        assert!(all >= 3 && open_below(2) <= 2 && open_below(0) == 0, "{all}");
    }
}
