//! An application that does nothing more about what it has sent.

mod common;

use common::{Pair, pattern};

/// Messages, of which some are lost on their way.
const MESSAGES: usize = 50;
/// Bytes of one that is announced.
const LONG: usize = 300_000;

#[test]
fn what_was_sent_arrives_though_its_sender_makes_no_call_any_more() {
    // SAFETY: no other thread is there that reads the environment.
    unsafe {
        std::env::set_var("ROCI_FAULTS", "loss=0.3");
        // The memory of a process of this host is copied without it.
        std::env::set_var("ROCI_LOCAL", "off");
    }
    let (bytes, mut room) = (pattern(64, 1), vec![0; 64]);
    let (long, mut long_room) = (pattern(LONG, 2), vec![0; LONG]);
    let pair = Pair::open();
    let [sender, receiver] = &pair.ends;
    // The first one connects.
    for message in 0..MESSAGES {
        assert_eq!(receiver.trecv(pair.numbers[1], (7, 0), &mut room, message), 0);
        assert_eq!(sender.tsend(pair.numbers[0], 7, &bytes, message), 0);
        if message == 0 {
            pair.wait(0).good();
            pair.wait(1).good();
        }
    }
    let mut came: Vec<_> = (1..MESSAGES).map(|_| receiver.wait_alone().good().op_context as usize).collect();
    came.sort_unstable();
    assert!(came.into_iter().eq(1..MESSAGES));
    // A long one is fetched from where it is, and its end is for its sender to see.
    assert_eq!(receiver.trecv(pair.numbers[1], (7, 0), &mut long_room, MESSAGES), 0);
    assert_eq!(sender.tsend(pair.numbers[0], 7, &long, MESSAGES), 0);
    assert_eq!(receiver.wait_alone().good().op_context as usize, MESSAGES);
    assert!(long_room == long);
}
