//! An application in libfabric's terms, which calls the provider as libfabric does: through its tables of functions.
#![allow(dead_code, unreachable_pub)]

use std::ffi::{c_char, c_int, c_void};
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use roci_fi::abi::attributes::{FI_AV_TABLE, FI_CQ_FORMAT_TAGGED, fi_av_attr, fi_cntr_attr, fi_cq_attr, fi_info};
use roci_fi::abi::flags::{FI_MULTI_RECV, FI_PEEK, FI_RECV, FI_REMOTE_READ, FI_REMOTE_WRITE, FI_SEND};
use roci_fi::abi::memory::{fi_msg_rma, fi_rma_iov, fid_mr};
use roci_fi::abi::queues::{FI_ENABLE, fi_cq_err_entry, fi_cq_tagged_entry, fi_msg, fi_msg_tagged};
use roci_fi::abi::{
    FI_ADDR_UNSPEC, fi_addr_t, fi_context, fi_version, fid, fid_av, fid_cntr, fid_cq, fid_domain, fid_ep, fid_fabric,
    iovec,
};
use roci_fi::info::ADDRESS_LEN;

/// How long a test waits for what must come.
pub const PATIENCE: Duration = Duration::from_secs(30);
pub const EAGAIN: isize = -(libc::EAGAIN as isize);
pub const EAVAIL: isize = -259;

/// One endpoint and what it is bound to, opened in the order of an MPI library.
pub struct End {
    pub info: *mut fi_info,
    pub fabric: *mut fid_fabric,
    pub domain: *mut fid_domain,
    pub vector: *mut fid_av,
    pub queue: *mut fid_cq,
    pub endpoint: *mut fid_ep,
    /// The domain and the fabric are another end's, who closes them.
    is_sibling: bool,
    pub counter: Option<*mut fid_cntr>,
}

/// What a queue has.
#[derive(Clone, Copy, Debug)]
pub enum News {
    Good(fi_cq_tagged_entry, fi_addr_t),
    Bad(fi_cq_err_entry),
}

impl News {
    pub fn good(self) -> fi_cq_tagged_entry {
        match self {
            Self::Good(entry, _) => entry,
            Self::Bad(error) => panic!("it has failed: {error:?}"),
        }
    }

    pub fn bad(self) -> fi_cq_err_entry {
        match self {
            Self::Bad(error) => error,
            Self::Good(entry, _) => panic!("it has not failed: {entry:?}"),
        }
    }
}

/// Asks the provider as libfabric does.
pub fn getinfo(hints: *const fi_info) -> Result<*mut fi_info, c_int> {
    getinfo_of(null(), hints)
}

/// The same, of a host.
pub fn getinfo_of(node: *const c_char, hints: *const fi_info) -> Result<*mut fi_info, c_int> {
    getinfo_as(fi_version(1, 17), node, hints)
}

/// The same, by a version of the interface.
pub fn getinfo_as(version: u32, node: *const c_char, hints: *const fi_info) -> Result<*mut fi_info, c_int> {
    let mut info = null_mut();
    // SAFETY: the provider is there as long as the process is.
    let answer = unsafe { ((*roci_fi::fi_prov_ini()).getinfo)(version, node, null(), 0, hints, &raw mut info) };
    if answer == 0 { Ok(info) } else { Err(answer) }
}

fn good(answer: c_int) {
    assert_eq!(answer, 0);
}

impl End {
    pub fn open() -> Self {
        Self::with(|_| {}, |_| {})
    }

    /// With other attributes than those that the provider has returned, and of the queue.
    pub fn with(change: impl FnOnce(&mut fi_info), change_queue: impl FnOnce(&mut fi_cq_attr)) -> Self {
        // SAFETY: all is done in libfabric's order, with objects that are open.
        unsafe {
            let info = getinfo(null()).expect("it is there");
            change(&mut *info);
            let mut end = Self {
                info,
                fabric: null_mut(),
                domain: null_mut(),
                vector: null_mut(),
                queue: null_mut(),
                endpoint: null_mut(),
                is_sibling: false,
                counter: None,
            };
            let provider = roci_fi::fi_prov_ini();
            good(((*provider).fabric)((*info).fabric_attr, &raw mut end.fabric, null_mut()));
            good(((*(*end.fabric).ops).domain)(end.fabric, info, &raw mut end.domain, null_mut()));
            end.open_endpoint(change_queue);
            end
        }
    }

