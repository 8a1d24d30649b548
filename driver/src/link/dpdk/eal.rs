//! DPDK's environment abstraction layer: started once per process, never stopped.
//!
//! Later calls, on any thread, add virtual devices to the EAL that runs. One thread at a time creates or closes ports;
//! drivers keep lists that they do not lock.

use std::cell::{Cell, RefCell};
use std::ffi::{CStr, CString, NulError, c_char};
use std::fmt;
use std::path::Path;
use std::process;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use rustix::io::Errno;
use rustix::thread::{CpuSet, sched_getaffinity};
use thiserror::Error;

/// Why DPDK did not start.
#[derive(Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum EalError {
    /// It runs already, and what was asked for can only be had when it starts.
    #[error("DPDK is running in this process already: only virtual devices can be added to it")]
    AlreadyStarted,
    /// It runs in a process that this one was forked from.
    #[error(
        "DPDK runs in the process that this one was forked from, and not here: start another program, or use UDP sockets"
    )]
    Forked,
    /// An argument holds a NUL byte.
    #[error("an EAL argument holds a NUL byte")]
    Nul,
    /// There are more arguments than a C program takes.
    #[error("too many EAL arguments")]
    TooLong,
    /// It cannot find out which processors there are.
    #[error("DPDK needs {PROCESSORS}, and it is not there: mount -t sysfs sysfs /sys")]
    NoSysfs,
    /// It refused.
    #[error("DPDK did not start: {cause}; the EAL arguments were: {line}")]
    Refused {
        /// DPDK's reason, and the last lines of its log.
        cause: String,
        /// What it was given.
        line: String,
    },
}

/// Why there is no virtual device.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub(super) enum DeviceRefusal {
    /// Its name or an option holds a NUL byte.
    #[error("{}", EalError::Nul)]
    Nul(#[from] NulError),
    /// DPDK refused: its reason, and the last lines of its log.
    #[error("{0}")]
    Dpdk(String),
}

/// Proof that DPDK runs in this process.
#[derive(Clone, Copy, Debug)]
pub struct Eal {
    /// It has what it reserved when it started, and no hugepages to take more from.
    is_memory_fixed: bool,
}

static STARTED: OnceLock<Eal> = OnceLock::new();
static SETUP: Mutex<()> = Mutex::new(());
/// The process that has started DPDK, or tried to; 0 is none.
static STARTER: AtomicU32 = AtomicU32::new(0);

/// Where DPDK looks for the processors; without it it calls all of them unavailable.
const PROCESSORS: &str = "/sys/devices/system/cpu";
/// Lines of DPDK's log that an error quotes.
const LAST_LINES: usize = 3;
/// Memory that DPDK takes beside the packet buffers, in MiB.
const OVERHEAD_MIB: usize = 96;

