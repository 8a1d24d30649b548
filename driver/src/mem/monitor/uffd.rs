//! The kernel's userfaultfd (userfaultfd(2), ioctl_userfaultfd(2), linux/userfaultfd.h), as far as it reports events.

use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::ioctl::{Setter, Updater, ioctl, opcode};
use rustix::mm::{UserfaultfdFlags, userfaultfd};
use static_assertions::const_assert_eq;

const API: u64 = 0xaa;
const TYPE: u8 = 0xaa;
/// Faults of the kernel's own are not to be handled, which no process needs a privilege for (Linux 5.11).
const USER_MODE_ONLY: u32 = 1;
const MODE_WP: u64 = 1 << 1;

const FEATURE_PAGEFAULT_FLAG_WP: u64 = 1 << 0;
const FEATURE_EVENT_REMAP: u64 = 1 << 2;
const FEATURE_EVENT_REMOVE: u64 = 1 << 3;
const FEATURE_EVENT_UNMAP: u64 = 1 << 6;
const FEATURE_WP_HUGETLBFS_SHMEM: u64 = 1 << 12;
const NEEDED: u64 = FEATURE_PAGEFAULT_FLAG_WP | FEATURE_EVENT_REMAP | FEATURE_EVENT_REMOVE | FEATURE_EVENT_UNMAP;

const EVENT_REMAP: u8 = 0x14;
const EVENT_REMOVE: u8 = 0x15;
const EVENT_UNMAP: u8 = 0x16;

#[repr(C)]
struct ApiArgument {
    api: u64,
    features: u64,
    ioctls: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct RangeArgument {
    start: u64,
    len: u64,
}

#[repr(C)]
struct RegisterArgument {
    range: RangeArgument,
    mode: u64,
    ioctls: u64,
}

const_assert_eq!(size_of::<ApiArgument>(), 24);
const_assert_eq!(size_of::<RangeArgument>(), 16);
const_assert_eq!(size_of::<RegisterArgument>(), 32);

const UFFDIO_API: u32 = opcode::read_write::<ApiArgument>(TYPE, 0x3f);
const UFFDIO_REGISTER: u32 = opcode::read_write::<RegisterArgument>(TYPE, 0x00);
/// A reading opcode by its number, though the argument is only written.
const UFFDIO_UNREGISTER: u32 = opcode::read::<RangeArgument>(TYPE, 0x01);

/// Bytes of a message.
pub(super) const MESSAGE: usize = 32;

/// What a message of userfaultfd reports.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum UffdEvent {
    /// A range is no longer what it was.
    Changed(Range<usize>),
    /// Something that was not asked for.
    Unknown,
}

impl UffdEvent {
    /// Reads a message: its kind, 7 bytes of nothing, and three words.
    pub(super) fn parse(message: &[u8; MESSAGE]) -> Self {
        let word = |number: usize| {
            let bytes = message[8 * number..].first_chunk().expect("a message has four words");
            u64::from_ne_bytes(*bytes) as usize
        };
        match message[0] {
            // From, to, length: what lies at the new place is still watched, and belongs to no region.
            EVENT_REMAP => Self::Changed(word(1)..word(1).saturating_add(word(3))),
            EVENT_REMOVE | EVENT_UNMAP => Self::Changed(word(1)..word(2)),
            _ => Self::Unknown,
        }
    }
}

/// A userfaultfd that is asked for events and never for faults.
#[derive(Debug)]
pub(super) struct Userfaultfd(OwnedFd);

impl Userfaultfd {
    pub(super) fn open() -> io::Result<Self> {
        let huge_pages_too = NEEDED | FEATURE_WP_HUGETLBFS_SHMEM;
        Self::with(huge_pages_too).or_else(|error| {
            let knows_less = error.raw_os_error() == Some(Errno::INVAL.raw_os_error());
            if knows_less { Self::with(NEEDED) } else { Err(error) }
        })
    }

    fn with(features: u64) -> io::Result<Self> {
        let flags = UserfaultfdFlags::CLOEXEC | UserfaultfdFlags::NONBLOCK;
        let user_only = flags | UserfaultfdFlags::from_bits_retain(USER_MODE_ONLY);
        // SAFETY: a userfaultfd changes nothing before memory is registered with it; see `register`.
        let fd = unsafe { userfaultfd(user_only) }.or_else(|error| match error {
            // SAFETY: as above.
            Errno::INVAL => unsafe { userfaultfd(flags) },
            _ => Err(error),
        })?;
        let mut argument = ApiArgument { api: API, features, ioctls: 0 };
        // SAFETY: the opcode belongs to the argument's type.
        unsafe { ioctl(&fd, Updater::<UFFDIO_API, ApiArgument>::new(&mut argument)) }?;
        Ok(Self(fd))
    }

