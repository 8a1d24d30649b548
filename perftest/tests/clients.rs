//! Whole visits of clients, good ones and bad ones, over a simulated wire.

mod common;

use std::net::{Ipv4Addr, TcpListener};
use std::time::Duration;

use common::{CLIENT_IP, Client, Step, World, done, greeting, hang_up, hear, impatient, keys, say, step, visit};
use roci_driver::{Operation, SendWr};
use roci_perftest::exchange::{MalformedExchange, QpInfo};
use roci_perftest::{MessageSizes, ServeError, Test};
use roci_protocol::Qpn;

/// Sends so many messages, a few at a time, and waits until all are acknowledged.
fn stream(count: usize, len: usize) -> Step {
    let (mut posted, mut ended) = (0, 0);
    step(move |client| {
        while posted < count && posted - ended < 16 {
            client.send(len);
            posted += 1;
        }
        while client.completion().is_some() {
            ended += 1;
        }
        ended == count
    })
}

/// Sends a message when the one before it was answered by one of the same length.
fn ping(count: usize, len: usize) -> Step {
    let (mut sent, mut answered) = (0, 0);
    step(move |client| {
        if sent == 0 {
            (0..count).for_each(|_| client.post_recv(len + 1));
        }
        if sent == answered && sent < count {
            client.send(len);
            sent += 1;
        }
        while let Some(done) = client.completion() {
            if done.operation == Operation::Recv {
                assert_eq!(done.len, len);
                answered += 1;
            }
        }
        answered == count
    })
}

/// Posts one request, and waits for its end.
fn request(mut wr: impl FnMut(&mut Client) -> SendWr + 'static, check: impl Fn(&[u8]) + 'static) -> Step {
    let mut is_posted = false;
    step(move |client| {
        if !is_posted {
            let wr = wr(client);
            client.post(wr);
            is_posted = true;
        }
        client.completion().inspect(|done| check(&done.buffer)).is_some()
    })
}

fn write(at: u64, bytes: &'static [u8]) -> Step {
    let wr = move |client: &mut Client| {
        let mut buffer = client.engine.buffer(bytes.len()).expect("memory");
        buffer.copy_from_slice(bytes);
        SendWr::write(3, buffer, client.rkey(), at)
    };
    request(wr, |_| {})
}

fn read(at: u64, expected: &'static [u8]) -> Step {
    let wr = move |client: &mut Client| {
        let buffer = client.engine.buffer(expected.len()).expect("memory");
        SendWr::read(4, buffer, client.rkey(), at)
    };
    request(wr, move |found| assert_eq!(found, expected))
}

fn fetch_add(at: u64, found: u64) -> Step {
    let wr = move |client: &mut Client| {
        let buffer = client.engine.buffer(8).expect("memory");
        SendWr::fetch_add(5, buffer, client.rkey(), at, 1)
    };
    request(wr, move |bytes| assert_eq!(bytes, found.to_ne_bytes()))
}

/// The report of `ib_write_bw -n 20`, as it was recorded; the server has nothing to tell.
fn report() -> Vec<Step> {
    let numbers: [&[u8; 8]; 5] = [
        b"\0\0\0\0\0\x01\0\0",
        b"\0\0\0\0\0\0\0\x14",
        b"@M&9\x0b\xe4\t\xf7",
        b"@H\xae\x93h=V\x96",
        b"?I\xe1\x81\xc7UNC",
    ];
    numbers.into_iter().flat_map(|number| [say(*number), hear([0; 8])]).collect()
}

#[test]
fn sends_are_answered_one_by_one() {
    let mut world = World::new(visit(4, vec![ping(20, 2)]));
    let served = world.serve_all(Test::SendLat, MessageSizes::One(2));
    assert_eq!((served.messages, served.report), (Some(20), None));
    assert_eq!((&served.version[..], served.peer.ip), ("6.06", CLIENT_IP.into()));
    assert_eq!((served.peer.mtu.bytes(), served.peer.max_rd_atomic), (512, 4));
}

#[test]
fn receives_are_posted_again_and_sizes_may_change_at_barriers() {
    let run = [vec![stream(300, 5000)], keys(), keys(), vec![stream(200, 1)], keys()].into_iter().flatten();
    let mut world = World::new(visit(4, run.collect()));
    assert_eq!(world.serve_all(Test::SendBw, MessageSizes::One(5000)).messages, Some(500));
}

#[test]
fn answers_are_as_long_as_what_they_answer() {
    // More than receives are posted: each must be as long again when it has carried an answer.
    let run = [vec![ping(200, 1)], keys(), vec![ping(200, 3000)]].into_iter().flatten();
    let mut world = World::new(visit(4, run.collect()));
    assert_eq!(world.serve_all(Test::SendLat, MessageSizes::One(4096)).messages, Some(400));
}