/// The right to start DPDK and to create and close ports: one thread has it.
pub(super) struct Setup(#[expect(dead_code, reason = "held, not used")] MutexGuard<'static, ()>);

impl Setup {
    pub(super) fn begin() -> Self {
        Self(SETUP.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Fails in a forked child of a process with DPDK: its threads are not here, and its locks may be theirs. Call it before [`Setup::begin`].
pub(super) fn check_not_inherited() -> Result<(), EalError> {
    let starter = STARTER.load(Ordering::Relaxed);
    if starter == 0 || starter == process::id() { Ok(()) } else { Err(EalError::Forked) }
}

impl Eal {
    /// DPDK, if it runs.
    pub(super) fn running(_: &Setup) -> Option<Self> {
        STARTED.get().copied()
    }

    /// Starts DPDK with room for `buffer_bytes` of packet buffers. `no_huge` runs it on ordinary memory, which any
    /// user may: that much is all it will ever have, but the kernel gives a page only when it is touched.
    pub(super) fn start(
        setup: &Setup,
        no_huge: bool,
        buffer_bytes: usize,
        device_arguments: &[String],
    ) -> Result<Self, EalError> {
        if Self::running(setup).is_some() {
            return Err(EalError::AlreadyStarted);
        }
        if !Path::new(PROCESSORS).exists() {
            return Err(EalError::NoSysfs);
        }
        STARTER.store(process::id(), Ordering::Relaxed);
        // The caller reports what goes wrong; the whole log is shown where it is asked for by its own name.
        let is_loud = tracing::enabled!(target: "dpdk", tracing::Level::TRACE);
        let log = format!("--log-level=*:{}", if is_loud { "debug" } else { "error" });
        // SAFETY: DPDK does not run yet, and the caller holds the lock that makes this the only call in the process.
        let status = unsafe { dpdk_sys::roci_log_open(is_loud) };
        assert_eq!(status, 0, "a stream in memory can be had");
        let mut line: Vec<String> = ["roci", "--no-telemetry", "--no-shconf", &log].map(str::to_owned).into();
        line.extend(["--lcores".to_owned(), format!("0@({})", allowed_cpus())]);
        if no_huge {
            line.extend(["--no-pci", "--no-huge", "-m"].map(str::to_owned));
            line.push((OVERHEAD_MIB + (buffer_bytes >> 20)).to_string());
        }
        line.extend_from_slice(device_arguments);
        init(&line)?;
        PLACE.set(Some(ThreadRole::Main));
        Ok(*STARTED.get_or_init(|| Self { is_memory_fixed: no_huge }))
    }

    /// Whether an error number, of either sign, says that what DPDK reserved is used up.
    pub(super) const fn is_out_of_memory(self, errno: i32) -> bool {
        self.is_memory_fixed && errno.abs() == Errno::NOMEM.raw_os_error()
    }

    /// Creates a virtual device. On failure there is none, and DPDK's reason comes back.
    pub(super) fn add_device(_: Self, _: &Setup, name: &str, options: &str) -> Result<(), DeviceRefusal> {
        let (name, options) = (CString::new(name)?, CString::new(options)?);
        // SAFETY: DPDK runs; both strings are NUL-terminated and copied; no other thread creates or closes a port.
        let status = unsafe { dpdk_sys::roci_vdev_init(name.as_ptr(), options.as_ptr()) };
        if status == 0 { Ok(()) } else { Err(DeviceRefusal::Dpdk(with_last_words(describe(status)))) }
    }

    /// Removes a virtual device whose port is not in use.
    pub(super) fn remove_device(_: Self, _: &Setup, name: &str) {
        if let Ok(name) = CString::new(name) {
            // SAFETY: DPDK runs; the string is NUL-terminated; no other thread creates or closes a port. A device that
            // does not exist is refused.
            unsafe { dpdk_sys::rte_vdev_uninit(name.as_ptr()) };
        }
    }

    /// Makes the calling thread one of DPDK's until it ends: pools of packet buffers keep a cache for each of those.
    /// Where there is no place left, it works without a cache.
    pub(super) fn enter_thread(_: Self) {
        if PLACE.with_borrow(Option::is_some) {
            return;
        }
        // SAFETY: DPDK runs, and this thread is none of its own.
        if unsafe { dpdk_sys::rte_thread_register() } == 0 {
            PLACE.set(Some(ThreadRole::Registered));
        } else {
            tracing::warn!("DPDK has no place for this thread, which is slower for it: {}", last_error());
        }
    }
}

/// Which thread it is, in a word that no other thread of the process ever has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ThreadMark(u64);

impl ThreadMark {
    #[inline]
    pub(super) fn current() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        thread_local!(static MARK: Cell<u64> = const { Cell::new(0) });
        let mark = MARK.get();
        if mark != 0 {
            return Self(mark);
        }
        let fresh = NEXT.fetch_add(1, Ordering::Relaxed);
        MARK.set(fresh);
        Self(fresh)
    }
}

/// The calling thread is none of DPDK's from here on, unless it is the one that started it: it has no caches in pools any more.
pub(super) fn leave_thread() {
    PLACE.with_borrow_mut(|place| place.take_if(|place| matches!(place, ThreadRole::Registered)));
}

thread_local! {
    static PLACE: RefCell<Option<ThreadRole>> = const { RefCell::new(None) };
}

/// What a thread is to DPDK.
enum ThreadRole {
    /// The one that started it; it keeps this place for ever.
    Main,
    /// One that came later.
    Registered,
}

impl Drop for ThreadRole {
    /// The thread ends; a packet buffer that it returns after this goes past the cache.
    fn drop(&mut self) {
        if matches!(self, Self::Registered) {
            // SAFETY: this very thread was registered.
            unsafe { dpdk_sys::rte_thread_unregister() };
        }
    }
}

/// Words of command lines, and arrays of pointers to them. DPDK keeps pointers to its arguments and writes into the array, so all last as
/// long as the process; who looks for leaks finds them here.
static LASTING_WORDS: Mutex<Vec<&[AtomicPtr<c_char>]>> = Mutex::new(Vec::new());

fn init(line: &[String]) -> Result<(), EalError> {
    let words: Result<Vec<CString>, _> = line.iter().map(|word| CString::new(word.as_str())).collect();
    let argc = i32::try_from(line.len()).map_err(|_| EalError::TooLong)?;
    let words = words.map_err(|_| EalError::Nul)?.into_iter().map(|word| AtomicPtr::new(word.into_raw()));
    let words: &'static [AtomicPtr<c_char>] = Box::leak(words.collect());
    let pointers = words.iter().map(|word| AtomicPtr::new(word.load(Ordering::Relaxed)));
    let argv: &'static [AtomicPtr<c_char>] = Box::leak(pointers.chain([AtomicPtr::default()]).collect());
    LASTING_WORDS.lock().unwrap_or_else(PoisonError::into_inner).extend([words, argv]);
    take_log();
    // SAFETY: `argv` holds `argc` NUL-terminated strings, which may be written, and a null pointer, all of which last; an
    // `AtomicPtr<T>` is laid out as a `*mut T`, and may be written behind a shared reference. The caller holds the lock that makes this
    // the only call in the process.
    let used = unsafe { dpdk_sys::roci_eal_init(argc, argv.as_ptr().cast_mut().cast()) };
    if used < 0 {
        return Err(EalError::Refused { cause: with_last_words(last_error()), line: line[1..].join(" ") });
    }
    Ok(())
}

/// A reason, with what DPDK said last before it, and what the kernel refused a driver of shared memory.
pub(super) fn with_last_words(cause: String) -> String {
    let refusal = SyscallRefusal::take().map_or_else(String::new, |refusal| format!("; {refusal}"));
    let words = last_words(&take_log());
    let meaning = meaning_of(&words);
    if words.is_empty() { cause + &refusal } else { format!("{cause}; DPDK says: {words}{meaning}{refusal}") }
}

/// Returns what is behind words of DPDK's that name no reason.
fn meaning_of(words: &str) -> &'static str {
    // 24.11 reports that its vhost library could not start its thread as EPERM.
    if words.contains("Vhost-user fdset") {
        ": it cannot start a thread of its own: raise the limit of processes (ulimit -u, pids.max), or of memory"
    } else {
        ""
    }
}

/// A system call of a shared-memory driver that the kernel has refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SyscallRefusal {
    pub(super) call: &'static CStr,
    pub(super) reason: Errno,
}

impl SyscallRefusal {
    /// The last one since the last call, of all ports.
    pub(super) fn take() -> Option<Self> {
        let mut call = std::ptr::null();
        // SAFETY: writes a pointer to a local, under a lock of its own.
        let reason = unsafe { dpdk_sys::roci_refusal_take(&raw mut call) };
        if reason == 0 {
            return None;
        }
        // SAFETY: with a reason comes the name of a call, NUL-terminated, in memory that is never written or freed.
        let call = unsafe { CStr::from_ptr(call) };
        Some(Self { call, reason: Errno::from_raw_os_error(reason) })
    }

    /// What can be done about it.
    fn remedy(self) -> &'static str {
        match self.reason {
            Errno::MFILE => ": raise the limit of descriptors, ulimit -n",
            Errno::NFILE => ": raise the machine's limit of open files, sysctl fs.file-max",
            Errno::NOMEM | Errno::NOBUFS => ": free memory, or raise the container's limit",
            Errno::NOSPC | Errno::DQUOT => ": free memory, which files without a name are made of",
            Errno::AGAIN => ": raise the limits of this user, ulimit -a",
            _ => "",
        }
    }
}

