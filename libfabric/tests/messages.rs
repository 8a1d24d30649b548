//! Messages with tags and without, between two endpoints of this process over sockets.

mod common;

use std::ptr::{null, null_mut};

use common::{EAGAIN, End, News, Pair, getinfo_of, pattern};
use roci_fi::abi::flags::{
    FI_CLAIM, FI_DELIVERY_COMPLETE, FI_DISCARD, FI_INJECT, FI_MORE, FI_MSG, FI_MULTI_RECV, FI_PEEK, FI_RECV,
    FI_REMOTE_CQ_DATA, FI_SELECTIVE_COMPLETION, FI_SEND, FI_TAGGED,
};
use roci_fi::abi::queues::FI_ETRUNC;
use roci_fi::abi::{FI_ADDR_UNSPEC, fi_context};

const LENGTHS: [usize; 9] = [0, 1, 8, 192, 193, 8_000, 9_000, 100_000, 3_000_000];

#[test]
fn messages_of_all_lengths_arrive_whole_from_whom_they_are_asked_of() {
    let pair = Pair::open();
    for (number, len) in LENGTHS.into_iter().enumerate() {
        for from in [FI_ADDR_UNSPEC, pair.numbers[1]] {
            let bytes = pattern(len, number);
            let mut room = vec![0xff; len + 1];
            let tag = 0xa000 + number as u64;
            assert_eq!(pair.ends[1].trecv(from, (tag, 0), &mut room[..len], 21), 0);
            assert_eq!(pair.ends[0].tsend(pair.numbers[0], tag, &bytes, 11), 0);
            let received = pair.wait(1).good();
            assert_eq!((received.op_context as usize, received.flags, received.len), (21, FI_RECV | FI_TAGGED, len));
            assert_eq!((received.tag, received.data), (tag, 0));
            assert!(room[..len] == *bytes && room[len] == 0xff, "{len}");
            let sent = pair.wait(0).good();
            assert_eq!((sent.op_context as usize, sent.flags), (11, FI_SEND | FI_TAGGED));
            room.fill(0xff);
            assert_eq!(pair.ends[1].recv(from, &mut room[..len], 22), 0);
            assert_eq!(pair.ends[0].send(pair.numbers[0], &bytes, 12), 0);
            let received = pair.wait(1).good();
            assert_eq!((received.op_context as usize, received.flags, received.len), (22, FI_RECV | FI_MSG, len));
            assert!(room[..len] == *bytes && room[len] == 0xff, "{len}");
            assert_eq!(pair.wait(0).good().flags, FI_SEND | FI_MSG);
        }
    }
}

/// The first injection to a peer connects, and is to be tried again meanwhile.
fn until_connected(peer: &End, attempt: impl Fn() -> isize) -> isize {
    loop {
        match attempt() {
            EAGAIN => assert!(peer.read().is_none(), "nothing was sent"),
            outcome => return outcome,
        }
    }
}

/// Open MPI injects a message, and then waits for other processes without a call of ours.
#[test]
fn what_was_injected_arrives_though_its_sender_makes_no_progress_any_more() {
    let pair = Pair::open();
    let [sender, receiver] = &pair.ends;
    // SAFETY: the bytes are there during the call.
    let inject = || unsafe {
        let (bytes, to) = (b"gone", pair.numbers[0]);
        ((*(*sender.endpoint).tagged).inject)(sender.endpoint, bytes.as_ptr().cast(), bytes.len(), to, 7)
    };
    assert_eq!(inject(), EAGAIN, "it is not connected");
    assert_eq!(until_connected(receiver, inject), 0);
    let mut room = [0; 4];
    assert_eq!(receiver.trecv(pair.numbers[1], (7, 0), &mut room, 3), 0);
    let start = std::time::Instant::now();
    let news = loop {
        if let Some(news) = receiver.read() {
            break news;
        }
        assert!(start.elapsed() < common::PATIENCE, "it is still at its sender");
    };
    assert_eq!((news.good().op_context as usize, &room), (3, b"gone"));
    // To itself an endpoint is connected.
    let own = sender.insert(&sender.name());
    // SAFETY: as above.
    let sent = unsafe { ((*(*sender.endpoint).tagged).inject)(sender.endpoint, b"self".as_ptr().cast(), 4, own, 9) };
    assert_eq!(sent, 0);
}

