//! Calls that no MPI library and no conduit here makes, as an application would: vectors of pieces, counters that are waited for and set,
//! addresses that are looked up, long messages; and what is not there, which says so.

mod common;

use std::ffi::{CStr, c_void};
use std::ptr::{null, null_mut};

use common::{End, Pair, SharedBytes, pattern};
use roci_fi::abi::atomic::{FI_SUM, FI_UINT64, fi_atomic_attr};
use roci_fi::abi::attributes::{FI_WAIT_FD, FI_WAIT_UNSPEC, fi_cntr_attr, fi_eq_attr};
use roci_fi::abi::flags::{FI_RECV, FI_SEND};
use roci_fi::abi::{FI_ADDR_UNSPEC, iovec};

/// More than goes in one packet, in one piece of memory that is registered at a time, and in 3 MB.
const LONG: usize = 9_000_001;

/// What a completion brings back.
fn context(number: usize) -> *mut c_void {
    number as *mut c_void
}

fn piece(bytes: &mut [u8]) -> iovec {
    iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() }
}

#[test]
fn tagged_pieces_arrive_in_pieces() {
    let pair = Pair::open();
    let [sender, receiver] = &pair.ends;
    for len in [9, 3000, 300_000] {
        let (mut sent, mut room) = (pattern(len, 1), vec![0; len]);
        let (near, far) = sent.split_at_mut(len / 3);
        let sent_pieces = [piece(near), piece(far)];
        let (first, rest) = room.split_at_mut(len / 2);
        let (second, third) = rest.split_at_mut(1);
        let room_pieces = [piece(first), piece(second), piece(third)];
        // SAFETY: the bytes and the room stay until the completions.
        unsafe {
            let (from, ops) = (pair.numbers[1], (*receiver.endpoint).tagged);
            let (pieces, count) = (room_pieces.as_ptr(), room_pieces.len());
            let posted = ((*ops).recvv)(receiver.endpoint, pieces, null_mut(), count, from, 7, 0, context(2));
            assert_eq!(posted, 0);
            let (to, ops) = (pair.numbers[0], (*sender.endpoint).tagged);
            let (pieces, count) = (sent_pieces.as_ptr(), sent_pieces.len());
            let posted = ((*ops).sendv)(sender.endpoint, pieces, null_mut(), count, to, 7, context(1));
            assert_eq!(posted, 0);
        }
        let came = pair.wait(1).good();
        assert_eq!((came.op_context as usize, came.len, came.tag), (2, len, 7));
        assert_eq!(pair.wait(0).good().op_context as usize, 1);
        assert!(room == pattern(len, 1), "{len} bytes");
    }
}

#[test]
fn pieces_are_written_to_a_peer_and_read_from_it() {
    let pair = Pair::open();
    let memory = SharedBytes::new(&[0; 4000]);
    let registered = pair.ends[1].reg_open(&memory, 5);
    // Peers count from the beginning of the memory.
    let at = (0, registered.key());
    let mut sent = pattern(4000, 3);
    let (first, second) = sent.split_at_mut(1234);
    let pieces = [piece(first), piece(second)];
    let (here, ops) = (pair.ends[0].endpoint, pair.numbers[0]);
    // SAFETY: the bytes and the room stay until the completions.
    unsafe {
        let rma = (*here).rma;
        let written = ((*rma).writev)(here, pieces.as_ptr(), null_mut(), pieces.len(), ops, at.0, at.1, context(1));
        assert_eq!(written, 0);
    }
    assert_eq!(pair.wait(0).good().op_context as usize, 1);
    let mut room = vec![0; 4000];
    let (first, second) = room.split_at_mut(3999);
    let pieces = [piece(first), piece(second)];
    // SAFETY: as above.
    unsafe {
        let rma = (*here).rma;
        let read = ((*rma).readv)(here, pieces.as_ptr(), null_mut(), pieces.len(), ops, at.0, at.1, context(2));
        assert_eq!(read, 0);
    }
    assert_eq!(pair.wait(0).good().op_context as usize, 2);
    assert!(room == pattern(4000, 3) && memory.to_vec() == room);
}

