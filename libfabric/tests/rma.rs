//! Reading and writing memory that a peer has registered.

mod common;

use std::ptr::null_mut;
use std::time::Instant;

use common::{EAGAIN, End, News, PATIENCE, Pair, SharedBytes, pattern};
use roci_fi::abi::attributes::{FI_PROGRESS_AUTO, fi_domain_attr, fi_info};
use roci_fi::abi::flags::{
    FI_DELIVERY_COMPLETE, FI_FENCE, FI_INJECT, FI_READ, FI_RECV, FI_REMOTE_CQ_DATA, FI_REMOTE_READ, FI_REMOTE_WRITE,
    FI_RMA, FI_SEND, FI_WRITE,
};
use roci_fi::abi::iovec;
use roci_fi::abi::memory::{FI_MR_ALLOCATED, FI_MR_ENDPOINT, FI_MR_LOCAL, FI_MR_PROV_KEY, FI_MR_VIRT_ADDR, fi_rma_iov};
use roci_fi::abi::queues::FI_ENOKEY;

const LENGTHS: [usize; 9] = [0, 1, 8, 192, 193, 8_000, 9_000, 100_000, 3_000_000];
const MEMORY: usize = 3_000_100;
const KEY: u64 = 0xfeed_0000_0000_0007;

#[test]
fn bytes_of_all_lengths_and_places_are_written_and_read_and_nothing_else_is_touched() {
    let pair = Pair::open();
    let [origin, target] = &pair.ends;
    let mut expected = pattern(MEMORY, 1);
    let memory = SharedBytes::new(&expected);
    let registered = target.reg_open(&memory, KEY);
    assert_eq!(registered.key(), KEY);
    for (round, len) in LENGTHS.into_iter().enumerate() {
        for offset in [0, 1, 61] {
            let bytes = pattern(len, 10 + round + offset);
            assert_eq!(origin.write(pair.numbers[0], &bytes, (offset as u64, KEY), 11), 0);
            let written = pair.wait(0).good();
            assert_eq!((written.op_context as usize, written.flags), (11, FI_RMA | FI_WRITE));
            expected[offset..][..len].copy_from_slice(&bytes);
            assert!(memory.to_vec() == expected, "{len} bytes at {offset}");
            let mut room = vec![0xff; len + 1];
            assert_eq!(origin.rma_read(pair.numbers[0], &mut room[..len], (offset as u64 + 3, KEY), 12), 0);
            let read = pair.wait(0).good();
            assert_eq!((read.op_context as usize, read.flags), (12, FI_RMA | FI_READ));
            assert!(room[..len] == expected[offset + 3..][..len] && room[len] == 0xff, "{len} bytes from {offset}");
        }
    }
    assert!(target.read().is_none(), "who is written to has no entry of it");
}

#[test]
fn what_is_injected_is_the_applications_at_once_and_only_counted() {
    let mut origin = End::open();
    origin.count(FI_READ | FI_WRITE);
    let pair = Pair::of([origin, End::open()]);
    let [origin, target] = &pair.ends;
    let until = |good| {
        let deadline = Instant::now() + PATIENCE;
        while origin.counted().0 < good {
            pair.progress(1);
            assert!(Instant::now() < deadline, "nothing ends");
        }
        assert_eq!(origin.counted(), (good, 0));
    };
    let memory = SharedBytes::new(&[0; 1_000]);
    let _registered = target.reg_open(&memory, KEY);
    let mut bytes = pattern(192, 3);
    let expected = bytes.clone();
    assert_eq!(origin.inject_write(pair.numbers[0], &bytes, (5, KEY)), 0);
    bytes.fill(0);
    until(1);
    assert_eq!(memory.to_vec()[5..197], expected);
    assert!(origin.read().is_none());
    assert_eq!(origin.inject_write(pair.numbers[0], &[0; 193], (5, KEY)), -(libc::EMSGSIZE as isize));
    let mut room = [0; 10];
    assert_eq!(origin.rma_read(pair.numbers[0], &mut room, (5, KEY), 1), 0);
    until(2);
    assert_eq!(room, expected[..10]);
    assert_eq!(pair.wait(0).good().flags, FI_RMA | FI_READ);
    // One that fails has an entry, whether one was asked for or not.
    assert_eq!(origin.inject_write(pair.numbers[0], &[1], (1_000, KEY)), 0);
    assert_eq!(pair.wait(0).bad().err, libc::EACCES);
    assert_eq!(origin.counted(), (2, 1));
}