/// An MPI program sends to many neighbours, and computes. Only where it says that more is to come may a message wait for that.
#[test]
fn a_burst_has_left_when_the_last_of_its_calls_returns() {
    const MESSAGES: u64 = 12;
    let pair = Pair::open();
    let [sender, receiver] = &pair.ends;
    let mut room = [[0; 8]; 2 * MESSAGES as usize];
    for (tag, room) in (0..).zip(&mut room) {
        assert_eq!(receiver.trecv(pair.numbers[1], (tag, 0), room, 3), 0);
    }
    let connect = || sender.tsend(pair.numbers[0], 99, b"hello", 1);
    assert_eq!(connect(), 0);
    pair.wait(0).good();
    for (first, flags_before_last) in [(0, 0), (MESSAGES, FI_MORE)] {
        for tag in first..first + MESSAGES {
            let flags = if tag + 1 == first + MESSAGES { 0 } else { flags_before_last };
            assert_eq!(sender.tsendmsg(pair.numbers[0], tag, &tag.to_le_bytes(), (2, flags)), 0);
        }
        let start = std::time::Instant::now();
        let mut came = 0;
        while came < MESSAGES {
            assert!(start.elapsed() < common::PATIENCE, "only {came} have left");
            if let Some(news) = receiver.read() {
                assert_eq!(news.good().op_context as usize, 3);
                came += 1;
            }
        }
    }
    assert!((0_u64..).zip(&room).all(|(tag, room)| *room == tag.to_le_bytes()));
}

/// Open MPI reads until there is nothing, before it goes on with what it has got.
#[test]
fn the_read_after_one_with_entries_does_not_look_at_the_port() {
    let pair = Pair::open();
    let [sender, receiver] = &pair.ends;
    let mut room = [[0; 4]; 3];
    for (context, room) in room.iter_mut().enumerate() {
        assert_eq!(receiver.trecv(pair.numbers[1], (7, 0), room, context), 0);
    }
    let send = || {
        assert_eq!(sender.tsend(pair.numbers[0], 7, b"soon", 11), 0);
        pair.wait(0).good();
    };
    send();
    assert_eq!(pair.wait(1).good().op_context as usize, 0);
    for context in [1, 2] {
        send();
        assert!(receiver.read().is_none(), "the message is there, and is not looked for");
        assert_eq!(pair.wait(1).good().op_context as usize, context);
    }
}

#[test]
fn data_of_the_sender_comes_with_a_message_and_masks_are_heeded() {
    let pair = Pair::open();
    let [sender, receiver] = &pair.ends;
    for len in [0, 5, 100_000] {
        let bytes = pattern(len, 3);
        let mut room = vec![0; len];
        assert_eq!(receiver.trecv(pair.numbers[1], (0x1_0005, 0xff_ffff_0000_0000), &mut room, 1), 0);
        // SAFETY: the bytes stay until the completion.
        let sent = unsafe {
            let ops = (*sender.endpoint).tagged;
            let start = bytes.as_ptr().cast();
            if len < 100 {
                let (to, tag) = (pair.numbers[0], 0x12_0001_0005);
                until_connected(receiver, || ((*ops).injectdata)(sender.endpoint, start, len, 77, to, tag))
            } else {
                let nothing = null_mut();
                ((*ops).senddata)(sender.endpoint, start, len, nothing, 77, pair.numbers[0], 0x12_0001_0005, nothing)
            }
        };
        assert_eq!(sent, 0);
        let received = pair.wait(1).good();
        assert_eq!((received.data, received.tag, received.len), (77, 0x12_0001_0005, len));
        assert_eq!(received.flags, FI_RECV | FI_TAGGED | FI_REMOTE_CQ_DATA);
        assert!(room == bytes);
    }
}

#[test]
fn a_message_that_is_too_long_is_cut_off_and_said_to_be() {
    let pair = Pair::open();
    let mut room = [0xee; 110];
    for len in [101, 9_000, 100_000] {
        assert_eq!(pair.ends[1].trecv(FI_ADDR_UNSPEC, (4, 0), &mut room[..100], 9), 0);
        let bytes = pattern(len, 1);
        assert_eq!(pair.ends[0].tsendmsg(pair.numbers[0], 4, &bytes, (8, FI_REMOTE_CQ_DATA)), 0);
        let error = pair.wait(1).bad();
        assert_eq!((error.err, error.len, error.olen, error.tag), (FI_ETRUNC, 100, len - 100, 4));
        assert_eq!(
            (error.op_context as usize, error.flags, error.data),
            (9, FI_RECV | FI_TAGGED | FI_REMOTE_CQ_DATA, 5)
        );
        pair.wait(0).good();
        assert!(room[100..].iter().all(|&byte| byte == 0xee), "nothing is written behind the room");
    }
}