#[test]
fn a_message_of_nine_megabytes_arrives() {
    let pair = Pair::open();
    let (sent, mut room) = (pattern(LONG, 4), vec![0; LONG]);
    for tag in [1, 2] {
        // Announced before it is received, and received before it is announced.
        let receive = |room: &mut [u8]| assert_eq!(pair.ends[1].trecv(FI_ADDR_UNSPEC, (tag, 0), room, 2), 0);
        if tag == 1 {
            receive(&mut room);
        }
        assert_eq!(pair.ends[0].tsend(pair.numbers[0], tag, &sent, 1), 0);
        if tag == 2 {
            pair.settle();
            receive(&mut room);
        }
        assert_eq!(pair.wait(1).good().len, LONG);
        assert_eq!(pair.wait(0).good().op_context as usize, 1);
        assert!(room == sent);
        room.fill(0);
    }
}

#[test]
fn counters_are_waited_for_and_set() {
    let [mut near, far] = [End::open(), End::open()];
    near.count(FI_SEND | FI_RECV);
    let pair = Pair::of([near, far]);
    let counter = pair.ends[0].counter.expect("it counts");
    // SAFETY: it is open.
    unsafe {
        let ops = (*counter).ops;
        assert_eq!(((*ops).wait)(counter, 1, 20), -libc::ETIMEDOUT);
        assert_eq!(((*ops).add)(counter, 5) + ((*ops).adderr)(counter, 2), 0);
        assert_eq!((pair.ends[0].counted(), ((*ops).wait)(counter, 5, 0)), ((5, 2), 0));
        assert_eq!(((*ops).set)(counter, 0) + ((*ops).seterr)(counter, 0), 0);
        assert_eq!(pair.ends[0].counted(), (0, 0));
        let mut room = [0; 8];
        assert_eq!(pair.ends[0].recv(FI_ADDR_UNSPEC, &mut room, 1), 0);
        std::thread::scope(|scope| {
            // A number that another thread may have: the peer sends while this one waits.
            let peer = Peer(&pair.ends[1], pair.numbers[1]);
            scope.spawn(move || peer.send());
            assert_eq!(((*ops).wait)(counter, 1, 20_000), 0);
        });
        assert_eq!((pair.ends[0].counted(), room), ((1, 0), [7; 8]));
    }
}

struct Peer<'a>(&'a End, u64);

// SAFETY: the provider is thread-safe, and one thread has this end.
unsafe impl Send for Peer<'_> {}

impl Peer<'_> {
    fn send(self) {
        assert_eq!(self.0.send(self.1, &[7; 8], 1), 0);
        self.0.wait_alone().good();
    }
}

#[test]
fn an_address_is_looked_up_by_its_number_and_written_as_text() {
    let pair = Pair::open();
    let (vector, name) = (pair.ends[0].vector, pair.ends[1].name());
    // SAFETY: the vector is open, and there is as much room as is said.
    unsafe {
        let ops = (*vector).ops;
        let (mut room, mut len) = ([0_u8; 64], 64);
        assert_eq!(((*ops).lookup)(vector, pair.numbers[0], room.as_mut_ptr().cast(), &raw mut len), 0);
        assert_eq!(room[..len], name);
        assert_eq!(((*ops).lookup)(vector, 77, room.as_mut_ptr().cast(), &raw mut len), -libc::EINVAL);
        let (mut text, mut len) = ([1_u8; 200], 200);
        let written = ((*ops).straddr)(vector, name.as_ptr().cast(), text.as_mut_ptr().cast(), &raw mut len);
        let whole = CStr::from_ptr(written).to_str().expect("text").to_owned();
        assert!(whole.starts_with("fi_roci://") && whole.len() + 1 == len, "{whole}, {len}");
        // What is cut off ends all the same, and its whole length is given.
        let (mut text, mut room) = ([1_u8; 200], 12);
        let written = ((*ops).straddr)(vector, name.as_ptr().cast(), text.as_mut_ptr().cast(), &raw mut room);
        assert_eq!((CStr::from_ptr(written).to_bytes(), room), (&whole.as_bytes()[..11], len));
        assert_eq!(text[12], 1, "nothing is written behind the room");
    }
}

