//! One rank of GASNet-EX, as its conduit over libfabric calls a provider: in its order, with what it asks for, and nothing else.
#![allow(dead_code, unreachable_pub)]

use std::ffi::{CStr, c_int, c_void};
use std::ptr::{null, null_mut};
use std::rc::Rc;

use roci_fi::abi::attributes::{
    FI_AV_TABLE, FI_CQ_FORMAT_CONTEXT, FI_CQ_FORMAT_DATA, FI_EP_RDM, FI_PROGRESS_MANUAL, FI_RM_ENABLED, FI_WAIT_NONE,
    fi_av_attr, fi_cq_attr, fi_domain_attr, fi_ep_attr, fi_fabric_attr, fi_info, fi_tx_attr,
};
use roci_fi::abi::flags::{
    FI_DELIVERY_COMPLETE, FI_INJECT, FI_INJECT_COMPLETE, FI_MORE, FI_MSG, FI_MULTI_RECV, FI_RECV, FI_REMOTE_READ,
    FI_REMOTE_WRITE, FI_RMA, FI_TRANSMIT,
};
use roci_fi::abi::memory::{
    FI_MR_ALLOCATED, FI_MR_ENDPOINT, FI_MR_PROV_KEY, FI_MR_VIRT_ADDR, fi_mr_attr, fi_msg_rma, fi_rma_iov, fid_mr,
};
use roci_fi::abi::queues::{FI_ENABLE, FI_ETOOSMALL, fi_cq_err_entry, fi_msg};
use roci_fi::abi::{FI_ADDR_UNSPEC, fi_version, fid, fid_av, fid_cq, fid_domain, fid_ep, fid_fabric, iovec};
use roci_fi::info::ADDRESS_LEN;

use crate::common::{EAGAIN, EAVAIL, SharedBytes, getinfo_as};

/// The version of the interface that the conduit asks for.
const INTERFACE: u32 = fi_version(1, 5);
/// A mode, in which contexts of operations are a `struct fi_context`.
pub const FI_CONTEXT: u64 = 1 << 59;

/// What the conduit cannot do without.
pub const MEMORY_MODES: c_int = FI_MR_ENDPOINT | FI_MR_ALLOCATED | FI_MR_VIRT_ADDR;

/// Endpoints: of requests, of replies, and of puts and gets.
pub const REQUEST: usize = 0;
pub const REPLY: usize = 1;
pub const RMA: usize = 2;

/// The keys of a rank's segment, and of the memory that GASNet itself uses.
pub const SEGMENT_KEY: u64 = 1;
pub const AUXILIARY_KEY: u64 = 0;

/// Buffers of many messages, every second one for replies; and the longest active message.
const BUFFERS: usize = 4;
const BUFFER_LEN: usize = 4_096;
pub const LONGEST: usize = 1_024;

/// Completions that are read at once of what was sent, and one after the other of what has come.
const BATCH: usize = 64;
const READS: usize = 16;

/// A bit of contexts: it is a put or a get, and the context is where it is counted.
const IS_RMA: usize = 2;

/// What the conduit asks for.
pub fn wishes<R>(
    (caps, mode, flags): (u64, u64, u64),
    (threading, mr_mode): (c_int, c_int),
    (provider, domain): (Option<&CStr>, Option<&CStr>),
    ask: impl FnOnce(*const fi_info) -> R,
) -> R {
    let name = |name: Option<&CStr>| name.map_or(null_mut(), |name| name.as_ptr().cast_mut());
    // SAFETY: zeros are attributes that ask for nothing.
    let (mut hints, mut its_domain, mut endpoint, mut tx, mut fabric): (
        fi_info,
        fi_domain_attr,
        fi_ep_attr,
        fi_tx_attr,
        fi_fabric_attr,
    ) = unsafe { std::mem::zeroed() };
    (hints.caps, hints.mode, tx.op_flags) = (caps, mode, flags);
    endpoint.r#type = FI_EP_RDM;
    its_domain.threading = threading;
    its_domain.control_progress = FI_PROGRESS_MANUAL;
    its_domain.resource_mgmt = FI_RM_ENABLED;
    (its_domain.mr_mode, its_domain.name, fabric.prov_name) = (mr_mode, name(domain), name(provider));
    (hints.domain_attr, hints.ep_attr) = (&raw mut its_domain, &raw mut endpoint);
    (hints.tx_attr, hints.fabric_attr) = (&raw mut tx, &raw mut fabric);
    ask(&raw const hints)
}

