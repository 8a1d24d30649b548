//! Atomic operations on memory that a peer has registered.

mod common;

use std::ffi::{c_int, c_void};
use std::ptr::{null, null_mut};
use std::time::Instant;

use common::{EAGAIN, End, PATIENCE, Pair, SharedBytes};
use roci_fi::abi::atomic::{
    FI_ATOMIC_READ, FI_ATOMIC_WRITE, FI_CSWAP, FI_DOUBLE, FI_FETCH_ATOMIC, FI_FLOAT, FI_INT8, FI_MIN, FI_MSWAP, FI_SUM,
    FI_UINT32, FI_UINT64, fi_atomic_attr, fi_ioc, fi_msg_atomic, fi_rma_ioc,
};
use roci_fi::abi::fi_addr_t;
use roci_fi::abi::flags::{FI_ATOMIC, FI_FENCE, FI_READ, FI_REMOTE_READ, FI_REMOTE_WRITE, FI_WRITE};
use roci_fi::abi::queues::FI_EBADFLAGS;

const KEY: u64 = 7;
const LONG_DOUBLE: c_int = 12;

/// Atomic operations as an application calls them, at an address under [`KEY`].
struct Atomic<'a> {
    end: &'a End,
    to: fi_addr_t,
    addr: u64,
    key: u64,
    datatype: c_int,
}

impl<'a> Atomic<'a> {
    fn new(pair: &'a Pair, addr: u64, datatype: c_int) -> Self {
        Self { end: &pair.ends[0], to: pair.numbers[0], addr, key: KEY, datatype }
    }

    fn write<T>(&self, op: c_int, operands: &[T]) -> isize {
        let (start, count) = (operands.as_ptr().cast(), operands.len());
        // SAFETY: the numbers are there.
        unsafe {
            let ops = (*self.end.endpoint).atomic;
            let Self { end, to, addr, key, datatype } = *self;
            ((*ops).write)(end.endpoint, start, count, null_mut(), to, addr, key, datatype, op, 5 as *mut c_void)
        }
    }

    fn inject<T>(&self, op: c_int, operands: &[T]) -> isize {
        // SAFETY: the numbers are there.
        unsafe {
            let ops = (*self.end.endpoint).atomic;
            let Self { end, to, addr, key, datatype } = *self;
            ((*ops).inject)(end.endpoint, operands.as_ptr().cast(), operands.len(), to, addr, key, datatype, op)
        }
    }

    fn fetch<T>(&self, op: c_int, operands: &[T], results: &mut [T]) -> isize {
        let (start, into) = (operands.as_ptr().cast(), results.as_mut_ptr().cast());
        // SAFETY: the numbers are there, and the results stay until the completion, says each test.
        unsafe {
            let ops = (*self.end.endpoint).atomic;
            let Self { end, to, addr, key, datatype } = *self;
            let (count, nothing) = (results.len(), null_mut());
            let context = 6 as *mut c_void;
            ((*ops).readwrite)(end.endpoint, start, count, nothing, into, nothing, to, addr, key, datatype, op, context)
        }
    }

    fn compare<T>(&self, op: c_int, operand: T, compare: T, result: &mut T) -> isize {
        let (operand, compare) = ([operand], [compare]);
        let nothing = null_mut();
        // SAFETY: the numbers are there, and the result stays until the completion, says each test.
        unsafe {
            let ops = (*self.end.endpoint).atomic;
            let Self { end, to, addr, key, datatype } = *self;
            let (new, old, into) = (operand.as_ptr().cast(), compare.as_ptr().cast(), (&raw mut *result).cast());
            ((*ops).compwrite)(
                end.endpoint,
                new,
                1,
                nothing,
                old,
                nothing,
                into,
                nothing,
                to,
                addr,
                key,
                datatype,
                op,
                nothing,
            )
        }
    }
}

fn u64s(memory: &SharedBytes) -> Vec<u64> {
    memory.to_vec().chunks_exact(8).map(|it| u64::from_ne_bytes(it.try_into().expect("8 bytes"))).collect()
}

