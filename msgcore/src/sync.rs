//! What threads share is made of: the standard library's parts and crossbeam's queue, or what stands for them where loom's
//! models run (`--cfg loom`). Only what a model looks at takes them from here.

#[cfg(not(all(loom, test)))]
pub(crate) use crossbeam::queue::ArrayQueue;
#[cfg(not(all(loom, test)))]
pub(crate) use kernel::EventFd;
#[cfg(not(all(loom, test)))]
pub(crate) use std::{
    sync::Mutex,
    sync::atomic::{AtomicBool, AtomicU8, fence},
    thread::{Thread, current, park_timeout},
};

#[cfg(all(loom, test))]
pub(crate) use loom::{
    sync::Mutex,
    sync::atomic::{AtomicBool, AtomicU8, fence},
};
#[cfg(all(loom, test))]
pub(crate) use played::{ArrayQueue, PlayedEventFd as EventFd, Thread, current, park_timeout};

#[cfg(not(all(loom, test)))]
mod kernel {
    use std::io;
    use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

    use rustix::event::{EventfdFlags, eventfd};
    use rustix::io::{Errno, read, write};

    /// A counter of the kernel's that is readable while it is not zero (eventfd(2)). No call of it blocks.
    #[derive(Debug)]
    pub(crate) struct EventFd(OwnedFd);

    impl EventFd {
        /// Makes one that is not readable, and closed on exec.
        pub(crate) fn new() -> io::Result<Self> {
            Ok(Self(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?))
        }

        /// Makes it readable.
        pub(crate) fn signal(&self) {
            match write(&self.0, &1u64.to_ne_bytes()) {
                // A full counter is readable already.
                Ok(_) | Err(Errno::AGAIN) => {}
                Err(errno) => panic!("the worker's own descriptor cannot be written: {errno}"),
            }
        }

        /// Makes it unreadable; returns whether it was readable.
        pub(crate) fn clear(&self) -> bool {
            match read(&self.0, &mut [0u8; 8]) {
                Ok(_) => true,
                Err(Errno::AGAIN) => false,
                Err(errno) => panic!("the worker's own descriptor cannot be read: {errno}"),
            }
        }
    }

    impl AsFd for EventFd {
        fn as_fd(&self) -> BorrowedFd<'_> {
            self.0.as_fd()
        }
    }
}

#[cfg(all(loom, test))]
mod played {
    use std::io;
    use std::os::fd::{AsFd, BorrowedFd};
    use std::sync::Arc;
    use std::time::Duration;

    use loom::sync::atomic::AtomicUsize;
    use loom::sync::atomic::Ordering::{Acquire, Relaxed, Release};
    use loom::sync::{Condvar, Mutex};

    /// Places of a queue, whatever is asked for: a model fills no more.
    const PLACES: usize = 2;

    loom::thread_local! { static OURS: Thread = Thread::default(); }

    /// A thread's token, which an unpark leaves and a park takes. That of loom also wakes who waits for something else.
    #[derive(Clone, Default)]
    pub(crate) struct Thread(Arc<(Mutex<bool>, Condvar)>);

    impl Thread {
        pub(crate) fn unpark(&self) {
            *self.0.0.lock().expect("no thread panics") = true;
            self.0.1.notify_one();
        }
    }

    impl std::fmt::Debug for Thread {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("Thread")
        }
    }

    pub(crate) fn current() -> Thread {
        OURS.with(Thread::clone)
    }

    /// A thread that is not woken here sleeps for ever, which loom reports.
    pub(crate) fn park_timeout(_at_most: Duration) {
        let Thread(token) = current();
        let mut is_there = token.0.lock().expect("no thread panics");
        while !*is_there {
            is_there = token.1.wait(is_there).expect("no thread panics");
        }
        *is_there = false;
    }

    /// An eventfd, and how often it was written since it was last read.
    #[derive(Debug, Default)]
    pub(crate) struct PlayedEventFd(Mutex<u64>, Condvar);

    impl PlayedEventFd {
        pub(crate) fn new() -> io::Result<Self> {
            Ok(Self::default())
        }

        pub(crate) fn signal(&self) {
            *self.0.lock().expect("no thread panics") += 1;
            self.1.notify_one();
        }

        pub(crate) fn clear(&self) -> bool {
            self.take() > 0
        }

        /// Reads it; returns how often it was written.
        pub(crate) fn take(&self) -> u64 {
            std::mem::take(&mut *self.0.lock().expect("no thread panics"))
        }

        /// Sleeps until it is readable, as poll(2) does without a timeout.
        pub(crate) fn poll(&self) {
            let mut count = self.0.lock().expect("no thread panics");
            while *count == 0 {
                count = self.1.wait(count).expect("no thread panics");
            }
        }
    }

    impl AsFd for PlayedEventFd {
        fn as_fd(&self) -> BorrowedFd<'_> {
            unreachable!("a model does not ask the kernel")
        }
    }

    /// A queue of one producer and one consumer that promises less than crossbeam's, whose steps are all sequentially
    /// consistent: an end is seen some time, and with it what was put there. The locks are no two threads' at a time.
    pub(crate) struct ArrayQueue<T> {
        places: [Mutex<Option<T>>; PLACES],
        head: AtomicUsize,
        tail: AtomicUsize,
    }

    impl<T> ArrayQueue<T> {
        pub(crate) fn new(_places: usize) -> Self {
            let places = std::array::from_fn(|_| Mutex::new(None));
            Self { places, head: AtomicUsize::new(0), tail: AtomicUsize::new(0) }
        }

        pub(crate) fn push(&self, value: T) -> Result<(), T> {
            let tail = self.tail.load(Relaxed);
            if tail - self.head.load(Acquire) == PLACES {
                return Err(value);
            }
            *self.places[tail % PLACES].lock().expect("no thread panics") = Some(value);
            self.tail.store(tail + 1, Release);
            Ok(())
        }

        pub(crate) fn pop(&self) -> Option<T> {
            let head = self.head.load(Relaxed);
            if head == self.tail.load(Acquire) {
                return None;
            }
            let value = self.places[head % PLACES].lock().expect("no thread panics").take();
            self.head.store(head + 1, Release);
            value
        }

        pub(crate) fn len(&self) -> usize {
            self.tail.load(Acquire) - self.head.load(Acquire)
        }

        pub(crate) fn is_empty(&self) -> bool {
            self.len() == 0
        }

        pub(crate) fn is_full(&self) -> bool {
            self.len() == PLACES
        }
    }
}
