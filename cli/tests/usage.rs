//! Mistakes: each ends with one line on stderr, a status that is not 0, and nothing left running.

mod common;

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::process::Stdio;

use common::{alone, command, finish, roci};

#[test]
fn mistakes_on_the_command_line_are_one_line_and_status_2() {
    for (arguments, complaint) in [
        (&["--frobnicate"][..], "unexpected argument '--frobnicate'"),
        (&["frobnicate"], "unrecognized subcommand"),
        (&[], "a command is missing: run, "),
        (&["run"], "required"),
        (&["run", "-n", "0", "true"], "0 is not in 1..=1024"),
        (&["run", "-n", "1025", "true"], "1025 is not in 1..=1024"),
        (&["run", "-n", "2"], "required"),
        (&["run", "-n", "2", "--faults", "loss=2", "true"], "a probability lies between 0 and 1"),
        (&["run", "-n", "2", "--faults", "lost=0.1", "true"], "unknown fault 'lost'"),
        (&["perf"], "required"),
        (&["perf", "warp_lat"], "unknown test 'warp_lat'"),
        (&["perf", "--perftest", "tag_lat"], "unknown test 'tag_lat': known are send_lat send_bw write_lat"),
        (&["perf", "tag_lat", "--perftest", "send_bw"], "cannot be used with"),
        (&["perf", "--perftest", "send_bw", "--no-verify"], "cannot be used with"),
        (&["perf", "--perftest", "send_bw", "--all", "--size", "8"], "cannot be used with"),
        (&["perf", "tag_lat", "--all"], "cannot be used with"),
        (&["perf", "tag_lat", "--size", "0"], "a size lies between"),
        (&["perf", "tag_lat", "--size", "big"], "not a size"),
        (&["perf", "tag_lat", "--iters", "0"], "not in 1.."),
        (&["perf", "raw_bw", "--touch=yes"], "unexpected value 'yes' for '--touch'"),
        (&["perf", "stream_lat", "--stream", "fast"], "basic, piggyback, pipelining, zerocopy"),
        (&["soak", "--seconds", "0"], "not in 1.."),
        (&["soak", "--max-size", "1TiB"], "not a size"),
        (&["sim"], "required"),
        (&["sim", "--seeds", "9..1"], "rising"),
        (&["decode"], "required"),
        (&["lint"], "required"),
    ] {
        let ended = roci(arguments);
        assert_eq!(ended.code(), Some(2), "{arguments:?}: {}", ended.stderr);
        let line = ended.failed_with_one_line();
        assert!(line.contains(complaint), "{arguments:?}: {line}");
    }
}

/// What would be silence is one line, and the command goes on.
#[test]
fn a_log_that_is_asked_for_in_error_is_one_line() {
    for text in ["debgu", "roci_driver=loud"] {
        let mut info = command(&["info", "--protocols"]);
        info.env("RUST_LOG", text).stdout(Stdio::piped()).stderr(Stdio::piped());
        let ended = finish(info.spawn().expect("roci starts")).succeeded();
        let lines: Vec<_> = ended.stderr.lines().collect();
        assert!(lines.len() == 1 && lines[0].starts_with(&format!("roci: RUST_LOG={text}: ")), "{lines:?}");
    }
    // Ranks do not repeat what their launcher has said.
    let mut job = command(&["run", "-n", "2", "roci", "info", "--protocols"]);
    job.env("RUST_LOG", "debgu").stdout(Stdio::piped()).stderr(Stdio::piped());
    let ended = finish(job.spawn().expect("roci starts")).succeeded();
    assert_eq!(ended.stderr.matches("RUST_LOG=debgu").count(), 1, "{}", ended.stderr);
}

#[test]
fn a_server_for_perftest_says_what_it_cannot_be() {
    for (arguments, complaint) in [
        (&["send_bw", "--listen", "127.0.0.1:0"][..], "memif joins processes of one host only: name a network device"),
        (&["send_bw", "--iters", "5"], "--iters is for --perftest write_lat"),
        (&["read_lat", "--size", "1,2"], "give one --size, or --all"),
        (&["atomic_bw", "--size", "16"], "atomics have 8 bytes"),
        (&["atomic_lat", "--all"], "atomics have 8 bytes"),
        (&["send_bw", "--listen", "here"], "cannot listen at here"),
    ] {
        let line = roci(&[&["perf", "--perftest"], arguments].concat()).failed_with_one_line();
        assert!(line.contains(complaint), "{arguments:?}: {line}");
    }
}