/// The client's half of `ib_write_lat`: waits for a count in its own memory, then writes it to the server's, and goes when
/// the last one is acknowledged.
fn pong(counts: impl Iterator<Item = (usize, u8)> + 'static) -> Step {
    let mut counts = counts.peekable();
    let mut under_way = 0;
    step(move |client| {
        while client.completion().is_some() {
            under_way -= 1;
        }
        let Some(&(size, count)) = counts.peek() else { return under_way == 0 };
        let mut byte = [0];
        client.engine.read_region(client.pd, client.region, size - 1, &mut byte).expect("inside");
        if byte != [count] {
            return false;
        }
        counts.next();
        let mut buffer = client.engine.buffer(size).expect("memory");
        buffer.fill(0);
        buffer[size - 1] = count;
        let rkey = client.rkey();
        client.post(SendWr::write(6, buffer, rkey, 0));
        under_way += 1;
        false
    })
}

fn write_latency(run: Step) -> Vec<Step> {
    let begin = greeting().into_iter().chain((0..4).flat_map(|_| keys()));
    begin.chain([run, hang_up()]).collect()
}

#[test]
fn writes_are_counted_in_their_last_byte_beyond_256() {
    let mut world = World::new(write_latency(pong((1..=300).map(|count| (3, count as u8)))));
    let mut settings = impatient(Test::WriteLat, MessageSizes::One(3));
    settings.iterations = 300;
    assert_eq!(world.serve_with(settings).expect("a good client").messages, Some(300));
    assert!(world.client.is_through(), "its last message was acknowledged");
}

#[test]
fn fewer_writes_than_announced_are_reported() {
    let mut world = World::new(write_latency(pong((1..=5).map(|count| (3, count)))));
    let mut settings = impatient(Test::WriteLat, MessageSizes::One(3));
    settings.iterations = 6;
    assert!(matches!(world.serve_with(settings), Err(ServeError::HungUp("its next message"))));
}

#[test]
fn a_stream_of_writes_has_the_memory_of_a_page_and_its_report_is_received() {
    let run = [vec![write(4095, b"x"), read(4094, b"\0x")], keys(), report()].into_iter().flatten();
    let mut world = World::new(visit(3, run.collect()));
    let served = world.serve_all(Test::WriteBw, MessageSizes::One(1));
    let report = served.report.expect("a report");
    assert_eq!((report.size, report.messages, served.messages), (65_536, 20, None));
}

#[test]
fn reads_and_atomics_work_on_memory_that_is_zero_at_first() {
    let mut world = World::new(visit(4, vec![read(0, &[0; 5000])]));
    assert_eq!(world.serve_all(Test::ReadLat, MessageSizes::One(5000)).messages, None);
    let mut world = World::new(visit(4, vec![fetch_add(8, 0), fetch_add(8, 1), fetch_add(4088, 0)]));
    assert_eq!(world.serve_all(Test::AtomicLat, MessageSizes::One(8)).report, None);
}

/// Posts so many READs at once as the server says that it takes, and waits for their ends.
fn read_as_many_as_allowed(granted: u16) -> Step {
    let mut left = None;
    step(move |client| {
        let theirs = client.theirs.expect("the server's keys");
        let left = left.get_or_insert_with(|| {
            assert_eq!(theirs.out_reads, granted);
            for _ in 0..64 {
                let buffer = client.engine.buffer(5000).expect("memory");
                client.post(SendWr::read(7, buffer, theirs.rkey, 0));
            }
            64
        });
        while client.completion().is_some() {
            *left -= 1;
        }
        *left == 0
    })
}

#[test]
fn reads_in_flight_are_the_smaller_count_of_both_sides() {
    for (theirs, granted) in [(2, 2), (0x80, 16)] {
        let mut world = World::new(visit(4, vec![read_as_many_as_allowed(granted)]));
        world.client.keys.out_reads = theirs;
        world.serve_all(Test::ReadLat, MessageSizes::One(5000));
    }
}

/// The error of a visit that ends badly.
fn refused(test: Test, size: usize, steps: Vec<Step>) -> ServeError {
    World::new(steps).serve_with(impatient(test, MessageSizes::One(size))).expect_err("a bad client")
}

fn after_greeting(steps: Vec<Step>) -> Vec<Step> {
    greeting().into_iter().chain(steps).collect()
}

#[test]
fn a_peer_that_is_no_client_is_refused_by_what_it_sent() {
    let say_in_order = |messages: &[&[u8]]| messages.iter().map(|bytes| say(*bytes)).collect();
    let version: &[u8] = b"6.06\0\0\0\0\0\0\0\0\0\0\0\0";
    let page: &[u8] = b"\0\0\x10\0\0\0\0@";
    for (messages, complaint) in [
        (&[&b"GET / HTTP/1.1\r\n"[..]][..], "'GET / HTTP/1.1\\r\\n'"),
        (&[b"5.60\0\0\0\0\0\0\0\0\0\0\0\0"], "perftest 5.60"),
        (&[version, b"\x40\0\0\0"], "1073741824 bytes"),
        (&[version, page, b"9\0"], "path MTU is '9'"),
        (&[version, page, b"3\0", &[b'0'; 108]], "keys are '0000"),
    ] {
        let error = refused(Test::SendLat, 2, say_in_order(messages)).to_string();
        assert!(error.contains(complaint), "{error}");
    }
}