#[test]
fn receives_are_taken_back() {
    let pair = Pair::open();
    let mut room = [0; 10];
    assert_eq!(pair.ends[1].trecv(FI_ADDR_UNSPEC, (4, 0), &mut room, 33), 0);
    assert_eq!(pair.ends[1].cancel(34), -(libc::ENOENT as isize));
    assert_eq!(pair.ends[1].cancel(33), 0);
    let error = pair.wait(1).bad();
    assert_eq!((error.err, error.op_context as usize), (libc::ECANCELED, 33));
    // The message is for the next receive.
    assert_eq!(pair.ends[0].tsend(pair.numbers[0], 4, b"0123456789", 1), 0);
    assert_eq!(pair.ends[1].trecv(FI_ADDR_UNSPEC, (4, 0), &mut room, 35), 0);
    assert_eq!((pair.wait(1).good().op_context as usize, &room), (35, b"0123456789"));
}

/// `FI_PEEK` finds, `FI_CLAIM` sets aside for one receive, `FI_DISCARD` throws away.
#[test]
fn messages_are_looked_for_and_claimed_and_thrown_away() {
    let pair = Pair::open();
    let [sender, receiver] = &pair.ends;
    assert_eq!(receiver.look(FI_PEEK, &mut fi_context::default(), &mut []), 0);
    assert_eq!(pair.wait(1).bad().err, libc::ENOMSG);
    for len in [20, 100_000] {
        let messages = [0, 1, 2].map(|round| pattern(len, round));
        for message in &messages {
            assert_eq!(sender.tsend(pair.numbers[0], 7, message, 1), 0);
        }
        let mut context = fi_context::default();
        pair.until_found(&mut context);
        let found = receiver.read().expect("it was found").good();
        assert_eq!((found.len, found.tag, found.op_context), (len, 7, (&raw mut context).cast()));
        assert_eq!(receiver.look(FI_PEEK | FI_CLAIM, &mut context, &mut []), 0);
        assert_eq!(pair.wait(1).good().len, len);
        let mut other = fi_context::default();
        while receiver.look(FI_PEEK | FI_DISCARD, &mut other, &mut []) == 0
            && matches!(pair.wait(1), News::Bad(error) if error.err == libc::ENOMSG)
        {}
        // The first was claimed and the second thrown away: the third is there for any receive, and the first for its own.
        let mut room = vec![0; len];
        assert_eq!(receiver.trecv(FI_ADDR_UNSPEC, (7, 0), &mut room, 5), 0);
        assert_eq!(pair.wait(1).good().op_context as usize, 5);
        assert!(room == messages[2]);
        assert_eq!(receiver.look(FI_CLAIM, &mut context, &mut room), 0);
        assert_eq!(pair.wait(1).good().len, len);
        assert!(room == messages[0]);
        assert_eq!(receiver.look(FI_CLAIM, &mut fi_context::default(), &mut room), -(libc::EINVAL as isize));
        for _ in 0..3 {
            pair.wait(0).good();
        }
    }
}

#[test]
fn one_buffer_takes_many_messages_and_is_given_back() {
    let pair = Pair::open();
    let mut room = vec![0_u8; 4096];
    let start = room.as_ptr();
    assert_eq!(pair.ends[1].set_min_multi_recv(1024), 0);
    assert_eq!(pair.ends[1].recv_multi(&mut room, 3), 0);
    let mut taken = 0;
    for number in 0.. {
        let bytes = pattern(500, number);
        assert_eq!(pair.ends[0].send(pair.numbers[0], &bytes, 1), 0);
        pair.wait(0).good();
        let entry = pair.wait(1).good();
        assert_eq!((entry.op_context as usize, entry.len, entry.flags), (3, 500, FI_RECV | FI_MSG));
        let at = entry.buf as usize - start as usize;
        assert!(at >= taken && room[at..at + 500] == *bytes, "message {number}");
        taken = at + 500;
        if 4096 - taken < 1024 {
            break;
        }
    }
    let last = pair.wait(1).good();
    assert_eq!((last.op_context as usize, last.flags, last.len), (3, FI_MULTI_RECV, 0));
}