#[test]
fn unknown_devices_and_knobs_name_what_is_known() {
    let line = roci(&["run", "-n", "2", "--device", "tcp", "true"]).failed_with_one_line();
    assert!(line.contains("unknown device 'tcp': known are memif, vhost, udp"), "{line}");
    for (arguments, complaint) in [
        (["-n", "33", "--device", "memif"], "33 ranks over memif: each has a port to every other, and DPDK has 32"),
        (["-n", "2", "--device", "udp:eth0"], "'eth0' is no address for a UDP socket"),
        (["-n", "2", "--device", "udp:10.0.0.1:x"], "'10.0.0.1:x' is no address for a UDP socket"),
    ] {
        let line = roci(&[&["run"], &arguments[..], &["true"]].concat()).failed_with_one_line();
        assert!(line.contains(complaint), "{arguments:?}: {line}");
    }
    let run = |name: &str, value: &str| {
        let mut command = command(&["info"]);
        command.env(name, value).stdout(Stdio::piped()).stderr(Stdio::piped());
        finish(command.spawn().expect("roci starts")).failed_with_one_line()
    };
    assert!(run("ROCI_CREDIT", "4").contains("unknown knob 'ROCI_CREDIT': did you mean 'ROCI_CREDITS'?"));
    assert!(run("ROCI_CREDITS", "many").contains("ROCI_CREDITS=many: is not a whole number"));
    assert!(run("ROCI_MTU", "1500").contains("256, 512, 1024"));
}

#[test]
fn parameter_files_are_checked_and_the_environment_goes_before_them() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let path = file.path().to_str().expect("UTF-8");
    let info = |text: &str| {
        std::fs::write(file.path(), text).expect("room on the disk");
        let mut command = command(&["info", "--json", "--paramfile", path]);
        command.env("ROCI_WINDOW", "77").stdout(Stdio::piped()).stderr(Stdio::piped());
        finish(command.spawn().expect("roci starts"))
    };
    let json: serde_json::Value =
        serde_json::from_str(&info("window = 5\ncredits = \"9\"\n").succeeded().stdout).expect("an object");
    let knob =
        |name: &str| json["knobs"].as_array().expect("knobs").iter().find(|k| k["name"] == name).expect(name).clone();
    assert_eq!((&knob("window")["value"], &knob("window")["origin"]), (&"77".into(), &"environment".into()));
    assert_eq!((&knob("credits")["value"], &knob("credits")["origin"]), (&"9".into(), &"file".into()));
    assert_eq!(knob("mtu")["origin"], "default");
    assert!(info("windw = 5").failed_with_one_line().contains("did you mean 'window'?"));
    assert!(info("window = ").failed_with_one_line().contains("line 1: "));
    let line = roci(&["run", "-n", "1", "-paramfile", "/nonexistent", "true"]).failed_with_one_line();
    assert!(line.contains("/nonexistent"), "{line}");
    std::fs::write(file.path(), "window = 55\n").expect("room on the disk");
    let ranks = roci(&["run", "-n", "2", "-paramfile", path, "sh", "-c", "echo $ROCI_WINDOW"]).succeeded();
    assert_eq!(ranks.stdout, "55\n55\n", "each rank has the file's knobs");
}

#[test]
fn info_shows_the_memory_of_the_arena_and_the_page_sizes_passed_over() {
    let arena = |pages: &str| {
        let mut command = command(&["info", "--json"]);
        command.env("ROCI_ARENA_PAGES", pages).env("ROCI_ARENA_SIZE", "64GiB").stdout(Stdio::piped());
        let output = finish(command.spawn().expect("roci starts")).succeeded().stdout;
        let info: serde_json::Value = serde_json::from_str(&output).expect("an object");
        info["arena"].clone()
    };
    assert_eq!(arena("4k")["pages"], "4 KiB pages");
    let error = arena("1g")["error"].as_str().expect("no machine that tests has so many").to_owned();
    assert!(error.contains("roci hugepages set 64 --size 1G"), "{error}");
    assert!(arena("auto")["passed_over"][0]["why"].as_str().is_some());
}