impl fmt::Display for SyscallRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let call = self.call.to_string_lossy();
        write!(f, "{call} failed: {}{}", describe(self.reason.raw_os_error()), self.remedy())
    }
}

/// What DPDK has said since the last call, or the end of that.
fn take_log() -> String {
    let mut bytes = [0_u8; 8192];
    // SAFETY: writes as many bytes as there are at most, under a lock of its own.
    let count = unsafe { dpdk_sys::roci_log_take(bytes.as_mut_ptr().cast(), bytes.len()) };
    String::from_utf8_lossy(&bytes[..count]).into_owned()
}

/// The last lines of a log as one. Pages of help begin with their usage: what stands before them is the reason.
fn last_words(log: &str) -> String {
    let lines = log.lines().take_while(|line| !line.starts_with("Usage:")).map(str::trim);
    let mut said: Vec<_> = lines.filter(|line| !line.is_empty()).collect();
    said.dedup();
    said[said.len().saturating_sub(LAST_LINES)..].join(" / ")
}

/// The reason of the last failed call on this thread.
fn last_error() -> String {
    describe(last_errno())
}

/// The error number of the last failed call on this thread.
pub(super) fn last_errno() -> i32 {
    // SAFETY: reads DPDK's thread-local error number.
    unsafe { dpdk_sys::roci_errno() }
}