#[test]
fn a_failure_has_a_text() {
    let pair = Pair::open();
    let mut room = [0; 4];
    assert_eq!(pair.ends[1].trecv(FI_ADDR_UNSPEC, (7, 0), &mut room, 1), 0);
    assert_eq!(pair.ends[0].tsend(pair.numbers[0], 7, &pattern(9, 1), 2), 0);
    let failed = pair.wait(1).bad();
    assert_eq!(failed.olen, 5);
    let queue = pair.ends[1].queue;
    let (mut text, data) = ([1; 20], null());
    // SAFETY: the queue is open, and there is as much room as is said.
    unsafe {
        let strerror = (*(*queue).ops).strerror;
        let whole = CStr::from_ptr(strerror(queue, failed.prov_errno, data, text.as_mut_ptr(), 6));
        assert_eq!((whole, CStr::from_ptr(text.as_ptr())), (c"Truncation error", c"Trunc"));
        let other = CStr::from_ptr(strerror(queue, libc::EACCES, data, null_mut(), 0));
        assert_eq!(other, c"Permission denied");
    }
}

#[test]
fn what_is_not_there_says_so() {
    let pair = Pair::open();
    let End { fabric, domain, endpoint, .. } = pair.ends[0];
    // SAFETY: all are open, and a call that is not there reads none of its arguments.
    unsafe {
        let mut counter = null_mut();
        let mut attributes: fi_cntr_attr = std::mem::zeroed();
        let mut open = |events, wait_obj| {
            (attributes.events, attributes.wait_obj) = (events, wait_obj);
            ((*(*domain).ops).cntr_open)(domain, &raw mut attributes, &raw mut counter, null_mut())
        };
        assert_eq!([open(0, FI_WAIT_FD), open(1, FI_WAIT_UNSPEC)], [-libc::ENOSYS; 2], "no descriptor, and no bytes");
        assert_eq!(open(0, FI_WAIT_UNSPEC), 0);
        assert_eq!(((*(*counter).fid.ops).close)(counter.cast()), 0);
        let mut queue = null_mut();
        let mut attributes: fi_eq_attr = std::mem::zeroed();
        attributes.wait_obj = FI_WAIT_FD;
        let opened = ((*(*fabric).ops).eq_open)(fabric, &raw mut attributes, &raw mut queue, null_mut());
        assert_eq!(opened, -libc::ENOSYS);
        let ops = (*endpoint).collective;
        assert_eq!(((*ops).barrier)(endpoint, 0, null_mut()), -(libc::ENOSYS as isize));
        assert_eq!(((*ops).barrier2)(endpoint, 0, 0, null_mut()), -(libc::ENOSYS as isize));
        let broadcast = ((*ops).broadcast)(endpoint, null_mut(), 0, null_mut(), 0, 0, 0, 0, null_mut());
        assert_eq!(broadcast, -(libc::ENOSYS as isize));
        assert_eq!(
            ((*(*endpoint).tagged).recvv)(endpoint, null(), null_mut(), 5, 0, 0, 0, null_mut()),
            -(libc::EINVAL as isize)
        );
    }
    // What is asked of the domain, and of the endpoint, is the same number.
    let mut attributes = fi_atomic_attr { count: 0, size: 0 };
    let mut valid = 0;
    // SAFETY: both are open, and there is room for the answers.
    unsafe {
        let room = (&raw mut attributes).cast();
        assert_eq!(((*(*domain).ops).query_atomic)(domain, FI_UINT64, FI_SUM, room, 0), 0);
        assert_eq!(((*(*endpoint).atomic).writevalid)(endpoint, FI_UINT64, FI_SUM, &raw mut valid), 0);
    }
    assert_eq!((attributes.count, attributes.size), (valid, 8));
}