#[test]
fn info_shows_which_protocol_carries_which_lengths_and_why() {
    let sections = |name: &str, value: &str| -> serde_json::Value {
        let mut command = command(&["info", "--protocols", "--json"]);
        command.env(name, value).stdout(Stdio::piped()).stderr(Stdio::piped());
        let ended = finish(command.spawn().expect("roci starts")).succeeded();
        serde_json::from_str(&ended.stdout).expect("an array")
    };
    let long = |sections: &serde_json::Value| {
        let ranges = sections[0]["ranges"].as_array().expect("ranges").clone();
        ranges.into_iter().find(|row| row["from"].as_u64() <= Some(1 << 20) && row["to"].as_u64() >= Some(1 << 20))
    };
    let by_default = sections("ROCI_EAGER_THRESHOLD", "1000");
    assert_eq!(by_default[0]["ranges"][0]["to"], 1000);
    assert_eq!(long(&by_default).expect("no gap")["protocol"], "RGET");
    assert_eq!(long(&sections("ROCI_RNDV_PROTOCOL", "rput")).expect("no gap")["protocol"], "RPUT");
    let without = long(&sections("ROCI_RDMA", "off")).expect("no gap");
    assert_eq!(
        (&without["protocol"], &without["reason"]),
        (&"R3".into(), &"RDMA is off at this rank or at its peer (ROCI_RDMA)".into())
    );
    let text = roci(&["info", "--protocols"]).succeeded().stdout;
    assert!(text.contains("To a peer without RDMA:\n") && text.is_ascii(), "{text}");
    assert!(text.lines().all(|line| line.len() <= 100), "{text}");
    assert!(text.contains("RGET      longer than ROCI_EAGER_THRESHOLD"), "{text}");
}

#[test]
fn info_is_a_page_and_explains_each_knob_by_name() {
    let page = roci(&["info"]).succeeded().stdout;
    assert!(page.lines().count() <= 60 && page.lines().all(|line| line.len() <= 80), "{page}");
    let one = roci(&["info", "ROCI_CREDITS"]).succeeded().stdout;
    assert_eq!(one, roci(&["info", "credits"]).succeeded().stdout);
    assert!(one.starts_with("credits  ROCI_CREDITS\n    128 (default); takes 2..4096 messages\n"), "{one}");
    let all = roci(&["info", "--all"]).succeeded().stdout;
    assert!(all.contains(one.trim_end()) && all.split("\n\n").count() > 50, "a paragraph each");
    let line = roci(&["info", "vbuf"]).failed_with_one_line();
    assert!(line.contains("unknown knob 'vbuf': there are vbuf_size, vbuf_pool"), "{line}");
    let set = roci(&["info", "--device", "udp"]).succeeded().stdout;
    assert!(set.contains("  device = udp (") && set.contains("device           udp"), "{set}");
}

#[test]
fn info_shows_the_memory_of_a_connection() {
    let mut command = command(&["info", "--json"]);
    command.env("ROCI_RECEIVE_QUEUES", "P,512,8,4,2,7:S,8KiB,1024").stdout(Stdio::piped()).stderr(Stdio::piped());
    let ended = finish(command.spawn().expect("roci starts")).succeeded();
    let receives = &serde_json::from_str::<serde_json::Value>(&ended.stdout).expect("an object")["receives"];
    assert_eq!((&receives["bytes_per_connection"], &receives["bytes_shared"]), (&(15 * 512).into(), &(8 << 20).into()));
    assert_eq!(
        (&receives["queues"][0]["payload"], receives["queues"].as_array().map(Vec::len)),
        (&472.into(), Some(2))
    );
    assert!(roci(&["info"]).succeeded().stdout.contains("bytes per connection"));
}

#[test]
fn receive_queues_that_make_no_sense_are_explained() {
    let mut command = command(&["info"]);
    command.env("ROCI_RECEIVE_QUEUES", "P,8KiB,64,65").stdout(Stdio::piped()).stderr(Stdio::piped());
    let line = finish(command.spawn().expect("roci starts")).failed_with_one_line();
    assert!(line.contains("ROCI_RECEIVE_QUEUES=P,8KiB,64,65: entry 1"), "{line}");
}

#[test]
fn commands_that_need_a_job_say_how_to_get_one() {
    for arguments in [&["soak"][..], &["exchange"]] {
        let line = roci(arguments).failed_with_one_line();
        assert!(line.contains("ROCI_RANK is not set: start this program with 'roci run -n N PROGRAM'"), "{line}");
    }
}

