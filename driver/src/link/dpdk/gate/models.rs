//! The gate's protocol under every order of its threads' steps. What runs is the code of `protocol`; DPDK's alarms, the
//! eventfd and membarrier(2) are played here.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use loom::cell::UnsafeCell;
use loom::model;
use loom::sync::Condvar;
use loom::thread::{JoinHandle, spawn};

use super::machine::{GateError, GateOps};
use super::protocol::{GateProtocol, InBurst};
use crate::sync::{AtomicBool, Mutex, fence};

/// A flag that one thread sets and another waits for and takes away: an alarm, an eventfd.
#[derive(Default)]
struct Signal {
    is_set: Mutex<bool>,
    rung: Condvar,
}

impl Signal {
    fn set(&self) {
        *self.is_set.lock().expect("no thread panics") = true;
        self.rung.notify_one();
    }

    fn take(&self) {
        let mut is_set = self.is_set.lock().expect("no thread panics");
        while !*is_set {
            is_set = self.rung.wait(is_set).expect("no thread panics");
        }
        *is_set = false;
    }
}

/// What stands between a store and a load.
#[derive(Clone, Copy, PartialEq)]
enum Between {
    Fences,
    /// membarrier(2): each running thread is interrupted at a moment of the kernel's choice, and the caller waits for all.
    Membarrier,
}

struct Played {
    between: Between,
    alarm: Signal,
    is_over: AtomicBool,
    wake: Signal,
    /// The poll loop is to be interrupted, and has been, or runs no more.
    is_asked: AtomicBool,
    has_answered: AtomicBool,
}

impl Played {
    /// A moment at which an interrupt may come. Each of them comes at last.
    fn moment(&self) {
        if self.is_asked.load(Ordering::Acquire) {
            self.has_answered.store(true, Ordering::Release);
        }
    }
}

impl GateOps for Played {
    fn set_alarm(&self) -> Result<(), GateError> {
        self.alarm.set();
        Ok(())
    }

    fn wake(&self) {
        self.wake.set();
    }

    fn sleep(&self) {
        self.wake.take();
    }

    fn fence_of_burst(&self) {
        match self.between {
            Between::Fences => fence(Ordering::SeqCst),
            Between::Membarrier => self.moment(),
        }
    }

    fn fence_of_opener(&self) -> bool {
        fence(Ordering::SeqCst);
        if self.between == Between::Membarrier {
            self.is_asked.store(true, Ordering::Release);
            while !self.has_answered.load(Ordering::Acquire) {
                loom::thread::yield_now();
            }
        }
        true
    }
}

/// A process with an interrupt thread. Whatever that thread does when it is not parked changes the rings, which bursts read:
/// loom finds both at once.
#[derive(Clone)]
struct Process {
    protocol: Arc<GateProtocol<Played>>,
    rings: Arc<UnsafeCell<()>>,
}

impl Process {
    fn new(between: Between) -> Self {
        let played = Played {
            between,
            alarm: Signal::default(),
            is_over: AtomicBool::new(false),
            wake: Signal::default(),
            is_asked: AtomicBool::new(false),
            has_answered: AtomicBool::new(false),
        };
        Self { protocol: Arc::new(GateProtocol::new(played)), rings: Arc::new(UnsafeCell::new(())) }
    }

    fn start_interrupt_thread(&self) -> JoinHandle<()> {
        let process = self.clone();
        spawn(move || {
            loop {
                process.rings.with_mut(|_| ());
                process.protocol.machine.alarm.take();
                if process.protocol.machine.is_over.load(Ordering::Acquire) {
                    return;
                }
                process.protocol.serve();
            }
        })
    }

    /// The interrupt thread, which is free, ends.
    fn end(&self, interrupt_thread: JoinHandle<()>) {
        self.protocol.machine.is_over.store(true, Ordering::Release);
        self.protocol.machine.alarm.set();
        interrupt_thread.join().expect("no panic");
    }

    fn burst(&self, in_burst: &InBurst) -> bool {
        self.protocol.burst(in_burst, || self.rings.with(|_| ())).is_some()
    }

    fn start_poll_loop(&self, in_burst: &Arc<InBurst>, bursts: usize) -> JoinHandle<()> {
        let (process, in_burst) = (self.clone(), in_burst.clone());
        spawn(move || {
            for _ in 0..bursts {
                process.protocol.machine.moment();
                process.burst(&in_burst);
            }
            process.protocol.machine.moment();
            process.protocol.machine.has_answered.store(true, Ordering::Release);
        })
    }
}

/// One loop opens the gate while another one polls.
fn one_opens_while_another_polls(between: Between) {
    model(move || {
        let process = Process::new(between);
        let interrupt_thread = process.start_interrupt_thread();
        process.protocol.park().expect("it parks");
        let loops = [Arc::new(InBurst::default()), Arc::new(InBurst::default())];
        let other = process.start_poll_loop(&loops[1], 2);
        assert!(process.protocol.open(&loops));
        assert!(process.burst(&loops[0]), "the loop that opened it finds it shut again");
        other.join().expect("no panic");
        process.protocol.free();
        process.end(interrupt_thread);
    });
}

#[test]
fn no_burst_runs_while_the_interrupt_thread_does() {
    one_opens_while_another_polls(Between::Fences);
}

#[test]
fn membarrier_does_for_the_fence_of_a_burst() {
    one_opens_while_another_polls(Between::Membarrier);
}

#[test]
fn each_opening_waits_for_a_parking_of_its_own() {
    model(|| {
        let process = Process::new(Between::Fences);
        let interrupt_thread = process.start_interrupt_thread();
        process.protocol.park().expect("it parks");
        let in_burst = Arc::new(InBurst::default());
        for _ in 0..2 {
            assert!(process.protocol.open(std::slice::from_ref(&in_burst)));
            assert!(process.burst(&in_burst));
        }
        process.protocol.free();
        process.end(interrupt_thread);
    });
}

#[test]
fn a_thread_that_was_just_freed_is_parked_again() {
    model(|| {
        let process = Process::new(Between::Fences);
        let interrupt_thread = process.start_interrupt_thread();
        for _ in 0..2 {
            process.protocol.park().expect("it parks");
            process.rings.with(|_| ());
            process.protocol.free();
        }
        process.end(interrupt_thread);
    });
}