    /// Another endpoint on the same domain, which is dropped first.
    pub fn sibling(&self) -> Self {
        let mut end = Self { is_sibling: true, counter: None, ..*self };
        end.open_endpoint(|_| {});
        end
    }

    fn open_endpoint(&mut self, change_queue: impl FnOnce(&mut fi_cq_attr)) {
        // SAFETY: the domain is open.
        unsafe {
            let ops = (*self.domain).ops;
            good(((*ops).endpoint)(self.domain, self.info, &raw mut self.endpoint, null_mut()));
            let mut vector: fi_av_attr = std::mem::zeroed();
            vector.r#type = FI_AV_TABLE;
            good(((*ops).av_open)(self.domain, &raw mut vector, &raw mut self.vector, null_mut()));
            let mut queue: fi_cq_attr = std::mem::zeroed();
            queue.format = FI_CQ_FORMAT_TAGGED;
            change_queue(&mut queue);
            good(((*ops).cq_open)(self.domain, &raw mut queue, &raw mut self.queue, null_mut()));
        }
        self.bind(self.vector.cast(), 0);
        self.bind(self.queue.cast(), FI_SEND | FI_RECV);
    }

    /// Has a counter of its own for operations of these kinds.
    pub fn count(&mut self, flags: u64) {
        let mut counter = null_mut();
        // SAFETY: the domain is open, and zeros are good attributes.
        unsafe {
            let mut attributes: fi_cntr_attr = std::mem::zeroed();
            let ops = (*self.domain).ops;
            good(((*ops).cntr_open)(self.domain, &raw mut attributes, &raw mut counter, null_mut()));
        }
        self.bind(counter.cast(), flags);
        self.counter = Some(counter);
    }

    /// How many operations have ended well, and how many have not.
    pub fn counted(&self) -> (u64, u64) {
        let counter = self.counter.expect("it counts");
        // SAFETY: it is open.
        unsafe {
            let ops = (*counter).ops;
            (((*ops).read)(counter), ((*ops).readerr)(counter))
        }
    }

    pub fn bind(&self, to: *mut fid, flags: u64) {
        // SAFETY: both are open.
        unsafe { good(((*(*self.endpoint).fid.ops).bind)(self.endpoint.cast(), to, flags)) }
    }

    pub fn enable(&self) -> c_int {
        // SAFETY: it is open.
        unsafe { ((*(*self.endpoint).fid.ops).control)(self.endpoint.cast(), FI_ENABLE, null_mut()) }
    }

    pub fn name(&self) -> [u8; ADDRESS_LEN] {
        let (mut name, mut len) = ([0; ADDRESS_LEN], ADDRESS_LEN);
        // SAFETY: there is room for an address.
        unsafe {
            good(((*(*self.endpoint).cm).getname)(self.endpoint.cast(), name.as_mut_ptr().cast(), &raw mut len));
        }
        assert_eq!(len, ADDRESS_LEN);
        name
    }

    /// Inserts an address; returns its number.
    pub fn insert(&self, name: &[u8]) -> fi_addr_t {
        let mut number = 0;
        // SAFETY: it is one address, and room for one number.
        let inserted = unsafe {
            ((*(*self.vector).ops).insert)(self.vector, name.as_ptr().cast(), 1, &raw mut number, 0, null_mut())
        };
        assert_eq!(inserted, 1);
        number
    }

    /// Reads one entry, if there is one.
    pub fn read(&self) -> Option<News> {
        // SAFETY: there is room for an entry and a source.
        unsafe {
            let mut entry: fi_cq_tagged_entry = std::mem::zeroed();
            let mut source = 0;
            let ops = (*self.queue).ops;
            match ((*ops).readfrom)(self.queue, (&raw mut entry).cast(), 1, &raw mut source) {
                1 => Some(News::Good(entry, source)),
                EAGAIN => None,
                EAVAIL => {
                    let mut error: fi_cq_err_entry = std::mem::zeroed();
                    assert_eq!(((*ops).readerr)(self.queue, &raw mut error, 0), 1);
                    Some(News::Bad(error))
                }
                other => panic!("fi_cq_readfrom returns {other}"),
            }
        }
    }

