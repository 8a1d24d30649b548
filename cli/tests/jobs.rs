//! Jobs of real processes over real ports.

mod common;

use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;
use std::time::Duration;

use common::{alone, children, command, example, finish, is_alive, roci, wait_for_processes, wait_for_the_end_of};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

fn rows(stdout: &str) -> Vec<Value> {
    stdout.lines().map(|line| serde_json::from_str(line).expect("an object a line")).collect()
}

#[test]
fn a_file_is_exchanged_both_ways_with_equal_digests() {
    let _alone = alone();
    let ended = roci(&["run", "-n", "2", "roci", "exchange", "--no-table"]).succeeded();
    assert_eq!(ended.stdout.matches(", equal ").count(), 2, "{}", ended.stdout);
    assert_eq!(ended.stderr, "", "no progress bar in a pipe");
    let file = tempfile::NamedTempFile::new().expect("a file");
    let path = file.path().to_str().expect("UTF-8");
    for len in [0, 1, 1 << 20, (1 << 20) + 1] {
        std::fs::write(file.path(), vec![0x5a; len]).expect("room on the disk");
        let ended = roci(&["run", "-n", "2", "roci", "exchange", "--no-table", path]).succeeded();
        assert_eq!(ended.stdout.matches(", equal ").count(), 2, "{len}: {}", ended.stdout);
    }
    let ended = roci(&["run", "-n", "2", "roci", "exchange", "/nonexistent"]);
    assert_eq!(ended.code(), Some(1));
    assert!(ended.stderr.contains("cannot read /nonexistent"), "{}", ended.stderr);
}

#[test]
fn perf_gives_a_verified_row_for_every_test() {
    let _alone = alone();
    let tests = "raw_lat,raw_bw,send_lat,send_bw,write_lat,write_bw,read_lat,read_bw,tag_lat,tag_bw,\
                 put_lat,put_bw,get_lat,get_bw";
    let ended = roci(&["perf", tests, "--size", "1,8,4096,65537", "--iters", "200", "--json"]).succeeded();
    let rows = rows(&ended.stdout);
    assert_eq!(rows.len(), 56, "{}", ended.stdout);
    for row in rows {
        assert_eq!((&row["errors"], &row["iters"], &row["device"]), (&0.into(), &200.into(), &"memif".into()), "{row}");
        assert!(row["bw_gbps"].as_f64().is_some_and(|rate| rate > 0.0), "{row}");
        let is_latency = row["test"].as_str().is_some_and(|test| test.ends_with("_lat"));
        assert_eq!(row["lat_us"]["p50"].as_f64().is_some_and(|us| us > 0.0), is_latency, "{row}");
    }
}

#[test]
fn perf_sends_from_and_receives_into_the_applications_memory_too() {
    let _alone = alone();
    let perf = |memory| {
        let tests = "send_lat,send_bw,write_lat,write_bw,read_lat,read_bw";
        let arguments = ["perf", tests, "--memory", memory, "--size", "1,65537", "--iters", "100", "--json"];
        let rows = rows(&roci(&arguments).succeeded().stdout);
        assert_eq!(rows.len(), 12);
        for row in &rows {
            assert_eq!((&row["errors"], &row["memory"]), (&0.into(), &memory.into()), "{row}");
        }
        rows.iter().filter(|row| row["zero_copy_frames"].as_u64().is_some_and(|frames| frames > 0)).count()
    };
    assert_eq!(perf("user"), 0, "the processor copies: unmapping memory need not wait for the device");
    assert!(perf("arena") > 0, "the arena stays");
    let line = roci(&["perf", "send_lat,tag_lat", "--memory", "user"]).failed_with_one_line();
    assert!(line.contains("--memory user is for send_lat"), "{line}");
}