#[test]
fn completions_come_only_where_they_are_asked_for_and_failures_always() {
    let ends = [End::open(), End::open()];
    for end in &ends {
        end.bind(end.queue.cast(), FI_SEND | FI_RECV | FI_SELECTIVE_COMPLETION);
    }
    let pair = Pair::of(ends);
    let mut room = [0; 8];
    assert_eq!(pair.ends[1].trecv(FI_ADDR_UNSPEC, (1, 0), &mut room, 1), 0);
    assert_eq!(pair.ends[0].tsend(pair.numbers[0], 1, b"silently", 2), 0);
    // The next message is behind it.
    let mut short = [0; 4];
    assert_eq!(pair.ends[1].trecv(FI_ADDR_UNSPEC, (2, 0), &mut short, 3), 0);
    assert_eq!(pair.ends[0].tsend(pair.numbers[0], 2, b"too long", 4), 0);
    assert_eq!((pair.wait(1).bad().op_context as usize, &room), (3, b"silently"));
    assert!(pair.ends[0].read().is_none());
}

#[test]
fn pieces_are_gathered_and_scattered() {
    let pair = Pair::open();
    for len in [1_000, 400_000] {
        let bytes = pattern(len, 6);
        let cuts = [0, 1, len / 3, len - 7, len];
        let pieces: Vec<&[u8]> = cuts.windows(2).map(|cut| &bytes[cut[0]..cut[1]]).collect();
        let mut room = vec![0; len];
        let (front, back) = room.split_at_mut(len / 2);
        assert_eq!(pair.ends[1].recvv(&mut [front, back], 1), 0);
        assert_eq!(pair.ends[0].sendv(pair.numbers[0], &pieces, 2), 0);
        assert_eq!(pair.wait(1).good().len, len);
        pair.wait(0).good();
        assert!(room == bytes, "{len}");
        let five = [&bytes[..1]; 5];
        assert_eq!(pair.ends[0].sendv(pair.numbers[0], &five, 2), -(libc::EINVAL as isize));
    }
}

/// What an application may get wrong is refused, and touches nothing.
#[test]
fn wrong_calls_are_refused() {
    let end = End::open();
    let mut room = [0; 8];
    assert_eq!(end.trecv(FI_ADDR_UNSPEC, (1, 0), &mut room, 1), -258, "it is not enabled");
    assert_eq!(end.enable(), 0);
    assert_eq!(end.enable(), 0, "twice is once");
    assert_eq!(end.tsend(5, 1, b"x", 1), -(libc::EINVAL as isize), "no peer has this number");
    assert_eq!(end.tsend(FI_ADDR_UNSPEC, 1, b"x", 1), -(libc::EINVAL as isize));
    // SAFETY: the vector is open; a null pointer is refused.
    unsafe {
        let ops = (*end.vector).ops;
        let nothing = null_mut();
        assert_eq!(((*ops).insert)(end.vector, nothing, 1, nothing.cast(), 0, nothing), -libc::EINVAL);
        assert_eq!(((*ops).insert)(end.vector, nothing, 0, nothing.cast(), 0, nothing), 0);
        assert_eq!(((*ops).remove)(end.vector, nothing.cast(), 1, 0), -libc::EINVAL);
        assert_eq!(((*ops).remove)(end.vector, nothing.cast(), 0, 0), 0);
    }
    let number = end.insert(&end.name());
    // SAFETY: the pointer is looked at, and not followed.
    unsafe {
        let ops = (*end.endpoint).tagged;
        let nothing = null_mut();
        let sent = ((*ops).send)(end.endpoint, null(), 1, nothing, number, 1, nothing);
        assert_eq!(sent, -(libc::EFAULT as isize));
        let sent = ((*ops).inject)(end.endpoint, room.as_ptr().cast(), 193, number, 1);
        assert_eq!(sent, -(libc::EMSGSIZE as isize));
        let ops = (*end.domain).ops;
        let opened = ((*ops).stx_ctx)(end.domain, nothing, (&raw mut room).cast(), nothing);
        assert_eq!(opened, -libc::ENOSYS, "what is missing says so");
        let closed = ((*(*end.domain).fid.ops).close)(end.domain.cast());
        assert_eq!(closed, -libc::EBUSY, "others stand on it");
    }
    // To itself.
    assert_eq!(end.tsend(number, 1, b"to me", 1), 0);
    assert_eq!(end.trecv(number, (1, 0), &mut room, 2), 0);
    let contexts = [(); 2].map(|()| end.wait_alone().good().op_context as usize);
    assert!(contexts == [1, 2] && room[..5] == *b"to me");
}