/// The same, where the provider is there.
fn info_for(
    what: (u64, u64, u64),
    how: (c_int, c_int),
    names: (Option<&CStr>, Option<&CStr>),
) -> Result<&'static fi_info, c_int> {
    wishes(what, how, names, |hints| {
        // SAFETY: it is never freed.
        getinfo_as(INTERFACE, null(), hints).map(|info| unsafe { &*info })
    })
}

/// What is sent by an endpoint of one kind, and how it ends.
pub struct Wishes {
    pub any: &'static fi_info,
    pub rma: &'static fi_info,
    pub messages: &'static fi_info,
}

impl Wishes {
    /// Asks as often as the conduit does: for all at once, with keys of the provider's and without; then for each kind of endpoint.
    pub fn ask(threading: c_int) -> Result<Self, c_int> {
        let all = (FI_RMA | FI_MSG | FI_MULTI_RECV, FI_CONTEXT, 0);
        let any = info_for(all, (threading, MEMORY_MODES | FI_MR_PROV_KEY), (None, None))?;
        // SAFETY: the provider has made the attributes, and libfabric writes the provider's name there.
        let domain = unsafe { CStr::from_ptr((*any.domain_attr).name) };
        let names = (Some(c"roci"), Some(domain));
        let how = (threading, MEMORY_MODES);
        Ok(Self {
            any: info_for(all, how, names)?,
            rma: info_for((FI_RMA, 0, FI_DELIVERY_COMPLETE), how, names)?,
            messages: info_for((FI_MSG | FI_MULTI_RECV, FI_CONTEXT, FI_INJECT_COMPLETE), how, names)?,
        })
    }
}

/// An entry of a queue of what has come.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    pub context: *mut c_void,
    pub flags: u64,
    pub len: usize,
    pub buf: *const u8,
    pub data: u64,
}

/// What handles a message: it gets the rank, the endpoint's number, the bytes, and the data.
pub type Handler<'a> = &'a mut dyn FnMut(&mut Rank, usize, &[u8], u64);

/// A buffer of many messages, and how many entries of it were read and messages handled.
struct ManyMessages {
    bytes: SharedBytes,
    read: u64,
    handled: u64,
    /// How many entries there are, once the last is known.
    all: Option<u64>,
}

/// A rank.
pub struct Rank {
    pub wishes: Wishes,
    fabric: *mut fid_fabric,
    domain: *mut fid_domain,
    endpoints: [*mut fid_ep; 3],
    vectors: [*mut fid_av; 3],
    /// Of all that is sent.
    sent: *mut fid_cq,
    /// Of requests, and of replies.
    came: [*mut fid_cq; 2],
    buffers: Vec<ManyMessages>,
    /// Those that could not be posted yet.
    unposted: Vec<usize>,
    memory: Vec<(*mut fid_mr, Rc<SharedBytes>)>,
    /// Active messages that have ended for their sender.
    pub messages_sent: usize,
    /// How often puts and gets have ended, by their contexts.
    pub ended: Vec<usize>,
}

/// Calls a function of an object's table.
macro_rules! call {
    ($object:expr, $table:ident.$function:ident($($argument:expr),*)) => {
        // SAFETY: the object is open, and what the arguments point to is there as long as the call needs it.
        unsafe { ((*(*$object).$table).$function)($object.cast(), $($argument),*) }
    };
}

/// Opens an object of the domain's.
macro_rules! open {
    ($domain:expr, $function:ident, $attributes:expr) => {{
        let (mut attributes, mut opened) = ($attributes, null_mut());
        let (wanted, place) = (&raw mut attributes, &raw mut opened);
        // SAFETY: the domain is open, and the attributes are good.
        assert_eq!(unsafe { ((*(*$domain).ops).$function)($domain, wanted, place, null_mut()) }, 0);
        opened
    }};
}

fn failure(queue: *mut fid_cq) -> fi_cq_err_entry {
    // SAFETY: there is room for an entry.
    unsafe {
        let mut failure: fi_cq_err_entry = std::mem::zeroed();
        assert_eq!(((*(*queue).ops).readerr)(queue, &raw mut failure, 0), 1);
        failure
    }
}

fn enable(object: *mut fid) {
    assert_eq!(call!(object, ops.control(FI_ENABLE, null_mut())), 0);
}

fn close(object: *mut fid) {
    assert_eq!(call!(object, ops.close()), 0);
}