    /// The next entry, while only this end makes progress.
    pub fn wait_alone(&self) -> News {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(news) = self.read() {
                return news;
            }
            assert!(Instant::now() < deadline, "nothing comes");
        }
    }

    pub fn tsend(&self, to: fi_addr_t, tag: u64, bytes: &[u8], context: usize) -> isize {
        // SAFETY: the bytes stay until the completion, says each test.
        unsafe {
            let ops = (*self.endpoint).tagged;
            let (start, len) = (bytes.as_ptr().cast(), bytes.len());
            ((*ops).send)(self.endpoint, start, len, null_mut(), to, tag, context as *mut c_void)
        }
    }

    pub fn trecv(&self, from: fi_addr_t, (tag, ignore): (u64, u64), room: &mut [u8], context: usize) -> isize {
        // SAFETY: the room stays until the completion, says each test.
        unsafe {
            let ops = (*self.endpoint).tagged;
            let (start, len) = (room.as_mut_ptr().cast(), room.len());
            ((*ops).recv)(self.endpoint, start, len, null_mut(), from, tag, ignore, context as *mut c_void)
        }
    }

    pub fn send(&self, to: fi_addr_t, bytes: &[u8], context: usize) -> isize {
        // SAFETY: the bytes stay until the completion, says each test.
        unsafe {
            let ops = (*self.endpoint).msg;
            let (start, len) = (bytes.as_ptr().cast(), bytes.len());
            ((*ops).send)(self.endpoint, start, len, null_mut(), to, context as *mut c_void)
        }
    }

    pub fn recv(&self, from: fi_addr_t, room: &mut [u8], context: usize) -> isize {
        // SAFETY: the room stays until the completion, says each test.
        unsafe {
            let ops = (*self.endpoint).msg;
            let (start, len) = (room.as_mut_ptr().cast(), room.len());
            ((*ops).recv)(self.endpoint, start, len, null_mut(), from, context as *mut c_void)
        }
    }
}

/// More calls, each as libfabric makes it.
impl End {
    pub fn cancel(&self, context: usize) -> isize {
        // SAFETY: it is open.
        unsafe { ((*(*self.endpoint).ops).cancel)(self.endpoint.cast(), context as *mut c_void) }
    }

    pub fn remove(&self, number: fi_addr_t) -> c_int {
        let mut number = number;
        // SAFETY: it is one number.
        unsafe { ((*(*self.vector).ops).remove)(self.vector, &raw mut number, 1, 0) }
    }

    pub fn set_min_multi_recv(&self, least: usize) -> c_int {
        // SAFETY: the value is a size.
        unsafe {
            ((*(*self.endpoint).ops).setopt)(self.endpoint.cast(), 0, 0, (&raw const least).cast(), size_of::<usize>())
        }
    }

    /// `fi_trecvmsg` under the tag 7, with flags that look for a message or take one.
    pub fn look(&self, flags: u64, context: &mut fi_context, room: &mut [u8]) -> isize {
        let piece = iovec { iov_base: room.as_mut_ptr().cast(), iov_len: room.len() };
        let message = fi_msg_tagged {
            msg_iov: &raw const piece,
            desc: null_mut(),
            iov_count: 1,
            addr: FI_ADDR_UNSPEC,
            tag: 7,
            ignore: 0,
            context: std::ptr::from_mut(context).cast(),
            data: 0,
        };
        // SAFETY: the room stays until the completion, says each test.
        unsafe { ((*(*self.endpoint).tagged).recvmsg)(self.endpoint, &raw const message, flags) }
    }

    /// `fi_tsendmsg` of one piece.
    pub fn tsendmsg(&self, to: fi_addr_t, tag: u64, bytes: &[u8], (context, flags): (usize, u64)) -> isize {
        let piece = iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
        let message = fi_msg_tagged {
            msg_iov: &raw const piece,
            desc: null_mut(),
            iov_count: 1,
            addr: to,
            tag,
            ignore: 0,
            context: context as *mut c_void,
            data: 5,
        };
        // SAFETY: the bytes stay until the completion, says each test.
        unsafe { ((*(*self.endpoint).tagged).sendmsg)(self.endpoint, &raw const message, flags) }
    }

    pub fn recv_multi(&self, room: &mut [u8], context: usize) -> isize {
        let piece = iovec { iov_base: room.as_mut_ptr().cast(), iov_len: room.len() };
        let message = fi_msg {
            msg_iov: &raw const piece,
            desc: null_mut(),
            iov_count: 1,
            addr: FI_ADDR_UNSPEC,
            context: context as *mut c_void,
            data: 0,
        };
        // SAFETY: the room stays until the completion, says each test.
        unsafe { ((*(*self.endpoint).msg).recvmsg)(self.endpoint, &raw const message, FI_MULTI_RECV) }
    }