#[test]
fn pieces_here_and_there_are_one_operation() {
    let pair = Pair::open();
    let [origin, target] = &pair.ends;
    let memory = SharedBytes::new(&vec![0; 20_000]);
    let _registered = target.reg_open(&memory, KEY);
    let bytes = pattern(15_000, 5);
    let piece = |from: usize, len: usize| iovec { iov_base: bytes[from..].as_ptr().cast_mut().cast(), iov_len: len };
    let pieces = [piece(0, 100), piece(100, 0), piece(100, 9_900), piece(10_000, 5_000)];
    let place = |addr, len| fi_rma_iov { addr, len, key: KEY };
    let places = [place(10_000, 50), place(3, 0), place(0, 6_000), place(11_000, 8_950)];
    for flags in [0, FI_FENCE | FI_DELIVERY_COMPLETE] {
        assert_eq!(origin.rma_message(false, pair.numbers[0], &pieces, &places, flags), 0);
        assert_eq!(pair.wait(0).good().op_context as usize, 77);
        assert!(origin.read().is_none(), "it is one");
        let there = memory.to_vec();
        assert!(there[10_000..10_050] == bytes[..50] && there[..6_000] == bytes[50..6_050]);
        assert!(there[11_000..19_950] == bytes[6_050..] && there[6_000..10_000].iter().all(|&byte| byte == 0));
    }
    let mut room = vec![0; 15_000];
    let start = room.as_mut_ptr();
    let piece = |from: usize, len: usize| iovec { iov_base: start.wrapping_add(from).cast(), iov_len: len };
    let pieces = [piece(0, 7_000), piece(7_000, 8_000)];
    assert_eq!(origin.rma_message(true, pair.numbers[0], &pieces, &places, 0), 0);
    assert_eq!(pair.wait(0).good().flags, FI_RMA | FI_READ);
    assert!(room == bytes);
    // What is injected is one copy, cut by the places.
    let short = pattern(150, 6);
    let pieces = [iovec { iov_base: short.as_ptr().cast_mut().cast(), iov_len: 150 }];
    let places = [place(1, 100), place(500, 50)];
    assert_eq!(origin.rma_message(false, pair.numbers[0], &pieces, &places, FI_INJECT), 0);
    assert_eq!(pair.wait(0).good().op_context as usize, 77);
    assert!(memory.to_vec()[1..101] == short[..100] && memory.to_vec()[500..550] == short[100..]);
    for places in [&places[..1], &[place(0, 151)]] {
        let refused = origin.rma_message(false, pair.numbers[0], &pieces, places, 0);
        assert_eq!(refused, -(libc::EINVAL as isize), "as much there as here");
    }
}

#[test]
fn keys_and_addresses_are_the_providers_and_the_memorys_where_the_application_has_it_so() {
    let ask = |info: &mut fi_info| {
        // SAFETY: the provider has made the attributes.
        unsafe { (*info.domain_attr).mr_mode = FI_MR_PROV_KEY | FI_MR_VIRT_ADDR };
    };
    let pair = Pair::of([End::open(), End::with(ask, |_| {})]);
    let memories = [SharedBytes::new(&[0; 100]), SharedBytes::new(&[0; 100])];
    let [first, second] = memories.each_ref().map(|memory| pair.ends[1].reg_open(memory, KEY));
    assert_ne!(first.key(), second.key());
    for (memory, registered) in memories.iter().zip([first, second]) {
        let bytes = pattern(50, registered.key() as usize);
        let place = (memory.addr() + 20, registered.key());
        assert_eq!(pair.ends[0].write(pair.numbers[0], &bytes, place, 1), 0);
        assert_eq!(pair.wait(0).good().op_context as usize, 1);
        assert_eq!(memory.to_vec()[20..70], bytes);
        assert_eq!(pair.ends[0].write(pair.numbers[0], &bytes, (20, registered.key()), 2), 0);
        assert_eq!(pair.wait(0).bad().err, libc::EACCES, "20 is no address of it");
    }
}

#[test]
fn the_peer_has_an_entry_of_a_write_with_data_once_the_bytes_are_there() {
    let pair = Pair::open();
    let memory = SharedBytes::new(&vec![0; 200_000]);
    let _registered = pair.ends[1].reg_open(&memory, KEY);
    for (round, len) in [0, 8, 150_000].into_iter().enumerate() {
        let bytes = pattern(len, 40 + round);
        let data = u64::MAX - round as u64;
        assert_eq!(pair.ends[0].write_data(pair.numbers[0], &bytes, (9, KEY), (data, 3)), 0);
        let News::Good(entry, source) = pair.wait(1) else { panic!("it has failed") };
        assert_eq!((entry.flags, entry.len), (FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA, len));
        assert_eq!((entry.data, entry.op_context, source), (data, null_mut(), pair.numbers[1]));
        assert!(memory.to_vec()[9..][..len] == bytes);
        assert_eq!(pair.wait(0).good().flags, FI_RMA | FI_WRITE);
    }
    // What is denied is no news for the peer.
    assert_eq!(pair.ends[0].write_data(pair.numbers[0], &[1; 9], (199_992, KEY), (1, 3)), 0);
    assert_eq!(pair.wait(0).bad().err, libc::EACCES);
    pair.progress(1);
    assert!(pair.ends[1].read().is_none());
}

