//! Who makes progress, who may sleep meanwhile, and threads that share an endpoint.

mod common;

use std::time::{Duration, Instant};

use common::{EAGAIN, End, PATIENCE, Pair, pattern};
use roci_fi::abi::attributes::{FI_PROGRESS_AUTO, FI_WAIT_FD};
use roci_fi::abi::flags::FI_PEEK;
use roci_fi::abi::queues::{FI_GETWAIT, fi_cq_tagged_entry};
use roci_fi::abi::{FI_ADDR_UNSPEC, fi_context};

/// Waits for an entry of one end, while the other does nothing.
fn wait_alone(end: &End) -> fi_cq_tagged_entry {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(news) = end.read() {
            return news.good();
        }
        assert!(Instant::now() < deadline, "nothing comes");
    }
}

#[test]
fn an_application_that_computes_is_served_where_it_asks_for_that() {
    let ask = |info: &mut roci_fi::abi::attributes::fi_info| {
        // SAFETY: the provider has made the attributes.
        unsafe { (*info.domain_attr).data_progress = FI_PROGRESS_AUTO };
    };
    let pair = Pair::of([End::open(), End::with(ask, |_| {})]);
    let (bytes, mut room) = (pattern(1_000_000, 4), vec![0; 1_000_000]);
    assert_eq!(pair.ends[1].trecv(FI_ADDR_UNSPEC, (1, 0), &mut room, 5), 0);
    assert_eq!(pair.ends[0].tsend(pair.numbers[0], 1, &bytes, 6), 0);
    // A message of this length needs the receiver, which calls nothing.
    assert_eq!(wait_alone(&pair.ends[0]).op_context as usize, 6);
    assert_eq!(pair.wait(1).good().op_context as usize, 5);
    assert!(room == bytes);
}

#[test]
fn a_thread_sleeps_on_a_queues_descriptor() {
    let pair = Pair::of([End::open(), End::with(|_| {}, |queue| queue.wait_obj = FI_WAIT_FD)]);
    let [sender, receiver] = &pair.ends;
    let mut number = -1;
    // SAFETY: the queue is open, and there is room for a descriptor.
    unsafe {
        let queue = receiver.queue;
        let got = ((*(*queue).fid.ops).control)(queue.cast(), FI_GETWAIT, (&raw mut number).cast());
        assert_eq!(got, 0);
    }
    let sleep = |timeout: Duration| {
        let mut poll = libc::pollfd { fd: number, events: libc::POLLIN, revents: 0 };
        // SAFETY: it is one descriptor.
        unsafe { libc::poll(&raw mut poll, 1, timeout.as_millis() as i32) }
    };
    for round in 0..3 {
        let mut room = [0; 8];
        assert_eq!(receiver.trecv(FI_ADDR_UNSPEC, (round, 0), &mut room, 5), 0);
        assert_eq!(sleep(Duration::from_millis(20)), 0, "nothing is there");
        assert_eq!(sender.tsend(pair.numbers[0], round, b"wake up", 6), 0);
        wait_alone(sender);
        // The sender only lets its connection come to be.
        let deadline = Instant::now() + PATIENCE;
        while sleep(Duration::from_millis(1)) == 0 {
            pair.progress(0);
            assert!(Instant::now() < deadline, "the descriptor is not readable");
        }
        assert_eq!(receiver.read().expect("it is there").good().op_context as usize, 5);
        assert!(receiver.read().is_none() && room[..7] == *b"wake up");
    }
}

/// A send has ended for its sender before the peers are connected, and then the application waits at another queue.
#[test]
fn who_reads_one_queue_moves_what_other_endpoints_of_the_domain_have_sent() {
    let pair = Pair::open();
    let [sender, receiver] = &pair.ends;
    let other = sender.sibling();
    assert_eq!(other.enable(), 0);
    let mut room = [0; 8];
    assert_eq!(receiver.trecv(FI_ADDR_UNSPEC, (1, 0), &mut room, 5), 0);
    assert_eq!(sender.tsend(pair.numbers[0], 1, b"moved on", 6), 0);
    let deadline = Instant::now() + PATIENCE;
    let came = loop {
        assert!(other.read().is_none(), "nothing is for it");
        if let Some(news) = receiver.read() {
            break news.good();
        }
        assert!(Instant::now() < deadline, "the message does not come");
    };
    assert!(came.op_context as usize == 5 && room == *b"moved on");
}

/// Pointers to objects that any thread may use.
#[derive(Clone, Copy)]
struct Shared<'a>(&'a Pair);

// SAFETY: the endpoints are thread-safe, which is what the test is for.
unsafe impl Send for Shared<'_> {}

impl Shared<'_> {
    /// One thread's messages to the other end, under a tag of its own.
    fn send_all(self, thread: u64, count: usize) {
        let messages: Vec<_> = (0..count).map(|number| pattern(100 + number * 40, number)).collect();
        for message in &messages {
            while self.0.ends[0].tsend(self.0.numbers[0], thread, message, 1) == EAGAIN {
                self.0.progress(0);
            }
        }
        // The long ones are read from where they lie until all have ended.
        std::mem::forget(messages);
    }
}

#[test]
fn threads_share_an_endpoint() {
    const THREADS: u64 = 3;
    const COUNT: usize = 300;
    let pair = Pair::open();
    let shared = Shared(&pair);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || shared.send_all(thread, COUNT));
        }
        for number in 0..COUNT {
            for thread in 0..THREADS {
                let mut room = vec![0; 100 + COUNT * 40];
                assert_eq!(pair.ends[1].trecv(pair.numbers[1], (thread, 0), &mut room, 7), 0);
                let received = pair.wait(1).good();
                assert_eq!(
                    (received.tag, received.len),
                    (thread, 100 + number * 40),
                    "messages of a thread are in order"
                );
                assert!(room[..received.len] == pattern(received.len, number));
            }
        }
    });
    for _ in 0..THREADS * COUNT as u64 {
        pair.wait(0).good();
    }
}

/// A queue that is never read does not grow for ever.
#[test]
fn a_queue_that_is_not_read_takes_no_more() {
    let end = End::open();
    assert_eq!(end.enable(), 0);
    let mut context = fi_context::default();
    let taken = (0..100_000).take_while(|_| end.look(FI_PEEK, &mut context, &mut []) == 0).count();
    assert_eq!(taken, 1 << 16);
    assert_eq!(end.look(FI_PEEK, &mut context, &mut []), EAGAIN);
    end.read().expect("they are there").bad();
    assert_eq!(end.look(FI_PEEK, &mut context, &mut []), 0);
}

/// A thread that makes progress has ended when its endpoint is closed: what it stands on can be closed, too.
#[test]
fn endpoints_with_threads_are_opened_and_closed() {
    for _ in 0..20 {
        let end = End::with(|_| {}, |queue| queue.wait_obj = FI_WAIT_FD);
        assert_eq!(end.enable(), 0);
        std::thread::sleep(Duration::from_millis(3));
    }
}

#[test]
fn who_waits_for_a_queue_is_called_back() {
    let pair = Pair::open();
    // SAFETY: the queue is open.
    unsafe {
        let queue = pair.ends[0].queue;
        let ops = (*queue).ops;
        let mut entry: fi_cq_tagged_entry = std::mem::zeroed();
        assert_eq!(((*ops).signal)(queue), 0);
        let nothing = std::ptr::null();
        assert_eq!(((*ops).sread)(queue, (&raw mut entry).cast(), 1, nothing, -1), EAGAIN);
        assert_eq!(((*ops).sread)(queue, (&raw mut entry).cast(), 1, nothing, 1), EAGAIN, "that was its time");
    }
}
