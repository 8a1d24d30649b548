//! DPDK's environment abstraction layer: started once per process, never stopped.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io;
use std::sync::{Mutex, OnceLock};

use rustix::thread::{CpuSet, sched_getaffinity};
use thiserror::Error;

/// Why DPDK did not start.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum EalError {
    /// It runs already, and can be started only once per process.
    #[error("DPDK is running in this process already, and it can be started only once")]
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
pub struct Eal(());

static STARTED: OnceLock<()> = OnceLock::new();
static STARTING: Mutex<()> = Mutex::new(());

/// Memory that DPDK takes beside the packet buffers, in MiB.
const OVERHEAD_MIB: usize = 96;

impl Eal {
    /// Starts DPDK with room for `buffer_bytes` of packet buffers. `no_huge` runs it on ordinary memory, which any
    /// user may.
    pub fn start(no_huge: bool, buffer_bytes: usize, device_arguments: &[String]) -> Result<Self, EalError> {
        let _guard = STARTING.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if STARTED.get().is_some() {
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
        STARTED.get_or_init(|| ());
        Ok(Self(()))
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
pub(super) fn last_error() -> String {
    // SAFETY: reads DPDK's thread-local error number.
    describe(unsafe { dpdk_sys::roci_errno() })
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
