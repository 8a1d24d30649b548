//! DPDK's environment abstraction layer: started once per process, never stopped.
//!
//! Whoever comes later, on whatever thread, adds virtual devices to what runs. All that creates or closes ports does
//! so one thread at a time; drivers keep lists that they do not lock.

use std::cell::RefCell;
use std::ffi::{CStr, CString};
use std::fs::File;
use std::io;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use rustix::thread::{CpuSet, sched_getaffinity};
use thiserror::Error;

/// Why DPDK did not start.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum EalError {
    /// It runs already, and what was asked for can only be had when it starts.
    #[error("DPDK is running in this process already: only virtual devices can be added to it")]
    AlreadyStarted,
    /// An argument holds a NUL byte.
    #[error("an EAL argument holds a NUL byte")]
    Nul,
    /// There are more arguments than a C program takes.
    #[error("too many EAL arguments")]
    TooLong,
    /// It refused.
    #[error("DPDK did not start: {cause}; the EAL arguments were: {line} (RUST_LOG=debug shows its log)")]
    Refused {
        /// DPDK's reason.
        cause: String,
        /// What it was given.
        line: String,
    },
}

/// Proof that DPDK runs in this process.
#[derive(Clone, Copy, Debug)]
pub struct Eal {
    /// It has what it reserved when it started, and no hugepages to take more from.
    is_memory_fixed: bool,
}

static STARTED: OnceLock<Eal> = OnceLock::new();
static SETUP: Mutex<()> = Mutex::new(());

/// Memory that DPDK takes beside the packet buffers, in MiB.
const OVERHEAD_MIB: usize = 96;

/// The right to start DPDK and to create and close ports: one thread has it.
pub(super) struct Setup(#[expect(dead_code, reason = "held, not used")] MutexGuard<'static, ()>);

impl Setup {
    pub(super) fn begin() -> Self {
        Self(SETUP.lock().unwrap_or_else(PoisonError::into_inner))
    }
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
        // What goes wrong is reported here, in one line; DPDK's own log is for who asks for it.
        let is_loud = tracing::enabled!(tracing::Level::DEBUG);
        let log = format!("--log-level=*:{}", if is_loud { "debug" } else { "critical" });
        let mut line: Vec<String> = ["roci", "--no-telemetry", "--no-shconf", &log].map(str::to_owned).into();
        line.extend(["--lcores".to_owned(), format!("0@({})", allowed_cpus())]);
        if no_huge {
            line.extend(["--no-pci", "--no-huge", "-m"].map(str::to_owned));
            line.push((OVERHEAD_MIB + (buffer_bytes >> 20)).to_string());
        }
        line.extend_from_slice(device_arguments);
        if is_loud { init(&line) } else { in_silence(|| init(&line)) }?;
        PLACE.set(Some(Place::Main));
        Ok(*STARTED.get_or_init(|| Self { is_memory_fixed: no_huge }))
    }

    /// Whether an error number, of either sign, says that what DPDK reserved is used up.
    pub(super) const fn is_out_of_memory(self, errno: i32) -> bool {
        self.is_memory_fixed && errno.abs() == rustix::io::Errno::NOMEM.raw_os_error()
    }

    /// Creates a virtual device. On failure there is none, and DPDK's reason comes back.
    pub(super) fn add_device(_: Self, _: &Setup, name: &str, options: &str) -> Result<(), String> {
        let words = CString::new(name).and_then(|name| Ok((name, CString::new(options)?)));
        let (name, options) = words.map_err(|_| EalError::Nul.to_string())?;
        // SAFETY: DPDK runs; both strings are NUL-terminated and copied; no other thread creates or closes a port.
        let status = unsafe { dpdk_sys::rte_vdev_init(name.as_ptr(), options.as_ptr()) };
        if status == 0 { Ok(()) } else { Err(describe(status)) }
    }

    /// Takes back a virtual device whose port nobody uses.
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
            PLACE.set(Some(Place::Registered));
        } else {
            tracing::warn!("DPDK has no place for this thread, which is slower for it: {}", last_error());
        }
    }
}

thread_local! {
    static PLACE: RefCell<Option<Place>> = const { RefCell::new(None) };
}

/// What DPDK takes a thread for.
enum Place {
    /// The one that started it; it keeps this place for ever.
    Main,
    /// One that came later.
    Registered,
}

impl Drop for Place {
    /// The thread ends; a packet buffer that it returns after this goes past the cache.
    fn drop(&mut self) {
        if matches!(self, Self::Registered) {
            // SAFETY: this very thread was registered.
            unsafe { dpdk_sys::rte_thread_unregister() };
        }
    }
}

/// Runs `action` with stdout and stderr closed to the world: DPDK prints a page of help at a wrong argument, and
/// every layer that a failure passes adds a line. Where that cannot be had, it is loud.
fn in_silence<T>(action: impl FnOnce() -> T) -> T {
    use rustix::stdio::{dup2_stderr, dup2_stdout, stderr, stdout};
    let quiet = || {
        let null = File::options().write(true).open("/dev/null")?;
        let kept = (rustix::io::dup(stdout())?, rustix::io::dup(stderr())?);
        dup2_stdout(&null)?;
        dup2_stderr(&null)?;
        io::Result::Ok(kept)
    };
    let kept = quiet();
    let result = action();
    // SAFETY: takes nothing; C's streams are locked by themselves.
    unsafe { dpdk_sys::roci_flush_streams() };
    if let Ok((out, err)) = kept {
        // Putting back what was there a moment ago fails only where a descriptor is not one.
        let _ = dup2_stdout(out);
        let _ = dup2_stderr(err);
    }
    result
}

fn init(line: &[String]) -> Result<(), EalError> {
    let words: Result<Vec<CString>, _> = line.iter().map(|word| CString::new(word.as_str())).collect();
    // DPDK keeps pointers to its arguments: they live as long as the process.
    let mut argv: Vec<_> = words.map_err(|_| EalError::Nul)?.into_iter().map(CString::into_raw).collect();
    let argc = i32::try_from(argv.len()).map_err(|_| EalError::TooLong)?;
    argv.push(std::ptr::null_mut());
    let argv = Box::leak(argv.into_boxed_slice());
    // SAFETY: `argv` holds `argc` NUL-terminated strings and a null pointer, all leaked; the caller holds the
    // lock that makes this the only call in the process.
    let used = unsafe { dpdk_sys::rte_eal_init(argc, argv.as_mut_ptr()) };
    if used < 0 {
        return Err(EalError::Refused { cause: last_error(), line: line[1..].join(" ") });
    }
    Ok(())
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
