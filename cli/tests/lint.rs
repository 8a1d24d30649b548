//! `roci lint` on captures that keep the rules, break them, or are none.

mod common;

use std::fs;

use common::{roci, vector};
use serde_json::Value;

fn lint(name: &str, words: &[&str]) -> common::Ended {
    let path = vector(name);
    let arguments = [&["lint", path.to_str().expect("UTF-8")], words].concat();
    roci(&arguments)
}

#[test]
fn a_finding_names_frame_rule_and_both_values() {
    let ended = lint("host_pkey_limited.pcap", &[]);
    assert_eq!(ended.code(), Some(1), "{}", ended.stderr);
    assert!(
        ended.stdout.contains("frame 0 breaks p-key (IBTA 10.9.1): expected 0xffff, seen 0x7fff"),
        "{}",
        ended.stdout
    );
    let json = lint("host_pkey_limited.pcap", &["--json"]).stdout;
    let rows = json.lines().map(|line| serde_json::from_str::<Value>(line).expect("an object"));
    let keys: Vec<_> = rows.filter(|row| row["rule"] == "p-key").collect();
    assert_eq!((keys.len(), keys[0]["index"].as_u64(), &keys[0]["seen"]), (1, Some(0), &"0x7fff".into()));
}

#[test]
fn a_capture_that_keeps_the_rules_says_nothing() {
    let ended = lint("host_migreq.pcap", &[]);
    let ours = ended.stdout.lines().filter(|line| line.starts_with("frame 0 "));
    assert_eq!(ours.count(), 0, "{}", ended.stdout);
}

#[test]
fn packets_of_another_partition_keep_the_rules_where_its_keys_are_named() {
    let breaks_pkey = |words: &[&str]| lint("host_pkey_limited.pcap", words).stdout.contains("breaks p-key");
    assert!(!breaks_pkey(&["--pkey", "0x7fff,0xffff"]));
    assert!(!breaks_pkey(&["--pkey=0x7fff", "--pkey=65535"]));
    assert!(breaks_pkey(&["--pkey", "0x8001"]));
    let refused = lint("host_pkey_limited.pcap", &["--pkey", "0x8000"]);
    assert!(refused.stderr.contains("names partition 0"), "{}", refused.stderr);
}

#[test]
fn what_is_no_capture_is_refused() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    fs::write(file.path(), "no capture").expect("room on the disk");
    let line = roci(&["lint", file.path().to_str().expect("UTF-8")]).failed_with_one_line();
    assert!(line.contains("not a pcap"), "{line}");
}
