//! GASNet-EX over the provider, as its conduit over libfabric (`ofi-conduit`) calls it: two ranks, each a thread with three endpoints.

mod common;
#[path = "common/conduit.rs"]
mod conduit;

use std::cell::{Cell, RefCell};
use std::ffi::c_int;
use std::rc::Rc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use common::{EAGAIN, PATIENCE, SharedBytes, pattern};
use conduit::{AUXILIARY_KEY, LONGEST, REPLY, REQUEST, Rank, SEGMENT_KEY, Wishes};
use roci_fi::abi::attributes::{FI_AV_TABLE, FI_THREAD_DOMAIN, FI_THREAD_SAFE};
use roci_fi::abi::memory::{FI_MR_ALLOCATED, FI_MR_VIRT_ADDR};
use roci_fi::info::ADDRESS_LEN;

/// Active messages of each rank.
const REQUESTS: usize = 1_500;
/// Bytes of a segment, and of what a put without a copy of GASNet's own begins with.
const SEGMENT_LEN: usize = 1 << 20;
const SHORT: usize = 64;

/// What threads that are ranks have in common: what a launcher does for processes.
#[derive(Default)]
struct Job {
    names: Mutex<[[[u8; ADDRESS_LEN]; 3]; 2]>,
    /// Where the segments lie, and the memory that GASNet itself uses.
    segments: Mutex<[[u64; 2]; 2]>,
    /// How many ranks have come to any meeting.
    come: AtomicUsize,
}

/// A rank of a job.
struct Member<'a> {
    job: &'a Job,
    rank: Rank,
    me: usize,
    meetings: usize,
    tally: Tally,
}

/// What has come to a rank.
#[derive(Default)]
struct Tally {
    requests: Cell<usize>,
    replies: Cell<usize>,
    /// Messages that lie where they were sent from until all has ended, and how many of them have a completion.
    kept: RefCell<Vec<Vec<u8>>>,
    with_completion: Cell<usize>,
}

/// Runs the same in two ranks, until both have ended as GASNet does.
fn run(threading: c_int, body: impl Fn(&mut Member<'_>) + Sync) {
    let job = Job::default();
    std::thread::scope(|scope| {
        for me in 0..2 {
            let (job, body) = (&job, &body);
            scope.spawn(move || {
                let rank = Rank::open(threading);
                let mut member = Member { job, rank, me, meetings: 0, tally: Tally::default() };
                job.names.lock().expect("no rank has panicked")[me] = member.rank.names();
                member.meet_silently();
                let names = *job.names.lock().expect("no rank has panicked");
                member.rank.meet(&names);
                body(&mut member);
                member.rank.exit();
            });
        }
    });
}

/// The bytes of an active message: its number, and so many more that its number chooses, in words.
fn message(number: usize, sender: usize) -> Vec<u8> {
    let mut bytes = pattern((number * 56 % LONGEST / 8 + 1) * 8, number + sender);
    bytes[..8].copy_from_slice(&(number as u64).to_ne_bytes());
    bytes
}

impl Member<'_> {
    /// Waits for the other rank, as a launcher has one wait: without a call of the provider's.
    fn meet_silently(&mut self) {
        let deadline = self.come();
        while !self.are_all_there() {
            assert!(Instant::now() < deadline, "the other rank does not come");
            std::thread::yield_now();
        }
    }

    /// Waits for the other rank, and polls meanwhile.
    fn meet(&mut self) {
        let deadline = self.come();
        while !self.are_all_there() {
            self.poll();
            assert!(Instant::now() < deadline, "the other rank does not come");
        }
    }

    fn come(&mut self) -> Instant {
        self.meetings += 1;
        self.job.come.fetch_add(1, Ordering::AcqRel);
        Instant::now() + PATIENCE
    }

    fn are_all_there(&self) -> bool {
        self.job.come.load(Ordering::Acquire) >= 2 * self.meetings
    }

    fn poll(&mut self) {
        let (tally, me) = (&self.tally, self.me);
        self.rank.poll(&mut |rank, which, bytes, data| handle(rank, tally, me, (which, bytes, data)));
    }

    /// Polls until something holds.
    fn poll_until(&mut self, holds: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !holds(self) {
            self.poll();
            assert!(Instant::now() < deadline, "it does not come to that");
        }
    }

    /// Tries until it has begun, and polls meanwhile.
    fn begin(&mut self, attempt: impl Fn(&Rank) -> isize) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match attempt(&self.rank) {
                0 => return,
                EAGAIN => self.poll(),
                other => panic!("the call returns {other}"),
            }
            assert!(Instant::now() < deadline, "it does not begin");
        }
    }

    fn request(&mut self, number: usize, data: Option<u64>) {
        let bytes = message(number, self.me);
        let (peer, start) = (1 - self.me, keep(&self.tally, &self.rank, bytes));
        self.begin(|rank| rank.send(REQUEST, peer, start, data));
    }

    /// Where the other rank has its segment, and what GASNet itself uses.
    fn segments_of_other(&self) -> [u64; 2] {
        self.job.segments.lock().expect("no rank has panicked")[1 - self.me]
    }
}

/// Keeps a message where it lies.
fn keep(tally: &Tally, rank: &Rank, bytes: Vec<u8>) -> &'static [u8] {
    tally.with_completion.set(tally.with_completion.get() + usize::from(rank.has_completion(&bytes)));
    // SAFETY: nothing is taken out before the rank has ended, and what a vector owns does not move with it.
    let start = unsafe { std::slice::from_raw_parts(bytes.as_ptr(), bytes.len()) };
    tally.kept.borrow_mut().push(bytes);
    start
}

