//! What is taken, what is refused in which words, and that what is shown is what was read.

use proptest::prelude::*;

use super::*;

fn queues(text: &str) -> ReceiveQueues {
    text.parse().unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn fields_left_out_take_their_defaults() {
    for (text, shown) in [
        ("P,8KiB,64", "P,8KiB,64,32,16,7"),
        ("P,8192,64,,,9", "P,8KiB,64,32,16,9"),
        ("P,256,2", "P,256,2,1,1,3"),
        ("P,256,3,0", "P,256,3,0,1,5"),
        ("P,1MiB,4096,1,1", "P,1MiB,4096,1,1,8191"),
        ("P,256,256,128,16", "P,256,256,128,16,31"),
        ("S,1024,256", "S,1KiB,256,128,32,64,12"),
        ("S,1024,256,128,32,32", "S,1KiB,256,128,32,32,6"),
        ("S,256,2", "S,256,2,1,1,1,1"),
        ("S,256,65536,0,,,0", "S,256,65536,0,1,16384,0"),
        (" P , 512 , 64 : S , 8KiB , 1024 ", "P,512,64,32,16,7:S,8KiB,1024,512,128,256,48"),
    ] {
        assert_eq!(queues(text).to_string(), shown, "{text}");
    }
}

#[test]
fn lists_like_those_of_openib_are_taken() {
    let text = "P,256,256,192,128:S,2048,1024,1008,64:S,12288,1024,1008,64:S,65536,1024,1008,64";
    let shared = "1024,1008,64,256,48";
    let shown = format!("P,256,256,192,128,3:S,2KiB,{shared}:S,12KiB,{shared}:S,64KiB,{shared}");
    assert_eq!(queues(text).to_string(), shown);
    assert_eq!(queues("P,65536,256,192,128").to_string(), "P,64KiB,256,192,128,3");
}

#[test]
fn refusals_name_the_entry_the_fault_and_the_remedy() {
    let per_peer = "the form is P,size,num[,low[,win[,rsv]]]";
    let shared = "the form is S,size,num[,low[,maxsends[,init[,limit]]]]";
    let spent = "a peer spends its last before any return";
    let cases: &[(&str, &str)] = &[
        ("Q,8KiB,64", "entry 1 'Q,8KiB,64': 'Q' is no kind of queue: use P (per peer) or S (shared)"),
        ("p,8KiB,64", "entry 1 'p,8KiB,64': 'p' is no kind of queue: use P (per peer) or S (shared)"),
        ("P,256,8::S,8KiB,64", "entry 2 '': '' is no kind of queue: use P (per peer) or S (shared)"),
        ("X,8KiB,64", "entry 1 'X,8KiB,64': XRC queues are not spoken: use S"),
        ("P", &format!("entry 1 'P': size is missing: {per_peer}")),
        ("P,,64", &format!("entry 1 'P,,64': size is missing: {per_peer}")),
        ("P,8KiB", &format!("entry 1 'P,8KiB': num is missing: {per_peer}")),
        ("S,8KiB,", &format!("entry 1 'S,8KiB,': num is missing: {shared}")),
        ("P,8KiB,8,4,2,7,1", &format!("entry 1 'P,8KiB,8,4,2,7,1': 7 fields are too many: {per_peer}")),
        ("S,8KiB,8,4,1,2,1,1", &format!("entry 1 'S,8KiB,8,4,1,2,1,1': 8 fields are too many: {shared}")),
        ("P,8kx,8", "entry 1 'P,8kx,8': size '8kx' is not a size: give one such as 4096, 8KiB, 1MiB"),
        ("P,255,8", "entry 1 'P,255,8': size 255 lies outside 256..1MiB"),
        ("S,2MiB,8", "entry 1 'S,2MiB,8': size 2MiB lies outside 256..1MiB"),
        ("P,8KiB,x", "entry 1 'P,8KiB,x': num 'x' is not a number: give a whole number below 2^32"),
        ("P,8KiB,-8", "entry 1 'P,8KiB,-8': num '-8' is not a number: give a whole number below 2^32"),
        ("S,512,8,,,,1e2", "entry 1 'S,512,8,,,,1e2': limit '1e2' is not a number: give a whole number below 2^32"),
        (
            "S,512,4294967296",
            "entry 1 'S,512,4294967296': num '4294967296' is not a number: give a whole number below 2^32",
        ),
        ("P,8KiB,1", "entry 1 'P,8KiB,1': num 1 lies outside 2..4096"),
        ("P,8KiB,4097", "entry 1 'P,8KiB,4097': num 4097 lies outside 2..4096"),
        ("S,8KiB,1", "entry 1 'S,8KiB,1': num 1 lies outside 2..65536"),
        ("S,8KiB,65537", "entry 1 'S,8KiB,65537': num 65537 lies outside 2..65536"),
        ("P,8KiB,8,8", "entry 1 'P,8KiB,8,8': low 8 is not below num 8, so buffers would always be too few: give 0..7"),
        ("S,8KiB,8,9", "entry 1 'S,8KiB,8,9': low 9 is not below num 8, so buffers would always be too few: give 0..7"),
        ("P,8KiB,8,4,0", "entry 1 'P,8KiB,8,4,0': win is 0, so credits would be returned without end: give 1..7"),
        ("P,8KiB,8,4,9", "entry 1 'P,8KiB,8,4,9': win 9 is more than the 8 credits there are: give 1..7"),
        ("P,8KiB,8,4,8", &format!("entry 1 'P,8KiB,8,4,8': credits cannot flow: with win 8 {spent}: give 1..7")),
        ("P,8KiB,8,3,6", &format!("entry 1 'P,8KiB,8,3,6': credits cannot flow: with win 6 {spent}: give 1..5")),
        (
            "P,8KiB,8,4,2,0",
            "entry 1 'P,8KiB,8,4,2,0': rsv is 0, so a message that returns credits would find no buffer: give 2..8192",
        ),
        ("P,8KiB,8,4,2,8193", "entry 1 'P,8KiB,8,4,2,8193': rsv 8193 lies outside 2..8192"),
        ("P,8KiB,8,4,2,1", "entry 1 'P,8KiB,8,4,2,1': rsv 1 lies outside 2..8192"),
        ("S,8KiB,8,4,0", "entry 1 'S,8KiB,8,4,0': maxsends 0 is not within 1..8, the buffers of the queue"),
        ("S,8KiB,8,4,9", "entry 1 'S,8KiB,8,4,9': maxsends 9 is not within 1..8, the buffers of the queue"),
        ("S,8KiB,8,4,1,0", "entry 1 'S,8KiB,8,4,1,0': init 0 is not within 1..8, the buffers of the queue"),
        ("S,8KiB,8,4,1,9", "entry 1 'S,8KiB,8,4,1,9': init 9 is not within 1..8, the buffers of the queue"),
        (
            "S,8KiB,8,4,1,2,9",
            "entry 1 'S,8KiB,8,4,1,2,9': limit 9 is more than num 8, so a full queue would be a shortage: give 0..8",
        ),
        (
            "P,512,8:S,8KiB,64:P,4KiB,8",
            "entry 3 'P,4KiB,8' must have larger buffers than entry 2 'S,8KiB,64': give sizes in ascending order",
        ),
        (
            "P,512,8:S,512,64",
            "entry 2 'S,512,64' must have larger buffers than entry 1 'P,512,8': give sizes in ascending order",
        ),
    ];
    for (text, message) in cases {
        assert_eq!(text.parse::<ReceiveQueues>().expect_err(text).to_string(), *message);
    }
}

#[test]
fn between_one_and_eight_queues_are_taken() {
    let text = |count: usize| (1..=count).map(|n| format!("P,{},8", n * 256)).collect::<Vec<_>>().join(":");
    assert_eq!(queues(&text(8)).len(), 8);
    let error = text(9).parse::<ReceiveQueues>().expect_err("too many").to_string();
    assert_eq!(error, "entry 9 'P,2304,8' is the first of too many: give 1..8 entries");
    let none = "no receive queue is given: give 1..8 entries such as P,8KiB,64 or S,8KiB,1024, separated by ':'";
    for text in ["", "  "] {
        assert_eq!(text.parse::<ReceiveQueues>().expect_err("none").to_string(), none);
    }
}

#[test]
fn a_message_goes_to_the_smallest_queue_that_holds_it() {
    let queues = queues("P,512,8:S,4KiB,64:S,64KiB,64");
    let choices = [0, 512, 513, 4096, 4097, 65_536, 65_537].map(|bytes| queues.for_len(bytes));
    assert_eq!(choices, [Some(0), Some(0), Some(1), Some(1), Some(2), Some(2), None]);
    assert_eq!(queues.largest(), 65_536);
    assert_eq!(queues.get(1).map(|queue| queue.size), Some(4096));
    assert_eq!(queues.get(3), None);
}

#[test]
fn memory_is_that_of_all_buffers() {
    let queues = queues("P,512,8,4,2,7:P,1KiB,4,2,1,5:S,4KiB,64:S,64KiB,16");
    assert_eq!(queues.bytes_per_connection(), 512 * (8 + 7) + 1024 * (4 + 5));
    assert_eq!(queues.bytes_shared(), 4096 * 64 + 65_536 * 16);
}

#[test]
fn several_queues_have_no_more_credits_together_than_may_wait_for_their_turn() {
    assert!("P,512,2048:P,4KiB,2048".parse::<ReceiveQueues>().is_ok());
    let error = "P,512,2048:P,4KiB,2049".parse::<ReceiveQueues>().expect_err("too many").to_string();
    assert_eq!(error, "the queues have 4097 credits together (num of P, maxsends of S): several may have 4096");
    assert!("S,512,65536,60000,60000".parse::<ReceiveQueues>().is_ok(), "one queue does not overtake itself");
}

/// Two ends with lazily posted buffers and nothing to send back: messages flow with every window that is taken, and
/// with the smallest that is refused for it they stop.
#[test]
fn credits_flow_with_every_window_that_is_taken() {
    for num in 2..24 {
        for low in 0..num {
            let is_taken = |window: u32| format!("P,256,{num},{low},{window}").parse::<ReceiveQueues>().is_ok();
            for window in (1..=num).filter(|&window| is_taken(window)) {
                assert!(flows(num, low, window), "num {num}, low {low}, window {window}");
            }
            let refused = (1..num).find(|&window| !is_taken(window));
            assert!(refused.is_none_or(|window| !flows(num, low, window)), "num {num}, low {low}: {refused:?}");
        }
    }
}

/// Whether a sender never runs dry, whose peer posts buffers again when `low` are left.
fn flows(num: u32, low: u32, window: u32) -> bool {
    let (mut credits, mut left, mut owed) = (num, num, 0);
    for _ in 0..num * num * 4 {
        if credits == 0 {
            return false;
        }
        credits -= 1;
        left -= 1;
        if left <= low {
            owed += num - left;
            left = num;
        }
        if owed >= window {
            credits += std::mem::take(&mut owed);
        }
    }
    true
}

fn number() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(String::new()),
        (0..20u32).prop_map(|n| n.to_string()),
        (0..70_000u32).prop_map(|n| n.to_string()),
        (1..65u32).prop_map(|n| format!("{n}KiB")),
    ]
}

