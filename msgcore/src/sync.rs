//! What threads share is made of: the standard library's parts and crossbeam's queue, or what stands for them where loom's
//! models run (`--cfg loom`). Only what a model looks at takes them from here.

#[cfg(not(all(loom, test)))]
pub(crate) use crossbeam::queue::ArrayQueue;
#[cfg(not(all(loom, test)))]
pub(crate) use std::{
    sync::Mutex,
    sync::atomic::{AtomicBool, fence},
    thread::{Thread, current, park_timeout},
};

#[cfg(all(loom, test))]
pub(crate) use loom::{
    sync::Mutex,
    sync::atomic::{AtomicBool, fence},
};
#[cfg(all(loom, test))]
pub(crate) use played::{ArrayQueue, Thread, current, park_timeout};

#[cfg(all(loom, test))]
mod played {
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