#[test]
fn atomics_and_many_connections_give_verified_rows_that_say_what_they_took() {
    let _alone = alone();
    let arguments = ["perf", "atomic_lat,send_rate", "--connections", "1,33,1024", "--size", "8,2000"];
    let rows = rows(&roci(&[&arguments[..], &["--iters", "3000", "--json"]].concat()).succeeded().stdout);
    let counts: Vec<_> = rows.iter().map(|row| row["connections"].as_u64()).collect();
    let each = [Some(1), Some(33), Some(1024)];
    assert_eq!(counts, [&[None][..], &each, &each].concat(), "an atomic has one size");
    for row in rows {
        assert_eq!((&row["errors"], &row["iters"]), (&0.into(), &3000.into()), "{row}");
        assert!(row["cpu_s"].as_f64().is_some_and(|seconds| seconds > 0.0), "{row}");
        assert!(row["connections"].is_null() || row["memory_growth_bytes"].is_u64(), "{row}");
    }
    let line = roci(&["perf", "send_rate", "--size", "7"]).failed_with_one_line();
    assert!(line.contains("a size of at least 8"), "{line}");
    for count in ["0", "4097", "x"] {
        let refused = roci(&["perf", "send_rate", "--connections", count]);
        assert_eq!(refused.code(), Some(2), "{count}: {}", refused.stderr);
        assert!(refused.stderr.contains("between 1 and 4096"), "{count}: {}", refused.stderr);
    }
}

#[test]
fn a_stream_has_as_many_messages_under_way_as_the_depth() {
    let _alone = alone();
    let tests = ["perf", "send_bw,write_bw,read_bw,tag_bw", "--depth", "1,3,64", "--size", "64,70000"];
    let rows = rows(&roci(&[&tests[..], &["--iters", "300", "--json"]].concat()).succeeded().stdout);
    let depths: Vec<_> = rows.iter().map(|row| row["depth"].as_u64()).collect();
    assert_eq!(depths, [Some(1), Some(3), Some(64)].repeat(8));
    for row in rows {
        assert_eq!((&row["errors"], &row["iters"]), (&0.into(), &300.into()), "{row}");
    }
    let line = roci(&["perf", "send_bw,tag_lat", "--depth", "4"]).failed_with_one_line();
    assert!(line.contains("--depth is for send_bw"), "{line}");
    let refused = roci(&["perf", "send_bw", "--depth", "65"]);
    assert_eq!(refused.code(), Some(2));
    assert!(refused.stderr.contains("between 1 and 64"), "{}", refused.stderr);
}

#[test]
fn perf_distinguishes_touched_bare_frames_from_untouched_ones() {
    let _alone = alone();
    let perf = |options: &[&str]| {
        let tests = ["perf", "raw_lat,raw_bw,tag_bw", "--size", "1,4096,65537", "--iters", "200"];
        roci(&[&tests[..], options].concat()).succeeded().stdout
    };
    for (options, touch) in [(&["--json"][..], false), (&["--json", "--touch"], true)] {
        let rows = rows(&perf(options));
        assert_eq!(rows.len(), 9);
        for row in rows {
            let is_raw = row["test"].as_str().is_some_and(|test| test.starts_with("raw_"));
            assert_eq!(row.get("touch").and_then(Value::as_bool), is_raw.then_some(touch), "{row}");
        }
    }
    let table = perf(&["--touch"]);
    let touched = table.lines().filter(|row| row.starts_with("raw_bw ") && row.ends_with("(touched)"));
    assert_eq!(touched.count(), 3, "{table}");
    assert_eq!(table.matches("(touched)").count(), 6, "{table}");
}