/// Binds something to an endpoint.
fn bind(endpoint: *mut fid_ep, to: *mut fid, flags: u64) {
    // SAFETY: both are open.
    assert_eq!(unsafe { ((*(*endpoint).fid.ops).bind)(endpoint.cast(), to, flags) }, 0);
}

impl Rank {
    /// Opens all but the addresses of others.
    pub fn open(threading: c_int) -> Self {
        let wishes = Wishes::ask(threading).expect("it is there");
        let (mut fabric, mut domain) = (null_mut(), null_mut());
        let any = std::ptr::from_ref(wishes.any).cast_mut();
        // SAFETY: the provider has made the attributes.
        unsafe {
            assert_eq!(((*roci_fi::fi_prov_ini()).fabric)(wishes.any.fabric_attr, &raw mut fabric, null_mut()), 0);
            assert_eq!(((*(*fabric).ops).domain)(fabric, any, &raw mut domain, null_mut()), 0);
        }
        let endpoint_of = |info: &fi_info| {
            let mut endpoint = null_mut();
            let info = std::ptr::from_ref(info).cast_mut();
            // SAFETY: the domain is open, and the provider has made the attributes.
            assert_eq!(unsafe { ((*(*domain).ops).endpoint)(domain, info, &raw mut endpoint, null_mut()) }, 0);
            endpoint
        };
        let rma = endpoint_of(wishes.rma);
        let endpoints = [endpoint_of(wishes.messages), endpoint_of(wishes.messages), rma];
        let queue = |format| {
            // SAFETY: zeros are good attributes.
            let attributes: fi_cq_attr = unsafe { std::mem::zeroed() };
            open!(domain, cq_open, fi_cq_attr { format, wait_obj: FI_WAIT_NONE, ..attributes })
        };
        let (sent, came) = (queue(FI_CQ_FORMAT_CONTEXT), [queue(FI_CQ_FORMAT_DATA), queue(FI_CQ_FORMAT_DATA)]);
        bind(rma, sent.cast(), FI_TRANSMIT | FI_RECV);
        for which in [REQUEST, REPLY] {
            bind(endpoints[which], sent.cast(), FI_TRANSMIT);
            bind(endpoints[which], came[which].cast(), FI_RECV);
        }
        for which in [REQUEST, REPLY] {
            let least = LONGEST;
            let (value, len) = ((&raw const least).cast(), size_of::<usize>());
            assert_eq!(call!(endpoints[which], ops.setopt(0, 0, value, len)), 0);
        }
        let vectors = [(); 3].map(|()| {
            // SAFETY: zeros are good attributes.
            let attributes: fi_av_attr = unsafe { std::mem::zeroed() };
            open!(domain, av_open, fi_av_attr { r#type: FI_AV_TABLE, count: 2, ..attributes })
        });
        for which in [RMA, REQUEST, REPLY] {
            bind(endpoints[which], vectors[which].cast(), 0);
        }
        for which in [RMA, REQUEST, REPLY] {
            enable(endpoints[which].cast());
        }
        let (buffers, unposted, memory) = (Vec::new(), Vec::new(), Vec::new());
        Self {
            wishes,
            fabric,
            domain,
            endpoints,
            vectors,
            sent,
            came,
            buffers,
            unposted,
            memory,
            messages_sent: 0,
            ended: Vec::new(),
        }
    }

    /// The addresses of the three endpoints. Their lengths are asked for first.
    pub fn names(&self) -> [[u8; ADDRESS_LEN]; 3] {
        self.endpoints.map(|endpoint| {
            let (mut name, mut len) = ([0; ADDRESS_LEN], 0);
            // SAFETY: there is room for as many bytes as are asked for.
            unsafe {
                let getname = (*(*endpoint).cm).getname;
                assert_eq!(getname(endpoint.cast(), null_mut(), &raw mut len), -FI_ETOOSMALL);
                assert_eq!(len, ADDRESS_LEN);
                assert_eq!(getname(endpoint.cast(), name.as_mut_ptr().cast(), &raw mut len), 0);
            }
            name
        })
    }

    /// Inserts the addresses of all ranks, this one's as well: their numbers are the ranks. Then it takes messages.
    pub fn meet(&mut self, ranks: &[[[u8; ADDRESS_LEN]; 3]]) {
        for (which, &vector) in self.vectors.iter().enumerate() {
            for (at, names) in ranks.iter().enumerate() {
                let flags = if at + 1 == ranks.len() { 0 } else { FI_MORE };
                let name = names[which].as_ptr().cast();
                // SAFETY: it is one address, and no number is asked for.
                let inserted = unsafe { ((*(*vector).ops).insert)(vector, name, 1, null_mut(), flags, null_mut()) };
                assert_eq!(inserted, 1);
            }
        }
        for number in 0..BUFFERS {
            self.buffers.push(ManyMessages::new());
            self.post(number);
        }
        assert!(self.unposted.is_empty(), "nothing is under way");
    }

    /// Posts a buffer, or has that tried again later.
    fn post(&mut self, number: usize) {
        let buffer = &mut self.buffers[number];
        (buffer.read, buffer.handled, buffer.all) = (0, 0, None);
        let piece = iovec { iov_base: buffer.bytes.addr() as *mut c_void, iov_len: BUFFER_LEN };
        let message = fi_msg {
            msg_iov: &raw const piece,
            desc: null_mut(),
            iov_count: 1,
            addr: FI_ADDR_UNSPEC,
            context: (number << 2) as *mut c_void,
            data: 0,
        };
        match call!(self.endpoints[number % 2], msg.recvmsg(&raw const message, FI_MULTI_RECV)) {
            0 => {}
            EAGAIN => self.unposted.push(number),
            other => panic!("fi_recvmsg returns {other}"),
        }
    }

    /// Opens memory to the others: the segment by `fi_mr_regattr`, what GASNet itself uses by `fi_mr_reg`.
    pub fn expose(&mut self, bytes: &Rc<SharedBytes>, key: u64) {
        let (access, mut memory): (_, *mut fid_mr) = (FI_REMOTE_READ | FI_REMOTE_WRITE, null_mut());
        let piece = iovec { iov_base: bytes.addr() as *mut c_void, iov_len: bytes.len() };
        // SAFETY: the domain is open, and the memory there as long as it is registered.
        unsafe {
            let (domain, ops) = (self.domain.cast(), (*self.domain).mr);
            let answer = if key == AUXILIARY_KEY {
                let (start, len) = (piece.iov_base.cast_const(), piece.iov_len);
                ((*ops).reg)(domain, start, len, access, 0, key, 0, &raw mut memory, null_mut())
            } else {
                let none: fi_mr_attr = std::mem::zeroed();
                let attributes =
                    fi_mr_attr { mr_iov: &raw const piece, iov_count: 1, access, requested_key: key, ..none };
                ((*ops).regattr)(domain, &raw const attributes, 0, &raw mut memory)
            };
            assert_eq!((answer, (*memory).key), (0, key));
        }
        self.memory.push((memory, bytes.clone()));
    }

    /// Looks at what was sent, then at requests, then at replies; each that comes is handled.
    pub fn poll(&mut self, handle: Handler<'_>) {
        self.poll_sent();
        self.poll_came(REQUEST, handle);
        self.poll_came(REPLY, handle);
    }

    /// The same of replies alone: who handles a request polls nothing else.
    pub fn poll_replies(&mut self, handle: Handler<'_>) {
        self.poll_came(REPLY, handle);
        self.poll_sent();
    }

    fn poll_sent(&mut self) {
        let mut contexts = [0_usize; BATCH];
        let read = call!(self.sent, ops.read(contexts.as_mut_ptr().cast(), BATCH));
        assert!(read != EAVAIL, "an operation has failed: {:?}", failure(self.sent));
        for context in &contexts[..usize::try_from(read).unwrap_or(0)] {
            if context & IS_RMA != 0 {
                self.ended[context >> 2] += 1;
            } else {
                self.messages_sent += 1;
            }
        }
    }

    fn poll_came(&mut self, which: usize, handle: Handler<'_>) {
        for _ in 0..READS {
            let mut arrival = Arrival { context: null_mut(), flags: 0, len: 0, buf: null(), data: 0 };
            match call!(self.came[which], ops.read((&raw mut arrival).cast(), 1)) {
                1 => self.take(which, arrival, handle),
                EAGAIN => break,
                _ => panic!("a receive has failed: {:?}", failure(self.came[which])),
            }
        }
        for number in std::mem::take(&mut self.unposted) {
            self.post(number);
        }
    }

    /// One entry: a message, the end of a buffer, or both.
    fn take(&mut self, which: usize, arrival: Arrival, handle: Handler<'_>) {
        let number = arrival.context as usize >> 2;
        let buffer = &mut self.buffers[number];
        buffer.read += 1;
        if arrival.flags & FI_MULTI_RECV != 0 {
            buffer.all = Some(buffer.read);
        }
        if arrival.flags & FI_RECV != 0 {
            let offset = arrival.buf.addr() as u64 - buffer.bytes.addr();
            assert!(offset.is_multiple_of(8) && offset as usize + arrival.len <= BUFFER_LEN, "{arrival:?}");
            let message = buffer.bytes.part(offset as usize, arrival.len);
            handle(self, which, &message, arrival.data);
        }
        let buffer = &mut self.buffers[number];
        buffer.handled += 1;
        if buffer.all == Some(buffer.handled) {
            self.post(number);
        }
    }

    /// Sends an active message: a short one is copied, and of a longer one the bytes stay. With data it has put its payload before.
    pub fn send(&self, which: usize, to: usize, bytes: &[u8], data: Option<u64>) -> isize {
        let (endpoint, start, len, to) = (self.endpoints[which], bytes.as_ptr().cast(), bytes.len(), to as u64);
        let none = null_mut();
        // SAFETY: the endpoint and this attribute are there.
        let is_short = unsafe { len <= (*self.wishes.messages.tx_attr).inject_size };
        match (data, is_short) {
            (None, true) => call!(endpoint, msg.inject(start, len, to)),
            (None, false) => call!(endpoint, msg.send(start, len, none, to, none)),
            (Some(data), true) => call!(endpoint, msg.injectdata(start, len, data, to)),
            (Some(data), false) => call!(endpoint, msg.senddata(start, len, none, data, to, none)),
        }
    }

    /// Whether such a message has a completion.
    pub fn has_completion(&self, bytes: &[u8]) -> bool {
        // SAFETY: the provider has made the attributes.
        bytes.len() > unsafe { (*self.wishes.messages.tx_attr).inject_size }
    }

    /// Puts what stays there until it has ended, counted under `place`.
    pub fn put(&self, to: usize, bytes: &[u8], (addr, key): (u64, u64), place: usize) -> isize {
        let (start, none, context) = (bytes.as_ptr().cast(), null_mut(), (place << 2 | IS_RMA) as *mut c_void);
        call!(self.endpoints[RMA], rma.write(start, bytes.len(), none, to as u64, addr, key, context))
    }

    /// Puts what is the caller's again at once, and has a completion all the same.
    pub fn put_copy(&self, to: usize, bytes: &[u8], (addr, key): (u64, u64), place: usize) -> isize {
        let piece = iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
        let there = fi_rma_iov { addr, len: bytes.len(), key };
        let message = fi_msg_rma {
            msg_iov: &raw const piece,
            desc: null_mut(),
            iov_count: 1,
            addr: to as u64,
            rma_iov: &raw const there,
            rma_iov_count: 1,
            context: (place << 2 | IS_RMA) as *mut c_void,
            data: 0,
        };
        call!(self.endpoints[RMA], rma.writemsg(&raw const message, FI_INJECT | FI_DELIVERY_COMPLETE))
    }

    /// Gets.
    pub fn get(&self, from: usize, room: &SharedBytes, len: usize, (addr, key): (u64, u64), place: usize) -> isize {
        let (start, none, context) = (room.addr() as *mut c_void, null_mut(), (place << 2 | IS_RMA) as *mut c_void);
        call!(self.endpoints[RMA], rma.read(start, len, none, from as u64, addr, key, context))
    }

    /// Ends as GASNet does: receives are cancelled, their buffers are its own again at once, and all is closed in this order.
    pub fn exit(mut self) {
        for number in 0..self.buffers.len() {
            // It may be with the application.
            let _ = call!(self.endpoints[number % 2], ops.cancel((number << 2) as *mut c_void));
        }
        self.buffers.iter().for_each(|buffer| buffer.bytes.fill(0xee));
        close(self.endpoints[REPLY].cast());
        close(self.endpoints[REQUEST].cast());
        for (memory, _bytes) in std::mem::take(&mut self.memory).into_iter().rev() {
            close(memory.cast());
        }
        close(self.endpoints[RMA].cast());
        for queue in [self.sent, self.came[REPLY], self.came[REQUEST]] {
            close(queue.cast());
        }
        for vector in self.vectors {
            close(vector.cast());
        }
        close(self.domain.cast());
        close(self.fabric.cast());
        let is_left_alone = |buffer: &ManyMessages| buffer.bytes.to_vec().iter().all(|&byte| byte == 0xee);
        assert!(self.buffers.iter().all(is_left_alone), "no message lies in what was freed");
    }
}

impl ManyMessages {
    fn new() -> Self {
        Self { bytes: SharedBytes::new(&[0; BUFFER_LEN]), read: 0, handled: 0, all: None }
    }
}