/// Text that is often right, and seldom far from it.
fn nearly() -> impl Strategy<Value = String> {
    let entry = ("[PSX]", 200..5000u32, 2..100u32, prop::collection::vec(number(), 0..5));
    let entry = entry.prop_map(|(kind, size, num, rest)| {
        let rest: String = rest.iter().map(|field| format!(",{field}")).collect();
        format!("{kind},{size},{num}{rest}")
    });
    prop::collection::vec(entry, 1..4).prop_map(|entries| entries.join(":"))
}

fn is_shown_as_it_was_read(text: &str) -> Result<(), TestCaseError> {
    match text.parse::<ReceiveQueues>() {
        Ok(queues) => {
            let again: Result<ReceiveQueues, _> = queues.to_string().parse();
            prop_assert_eq!(again.as_ref(), Ok(&queues));
        }
        Err(error) => {
            let names_an_entry = error.to_string().starts_with("entry ");
            prop_assert!(names_an_entry || text.trim().is_empty(), "{}", error);
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn arbitrary_text_is_taken_or_refused(text in "\\PC{0,60}") {
        is_shown_as_it_was_read(&text)?;
    }

    #[test]
    fn nearly_right_text_is_taken_or_refused(text in nearly()) {
        is_shown_as_it_was_read(&text)?;
    }

    #[test]
    fn every_size_and_number_alone_has_defaults_that_work(
        size in 256..=1usize << 20,
        num in 2..=4096u32,
        shared: bool,
    ) {
        let text = format!("{},{size},{num}", if shared { "S" } else { "P" });
        let queues = text.parse::<ReceiveQueues>();
        prop_assert!(queues.is_ok(), "{:?}", queues);
        is_shown_as_it_was_read(&text)?;
    }
}
