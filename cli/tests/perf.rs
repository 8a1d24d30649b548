//! What `roci perf` can be asked for beside sizes and counts.

mod common;

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::process::Stdio;

use common::{alone, command, finish, roci};
use serde_json::Value;

fn rows(arguments: &[&str]) -> Vec<Value> {
    let ended = roci(&[&["perf", "--json"], arguments].concat()).succeeded();
    ended.stdout.lines().map(|line| serde_json::from_str(line).expect("an object a line")).collect()
}

#[test]
fn a_measurement_of_a_time_has_as_many_messages_as_fit() {
    let _alone = alone();
    let rows = rows(&["send_lat,send_bw,write_bw,tag_lat,tag_bw,put_bw", "--size", "64", "--duration", "1"]);
    assert_eq!(rows.len(), 6);
    for row in rows {
        let (iters, rate) = (row["iters"].as_f64().expect("a count"), row["mmsgs"].as_f64().expect("a rate"));
        let each = if row["lat_us"].is_null() { 1.0 } else { 2.0 };
        let seconds = iters * each / (rate * 1e6);
        // What lasted less than half as long is a try, which is followed by another. How long it takes at most depends on what else the
        // machine does.
        assert!(seconds > 0.4 && row["errors"] == 0, "{seconds} s: {row}");
    }
}

#[test]
fn both_sides_send_at_once_and_every_message_is_verified() {
    let _alone = alone();
    for memory in ["arena", "user"] {
        let tests = if memory == "user" { "send_bw,write_bw,read_bw" } else { "send_bw,write_bw,read_bw,tag_bw" };
        let arguments = [tests, "--bidirectional", "--size", "1,64,70000", "--iters", "300", "--memory", memory];
        let rows = rows(&arguments);
        assert_eq!(rows.len(), 3 * tests.split(',').count());
        for row in rows {
            assert_eq!((&row["errors"], &row["bidirectional"]), (&0.into(), &true.into()), "{row}");
            let seconds = 2.0 * 300.0 / (row["mmsgs"].as_f64().expect("a rate") * 1e6);
            let bytes = row["bw_gigabytes_per_s"].as_f64().expect("a rate") * 1e9 * seconds;
            let expected = 600.0 * row["bytes"].as_f64().expect("a size");
            assert!((bytes / expected - 1.0).abs() < 1e-6, "both directions count: {row}");
        }
    }
}

#[test]
fn several_queue_pairs_take_turns() {
    let _alone = alone();
    for way in [&[][..], &["--bidirectional"]] {
        let arguments = ["send_bw,write_bw,read_bw", "--qps", "1,3,16", "--size", "8,5000", "--iters", "500"];
        let rows = rows(&[&arguments[..], way].concat());
        let counts: Vec<_> = rows.iter().map(|row| row["connections"].as_u64()).collect();
        assert_eq!(counts, [Some(1), Some(3), Some(16)].repeat(6));
        assert!(rows.iter().all(|row| row["errors"] == 0 && row["iters"] == 500), "{rows:?}");
    }
    let text = roci(&["perf", "send_bw", "--qps", "4", "--size", "8", "--iters", "100"]).succeeded().stdout;
    assert!(text.lines().any(|row| row.starts_with("send_bw ") && row.ends_with(" (4 queue pairs)")), "{text}");
}

#[test]
fn datagrams_are_measured_and_those_that_are_lost_are_counted() {
    let _alone = alone();
    for device in ["memif", "udp"] {
        let rows = rows(&["send_lat,send_bw", "--ud", "--size", "8,1000", "--iters", "2000", "--device", device]);
        assert_eq!(rows.len(), 4);
        for row in rows {
            assert_eq!((&row["errors"], &row["datagrams"]), (&0.into(), &true.into()), "{row}");
            assert!(row["lost"].as_u64().is_some_and(|lost| lost < 2000), "{row}");
        }
    }
    let faulty = rows(&["send_lat,send_bw", "--ud", "--size", "64", "--iters", "300", "--faults", "loss=0.02,seed=3"]);
    for row in faulty {
        assert!(row["errors"] == 0 && row["lost"].as_u64() > Some(0), "{row}");
    }
    let line = roci(&["perf", "send_bw", "--ud", "--size", "100000", "--iters", "5"]);
    assert!(line.stderr.contains("datagram"), "{}", line.stderr);
}

#[test]
fn a_server_prints_the_rows_of_its_client() {
    let _alone = alone();
    let start = |last: &[&str]| {
        let tests = ["perf", "send_lat,read_bw,tag_lat,tag_bw", "--size", "8", "--iters", "100", "--json"];
        let child = command(&[&tests[..], last].concat()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        child.expect("roci starts")
    };
    let server = start(&["--listen", "127.0.0.1:47913", "--once"]);
    let client = finish(start(&["127.0.0.1:47913"])).succeeded();
    let server = finish(server).succeeded();
    assert_eq!(client.stdout.lines().count(), 4, "{}", client.stdout);
    assert_eq!(server.stdout, client.stdout);
}

/// It may still have the job of the client before: then it says that this one has ended.
#[test]
fn a_client_comes_again_to_a_server_that_takes_leave_of_another() {
    let _alone = alone();
    let start = |last: &[&str]| {
        let words = ["perf", "tag_lat", "--size", "8", "--iters", "100", "--json"];
        let child = command(&[&words[..], last].concat()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        child.expect("roci starts")
    };
    let old = TcpListener::bind("127.0.0.1:47914").expect("the port is free");
    let client = start(&["127.0.0.1:47914"]);
    let (mut stream, _) = old.accept().expect("the client");
    drop(old);
    let mut requests = BufReader::new(stream.try_clone().expect("a socket")).lines();
    assert!(requests.next().expect("a line").expect("UTF-8").starts_with("hello 0"));
    stream.write_all(b"ok 2 2\n").expect("the client reads");
    requests.next().expect("a line").expect("UTF-8");
    stream.write_all(b"error rank 0 has left the job\n").expect("the client reads");
    drop((requests, stream));
    let mut server = start(&["--listen", "127.0.0.1:47914", "--once"]);
    // A server that has no client ends here.
    let client = finish(client);
    if !client.status.success() {
        server.kill().expect("it waits");
    }
    client.succeeded();
    finish(server).succeeded();
}

#[test]
fn counters_that_explain_a_figure_stand_below_the_rows() {
    let _alone = alone();
    let arguments = ["perf", "send_bw", "--size", "4096", "--iters", "3000", "--faults", "loss=0.02"];
    let lines = roci(&arguments).succeeded().stdout;
    assert!(
        lines.contains("retransmitted_packets ") && lines.contains("packets were lost, or a receiver had no time"),
        "{lines}"
    );
}