/// A handler of GASNet's: a request is replied to, and while that cannot be sent replies alone are looked at.
fn handle(rank: &mut Rank, tally: &Tally, me: usize, (which, bytes, data): (usize, &[u8], u64)) {
    let number = u64::from_ne_bytes(bytes[..8].try_into().expect("it has a number")) as usize;
    let is_with_data = which == REQUEST && number % 3 == 2;
    assert_eq!(data, if is_with_data { number as u64 * 5 } else { 0 });
    if which == REPLY {
        assert!(bytes == message(number, 1 - me + 2), "reply {number}");
        return tally.replies.set(tally.replies.get() + 1);
    }
    assert!(bytes == message(number, 1 - me), "request {number}");
    tally.requests.set(tally.requests.get() + 1);
    let reply = keep(tally, rank, message(number, me + 2));
    let deadline = Instant::now() + PATIENCE;
    loop {
        match rank.send(REPLY, 1 - me, reply, None) {
            0 => return,
            EAGAIN => rank.poll_replies(&mut |rank, which, bytes, data| handle(rank, tally, me, (which, bytes, data))),
            other => panic!("a reply returns {other}"),
        }
        assert!(Instant::now() < deadline, "the reply does not leave");
    }
}

/// Memory is reached by virtual addresses and the conduit's own keys, and nothing is asked of it that it cannot do.
#[test]
fn the_conduit_finds_what_it_asks_for() {
    for threading in [FI_THREAD_DOMAIN, FI_THREAD_SAFE] {
        let Wishes { any, rma, messages } = Wishes::ask(threading).expect("it is there");
        for info in [any, rma, messages] {
            // SAFETY: the provider has made the attributes.
            unsafe {
                let domain = &*info.domain_attr;
                assert_eq!((info.mode, (*info.tx_attr).mode, (*info.rx_attr).mode), (0, 0, 0));
                assert_eq!((domain.av_type, domain.threading), (FI_AV_TABLE, threading));
                assert_eq!(domain.mr_mode, FI_MR_VIRT_ADDR | FI_MR_ALLOCATED);
                assert!((*info.ep_attr).max_msg_size >= 1 << 30 && (*info.tx_attr).inject_size >= SHORT);
            }
        }
    }
}

/// Both ranks ask and answer at once, into buffers that are posted again when all their messages were handled.
#[test]
fn requests_are_replied_to_while_both_ranks_ask() {
    for threading in [FI_THREAD_DOMAIN, FI_THREAD_SAFE] {
        run(threading, |member| {
            for number in 0..REQUESTS {
                member.request(number, (number % 3 == 2).then_some(number as u64 * 5));
            }
            member.poll_until(|it| it.tally.replies.get() == REQUESTS && it.tally.requests.get() == REQUESTS);
            member.poll_until(|it| it.rank.messages_sent == it.tally.with_completion.get());
            member.meet();
        });
    }
}

/// Puts that share a context are counted one by one, and have ended when their bytes are there.
#[test]
fn puts_and_gets_end_as_often_as_they_were_begun() {
    const PUTS: usize = 300;
    const LEN: usize = 3_000;
    run(FI_THREAD_DOMAIN, |member| {
        let (segment, auxiliary) =
            (Rc::new(SharedBytes::new(&vec![0; SEGMENT_LEN])), Rc::new(SharedBytes::new(&[0; 8 * SHORT])));
        member.rank.expose(&auxiliary, AUXILIARY_KEY);
        member.rank.expose(&segment, SEGMENT_KEY);
        member.job.segments.lock().expect("no rank has panicked")[member.me] = [segment.addr(), auxiliary.addr()];
        member.meet_silently();
        let (peer, [there, auxiliary_there]) = (1 - member.me, member.segments_of_other());
        member.rank.ended = vec![0; 3];
        let bytes = pattern(PUTS * LEN, member.me);
        for at in 0..PUTS {
            let (part, place) = (&bytes[at * LEN..][..LEN], (there + (at * LEN) as u64, SEGMENT_KEY));
            member.begin(|rank| rank.put(peer, part, place, 0));
            // A short one is copied: what it came from changes at once.
            let mut short = [(at % 200) as u8 + 1; 8];
            let place = (auxiliary_there + (at % SHORT * 8) as u64, AUXILIARY_KEY);
            member.begin(|rank| rank.put_copy(peer, &short, place, 1));
            short.fill(0xff);
        }
        member.poll_until(|it| it.rank.ended[..2] == [PUTS, PUTS]);
        let room = SharedBytes::new(&vec![0; PUTS * LEN]);
        member.begin(|rank| rank.get(peer, &room, PUTS * LEN, (there, SEGMENT_KEY), 2));
        member.poll_until(|it| it.rank.ended[2] == 1);
        assert!(room.to_vec() == bytes);
        member.meet();
        assert!(segment.part(0, PUTS * LEN) == pattern(PUTS * LEN, peer));
        assert!(auxiliary.to_vec().iter().all(|byte| (1..=200).contains(byte)));
        member.meet();
    });
}

/// What a rank has been sent comes after it has given up its receives, and their memory.
#[test]
fn a_rank_ends_while_messages_to_it_are_under_way() {
    run(FI_THREAD_DOMAIN, |member| {
        member.request(0, None);
        member.poll_until(|it| it.tally.replies.get() == 1 && it.tally.requests.get() == 1);
        member.meet();
        for number in 1..60 {
            member.request(number * 3, None);
        }
        member.meet_silently();
    });
}