#[test]
fn a_client_that_stops_is_given_up_by_name_of_what_was_due() {
    let hung_up = |steps| match refused(Test::SendLat, 2, steps) {
        ServeError::HungUp(due) => due,
        other => panic!("{other}"),
    };
    assert_eq!(hung_up(vec![say("6.0"), hang_up()]), "its version");
    assert_eq!(hung_up(after_greeting(vec![hang_up()])), "its queue pair");
    assert_eq!(
        hung_up(after_greeting(keys().into_iter().chain([hang_up()]).collect())),
        "messages, or the end of the test"
    );
    let silent = |steps| match refused(Test::ReadBw, 2, steps) {
        ServeError::Silent { due, .. } => due,
        other => panic!("{other}"),
    };
    assert_eq!(silent(vec![say("6.0")]), "its version");
    assert_eq!(silent(after_greeting(keys())), "the news that it is ready");
}

#[test]
fn the_server_waits_no_longer_than_its_settings_say() {
    let mut world = World::new(Vec::new());
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let mut settings = impatient(Test::SendBw, MessageSizes::One(1));
    settings.wait = Some(Duration::ZERO);
    let outcome = roci_perftest::serve(&mut world, &listener, &settings);
    assert!(matches!(outcome, Err(ServeError::NoClient(Duration::ZERO))));
}

#[test]
fn addresses_that_lead_nowhere_are_refused() {
    let short = b"0001:0001:00001a:49f0fa:00000be1:00005646ef0c3000:00000000\0";
    let error = refused(Test::SendLat, 2, after_greeting(vec![say(*short)]));
    assert!(matches!(error, ServeError::Malformed(MalformedExchange::NoGid)), "{error}");
    let with_ip = |ip: &'static str| {
        let tell = step(move |client| {
            let keys = QpInfo { ip: ip.parse().expect("an address"), ..client.keys };
            client.say(&keys.bytes());
            true
        });
        refused(Test::SendLat, 2, after_greeting(vec![tell]))
    };
    let error = with_ip("fe80::1");
    assert!(matches!(error, ServeError::OtherGid { .. }), "{error}");
    let error = with_ip("192.168.9.9");
    assert!(matches!(error, ServeError::NoWay(..)), "{error}");
}

#[test]
fn a_second_queue_pair_is_refused() {
    let another = step(|client| {
        let keys = QpInfo { qpn: Qpn::new(client.keys.qpn.get() + 1), ..client.keys };
        client.say(&keys.bytes());
        true
    });
    let error = refused(Test::WriteBw, 2, after_greeting(keys().into_iter().chain([another]).collect()));
    assert!(matches!(error, ServeError::SeveralQueuePairs), "{error}");
}

#[test]
fn clients_of_other_tests_are_recognised() {
    let behind =
        |barriers: usize, steps: Vec<Step>| after_greeting((0..barriers).flat_map(|_| keys()).chain(steps).collect());
    for (test, steps) in [
        // A report where no test of SENDs or latencies has one.
        (Test::SendBw, behind(4, report())),
        (Test::ReadLat, behind(4, report())),
        // The end where a report is due, or a barrier.
        (Test::WriteBw, behind(4, [done(), keys()].into_iter().flatten().collect())),
        (Test::WriteBw, behind(2, done())),
        // One more barrier where the report is due, or the first message.
        (Test::AtomicBw, behind(4, keys())),
        (Test::WriteLat, behind(4, keys())),
    ] {
        let size = test.default_size();
        let error = refused(test, size, steps);
        assert!(matches!(error, ServeError::OtherTest(_)), "{test:?}: {error}");
    }
}

/// Posts one request, and waits until it ends, however that is.
fn attempt(mut wr: impl FnMut(&mut Client) -> SendWr + 'static) -> Step {
    let mut is_posted = false;
    step(move |client| {
        if !is_posted {
            let wr = wr(client);
            client.post(wr);
            is_posted = true;
        }
        client.completion_of_any_kind().is_some()
    })
}

#[test]
fn messages_that_are_too_long_are_reported_as_such() {
    let send = |client: &mut Client| SendWr::send(1, client.engine.buffer(3).expect("memory"));
    let error = refused(Test::SendBw, 2, visit(4, vec![attempt(send)]));
    assert!(matches!(error, ServeError::TooLong(2)), "{error}");
}

#[test]
fn nothing_is_open_to_a_client_that_should_send() {
    let write = |client: &mut Client| {
        let buffer = client.engine.buffer(2).expect("memory");
        SendWr::write(1, buffer, client.rkey(), 0)
    };
    let error = refused(Test::SendBw, 2, visit(4, vec![attempt(write)]));
    assert!(matches!(error, ServeError::BrokenOff("messages, or the end of the test")), "{error}");
}

#[test]
fn memory_beyond_the_longest_message_is_closed() {
    let write = |client: &mut Client| {
        let buffer = client.engine.buffer(2).expect("memory");
        SendWr::write(1, buffer, client.rkey(), 4095)
    };
    let error = refused(Test::WriteBw, 1, visit(3, vec![attempt(write), hang_up()]));
    assert!(matches!(error, ServeError::BrokenOff("the news that it is through")), "{error}");
}