/// The text of an error number, of either sign.
pub(super) fn describe(errno: i32) -> String {
    // SAFETY: returns a NUL-terminated string for any number; it is copied before anybody can overwrite it.
    unsafe { CStr::from_ptr(dpdk_sys::rte_strerror(errno.abs())) }.to_string_lossy().into_owned()
}

/// The processors that this thread may run on: DPDK would otherwise pin it to one.
fn allowed_cpus() -> String {
    let set = sched_getaffinity(None).unwrap_or_else(|_| {
        let mut first = CpuSet::new();
        first.set(0);
        first
    });
    let cpus: Vec<_> = (0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).map(|cpu| cpu.to_string()).collect();
    cpus.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_the_call_the_reason_and_the_remedy() {
        let said = |reason| SyscallRefusal { call: c"accept", reason }.to_string();
        let wanted = "accept failed: Too many open files: raise the limit of descriptors, ulimit -n";
        assert_eq!(said(Errno::MFILE), wanted);
        assert_eq!(said(Errno::ACCESS), "accept failed: Permission denied");
    }

    #[test]
    fn a_vhost_thread_that_cannot_start_is_named() {
        let words = "VHOST_CONFIG: (/tmp/0-1) failed to init Vhost-user fdset / ETHDEV: Port0 dev_configure = -1";
        assert!(meaning_of(words).contains("cannot start a thread"));
        assert_eq!(meaning_of("ETHDEV: Port0 dev_configure = -1"), "");
    }

    #[test]
    fn the_last_lines_before_a_page_of_help_are_the_reason() {
        assert_eq!(last_words(""), "");
        assert_eq!(last_words("one\n\n two \nthree\nfour\nfour\n"), "two / three / four");
        assert_eq!(last_words("EAL: unknown\n\nUsage: roci [options]\n -a\n -b\n"), "EAL: unknown");
    }
}
