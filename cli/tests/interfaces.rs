//! Two ranks over kernel interfaces in a network namespace that the test makes: packets that are shorter than usual, and a
//! death that no interface shows. It needs root and iproute2.

mod common;

use std::process::{Command, Stdio};
use std::sync::MutexGuard;
use std::sync::atomic::{AtomicUsize, Ordering};

use common::{Ended, alone, finish};
use serde_json::Value;

/// A namespace, which goes with this.
struct Namespace(String);

impl Namespace {
    /// Or why there is none.
    fn new() -> Result<Self, String> {
        let namespace = Self::empty()?;
        namespace.ip(&["link", "add", "veth0", "type", "veth", "peer", "name", "veth1"])?;
        for interface in ["lo", "veth0", "veth1"] {
            namespace.ip(&["link", "set", interface, "up"])?;
        }
        Ok(namespace)
    }

    /// One without interfaces, or why there is none.
    fn empty() -> Result<Self, String> {
        static MADE: AtomicUsize = AtomicUsize::new(0);
        let name = format!("roci-interfaces-{}-{}", std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
        ip(&["netns", "add", &name])?;
        Ok(Self(name))
    }

    fn ip(&self, arguments: &[&str]) -> Result<(), String> {
        ip(&[&["-n", &self.0], arguments].concat())
    }

    fn set_mtu(&self, interface: &str, mtu: &str) {
        self.ip(&["link", "set", interface, "mtu", mtu]).expect("an interface of ours");
    }

    fn roci(&self, port_mtu: Option<&str>, arguments: &[&str]) -> Ended {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.0, env!("CARGO_BIN_EXE_roci")]).args(arguments).stdin(Stdio::null());
        common::remove_settings(&mut command);
        command
            .envs([("ROCI_DEVICE", "af_packet:veth%r"), ("ROCI_LOCAL", "off")])
            .envs(port_mtu.map(|mtu| ("ROCI_PORT_MTU", mtu)));
        finish(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("ip starts"))
    }

    /// The kernel's list.
    fn sockets(&self) -> String {
        let read = Command::new("ip").args(["netns", "exec", &self.0, "cat", "/proc/net/unix"]).output();
        String::from_utf8_lossy(&read.expect("ip starts").stdout).into_owned()
    }

    fn soak(&self) {
        let job = ["run", "-n", "2", "roci", "soak", "--seconds", "1", "--max-size", "64KiB"];
        self.roci(None, &job).succeeded();
    }

    /// What a port at veth0 is.
    fn port(&self, port_mtu: Option<&str>) -> Ended {
        self.roci(port_mtu, &["info", "--port", "--json"])
    }

    fn max_frame(&self, port_mtu: Option<&str>) -> Value {
        let said: Value = serde_json::from_str(&self.port(port_mtu).succeeded().stdout).expect("an object");
        said["max_frame"].clone()
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = ip(&["netns", "delete", &self.0]);
    }
}

/// A namespace, and this machine to itself; or `None`, with the reason printed.
fn namespace() -> Option<(MutexGuard<'static, ()>, Namespace)> {
    let alone = alone();
    Some((alone, Namespace::new().inspect_err(|why| eprintln!("skipped: {why}")).ok()?))
}

fn ip(arguments: &[&str]) -> Result<(), String> {
    let ended = Command::new("ip").args(arguments).output().map_err(|error| format!("ip: {error}"))?;
    if ended.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&ended.stderr).trim().to_owned()) }
}

#[test]
fn packets_follow_an_interface_that_carries_less_and_what_was_asked_for_beyond_is_refused() {
    let Some((_alone, namespace)) = namespace() else { return };
    assert_eq!(namespace.max_frame(None), 1514);
    let line = namespace.port(Some("4200")).failed_with_one_line();
    let wanted =
        "device af_packet:veth0: it carries packets of 1500 bytes at most, and 4200 are wanted (ROCI_PORT_MTU)";
    assert!(line.contains(wanted), "{line}");
    namespace.set_mtu("veth1", "1000");
    // One end is shorter than the other: the smaller path MTU is that of both.
    namespace.soak();
    namespace.set_mtu("veth0", "1000");
    assert_eq!((namespace.max_frame(None), namespace.max_frame(Some("900"))), (1014.into(), 914.into()));
    namespace.soak();
    let doctor = namespace.roci(Some("1500"), &["doctor"]);
    assert!(!doctor.status.success());
    assert!(doctor.stdout.contains("packets of 1000 bytes at most, and 1500 are wanted"), "{}", doctor.stdout);
    let line = namespace.port(Some("1500")).failed_with_one_line();
    assert!(line.contains("packets of 1000 bytes at most, and 1500 are wanted (ROCI_PORT_MTU)"), "{line}");
    let said = namespace.roci(None, &["doctor"]).stdout;
    assert!(said.contains("its packets of 1000 bytes make the path MTU 512"), "{said}");
    assert!(said.contains("$ sudo ip link set veth0 mtu 1500"), "{said}");
    namespace.set_mtu("veth0", "300");
    let ended = namespace.roci(None, &["run", "-n", "2", "roci", "soak", "--seconds", "1"]);
    assert!(!ended.status.success());
    assert!(ended.stderr.contains("too short for the smallest path MTU"), "{}", ended.stderr);
}

