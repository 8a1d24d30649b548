//! Tests that change interfaces: each runs once more, in a network namespace and with rights of its own.

use std::io;
use std::process::Command;

const MARK: &str = "ROCI_TEST_NAMESPACE";

/// Whether this is the run in a namespace; elsewhere that run is made, and judged.
pub(super) fn is_inside(test: &str) -> bool {
    if std::env::var_os(MARK).is_some() {
        return true;
    }
    let unshared = || {
        let mut command = Command::new("unshare");
        command.arg("-Urn");
        command
    };
    let trial = unshared().args(["ip", "link", "set", "lo", "up"]).output();
    let refusal = match trial {
        Ok(output) if output.status.success() => None,
        Ok(output) => Some(String::from_utf8_lossy(&output.stderr).into_owned()),
        Err(error) => Some(error.to_string()),
    };
    if let Some(refusal) = refusal {
        eprintln!("SKIPPED: {test}: no namespace: {refusal}");
        return false;
    }
    let own = std::env::current_exe().expect("this program");
    let mut inside = unshared();
    inside.args(["sh", "-c", "ip link set lo up && exec \"$@\"", "sh"]).arg(own).args(["--exact", test, "--nocapture"]);
    let output = inside.env(MARK, "1").output().expect("unshare has worked just now");
    assert!(
        output.status.success() && String::from_utf8_lossy(&output.stdout).contains("1 passed"),
        "{test}: {}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    false
}

/// Changes what packets the loopback interface carries.
pub(super) fn set_mtu(mtu: usize) {
    let mtu = mtu.to_string();
    let status = Command::new("ip").args(["link", "set", "lo", "mtu", &mtu]).status().expect("ip starts");
    assert!(status.success(), "MTU {mtu}");
}

/// Has the kernel cut trains before they are on the wire.
pub(super) fn cut_trains() {
    let status = Command::new("ip").args(["link", "set", "lo", "gso_max_segs", "1"]).status().expect("ip starts");
    assert!(status.success());
}

/// Gives the loopback interface a queue (`tc qdisc`), or takes it away again.
pub(super) fn set_queue(discipline: Option<&str>) -> io::Result<()> {
    let change = if discipline.is_some() { "replace" } else { "del" };
    let mut tc = Command::new("tc");
    tc.args(["qdisc", change, "dev", "lo", "root"]).args(discipline.unwrap_or_default().split_whitespace());
    let output = tc.output()?;
    if output.status.success() { Ok(()) } else { Err(io::Error::other(String::from_utf8_lossy(&output.stderr))) }
}