#[test]
fn what_no_key_opens_is_denied_alone_and_nothing_is_touched() {
    let pair = Pair::open();
    let [origin, target] = &pair.ends;
    let memory = SharedBytes::new(&[7; 100]);
    let registered = target.reg_open(&memory, KEY);
    let read_only = target.reg(&memory, FI_REMOTE_READ, KEY + 1).expect("the key is free");
    let local = target.reg(&memory, FI_READ | FI_WRITE | FI_SEND | FI_RECV, KEY + 2).expect("the key is free");
    let denied = |at, len: usize, is_read: bool| {
        let (bytes, mut room) = (vec![1; len], vec![9; len]);
        let begun = if is_read {
            origin.rma_read(pair.numbers[0], &mut room, at, 5)
        } else {
            origin.write(pair.numbers[0], &bytes, at, 5)
        };
        assert_eq!(begun, 0);
        let bad = pair.wait(0).bad();
        assert_eq!((bad.op_context as usize, bad.err), (5, libc::EACCES), "{len} bytes at {at:?}");
        assert!(memory.to_vec().iter().all(|&byte| byte == 7) && room.iter().all(|&byte| byte == 9));
    };
    for is_read in [true, false] {
        for at in [(0, KEY + 3), (93, KEY), (u64::MAX - 20, KEY), (0, KEY + 2)] {
            denied(at, 8, is_read);
        }
    }
    denied((0, KEY + 1), 8, false);
    let beyond = origin.write(pair.numbers[0], &[1; 8], (u64::MAX - 3, KEY), 5);
    assert_eq!(beyond, -(libc::EINVAL as isize), "no address has so many bits");
    let mut room = [0; 8];
    assert_eq!(origin.rma_read(pair.numbers[0], &mut room, (0, KEY + 1), 6), 0);
    assert_eq!((pair.wait(0).good().op_context as usize, room), (6, [7; 8]));
    drop((registered, read_only, local));
    for key in [KEY, KEY + 1] {
        denied((0, key), 8, true);
    }
    // The peer is there still, and a key that was given up is free.
    let again = target.reg_open(&memory, KEY);
    assert_eq!(origin.write(pair.numbers[0], &[8; 8], (0, again.key()), 7), 0);
    assert_eq!((pair.wait(0).good().op_context as usize, &memory.to_vec()[..9]), (7, &[8, 8, 8, 8, 8, 8, 8, 8, 7][..]));
}

#[test]
fn memory_is_the_domains_and_registered_once_at_a_time() {
    let target = End::open();
    let [first, second] = [SharedBytes::new(&[1; 64]), SharedBytes::new(&[2; 64])];
    let before = target.reg_open(&first, 1);
    let sibling = target.sibling();
    assert_eq!((target.enable(), sibling.enable()), (0, 0));
    let after = sibling.reg_open(&second, 2);
    assert_eq!(target.reg(&first, FI_REMOTE_READ, 2).err(), Some(-FI_ENOKEY));
    assert_eq!(target.reg(&first, 1 << 40, 3).err(), Some(-libc::EINVAL));
    let origin = End::open();
    assert_eq!(origin.enable(), 0);
    for (served, other) in [(&target, &sibling), (&sibling, &target)] {
        let number = origin.insert(&served.name());
        for (key, value) in [(1, 1), (2, 2)] {
            let mut room = [0; 64];
            assert_eq!(origin.rma_read(number, &mut room, (0, key), 4), 0);
            let deadline = Instant::now() + PATIENCE;
            let news = loop {
                if let Some(news) = origin.read() {
                    break news;
                }
                assert!(served.read().is_none() && other.read().is_none() && Instant::now() < deadline);
            };
            assert_eq!((news.good().op_context as usize, room), (4, [value; 64]));
        }
    }
    // SAFETY: it is open, and stays so: memory is registered there.
    unsafe { assert_eq!(((*(*target.domain).fid.ops).close)(target.domain.cast()), -libc::EBUSY) };
    drop((before, after, sibling));
}