/// Interfaces show no peer's end, and the launcher sees the shell live on.
#[test]
fn a_rank_that_has_died_behind_a_shell_that_lives_is_missed() {
    let Some((_alone, namespace)) = namespace() else { return };
    let soak = concat!(env!("CARGO_BIN_EXE_roci"), " soak --seconds 600 --max-size 64KiB");
    let script = format!("[ $ROCI_RANK = 1 ] || exec {soak}; {soak} & sleep 8; kill -KILL $!; exec sleep 600");
    let ended = namespace.roci(None, &["run", "-n", "2", "sh", "-c", &script]);
    assert!(!ended.status.success());
    assert!(ended.stderr.contains("rank 1 has left the job"), "{}", ended.stderr);
}

#[test]
fn two_processes_on_one_interface_are_warned() {
    let Some((_alone, namespace)) = namespace() else { return };
    let said = namespace.port(None).succeeded().stderr;
    assert!(!said.contains("another process"), "{said}");
    std::thread::scope(|scope| {
        let job = scope.spawn(|| namespace.roci(None, &["run", "-n", "2", "roci", "soak", "--seconds", "10"]));
        while !namespace.sockets().contains("@roci/station/veth0") {
            assert!(!job.is_finished(), "the job holds no name");
        }
        let said = namespace.port(None).succeeded().stderr;
        assert!(said.contains("another process has a port on this interface"), "{said}");
        let job = job.join().expect("no panic").succeeded();
        assert!(!job.stderr.contains("another process"), "ranks with interfaces of their own: {}", job.stderr);
    });
}

/// Three hosts on a bridge: namespaces with an interface each, eth0.
struct Hosts(Vec<Namespace>);

impl Hosts {
    /// Or why there are none.
    fn new(count: usize) -> Result<Self, String> {
        let hosts = (0..count).map(|_| Namespace::empty()).collect::<Result<Vec<_>, _>>()?;
        let first = &hosts[0];
        first.ip(&["link", "add", "bridge", "type", "bridge"])?;
        first.ip(&["link", "set", "bridge", "up"])?;
        for (number, host) in hosts.iter().enumerate() {
            let plug = format!("plug{number}");
            first.ip(&["link", "add", &plug, "type", "veth", "peer", "name", "eth0", "netns", &host.0])?;
            first.ip(&["link", "set", &plug, "master", "bridge", "up"])?;
            host.ip(&["link", "set", "lo", "up"])?;
            host.ip(&["link", "set", "eth0", "up"])?;
        }
        Ok(Self(hosts))
    }

    /// Runs the example as a process of each host, with packets lost, doubled and damaged on the way.
    fn all_to_all(&self, directory: &std::path::Path) -> Vec<Ended> {
        let program = common::example("all_to_all");
        let start = |(number, host): (usize, &Namespace)| {
            let mut command = Command::new("ip");
            command.args(["netns", "exec", &host.0]).arg(&program).arg(directory);
            command.args([number.to_string(), self.0.len().to_string()]).stdin(Stdio::null());
            common::remove_settings(&mut command);
            command
                .envs([("ROCI_DEVICE", "af_packet:eth0"), ("ROCI_LOCAL", "off")])
                .env("ROCI_IP", format!("10.0.0.{}", number + 1));
            command.env("ROCI_ARENA_SIZE", "128MiB").env("ROCI_FAULTS", "loss=0.02,dup=0.02,corrupt=0.01,seed=5");
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("ip starts")
        };
        let running: Vec<_> = self.0.iter().enumerate().map(start).collect();
        running.into_iter().map(finish).collect()
    }
}

/// They know nothing but each other's addresses, which they find in a directory.
#[test]
fn strangers_send_to_all_without_a_launcher() {
    let _alone = alone();
    let hosts = match Hosts::new(3) {
        Ok(hosts) => hosts,
        Err(why) => return eprintln!("skipped: {why}"),
    };
    let directory = tempfile::tempdir().expect("a directory");
    for (number, ended) in hosts.all_to_all(directory.path()).into_iter().enumerate() {
        assert_eq!(ended.succeeded().stdout.trim(), format!("process {number} of 3: 200 messages"));
    }
}