#[test]
fn numbers_are_changed_fetched_and_compared() {
    let pair = Pair::open();
    let memory = SharedBytes::new(&[0; 40]);
    let _registered = pair.ends[1].reg_open(&memory, KEY);
    let it = Atomic::new(&pair, 8, FI_UINT64);
    assert_eq!(it.write(FI_SUM, &[5_u64, 6, 7]), 0);
    let written = pair.wait(0).good();
    assert_eq!((written.op_context as usize, written.flags), (5, FI_ATOMIC | FI_WRITE));
    assert_eq!(u64s(&memory), [0, 5, 6, 7, 0]);
    let mut before = [0; 2];
    assert_eq!(it.fetch(FI_MIN, &[1, 9_u64], &mut before), 0);
    let fetched = pair.wait(0).good();
    assert_eq!((fetched.op_context as usize, fetched.flags, before), (6, FI_ATOMIC | FI_READ, [5, 6]));
    assert_eq!(u64s(&memory), [0, 1, 6, 7, 0]);
    let mut old = 0;
    for (op, new, compare, then) in [(FI_CSWAP, 8, 2, 1), (FI_CSWAP, 8, 1, 8), (FI_MSWAP, 0xff, 0x7, 0xf)] {
        let found = u64s(&memory)[1];
        assert_eq!(it.compare(op, new, compare, &mut old), 0);
        pair.wait(0).good();
        assert_eq!((old, u64s(&memory)[1]), (found, then));
    }
    // What is only read needs no operands.
    let mut read = [0_u64; 3];
    assert_eq!(it.fetch(FI_ATOMIC_READ, &[], &mut read), 0);
    pair.wait(0).good();
    assert_eq!(read, [0xf, 6, 7]);
    let half = Atomic { datatype: FI_DOUBLE, addr: 0, ..it };
    assert_eq!(half.write(FI_ATOMIC_WRITE, &[2.5]), 0);
    pair.wait(0).good();
    assert_eq!(half.write(FI_SUM, &[-1.0]), 0);
    pair.wait(0).good();
    assert_eq!(u64s(&memory)[0], 1.5_f64.to_bits());
    // At a place that is a multiple of nothing.
    let odd = Atomic { datatype: FI_UINT32, addr: 33, ..half };
    assert_eq!(odd.write(FI_SUM, &[0x0102_0304_u32]), 0);
    pair.wait(0).good();
    assert_eq!(memory.to_vec()[32..38], [0, 4, 3, 2, 1, 0]);
    assert!(pair.ends[1].read().is_none(), "whose memory it is has no entry of it");
}

#[test]
fn pieces_are_gathered_spread_and_scattered() {
    let pair = Pair::open();
    let memory = SharedBytes::new(&(0..64).collect::<Vec<_>>());
    let _registered = pair.ends[1].reg_open(&memory, KEY);
    let (mut few, mut many, mut ones) = ([100_u8; 2], [200_u8; 6], [1_u8; 8]);
    let piece = |numbers: &mut [u8]| fi_ioc { addr: numbers.as_mut_ptr().cast(), count: numbers.len() };
    let (first, second) = ones.split_at_mut(3);
    let operands = [piece(first), piece(second)];
    let mut results = [piece(&mut few), piece(&mut many)];
    let there = [(2, 1), (10, 4), (60, 3)].map(|(addr, count)| fi_rma_ioc { addr, count, key: KEY });
    let message = fi_msg_atomic {
        msg_iov: operands.as_ptr(),
        desc: null_mut(),
        iov_count: 2,
        addr: pair.numbers[0],
        rma_iov: there.as_ptr(),
        rma_iov_count: 3,
        datatype: FI_INT8,
        op: FI_SUM,
        context: null_mut(),
        data: 0,
    };
    // SAFETY: all of it is there until the completion.
    let begun = unsafe {
        let end = pair.ends[0].endpoint;
        let (message, results) = ((&raw const message).cast(), results.as_mut_ptr().cast());
        ((*(*end).atomic).readwritemsg)(end, message, results, null_mut(), 2, 0)
    };
    assert_eq!(begun, 0);
    pair.wait(0).good();
    assert_eq!((few, many), ([2, 10], [11, 12, 13, 60, 61, 62]));
    let changed = [2, 10, 11, 12, 13, 60, 61, 62];
    let expected: Vec<_> = (0..64).map(|at| at + u8::from(changed.contains(&at))).collect();
    assert_eq!(memory.to_vec(), expected);
}

#[test]
fn what_peers_may_not_do_is_denied_and_touches_nothing() {
    let pair = Pair::open();
    let (open, closed) = (SharedBytes::new(&[1; 16]), SharedBytes::new(&[2; 16]));
    let registered = pair.ends[1].reg_open(&open, KEY);
    let _read_only = pair.ends[1].reg(&closed, FI_REMOTE_READ, 8).expect("the key is free");
    let _local = pair.ends[1].reg(&closed, 0, 9).expect("the key is free");
    let denied = |key, addr, op| {
        let (it, mut before) = (Atomic { key, ..Atomic::new(&pair, addr, FI_UINT64) }, [0; 1]);
        assert_eq!(it.fetch(op, &[1_u64], &mut before), 0);
        assert_eq!(pair.wait(0).bad().err, libc::EACCES, "{key} {addr} {op}");
        assert_eq!(before, [0]);
    };
    for (key, addr) in [(KEY, 9), (KEY, u64::MAX), (KEY, u64::MAX - 7), (8, 0), (9, 0), (10, 0)] {
        denied(key, addr, FI_SUM);
    }
    denied(9, 0, FI_ATOMIC_READ);
    let (it, mut before) = (Atomic { key: 8, ..Atomic::new(&pair, 8, FI_UINT64) }, [0_u64; 1]);
    assert_eq!(it.fetch(FI_ATOMIC_READ, &[], &mut before), 0);
    pair.wait(0).good();
    assert_eq!(before, [0x0202_0202_0202_0202]);
    drop(registered);
    denied(KEY, 0, FI_SUM);
    assert!(open.to_vec() == [1; 16] && closed.to_vec() == [2; 16]);
}