    pub fn sendv(&self, to: fi_addr_t, pieces: &[&[u8]], context: usize) -> isize {
        let of = |piece: &&[u8]| iovec { iov_base: piece.as_ptr().cast_mut().cast(), iov_len: piece.len() };
        let pieces: Vec<_> = pieces.iter().map(of).collect();
        // SAFETY: the bytes stay until the completion, says each test.
        unsafe {
            let ops = (*self.endpoint).msg;
            ((*ops).sendv)(self.endpoint, pieces.as_ptr(), null_mut(), pieces.len(), to, context as *mut c_void)
        }
    }

    pub fn recvv(&self, pieces: &mut [&mut [u8]], context: usize) -> isize {
        let mut iovecs = Vec::new();
        for piece in pieces {
            iovecs.push(iovec { iov_base: piece.as_mut_ptr().cast(), iov_len: piece.len() });
        }
        // SAFETY: the room stays until the completion, says each test.
        unsafe {
            let ops = (*self.endpoint).msg;
            let from = FI_ADDR_UNSPEC;
            ((*ops).recvv)(self.endpoint, iovecs.as_ptr(), null_mut(), iovecs.len(), from, context as *mut c_void)
        }
    }
}

/// Memory that peers reach, and the test meanwhile.
pub struct SharedBytes(Vec<AtomicU8>);

impl SharedBytes {
    pub fn new(bytes: &[u8]) -> Self {
        Self(bytes.iter().copied().map(AtomicU8::new).collect())
    }

    pub fn to_vec(&self) -> Vec<u8> {
        self.0.iter().map(|byte| byte.load(Ordering::Relaxed)).collect()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn fill(&self, value: u8) {
        self.0.iter().for_each(|byte| byte.store(value, Ordering::Relaxed));
    }

    /// A part of it.
    pub fn part(&self, at: usize, len: usize) -> Vec<u8> {
        self.0[at..][..len].iter().map(|byte| byte.load(Ordering::Relaxed)).collect()
    }

    pub fn addr(&self) -> u64 {
        self.0.as_ptr().addr() as u64
    }
}

/// Registered memory, until it is dropped.
pub struct Registered(*mut fid_mr);

impl Registered {
    pub fn key(&self) -> u64 {
        // SAFETY: it is open.
        unsafe { (*self.0).key }
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        // SAFETY: it is open, and closed once.
        let closed = unsafe { ((*(*self.0).fid.ops).close)(self.0.cast()) };
        assert!(closed == 0 || std::thread::panicking(), "fi_close returns {closed}");
    }
}

/// Where in a peer's memory: an address and a key.
pub type At = (u64, u64);

/// RMA, each call as libfabric makes it.
impl End {
    pub fn reg(&self, bytes: &SharedBytes, access: u64, key: u64) -> Result<Registered, c_int> {
        let mut memory = null_mut();
        let (start, len) = (bytes.0.as_ptr().cast(), bytes.0.len());
        let domain = self.domain;
        // SAFETY: the domain is open, and the memory there as long as it is registered, says each test.
        let answer =
            unsafe { ((*(*domain).mr).reg)(domain.cast(), start, len, access, 0, key, 0, &raw mut memory, null_mut()) };
        if answer == 0 { Ok(Registered(memory)) } else { Err(answer) }
    }

    /// Registers memory that peers may read and write.
    pub fn reg_open(&self, bytes: &SharedBytes, key: u64) -> Registered {
        self.reg(bytes, FI_REMOTE_READ | FI_REMOTE_WRITE, key).expect("the key is free")
    }

    pub fn write(&self, to: fi_addr_t, bytes: &[u8], (addr, key): At, context: usize) -> isize {
        // SAFETY: the bytes stay until the completion, says each test.
        unsafe {
            let ops = (*self.endpoint).rma;
            let (start, len) = (bytes.as_ptr().cast(), bytes.len());
            ((*ops).write)(self.endpoint, start, len, null_mut(), to, addr, key, context as *mut c_void)
        }
    }

    pub fn write_data(&self, to: fi_addr_t, bytes: &[u8], (addr, key): At, (data, context): (u64, usize)) -> isize {
        // SAFETY: the bytes stay until the completion, says each test.
        unsafe {
            let ops = (*self.endpoint).rma;
            let (start, len) = (bytes.as_ptr().cast(), bytes.len());
            ((*ops).writedata)(self.endpoint, start, len, null_mut(), data, to, addr, key, context as *mut c_void)
        }
    }