#[test]
fn a_missing_server_and_a_missing_interface_are_named() {
    let _alone = alone();
    let mut client = command(&["perf", "tag_lat", "127.0.0.1:1", "--device", "af_packet:lo"]);
    client.env("ROCI_CONNECT_TIMEOUT_S", "1").stdout(Stdio::piped()).stderr(Stdio::piped());
    let ended = finish(client.spawn().expect("roci starts"));
    let lines: Vec<_> = ended.stderr.lines().collect();
    assert!(!ended.status.success() && lines[0] == "roci: waiting for a server at 127.0.0.1:1", "{lines:?}");
    assert!(lines[1].contains("cannot reach the launcher at tcp:127.0.0.1:1"), "{lines:?}");
    let ended = roci(&["run", "-n", "1", "--device", "af_packet:nosuch0", "roci", "soak", "--seconds", "1"]);
    // One rank has no peers, and needs no port.
    ended.succeeded();
    let ended = roci(&["run", "-n", "2", "--device", "af_packet:nosuch0", "roci", "soak", "--seconds", "1"]);
    let line = ended.failed_with_one_line();
    assert!(line.contains("there is no interface 'nosuch0'"), "{line}");
}

#[test]
fn manual_pages_and_completions_are_made_of_the_command_line() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("man1").display().to_string();
    roci(&["man", &path]).succeeded();
    let page = |name: &str| std::fs::read_to_string(format!("{path}/{name}.1")).expect("a page");
    assert!(page("roci").contains("doctor") && page("roci-run").contains("hostfile"), "each command has its options");
    assert!(page("roci-perf").contains(".SH EXAMPLES\n.nf\n") && !page("roci-perf").contains("EXTRA"), "whole lines");
    assert!(roci(&["man", "/proc/nowhere"]).failed_with_one_line().contains("cannot make /proc/nowhere"));
    for shell in ["bash", "zsh", "fish"] {
        let script = roci(&["completions", shell]).succeeded().stdout;
        assert!(script.contains("hostfile") && script.contains("prometheus"), "{shell}");
        assert!(!script.contains("launcher"), "what run starts is no command of anybody's: {shell}");
    }
}

#[test]
fn help_and_version_are_no_mistakes() {
    assert!(roci(&["--help"]).succeeded().stdout.contains("soak"));
    assert!(roci(&["run", "--help"]).succeeded().stdout.contains("--ranks"));
    assert!(roci(&["perf", "--help"]).succeeded().stdout.contains("--touch"));
    assert!(roci(&["--version"]).succeeded().stdout.starts_with("roci "));
    assert!(roci(&["info"]).succeeded().stdout.contains("eager_threshold"));
}

/// Ranks that fail at the same time share one stderr: what one writes in pieces another's line would cut.
#[test]
fn a_complaint_is_one_write() {
    let (ours, theirs) = UnixDatagram::pair().expect("a socket");
    ours.set_nonblocking(true).expect("a socket");
    for arguments in [&["decode", "/nonexistent"][..], &["nonsense"], &["run", "-n", "1", "sh", "-c", "exit 3"]] {
        let stderr = OwnedFd::from(theirs.try_clone().expect("a descriptor"));
        let status = command(arguments).stdout(Stdio::null()).stderr(stderr).status().expect("roci starts");
        assert!(!status.success());
        let mut line = [0; 1024];
        let count = ours.recv(&mut line).expect("it says what is wrong");
        let line = String::from_utf8_lossy(&line[..count]);
        assert!(line.starts_with("roci: ") && line.ends_with('\n'), "{line:?}");
        assert!(ours.recv(&mut [0; 1024]).is_err(), "one line, at once: {arguments:?}");
    }
}

#[test]
fn doctor_does_not_take_what_it_would_ignore() {
    for option in ["--faults=loss=0.1", "--pcap=/tmp/file"] {
        assert!(roci(&["doctor", option]).failed_with_one_line().contains("unexpected argument"), "{option}");
    }
}

#[test]
fn what_a_knob_means_is_one_line_in_a_pipe() {
    let text = roci(&["info", "credits", "device", "eal"]).succeeded().stdout;
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines.len(), 3 * 3 + 2, "{text}");
    assert_eq!((lines[0], lines[1].trim()), ("credits  ROCI_CREDITS", "128 (default); takes 2..4096 messages"));
    assert!(lines[5].trim().ends_with("|pci:ADDRESS"), "a choice has no unit: {text}");
    assert_eq!(lines[9].trim(), "empty (default); takes any EAL arguments");
}
