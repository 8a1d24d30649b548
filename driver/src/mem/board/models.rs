//! What the monitor reports and what the cache finds, under every order of their steps. What runs is the board, the
//! cache and the reader's `tell`; the kernel and the device are played here.
//!
//! The kernel's part is that of userfaultfd(2): a call that unmaps changes the memory, leaves an event, and returns
//! when the event has been read, whether or not the board shows it by then.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};

use loom::model;
use loom::sync::Condvar;
use loom::thread::spawn;
use memmap2::MmapMut;
use rustix::io::Errno;

use super::super::cache::{Cache, CacheLimits};
use super::super::monitor::tell;
use super::super::registrar::{RegisterError, Registrar};
use super::super::watch::{MonitorChoice, Watch};
use super::WatchTable;
use crate::sync::{self, Mutex, MutexGuard};

const PAGE: usize = 4096;
const EVENT_UNMAP: u64 = 0x16;

/// What the kernel knows of a page of memory.
#[derive(Default)]
struct Memory {
    /// How often other memory has come to its place.
    version: u64,
    /// Events that were left, and read.
    left: u64,
    read: u64,
    is_over: bool,
}

#[derive(Default)]
struct Kernel {
    memory: Mutex<Memory>,
    changed: Condvar,
}

impl Kernel {
    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().expect("no thread panics")
    }

    fn wait_until(&self, is_so: impl Fn(&Memory) -> bool) -> MutexGuard<'_, Memory> {
        let mut memory = self.memory();
        while !is_so(&memory) {
            memory = self.changed.wait(memory).expect("no thread panics");
        }
        memory
    }

    /// Unmaps the page, and maps another in its place.
    fn replace(&self) {
        let mut memory = self.memory();
        memory.version += 1;
        memory.left += 1;
        let ours = memory.left;
        drop(memory);
        self.changed.notify_all();
        drop(self.wait_until(|memory| memory.read >= ours));
    }

    /// Reads one event, of a page at `base`.
    fn read(&self, base: usize, messages: &mut [u8]) -> Result<usize, Errno> {
        let mut memory = self.memory();
        if memory.read == memory.left {
            return Err(Errno::AGAIN);
        }
        memory.read += 1;
        self.changed.notify_all();
        let words = [EVENT_UNMAP, base as u64, (base + PAGE) as u64, 0];
        for (to, word) in messages.chunks_exact_mut(8).zip(words) {
            to.copy_from_slice(&word.to_ne_bytes());
        }
        Ok(32)
    }

    fn end(&self) {
        self.memory().is_over = true;
        self.changed.notify_all();
    }
}

/// A device that takes the memory that is there when it is registered: its version is the token.
#[derive(Clone)]
struct Device(Arc<Kernel>);

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Device")
    }
}

impl Registrar for Device {
    fn register(&mut self, _base: usize, _len: usize) -> Result<u64, RegisterError> {
        Ok(self.0.memory().version)
    }

    fn unregister(&mut self, _token: u64, _is_gone: bool) {}
}

struct Scene {
    kernel: Arc<Kernel>,
    board: Arc<WatchTable>,
    cache: Cache<Device>,
    page: Range<usize>,
}

impl Scene {
    fn new(page: Range<usize>) -> Self {
        let kernel = Arc::new(Kernel::default());
        let board = Arc::new(WatchTable::new().expect("memory"));
        let watch = Watch::new(board.clone(), MonitorChoice::UnsafeNone).expect("it needs no monitor");
        let cache = Cache::new(Device(kernel.clone()), watch, CacheLimits { regions: 2, bytes: 2 * PAGE });
        Self { kernel, board, cache, page }
    }

    fn start_monitor(&self) -> loom::thread::JoinHandle<()> {
        let (kernel, board, base) = (self.kernel.clone(), self.board.clone(), self.page.start);
        spawn(move || {
            let is_lost = AtomicBool::new(false);
            while !kernel.wait_until(|memory| memory.is_over || memory.read < memory.left).is_over {
                assert!(tell(&board, &is_lost, |messages| kernel.read(base, messages)));
            }
        })
    }

    /// The version of the memory that a transfer from here would find.
    fn acquire(&mut self) -> u64 {
        self.cache.acquire(self.page.clone()).expect("it is there").expect("there is room").token()
    }

    /// A transfer finds what the application sees.
    fn check(&mut self) {
        let found = self.acquire();
        assert_eq!(found, self.kernel.memory().version, "a stale registration was served");
    }
}

/// Runs `body` with a page that is really there: the cache asks the kernel that really runs.
fn with_page(body: impl Fn(Scene) + Send + Sync + 'static) {
    let map = MmapMut::map_anon(PAGE).expect("memory");
    model(move || body(Scene::new(map.as_ptr().addr()..map.as_ptr().addr() + PAGE)));
}

#[test]
fn a_thread_that_has_replaced_its_memory_sends_from_the_new_pages() {
    with_page(|mut scene| {
        let monitor = scene.start_monitor();
        scene.check();
        scene.kernel.replace();
        scene.check();
        scene.kernel.end();
        monitor.join().expect("no panic");
    });
}

#[test]
fn memory_that_another_thread_replaces_is_the_new_once_its_call_has_returned() {
    with_page(|mut scene| {
        let monitor = scene.start_monitor();
        let (kernel, has_returned) = (scene.kernel.clone(), Arc::new(sync::AtomicBool::new(false)));
        let returned = has_returned.clone();
        let other = spawn(move || {
            kernel.replace();
            returned.store(true, Release);
        });
        // While that call lasts either may be found.
        scene.acquire();
        if has_returned.load(Acquire) {
            scene.check();
        }
        other.join().expect("no panic");
        scene.check();
        scene.kernel.end();
        monitor.join().expect("no panic");
    });
}