    pub fn inject_write(&self, to: fi_addr_t, bytes: &[u8], (addr, key): At) -> isize {
        // SAFETY: the bytes are there.
        unsafe {
            let ops = (*self.endpoint).rma;
            ((*ops).inject)(self.endpoint, bytes.as_ptr().cast(), bytes.len(), to, addr, key)
        }
    }

    pub fn rma_read(&self, from: fi_addr_t, room: &mut [u8], (addr, key): At, context: usize) -> isize {
        // SAFETY: the room stays until the completion, says each test.
        unsafe {
            let ops = (*self.endpoint).rma;
            let (start, len) = (room.as_mut_ptr().cast(), room.len());
            ((*ops).read)(self.endpoint, start, len, null_mut(), from, addr, key, context as *mut c_void)
        }
    }

    /// `fi_writemsg`, or `fi_readmsg` where `is_read`.
    pub fn rma_message(
        &self,
        is_read: bool,
        to: fi_addr_t,
        pieces: &[iovec],
        there: &[fi_rma_iov],
        flags: u64,
    ) -> isize {
        let message = fi_msg_rma {
            msg_iov: pieces.as_ptr(),
            desc: null_mut(),
            iov_count: pieces.len(),
            addr: to,
            rma_iov: there.as_ptr(),
            rma_iov_count: there.len(),
            context: 77 as *mut c_void,
            data: 0,
        };
        // SAFETY: the pieces stay until the completion, says each test.
        unsafe {
            let ops = (*self.endpoint).rma;
            let call = if is_read { (*ops).readmsg } else { (*ops).writemsg };
            call(self.endpoint, &raw const message, flags)
        }
    }
}

impl Drop for End {
    fn drop(&mut self) {
        // SAFETY: each is open, and closed once, in the order of an MPI library.
        unsafe {
            let own = [self.endpoint.cast::<fid>(), self.queue.cast(), self.vector.cast()];
            let counter = self.counter.map(<*mut fid_cntr>::cast::<fid>);
            let of_all = [self.domain.cast(), self.fabric.cast()];
            for &object in own.iter().chain(&counter).chain(of_all.iter().filter(|_| !self.is_sibling)) {
                let closed = ((*(*object).ops).close)(object);
                assert!(closed == 0 || std::thread::panicking(), "fi_close returns {closed}");
            }
        }
    }
}

/// Two that know each other: the ends, and the number that each has of the other.
pub struct Pair {
    pub ends: [End; 2],
    pub numbers: [fi_addr_t; 2],
}

impl Pair {
    pub fn open() -> Self {
        Self::of([End::open(), End::open()])
    }

    pub fn of(ends: [End; 2]) -> Self {
        for end in &ends {
            good(end.enable());
        }
        let numbers = [ends[0].insert(&ends[1].name()), ends[1].insert(&ends[0].name())];
        Self { ends, numbers }
    }

    /// The next entry of one end; both make progress meanwhile.
    pub fn wait(&self, who: usize) -> News {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(news) = self.ends[who].read() {
                return news;
            }
            self.progress(1 - who);
            assert!(Instant::now() < deadline, "nothing comes");
        }
    }

    /// Lets both ends hear what they have sent each other. After a timeout, which a busy machine brings about, an end sends nothing new
    /// until its peer has answered.
    pub fn settle(&self) {
        for who in [0, 1].repeat(1000) {
            self.progress(who);
        }
    }

    /// Lets an end make progress, and reads nothing.
    pub fn progress(&self, who: usize) {
        // SAFETY: nothing is read.
        unsafe {
            let queue = self.ends[who].queue;
            let _ = ((*(*queue).ops).read)(queue, null_mut(), 0);
        }
    }
}

impl Pair {
    /// Looks at the second end until a message under the tag 7 is there, whose entry is the next then.
    pub fn until_found(&self, context: &mut fi_context) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            assert_eq!(self.ends[1].look(FI_PEEK, context, &mut []), 0);
            self.progress(0);
            if self.ends[1].has_good() {
                return;
            }
            assert!(Instant::now() < deadline, "nothing comes");
        }
    }
}

impl End {
    /// Whether the next entry is good; takes it off the queue where it is not.
    fn has_good(&self) -> bool {
        // SAFETY: an error is read where there is one.
        unsafe {
            let ops = (*self.queue).ops;
            let mut error: fi_cq_err_entry = std::mem::zeroed();
            ((*ops).readerr)(self.queue, &raw mut error, 0) == EAGAIN
        }
    }
}

/// Bytes of a message.
pub fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|at| (at.wrapping_mul(31) ^ (at >> 8) ^ seed.wrapping_mul(77)) as u8).collect()
}