    pub(super) fn try_clone(&self) -> io::Result<OwnedFd> {
        self.0.try_clone()
    }

    /// From here on, events tell what happens to `range`.
    pub(super) fn register(&self, range: &Range<usize>) -> io::Result<()> {
        let mut argument = RegisterArgument { range: argument(range), mode: MODE_WP, ioctls: 0 };
        // SAFETY: the opcode belongs to the argument's type. Nothing is ever write-protected, so that no access to the
        // memory faults because of this.
        unsafe { ioctl(&self.0, Updater::<UFFDIO_REGISTER, RegisterArgument>::new(&mut argument)) }?;
        Ok(())
    }

    /// Stops the events for `range`.
    pub(super) fn unregister(&self, range: &Range<usize>) -> io::Result<()> {
        // SAFETY: the opcode belongs to the argument's type, and waiting faults there are none.
        unsafe { ioctl(&self.0, Setter::<UFFDIO_UNREGISTER, RangeArgument>::new(argument(range))) }?;
        Ok(())
    }

    /// Ends everything, also memory that was moved to where nothing was registered: each mapping that says that it has
    /// a userfaultfd of this mode. One of another's refuses, from Linux 6.15 on; before, a program that write-protects
    /// memory by a userfaultfd of its own has to register it again.
    pub(super) fn unregister_all(&self) {
        let text = std::fs::read_to_string("/proc/self/smaps").unwrap_or_default();
        for range in watched(&text) {
            // What is gone by now needs nothing.
            let _ = self.unregister(&range);
        }
    }
}

fn argument(range: &Range<usize>) -> RangeArgument {
    RangeArgument { start: range.start as u64, len: range.len() as u64 }
}

/// The mappings with the flag `uw` in the list of proc_pid_smaps(5).
fn watched(text: &str) -> Vec<Range<usize>> {
    let hex = |text| usize::from_str_radix(text, 16).ok();
    let mut here = None;
    let mut ranges = Vec::new();
    for line in text.lines() {
        let first = line.split_ascii_whitespace().next().unwrap_or_default();
        if let Some((start, end)) = first.split_once('-') {
            here = hex(start).zip(hex(end));
        } else if first == "VmFlags:" && line.split_ascii_whitespace().any(|flag| flag == "uw") {
            ranges.extend(here.map(|(start, end)| start..end));
        }
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u8, words: [u64; 3]) -> [u8; MESSAGE] {
        let mut message = [0; MESSAGE];
        message[0] = kind;
        for (at, word) in words.into_iter().enumerate() {
            message[8 + 8 * at..16 + 8 * at].copy_from_slice(&word.to_ne_bytes());
        }
        message
    }

    #[test]
    fn messages_name_what_changed() {
        assert_eq!(UffdEvent::parse(&message(0x16, [0x1000, 0x3000, 0])), UffdEvent::Changed(0x1000..0x3000));
        assert_eq!(UffdEvent::parse(&message(0x15, [0x1000, 0x2000, 9])), UffdEvent::Changed(0x1000..0x2000));
        assert_eq!(UffdEvent::parse(&message(0x14, [0x1000, 0x9000, 0x3000])), UffdEvent::Changed(0x1000..0x4000));
        assert_eq!(UffdEvent::parse(&message(0x14, [0x1000, 0, u64::MAX])), UffdEvent::Changed(0x1000..usize::MAX));
        for unknown in [0, 0x12, 0x13, 0x17, 0xff] {
            assert_eq!(UffdEvent::parse(&message(unknown, [1, 2, 3])), UffdEvent::Unknown);
        }
    }

    #[test]
    fn watched_mappings_are_found_by_their_flag() {
        let text = "1000-3000 rw-p 00000000 00:00 0\nSize: 8 kB\nVmFlags: rd wr mr uw \n\
                    3000-4000 rw-p 00000000 00:00 0\nVmFlags: rd wr \n\
                    zz-4000 rw-p\nVmFlags: uw\n";
        assert_eq!(watched(text), vec![0x1000..0x3000; 1]);
    }
}
