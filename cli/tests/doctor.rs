//! `roci doctor` on the machine that runs the tests.

mod common;

use std::process::{Command, Stdio};

use common::{command, finish, roci};
use serde_json::Value;

fn doctor(arguments: &[&str]) -> (Option<i32>, Value) {
    let ended = roci(&[&["doctor", "--json"], arguments].concat());
    (ended.code(), serde_json::from_str(&ended.stdout).expect("an object"))
}

fn row(said: &Value, name: &str) -> Value {
    let rows = said["checks"].as_array().expect("rows");
    rows.iter().find(|row| row["check"] == name).unwrap_or_else(|| panic!("no row {name} in {said}")).clone()
}

#[test]
fn the_default_device_would_run_wherever_these_tests_run() {
    let (code, said) = doctor(&["--all"]);
    assert_eq!((code, &said["would_run"], &said["device"]), (Some(0), &true.into(), &"memif".into()));
    for name in ["arena", "huge pages 2M", "IOMMU", "vfio-pci", "locked memory", "userfaultfd", "processors", "ICRC"] {
        assert_ne!(row(&said, name)["finding"], "", "{name}");
    }
    let rows = said["checks"].as_array().expect("rows");
    assert!(rows.iter().all(|row| row["verdict"] != "missing"), "{said}");
    assert!(rows.iter().all(|row| row["verdict"] != "ok" || row["remedy"].is_null()), "{said}");
}

#[test]
fn only_what_concerns_the_device_is_said_unless_all_is_asked_for() {
    let names = |arguments: &[&str]| {
        let (_, said) = doctor(arguments);
        let rows = said["checks"].as_array().expect("rows").clone();
        rows.into_iter().map(|row| row["check"].as_str().unwrap_or("").to_owned()).collect::<Vec<_>>()
    };
    let of_nics = ["IOMMU", "vfio-pci", "locked memory"];
    for device in ["memif", "udp"] {
        let names = names(&["--device", device]);
        assert!(!names.iter().any(|name| of_nics.contains(&name.as_str()) || name == "packet sockets"), "{names:?}");
        assert!(names.iter().any(|name| name == "arena"), "{names:?}");
    }
    let of_pci = names(&["--device", "pci:ffff:ff:1f.7"]);
    assert!(of_nics.iter().all(|name| of_pci.iter().any(|it| it == name)), "{of_pci:?}");
    assert!(names(&["--device", "af_packet:lo"]).iter().any(|name| name == "packet sockets"));
}

#[test]
fn a_device_that_is_not_there_is_missing_and_the_status_says_so() {
    for device in ["pci:ffff:ff:1f.7", "af_packet:no-such-iface"] {
        let (code, said) = doctor(&["--device", device]);
        assert_eq!((code, &said["would_run"]), (Some(1), &false.into()), "{device}");
        let missing = row(&said, device);
        assert_eq!(missing["verdict"], "missing");
        assert_ne!(missing["remedy"], Value::Null);
    }
}

#[test]
fn a_remedy_stands_on_a_line_of_its_own() {
    let said = roci(&["doctor", "--device", "af_packet:no-such-iface"]);
    assert_eq!(said.code(), Some(1));
    for line in ["$ ip -brief link", "# the device is 'af_packet:' and one of those that it shows"] {
        assert!(said.stdout.lines().any(|said| said.trim() == line), "{}", said.stdout);
    }
    assert!(said.stdout.ends_with("of the above\n"), "{}", said.stdout);
}

#[test]
fn an_arena_that_cannot_be_had_is_missing() {
    let mut command = command(&["doctor", "--json"]);
    command.env("ROCI_ARENA_PAGES", "1g").env("ROCI_ARENA_SIZE", "64GiB").stdout(Stdio::piped()).stderr(Stdio::piped());
    let ended = finish(command.spawn().expect("roci starts"));
    assert_eq!(ended.code(), Some(1));
    let said: Value = serde_json::from_str(&ended.stdout).expect("an object");
    let arena = row(&said, "arena");
    assert_eq!(arena["verdict"], "missing");
    assert_eq!(arena["remedy"], "export ROCI_ARENA_PAGES=auto");
}

/// What this machine lacks for any device: nothing of it is known here but that a shell reads it, and reads no prose.
#[test]
fn each_remedy_is_a_command_that_a_shell_reads() {
    for device in ["memif", "udp", "udp:192.0.2.77", "af_packet:lo", "af_packet:no-such-iface", "pci:ffff:ff:1f.7"] {
        let (_, said) = doctor(&["--all", "--device", device]);
        let rows = said["checks"].as_array().expect("rows");
        for remedy in rows.iter().filter_map(|row| row["remedy"].as_str()) {
            let read = Command::new("bash").args(["-n", "-c", remedy]).output().expect("bash starts");
            assert!(read.status.success() && !remedy.contains(", ") && !remedy.contains("; "), "{device}: {remedy}");
        }
        assert!(rows.iter().all(|row| row["verdict"] != "missing" || row["remedy"].is_string()), "{said}");
    }
}