#[test]
fn wrong_calls_are_refused() {
    let pair = Pair::open();
    let end = pair.ends[0].endpoint;
    let it = Atomic::new(&pair, 0, FI_UINT64);
    assert_eq!(it.write::<u64>(FI_SUM, &[]), -(libc::EINVAL as isize));
    assert_eq!(it.write(FI_SUM, &[0_u64; 257]), -(libc::EMSGSIZE as isize));
    for (datatype, op) in
        [(LONG_DOUBLE, FI_SUM), (FI_FLOAT, FI_MSWAP), (FI_UINT64, FI_CSWAP), (FI_UINT64, FI_ATOMIC_READ)]
    {
        let undefined = Atomic { datatype, ..Atomic::new(&pair, 0, FI_UINT64) };
        assert_eq!(undefined.write(op, &[0_u64; 2]), -(libc::EOPNOTSUPP as isize), "{datatype} {op}");
    }
    assert_eq!(Atomic { to: 9, ..Atomic::new(&pair, 0, FI_UINT64) }.write(FI_SUM, &[1_u64]), -(libc::EINVAL as isize));
    // SAFETY: the pointers are looked at, and not followed.
    unsafe {
        let ops = (*end).atomic;
        let (to, nothing) = (pair.numbers[0], null_mut());
        let begun = ((*ops).write)(end, null(), 1, nothing, to, 0, KEY, FI_UINT64, FI_SUM, nothing);
        assert_eq!(begun, -(libc::EFAULT as isize));
        let piece = [fi_ioc { addr: (&raw const end).cast_mut().cast(), count: 1 }; 2];
        let there = fi_rma_ioc { addr: 0, count: 1, key: KEY };
        let message = |iov_count, rma_iov_count| fi_msg_atomic {
            msg_iov: piece.as_ptr(),
            desc: nothing.cast(),
            iov_count,
            addr: to,
            rma_iov: &raw const there,
            rma_iov_count,
            datatype: FI_UINT64,
            op: FI_SUM,
            context: nothing,
            data: 0,
        };
        let call = |message: fi_msg_atomic, flags| ((*ops).writemsg)(end, (&raw const message).cast(), flags);
        assert_eq!(call(message(2, 1), 0), -(libc::EINVAL as isize), "more numbers here than there");
        assert_eq!(call(message(5, 1), 0), -(libc::EINVAL as isize));
        assert_eq!(call(message(1, 0), 0), -(libc::EINVAL as isize));
        assert_eq!(call(message(1, 1), FI_FENCE), -(FI_EBADFLAGS as isize));
        let domain = pair.ends[0].domain;
        let mut attributes = fi_atomic_attr { count: 0, size: 0 };
        let query = (*(*domain).ops).query_atomic;
        let mut ask = |datatype, op, flags| query(domain, datatype, op, (&raw mut attributes).cast(), flags);
        assert_eq!(ask(FI_UINT64, FI_SUM, 1), -FI_EBADFLAGS);
        assert_eq!(ask(LONG_DOUBLE, FI_SUM, 0), -libc::EOPNOTSUPP);
        assert_eq!(ask(FI_UINT64, FI_ATOMIC_READ, 0), -libc::EOPNOTSUPP);
        assert_eq!(ask(FI_UINT32, FI_ATOMIC_READ, FI_FETCH_ATOMIC), 0);
        assert_eq!((attributes.count, attributes.size), (512, 4));
        let mut count = 0;
        assert_eq!(((*ops).compwritevalid)(end, FI_UINT64, FI_CSWAP, &raw mut count), 0);
        assert_eq!(count, 256);
        assert_eq!(((*ops).writevalid)(end, FI_UINT64, FI_CSWAP, &raw mut count), -libc::EOPNOTSUPP);
    }
}