#[test]
fn a_host_that_is_named_is_one() {
    assert!(getinfo_of(c"127.0.0.1".as_ptr(), null()).is_ok());
    assert_eq!(getinfo_of(c"no host".as_ptr(), null()), Err(-libc::ENODATA));
}

#[test]
fn who_is_removed_ends_what_waits_for_it_and_is_met_again() {
    let pair = Pair::open();
    let [first, second] = &pair.ends;
    let mut room = [0; 8];
    for round in 0..3 {
        let number = if round == 0 { pair.numbers[0] } else { first.insert(&second.name()) };
        assert_eq!(second.trecv(FI_ADDR_UNSPEC, (round, 0), &mut room, 1), 0);
        assert_eq!(first.tsend(number, round, b"hello", 1), 0);
        pair.wait(1).good();
        pair.wait(0).good();
        let mut other = [0; 8];
        assert_eq!(first.trecv(number, (9, 0), &mut other, 2), 0);
        assert_eq!(first.remove(number), 0);
        assert_eq!(pair.wait(0).bad().err, libc::ECANCELED);
        assert_eq!(first.tsend(number, 1, b"x", 1), -(libc::EINVAL as isize));
    }
}

/// The first message to a peer has ended for its sender before they are connected.
#[test]
fn what_was_sent_before_its_peer_is_removed_arrives() {
    let pair = Pair::open();
    let [first, second] = &pair.ends;
    assert_eq!(first.tsend(pair.numbers[0], 1, b"hello", 1), 0);
    pair.wait(0).good();
    assert_eq!(first.remove(pair.numbers[0]), 0);
    let mut room = [0; 8];
    assert_eq!(second.trecv(FI_ADDR_UNSPEC, (1, 0), &mut room, 2), 0);
    pair.wait(1).good();
    assert_eq!(room[..5], *b"hello");
}

#[test]
fn a_send_with_delivery_complete_ends_when_a_receive_has_met_it() {
    let pair = Pair::open();
    for (len, flags) in
        [(8, FI_DELIVERY_COMPLETE), (8, FI_DELIVERY_COMPLETE | FI_INJECT), (9_000, FI_DELIVERY_COMPLETE)]
    {
        let mut bytes = pattern(len, 2);
        assert_eq!(pair.ends[0].tsendmsg(pair.numbers[0], 3, &bytes, (4, flags)), 0);
        let sent = bytes.clone();
        if flags & FI_INJECT != 0 {
            bytes.fill(0);
        }
        for _ in 0..2_000 {
            assert!(pair.ends[0].read().is_none(), "no receive has met it");
            pair.progress(1);
        }
        let mut room = vec![0; len];
        assert_eq!(pair.ends[1].trecv(FI_ADDR_UNSPEC, (3, 0), &mut room, 5), 0);
        pair.wait(1).good();
        assert!(room == sent);
        assert_eq!(pair.wait(0).good().op_context as usize, 4);
    }
    let long = [0; 193];
    let refused = pair.ends[0].tsendmsg(pair.numbers[0], 3, &long, (4, FI_INJECT));
    assert_eq!(refused, -(libc::EMSGSIZE as isize));
}

/// Numbers are dense, the lowest that is free first, and an address that was inserted twice has two.
#[test]
fn numbers_of_addresses_are_dense() {
    let pair = Pair::open();
    let [first, second] = &pair.ends;
    assert_eq!([first.insert(&second.name()), first.insert(&first.name())], [1, 2]);
    let mut room = [0; 8];
    assert_eq!(first.tsend(1, 1, b"again", 1), 0);
    assert_eq!(second.trecv(FI_ADDR_UNSPEC, (1, 0), &mut room, 2), 0);
    pair.wait(1).good();
    // One of its numbers goes, and what waits for it under the other one stays.
    assert_eq!(first.trecv(1, (5, 0), &mut room, 3), 0);
    assert_eq!(first.remove(0), 0);
    assert_eq!(second.tsend(pair.numbers[1], 5, b"here", 4), 0);
    pair.wait(0).good();
    assert_eq!(pair.wait(0).good().op_context as usize, 3);
    assert_eq!((first.insert(&first.name()), first.remove(7)), (0, -libc::EINVAL));
}