#[test]
fn an_end_reaches_its_own_memory() {
    let end = End::open();
    assert_eq!(end.enable(), 0);
    let itself = end.insert(&end.name());
    let memory = SharedBytes::new(&[0; 100]);
    let _registered = end.reg_open(&memory, KEY);
    assert_eq!(end.write_data(itself, &[5; 10], (50, KEY), (8, 1)), 0);
    let mut flags = Vec::new();
    while flags.len() < 2 {
        flags.extend(end.read().map(|news| news.good().flags));
    }
    flags.sort_unstable();
    assert_eq!(flags, [FI_RMA | FI_WRITE, FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA]);
    let mut room = [0; 12];
    assert_eq!(end.rma_read(itself, &mut room, (49, KEY), 2), 0);
    while end.read().is_none() {}
    assert_eq!(room, [0, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 0]);
}

#[test]
fn memory_is_reached_while_its_owner_computes() {
    let ask = |info: &mut fi_info| {
        // SAFETY: the provider has made the attributes.
        unsafe { (*info.domain_attr).data_progress = FI_PROGRESS_AUTO };
    };
    let pair = Pair::of([End::open(), End::with(ask, |_| {})]);
    let memory = SharedBytes::new(&vec![0; 100_000]);
    let _registered = pair.ends[1].reg_open(&memory, KEY);
    let bytes = pattern(100_000, 9);
    assert_eq!(pair.ends[0].write(pair.numbers[0], &bytes, (0, KEY), 1), 0);
    let deadline = Instant::now() + PATIENCE;
    let news = loop {
        if let Some(news) = pair.ends[0].read() {
            break news;
        }
        assert!(Instant::now() < deadline, "nothing comes");
    };
    assert_eq!(news.good().op_context as usize, 1);
    assert!(memory.to_vec() == bytes);
}

/// A thousand at once, as many as an application may count on: each ends, and each where it belongs.
#[test]
fn as_many_as_may_be_under_way_all_end() {
    const COUNT: usize = 1_000;
    let pair = Pair::open();
    let memory = SharedBytes::new(&vec![0; COUNT * 8]);
    let _registered = pair.ends[1].reg_open(&memory, KEY);
    let bytes = pattern(COUNT * 8, 2);
    for at in 0..COUNT {
        let place = ((at * 8) as u64, KEY);
        while pair.ends[0].write_data(pair.numbers[0], &bytes[at * 8..][..8], place, (at as u64, at)) == EAGAIN {
            pair.progress(0);
            pair.progress(1);
        }
    }
    let mut ended = vec![[false; 2]; COUNT];
    let deadline = Instant::now() + PATIENCE;
    for _ in 0..2 * COUNT {
        let (who, entry) = loop {
            let news = [0, 1].into_iter().find_map(|who| Some((who, pair.ends[who].read()?.good())));
            if let Some(news) = news {
                break news;
            }
            assert!(Instant::now() < deadline, "nothing comes");
        };
        let at = if who == 0 { entry.op_context as usize } else { entry.data as usize };
        assert!(!std::mem::replace(&mut ended[at][who], true), "each once");
    }
    assert!(memory.to_vec() == bytes);
}

#[test]
fn data_goes_behind_a_write_whose_end_closes() {
    let Pair { ends: [origin, target], numbers } = Pair::open();
    let memory = SharedBytes::new(&[0; 64]);
    let _registered = target.reg_open(&memory, KEY);
    // SAFETY: the bytes are there.
    unsafe {
        let ops = (*origin.endpoint).rma;
        let start = [7_u8; 8].as_ptr().cast();
        assert_eq!(((*ops).injectdata)(origin.endpoint, start, 8, 99, numbers[0], 3, KEY), 0);
    }
    drop(origin);
    let deadline = Instant::now() + PATIENCE;
    let news = loop {
        if let Some(news) = target.read() {
            break news;
        }
        assert!(Instant::now() < deadline, "nothing comes");
    };
    assert_eq!((news.good().data, &memory.to_vec()[3..11]), (99, &[7; 8][..]));
}

/// GASNet's conduit insists that memory is allocated, addresses are virtual and keys the provider's all at once, or none of it.
#[test]
fn modes_of_memory_are_those_that_the_application_offers_and_that_change_something() {
    // SAFETY: zeros are attributes that ask for nothing, and the provider's answer is valid.
    unsafe {
        let (mut hints, mut domain): (fi_info, fi_domain_attr) = (std::mem::zeroed(), std::mem::zeroed());
        let wanted = FI_MR_ALLOCATED | FI_MR_VIRT_ADDR | FI_MR_PROV_KEY;
        for (offered, answer) in [(0, 0), (FI_MR_ENDPOINT | FI_MR_LOCAL, 0), (wanted | FI_MR_ENDPOINT, wanted)] {
            domain.mr_mode = offered;
            hints.domain_attr = &raw mut domain;
            let info = common::getinfo(&raw const hints).expect("it is there");
            assert_eq!((*(*info).domain_attr).mr_mode, answer);
        }
    }
}