#[test]
fn perf_measures_every_step_of_streams_beside_tagged_messages_and_verifies_it() {
    let _alone = alone();
    for step in ["basic", "piggyback", "pipelining", "zerocopy"] {
        let arguments =
            ["perf", "raw_lat,stream_lat,tag_lat,stream_bw", "--stream", step, "--size", "1,4096,65537,3000000"];
        let ended = roci(&[&arguments[..], &["--iters", "30", "--json"]].concat()).succeeded();
        let rows = rows(&ended.stdout);
        assert_eq!(rows.len(), 16, "{}", ended.stdout);
        for row in rows {
            assert_eq!(row["errors"], 0, "{row}");
            let is_of_streams = row["test"].as_str().is_some_and(|test| test.starts_with("stream_"));
            assert_eq!(row["stream"].as_str(), is_of_streams.then_some(step), "{row}");
        }
    }
}

#[test]
fn perf_measures_messages_and_streams_of_a_dedicated_engine_and_verifies_them() {
    let _alone = alone();
    for engine in ["inline", "dedicated"] {
        let tests = "tag_lat,tag_bw,stream_lat,stream_bw";
        let arguments = ["perf", tests, "--engine", engine, "--size", "1,4096,65537", "--iters", "200", "--json"];
        let rows = rows(&roci(&arguments).succeeded().stdout);
        assert_eq!(rows.len(), 12);
        for row in rows {
            assert_eq!(
                (&row["errors"], &row["iters"], &row["engine"]),
                (&0.into(), &200.into(), &engine.into()),
                "{row}"
            );
        }
    }
    for engine in ["inline", "dedicated"] {
        let tests = "put_lat,put_bw,get_lat,get_bw,fadd_lat,am_lat,am_rate";
        let arguments = ["perf", tests, "--engine", engine, "--size", "1,4096", "--iters", "200", "--json"];
        let rows = rows(&roci(&arguments).succeeded().stdout);
        assert_eq!(rows.len(), 13, "a fetch-and-add has one size");
        assert!(rows.iter().all(|row| (&row["errors"], &row["engine"]) == (&0.into(), &engine.into())), "{rows:?}");
    }
    let long = roci(&["perf", "am_lat", "--size", "65536"]);
    assert_eq!(long.code(), Some(1));
    assert!(long.stderr.contains("an active message has at most 8152 bytes (ROCI_VBUF_SIZE)"), "{}", long.stderr);
    let line = roci(&["perf", "tag_lat,send_lat", "--engine", "dedicated"]).failed_with_one_line();
    assert!(line.contains("measure tests of tags, streams, puts, gets, fadd_lat and active messages alone"), "{line}");
}