#[test]
fn failures_are_seen_although_others_go_on_well() {
    let pair = Pair::open();
    let (mut first, mut many, mut third) = ([0; 8], [0; 4096], [0; 8]);
    assert_eq!(pair.ends[1].trecv(FI_ADDR_UNSPEC, (1, 0), &mut first, 1), 0);
    assert_eq!(pair.ends[1].recv_multi(&mut many, 2), 0);
    assert_eq!(pair.ends[0].tsend(pair.numbers[0], 1, b"well", 1), 0);
    pair.wait(0).good();
    assert_eq!(pair.ends[1].cancel(2), 0);
    for _ in 0..1_000 {
        pair.progress(1);
    }
    let error = pair.ends[1].read().expect("it was cancelled").bad();
    assert_eq!((error.err, error.flags & FI_MULTI_RECV), (libc::ECANCELED, FI_MULTI_RECV), "its buffer is given back");
    pair.wait(1).good();
    // Who binds late is refused, and who claims has a place for it.
    let queue = pair.ends[1].queue;
    // SAFETY: both are open.
    let bound =
        unsafe { ((*(*pair.ends[1].endpoint).fid.ops).bind)(pair.ends[1].endpoint.cast(), queue.cast(), FI_RECV) };
    assert_eq!(bound, -258);
    let mut context = fi_context::default();
    assert_eq!(pair.ends[1].look(FI_DISCARD, &mut context, &mut third), -(libc::EINVAL as isize));
}

#[test]
fn counters_count_what_has_ended_of_their_kinds() {
    let mut ends = [End::open(), End::open()];
    ends[0].count(FI_SEND);
    ends[1].count(FI_RECV);
    let pair = Pair::of(ends);
    let [sender, receiver] = &pair.ends;
    for (round, len) in LENGTHS.into_iter().enumerate() {
        let (bytes, mut room) = (pattern(len, round), vec![0; len]);
        assert_eq!(receiver.recv(FI_ADDR_UNSPEC, &mut room, 1), 0);
        assert_eq!(sender.send(pair.numbers[0], &bytes, 2), 0);
        assert_eq!((pair.wait(1).good().op_context as usize, pair.wait(0).good().op_context as usize), (1, 2));
        let ended = round as u64 + 1;
        assert_eq!((sender.counted(), receiver.counted()), ((ended, 0), (ended, 0)));
    }
    let mut room = [0; 8];
    assert_eq!(receiver.recv(FI_ADDR_UNSPEC, &mut room, 3), 0);
    assert_eq!(receiver.cancel(3), 0);
    assert_eq!(pair.wait(1).bad().err, libc::ECANCELED);
    assert_eq!(receiver.counted(), (LENGTHS.len() as u64, 1));
}

/// An endpoint that is closed, by a thread.
struct Leaving(End);

// SAFETY: it is one thread's at a time.
unsafe impl Send for Leaving {}

impl Leaving {
    fn close(self) {
        drop(self.0);
    }
}

#[test]
fn what_was_sent_before_its_sender_closed_is_received_after_that() {
    // The longest pause is of a receiver that computes meanwhile.
    for pause in [0, 1, 20, 1_500] {
        let Pair { ends: [sender, receiver], numbers } = Pair::open();
        for tag in 0..200 {
            assert_eq!(sender.tsend(numbers[0], tag, b"farewell", 1), 0);
        }
        let leaving = Leaving(sender);
        let thread = std::thread::spawn(move || leaving.close());
        std::thread::sleep(std::time::Duration::from_millis(pause));
        for tag in 0..200 {
            let mut room = [0; 8];
            assert_eq!(receiver.trecv(numbers[1], (tag, 0), &mut room, 2), 0);
            let news = loop {
                if let Some(news) = receiver.read() {
                    break news;
                }
            };
            assert_eq!((news.good().op_context as usize, &room), (2, b"farewell"), "{tag}");
        }
        // The last acknowledgement is still to be sent.
        while !thread.is_finished() {
            assert!(receiver.read().is_none());
        }
        thread.join().expect("it closes");
    }
}

/// More than there are credits for, so that some are announced; and each end closes without a receive for them.
#[test]
fn ends_that_close_do_not_wait_for_receives_of_each_other() {
    let Pair { ends: [first, second], numbers } = Pair::open();
    for _ in 0..300 {
        assert_eq!(first.tsend(numbers[0], 1, b"unwanted", 1), 0);
        assert_eq!(second.tsend(numbers[1], 1, b"unwanted", 1), 0);
    }
    let (begun, leaving) = (std::time::Instant::now(), Leaving(first));
    let thread = std::thread::spawn(move || leaving.close());
    drop(second);
    thread.join().expect("it closes");
    // A safety net: it is a minute where they wait.
    assert!(begun.elapsed() < common::PATIENCE);
}