/// More than may be under way: the rest is refused until something has ended. Two ends of one domain, and the owner itself, add to
/// one number, and each value is fetched by one of them.
#[test]
fn nothing_is_lost_where_many_add_at_once() {
    const EACH: usize = 1_000;
    let mut owner = End::open();
    owner.count(FI_WRITE);
    let pair = Pair::of([End::open(), owner]);
    let [origin, owner] = &pair.ends;
    let memory = SharedBytes::new(&[0; 8]);
    let _registered = owner.reg_open(&memory, KEY);
    let own = owner.insert(&owner.name());
    let mut results = vec![[u64::MAX]; EACH];
    let (mut begun, mut ended, mut injected, mut refused) = (0, 0, 0, 0);
    let deadline = Instant::now() + PATIENCE;
    while ended < EACH || owner.counted().0 < EACH as u64 {
        if begun < EACH {
            match Atomic::new(&pair, 0, FI_UINT64).fetch(FI_SUM, &[1], &mut results[begun]) {
                0 => begun += 1,
                again => {
                    assert_eq!(again, EAGAIN);
                    refused += 1;
                }
            }
        }
        let itself = Atomic { end: owner, to: own, ..Atomic::new(&pair, 0, FI_UINT64) };
        if injected < EACH && itself.inject(FI_SUM, &[1_u64]) == 0 {
            injected += 1;
        }
        if begun == EACH || refused > 0 {
            while let Some(news) = origin.read() {
                assert_eq!(news.good().op_context as usize, 6);
                ended += 1;
            }
            assert!(owner.read().is_none());
        }
        assert!(Instant::now() < deadline, "{ended} of {begun}, {:?}", owner.counted());
    }
    assert!(refused > 0, "more than may be under way were begun");
    assert_eq!((u64s(&memory), owner.counted()), (vec![2 * EACH as u64], (EACH as u64, 0)));
    results.sort_unstable();
    assert!(results.windows(2).all(|two| two[0] < two[1]) && results[EACH - 1][0] < 2 * EACH as u64);
}

/// An operation of several pieces begins as a whole or not at all: what is refused can be repeated, and is done once.
#[test]
fn an_operation_of_several_pieces_is_refused_as_a_whole() {
    let pair = Pair::open();
    let memory = SharedBytes::new(&[0; 24]);
    let _registered = pair.ends[1].reg_open(&memory, KEY);
    let mut ones = [1_u64; 3];
    let operands = fi_ioc { addr: ones.as_mut_ptr().cast(), count: 3 };
    let there = [0, 8, 16].map(|addr| fi_rma_ioc { addr, count: 1, key: KEY });
    let message = fi_msg_atomic {
        msg_iov: &raw const operands,
        desc: null_mut(),
        iov_count: 1,
        addr: pair.numbers[0],
        rma_iov: there.as_ptr(),
        rma_iov_count: 3,
        datatype: FI_UINT64,
        op: FI_SUM,
        context: null_mut(),
        data: 0,
    };
    let end = pair.ends[0].endpoint;
    // SAFETY: the numbers are there, and copied in the call.
    let add = || unsafe { ((*(*end).atomic).writemsg)(end, (&raw const message).cast(), 0) };
    let begun = (0..1000).take_while(|_| add() == 0).count() as u64;
    assert!((2..1000).contains(&begun), "{begun} may be under way at once");
    for _ in 0..begun {
        pair.wait(0).good();
    }
    assert_eq!(u64s(&memory), [begun; 3]);
    assert_eq!(add(), 0, "there is room again");
    pair.wait(0).good();
    assert_eq!(u64s(&memory), [begun + 1; 3]);
}

/// The memory's owner is closed while operations are under way.
#[test]
fn operations_end_where_the_peer_goes() {
    let Pair { ends: [origin, owner], numbers } = Pair::open();
    let memory = SharedBytes::new(&[0; 8]);
    let registered = owner.reg(&memory, FI_REMOTE_WRITE | FI_REMOTE_READ, KEY).expect("the key is free");
    let pair = Pair { ends: [origin, owner], numbers };
    assert_eq!(Atomic::new(&pair, 0, FI_UINT64).write(FI_SUM, &[1_u64]), 0);
    pair.wait(0).good();
    drop(registered);
    assert_eq!(Atomic::new(&pair, 0, FI_UINT64).write(FI_SUM, &[1_u64]), 0);
    let Pair { ends: [origin, owner], .. } = pair;
    drop(owner);
    let deadline = Instant::now() + PATIENCE;
    let news = loop {
        if let Some(news) = origin.read() {
            break news.bad();
        }
        assert!(Instant::now() < deadline, "the operation does not end");
    };
    assert!([libc::ECONNABORTED, libc::EACCES, libc::EHOSTUNREACH].contains(&news.err), "{news:?}");
}