#[test]
fn perf_runs_between_a_server_and_clients_one_after_the_other() {
    let _alone = alone();
    let client = || {
        let client = command(&["perf", "tag_lat", "--size", "8", "--iters", "100", "--json", "127.0.0.1:47911"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        client.expect("roci starts")
    };
    // A client waits for its server, and says so.
    let mut early = client();
    let mut says = BufReader::new(early.stderr.take().expect("piped")).lines();
    let said = says.next().expect("a line").expect("UTF-8");
    assert!(said.contains("waiting for a server at 127.0.0.1:47911"), "{said}");
    // It would serve on: it ends after so long, whatever becomes of this test.
    let mut server = std::process::Command::new("timeout");
    let words = ["60", env!("CARGO_BIN_EXE_roci"), "perf", "tag_lat", "--size", "8", "--iters", "100"];
    server.args(words).args(["--listen", "127.0.0.1:47911"]);
    let server = server.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("coreutils");
    let early = finish(early).succeeded();
    assert_eq!(rows(&early.stdout)[0]["device"].as_str(), Some("udp"));
    // It says how long it has waited, and nothing else.
    assert!(says.map_while(Result::ok).all(|line| line.contains("waiting for a server")));
    // One that wants something else ends nothing but itself; and the next one is served.
    let other = roci(&["perf", "tag_lat", "--size", "9", "127.0.0.1:47911"]).failed_with_one_line();
    assert!(other.contains("the peer was given other tests, sizes"), "{other}");
    assert_eq!(rows(&finish(client()).succeeded().stdout).len(), 1);
    let pid = Pid::from_raw(server.id().cast_signed()).expect("a process");
    kill_process(pid, Signal::TERM).expect("it serves on");
    let said = finish(server).stderr;
    assert!(said.matches("waiting for a client at 127.0.0.1:47911").count() >= 3, "{said}");
    assert!(said.matches("connected from 127.0.0.1:").count() == 3, "{said}");
}

#[test]
fn a_server_and_a_client_refuse_a_device_that_joins_the_processes_of_one_job() {
    for end in [&["--listen", "127.0.0.1:0"][..], &["127.0.0.1:47911"]] {
        let line = roci(&[&["perf", "tag_lat", "--device", "memif"], end].concat()).failed_with_one_line();
        assert!(line.contains("device memif joins processes of one host only"), "{line}");
    }
}

#[test]
fn four_ranks_on_fewer_processors_soak_without_a_wrong_byte_on_either_engine() {
    let _alone = alone();
    for engine in ["inline", "dedicated"] {
        let soak = ["soak", "--seconds", "3", "--max-size", "1MiB", "--engine", engine, "--json"];
        let ended = roci(&[&["run", "-n", "4", "roci"], &soak[..]].concat()).succeeded();
        let row = &rows(&ended.stdout)[0];
        assert_eq!((&row["errors"], &row["ranks"]), (&0.into(), &4.into()), "{row}");
        assert!(row["messages"].as_u64().is_some_and(|count| count > 100), "{row}");
    }
}

#[test]
fn a_soak_says_how_much_memory_it_took() {
    let _alone = alone();
    let row_after = |seconds: &str| {
        let soak = ["roci", "soak", "--seconds", seconds, "--max-size", "4KiB", "--json"];
        let ended = roci(&[&["run", "-n", "2"], &soak[..]].concat()).succeeded();
        rows(&ended.stdout).swap_remove(0)
    };
    // The warm-up is of so many rounds, for which a busy machine needs longer.
    let has_time = |row: &Value| !row["rss_start_bytes"].is_null();
    let row = ["2", "10", "40"].into_iter().map(row_after).find(has_time).expect("time for more than the warm-up");
    let field = |name: &str| row[name].as_u64().unwrap_or_else(|| panic!("{name} is missing: {row}"));
    let (start, end) = (field("rss_start_bytes"), field("rss_end_bytes"));
    // DPDK alone takes more; and what succeeded did not grow beyond the allowance.
    assert!(start > 1 << 20 && end > 1 << 20, "{row}");
    assert!(end <= start + field("rss_allowed_growth_bytes"), "{row}");
}

#[test]
fn eight_ranks_start_and_soak() {
    let _alone = alone();
    let ended = roci(&["run", "-n", "8", "roci", "soak", "--seconds", "1", "--max-size", "64KiB"]).succeeded();
    assert!(ended.stdout.contains("soak: 8 ranks") && ended.stdout.contains(" 0 errors"), "{}", ended.stdout);
}

#[test]
fn faults_on_the_live_link_lose_no_byte() {
    let _alone = alone();
    let faults = "loss=0.01,dup=0.01,reorder=0.01,corrupt=0.001,seed=7";
    let soak = ["roci", "soak", "--seconds", "3", "--max-size", "256KiB", "--json"];
    let ended = roci(&[&["run", "-n", "3", "--faults", faults][..], &soak].concat()).succeeded();
    let row = &rows(&ended.stdout)[0];
    assert_eq!(row["errors"], 0, "{row}");
    assert!(row["injected_faults_rank0"].as_u64().is_some_and(|count| count > 0), "{row}");
    let tests = ["perf", "send_lat,send_bw,write_bw,read_bw,tag_bw", "--size", "8,65536", "--iters", "300"];
    roci(&[&tests[..], &["--faults", faults, "--json"]].concat()).succeeded();
}

#[test]
fn vhost_joins_two_processes_too() {
    let _alone = alone();
    let ended = roci(&["perf", "tag_lat,tag_bw", "--device", "vhost", "--size", "8,65536", "--iters", "500", "--json"]);
    assert_eq!(rows(&ended.succeeded().stdout).len(), 4);
}

/// Bare frames over a socket are datagrams of its own.
#[test]
fn sockets_join_processes_too() {
    let _alone = alone();
    let ipv6 = std::net::UdpSocket::bind("[::1]:0").map(|_| "udp:::1");
    if let Err(error) = &ipv6 {
        eprintln!("SKIPPED: IPv6: {error}");
    }
    for device in ["udp", "udp:127.0.0.1"].into_iter().chain(ipv6.ok()) {
        let tests = [
            "perf",
            "raw_lat,raw_bw,write_bw,tag_lat",
            "--device",
            device,
            "--size",
            "8,65536",
            "--iters",
            "200",
            "--json",
        ];
        assert_eq!(rows(&roci(&tests).succeeded().stdout).len(), 8, "{device}");
    }
}

#[test]
fn a_capture_of_a_job_decodes() {
    let _alone = alone();
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("%r.pcap");
    let path = path.to_str().expect("UTF-8");
    let faults = "loss=0.1,seed=5";
    roci(&["perf", "send_lat", "--size", "8", "--iters", "50", "--pcap", path, "--faults", faults]).succeeded();
    for rank in ["0", "1"] {
        let text = roci(&["decode", &path.replace("%r", rank)]).succeeded().stdout;
        assert!(text.contains("RC_SEND_ONLY") && text.contains("RC_ACK") && !text.contains("BAD"), "{text}");
        assert!(text.contains("mark=retransmitted"), "{text}");
    }
}

#[test]
fn the_icrc_is_left_out_only_where_both_ranks_say_so() {
    let _alone = alone();
    let directory = tempfile::tempdir().expect("a directory");
    for (off_at, said, seen) in [("0 1", "off", "icrc off"), ("0", "on", "icrc ok"), ("1", "on", "icrc ok")] {
        let path = directory.path().join("frames.pcap");
        let path = path.to_str().expect("UTF-8");
        let script = format!(
            "for rank in {off_at}; do [ $ROCI_RANK = $rank ] && export ROCI_ICRC=off; done; \
             exec '{}' perf send_lat,write_bw,tag_lat --size 8,65537 --iters 50 --pcap {path} --json",
            env!("CARGO_BIN_EXE_roci")
        );
        let ended = roci(&["run", "-n", "2", "sh", "-c", &script]).succeeded();
        let rows: Vec<_> = ended.stdout.lines().filter(|line| line.contains("\"bytes\"")).collect();
        assert_eq!(rows.len(), 6, "{}", ended.stdout);
        assert!(rows.iter().all(|row| row.contains(&format!("\"icrc\":\"{said}\""))), "{rows:?}");
        let text = roci(&["decode", path]).succeeded().stdout;
        let packets = text.lines().filter(|line| line.contains(" icrc "));
        assert!(packets.clone().count() > 100 && packets.clone().all(|line| line.contains(seen)), "{text}");
    }
}

#[test]
fn the_worst_status_is_the_jobs_and_the_others_are_ended() {
    let _alone = alone();
    let shell = |script: &str| roci(&["run", "-n", "2", "sh", "-c", script]);
    assert_eq!(shell("exit 0").code(), Some(0));
    let ended = shell("[ $ROCI_RANK = 1 ] && exit 7; exit 3");
    assert_eq!(ended.code(), Some(7), "{}", ended.stderr);
    let ended = shell("[ $ROCI_RANK = 1 ] && exit 7; sleep 100");
    assert_eq!(ended.code(), Some(7), "{}", ended.stderr);
    assert_eq!(shell("kill -9 $$").code(), Some(137));
    assert_eq!(roci(&["run", "-n", "2", "/nonexistent"]).code(), Some(1));
}

/// Longer than a rank may go on by default, and shorter than it was given here.
#[test]
fn the_others_may_go_on_as_long_as_the_exit_timeout_says() {
    let _alone = alone();
    let last_words = |timeout, script: &str| {
        let script = format!("[ $ROCI_RANK = 1 ] && exit 7; {script}");
        let ended = roci(&["run", "-n", "2", "--exit-timeout", timeout, "sh", "-c", &script]);
        assert_eq!(ended.code(), Some(7), "{}", ended.stderr);
        ended.stdout
    };
    assert_eq!(last_words("60", "sleep 7; echo done"), "done\n");
    assert_eq!(last_words("0", "trap '' TERM; sleep 100; echo done"), "");
    let refused = roci(&["run", "-n", "2", "--exit-timeout", "never", "true"]);
    assert_eq!(refused.code(), Some(2), "{}", refused.stderr);
}

#[test]
fn a_rank_that_leaves_early_does_not_hang_the_others() {
    let _alone = alone();
    let roci_path = env!("CARGO_BIN_EXE_roci");
    let script = format!("[ $ROCI_RANK = 1 ] && exit 0; exec {roci_path} soak --seconds 60");
    let ended = roci(&["run", "-n", "2", "sh", "-c", &script]);
    assert_eq!(ended.code(), Some(1));
    assert!(ended.stderr.contains("rank 1 exited with status 0"), "{}", ended.stderr);
}

#[test]
fn no_process_outlives_its_launcher() {
    let _alone = alone();
    let mut launcher = command(&["run", "-n", "2", "roci", "soak", "--seconds", "100"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("roci starts");
    let ranks = wait_for_processes(2, || children(launcher.id()));
    // In the middle of whatever they do first.
    std::thread::sleep(Duration::from_millis(500));
    launcher.kill().expect("a child of ours");
    finish(launcher);
    wait_for_the_end_of(&ranks);
    let ended = roci(&["run", "-n", "1", "sh", "-c", "sleep 1000 & echo $!"]).succeeded();
    let orphan = ended.stdout.trim().parse().expect("a process id");
    assert!(!is_alive(orphan), "a rank left a process behind");
}

#[test]
fn output_is_put_behind_its_rank_on_request() {
    let ended = roci(&["run", "-n", "2", "--prefix", "sh", "-c", "echo out; echo err >&2"]).succeeded();
    let mut lines: Vec<_> = ended.stdout.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["[0] out", "[1] out"]);
    assert!(ended.stderr.contains("[1] err"));
    let shown = roci(&["run", "-n", "2", "-show", "--device", "vhost", "prog", "-x"]).succeeded();
    let lines: Vec<_> = shown.stdout.lines().collect();
    assert!(lines.len() == 3 && lines[0].starts_with("roci board -n 2 --listen "), "{}", shown.stdout);
    assert!(lines[2].contains("ROCI_RANK=1 ROCI_SIZE=2 ROCI_DEVICE=vhost prog -x"), "{}", shown.stdout);
    let there = roci(&["run", "-n", "2", "-hosts", "a,b", "-show", "prog", "it's"]).succeeded().stdout;
    let lines: Vec<_> = there.lines().collect();
    assert!(lines.len() == 4 && lines[0].starts_with("export ROCI_TOKEN="), "{there}");
    assert!(lines[2].starts_with("printf '%s\\n' \"$ROCI_TOKEN\" | ssh "), "{there}");
    assert!(lines[2].contains(" a 'read -r ROCI_TOKEN; export ROCI_TOKEN; cd /"), "{there}");
    assert!(lines[3].contains(" b ") && lines[3].contains("ROCI_RANK=1 "), "{there}");
}

#[test]
fn pinned_ranks_have_a_processor_each() {
    let processors = roci(&["run", "-n", "2", "sh", "-c", "nproc"]).succeeded().stdout;
    let pinned = roci(&["run", "-n", "2", "--pin", "sh", "-c", "taskset -cp $$"]).succeeded().stdout;
    let mut places: Vec<_> = pinned.lines().filter_map(|line| line.rsplit(": ").next()).collect();
    assert!(places.len() == 2 && places.iter().all(|place| place.parse::<u32>().is_ok()), "{pinned}");
    places.dedup();
    let is_shared = processors.lines().next() == Some("1");
    assert!(places.len() == 2 || is_shared, "both are on one processor: {pinned}");
}

#[test]
fn the_examples_run() {
    let _alone = alone();
    let path = |name| example(name).display().to_string();
    let ended = roci(&["run", "-n", "4", &path("ring")]).succeeded();
    assert_eq!(ended.stdout.trim(), "the token came back as 6 from 4 ranks");
    let ended = roci(&["run", "-n", "3", &path("long_message")]).succeeded();
    assert!(ended.stdout.contains("rank 2 has 8388608 bytes from rank 0"), "{}", ended.stdout);
    let ended = roci(&["run", "-n", "4", &path("halo")]).succeeded();
    assert!(ended.stdout.starts_with("4 ranks have the same plate as one: "), "{}", ended.stdout);
    let ended = roci(&["run", "-n", "4", &path("hash_table")]).succeeded();
    assert!(ended.stdout.starts_with("4 ranks found all of 4096 keys, of which ["), "{}", ended.stdout);
    let ended = roci(&["run", "-n", "2", &path("async_fd")]).succeeded();
    let lines: Vec<_> = ended.stdout.lines().collect();
    assert!(lines.len() == 2 && lines.iter().all(|line| line.contains("has caught 20 balls")), "{}", ended.stdout);
    // 20 times 5 ms that a rank keeps the ball, and a tick a millisecond: a busy machine skips none, but is late.
    let ticks = lines.iter().filter_map(|line| line.split(" has ticked ").nth(1)?.split(' ').next()?.parse().ok());
    assert!(ticks.filter(|&ticks: &u64| ticks > 20).count() == 2, "{}", ended.stdout);
    // The memory is registered, though this device has no use for that. Where userfaultfd is forbidden, each use registers
    // it.
    let ended = roci(&["run", "-n", "2", "env", "ROCI_DREG_PIN=lock", &path("remapped")]).succeeded();
    let row = &rows(&ended.stdout)[0];
    let (hits, invalidations) = (row["hits"].as_u64(), row["invalidations"].as_u64());
    // The end may come before the last mapping's is noticed.
    assert!(hits == Some(0) || hits == Some(256) && invalidations >= Some(255), "{row}");
}

#[test]
fn the_examples_of_verbs_run() {
    for (name, last) in [
        ("write_and_read", "a dead key: remote access error (IBV_WC_REM_ACCESS_ERR)"),
        ("atomics", "attempt 2: the lock is taken"),
        ("memory_window", "a write after that: remote access error"),
        ("shared_receives", "it runs low: time to post more"),
        ("datagrams", "received: hello; the one with a wrong key was dropped"),
    ] {
        let ended = std::process::Command::new(example(name)).output().expect("it starts");
        let text = String::from_utf8_lossy(&ended.stdout).into_owned();
        assert!(ended.status.success() && text.lines().last() == Some(last), "{name}: {text}");
    }
}

/// Two processes without a launcher, which meet over shared memory and exchange addresses in files.
#[test]
fn the_example_of_two_processes_runs_over_memif() {
    let _alone = alone();
    let place = tempfile::tempdir().expect("a directory");
    let start = |role: &str| {
        let mut end = std::process::Command::new(example("two_processes"));
        end.arg(role).arg(place.path());
        end.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts")
    };
    let (server, client) = (start("server"), start("client"));
    assert_eq!(finish(client).succeeded().stdout, "received: hello, client\n");
    assert_eq!(finish(server).succeeded().stdout, "received: hello, server\nsent: success\n");
}

/// Two processes without a launcher, which meet by RDMA-CM alone.
#[test]
fn the_example_of_rdma_cm_runs_between_two_processes() {
    let _alone = alone();
    let start = |words: &[&str]| {
        let mut end = std::process::Command::new(example("rdma_cm"));
        end.args(words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts")
    };
    // Addresses of this process's own: those that ranks of other tests choose at random are seldom these.
    let mut server = start(&["server", "127.7.1.1"]);
    let mut lines = BufReader::new(server.stdout.take().expect("piped")).lines();
    assert_eq!(lines.next().expect("it listens").expect("UTF-8"), "listening at 127.7.1.1 port 7471");
    let client = finish(start(&["client", "127.7.1.2", "127.7.1.1"])).succeeded();
    assert_eq!(client.stdout, "received: hello, client\n");
    let said: Vec<_> = lines.map_while(Result::ok).collect();
    assert_eq!(said, ["a request with \"hello\"", "received: hello, server", "the client has left"]);
    finish(server).succeeded();
}

#[test]
fn the_simulated_world_runs_from_the_command_line() {
    let once = roci(&["sim", "--seed", "5"]).succeeded().stdout;
    assert_eq!(once, roci(&["sim", "--seed", "5"]).succeeded().stdout);
    assert!(once.starts_with("seed 5: ok"), "{once}");
    let said = roci(&["sim", "--seeds", "1..20"]).succeeded().stdout;
    assert_eq!(said.lines().last(), Some("20 seeds, 0 violations"));
    assert!(said.contains("retransmitted_packets"), "{said}");
}

/// The second measurement would take hours.
#[test]
fn perf_prints_a_row_when_it_is_measured_and_an_interrupt_takes_none_back() {
    let _alone = alone();
    let mut job = command(&["perf", "tag_lat", "--size", "1,8MiB", "--iters", "20000"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("roci starts");
    let mut lines = BufReader::new(job.stdout.take().expect("piped")).lines();
    let row = lines.find(|line| line.as_ref().is_ok_and(|line| line.starts_with("tag_lat ")));
    assert!(row.is_some_and(|row| row.expect("UTF-8").contains(" 20000 ")));
    let pid = Pid::from_raw(job.id().cast_signed()).expect("a process");
    kill_process(pid, Signal::INT).expect("it measures still");
    assert_eq!(lines.count(), 0);
    assert_eq!(job.wait().expect("a child of ours").code(), Some(130));
}

#[test]
fn the_next_launcher_removes_what_a_killed_one_has_left() {
    let _alone = alone();
    let place = tempfile::tempdir().expect("a directory");
    let count = || std::fs::read_dir(place.path()).expect("a directory").count();
    let mut job = command(&["run", "-n", "1", "sh", "-c", "echo there; exec sleep 600"])
        .env("TMPDIR", place.path())
        .stdout(Stdio::piped())
        .spawn()
        .expect("roci starts");
    let mut said = [0; 6];
    job.stdout.take().expect("piped").read_exact(&mut said).expect("the rank runs");
    job.kill().expect("a child of ours");
    job.wait().expect("a child of ours");
    assert_eq!(count(), 1, "it had no time to tidy up");
    let next = command(&["run", "-n", "1", "true"]).env("TMPDIR", place.path()).status();
    assert!(next.is_ok_and(|status| status.success()));
    assert_eq!(count(), 0);
}

/// DPDK would take the socket's name for several arguments, or a UNIX socket's would be too long.
#[test]
fn ranks_meet_wherever_tmpdir_points() {
    let _alone = alone();
    let place = tempfile::tempdir().expect("a directory");
    for name in ["a,b", "a=b", "[ab]", "a b", &"long".repeat(30)] {
        let place = place.path().join(name);
        std::fs::create_dir(&place).expect("room on the disk");
        let job = command(&["run", "-n", "2", "roci", "soak", "--seconds", "1"])
            .env("TMPDIR", place)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        finish(job.expect("roci starts")).succeeded();
    }
}
