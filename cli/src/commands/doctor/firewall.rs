//! Whether the host's own rules let datagrams for a socket pass: what its firewall drops of its own, it drops of others. A host's
//! datagrams to itself go over the loopback interface, so rules for other interfaces do not show, and reading them takes root.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use roci_driver::link::udp::UdpLink;
use roci_driver::link::{Batch, Link};

use super::cards::is_up;
use super::check::Check;
use super::machine::Machine;
use super::shell::ShellLine;

/// How long a datagram may take on its way through this host.
const PASSAGE: Duration = Duration::from_millis(200);
const NAME: &str = "firewall";
/// Where the rule is that does it, if it is not among those that the remedy changes.
const ELSEWHERE: &str = "if nftables or firewalld drops it all the same, 'sudo nft list ruleset' shows where";

pub(super) fn check(mut link: UdpLink, machine: &Machine) -> Check {
    let own = link.own();
    let sent = UdpSocket::bind((own.ip(), 0)).and_then(|socket| socket.send_to(&[0; 60], own));
    if let Err(error) = sent {
        return held_back(own, &error);
    }
    if arrives(&mut link) {
        return Check::ok(NAME, format!("a datagram to {own} arrives from here; rules for other hosts' are not seen"));
    }
    dropped(own, machine)
}

fn arrives(link: &mut UdpLink) -> bool {
    let deadline = Instant::now() + PASSAGE;
    loop {
        // The last look comes after the deadline, however long the sleep before it took.
        let is_last = Instant::now() >= deadline;
        link.receive(&mut Batch::new());
        let arrived = link.stats().rx_frames > 0;
        if arrived || is_last {
            return arrived;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// It could not be sent: a rule of a firewall's refuses permission, and all else is no firewall's.
fn held_back(own: SocketAddr, error: &io::Error) -> Check {
    let finding = format!("a datagram to {own} cannot be sent: {error}");
    if error.kind() == ErrorKind::PermissionDenied {
        return Check::missing(NAME, finding, let_pass(own, "OUTPUT")).hint(ELSEWHERE);
    }
    let way = ShellLine::run(&["ip", "route", "get", &own.ip().to_string()]);
    Check::missing(NAME, finding, way).hint("shows the way that it would take")
}

/// It was sent, and did not arrive. A host's datagrams to itself go over the loopback interface, whatever address they are to.
fn dropped(own: SocketAddr, machine: &Machine) -> Check {
    let finding = format!("a datagram to {own} does not arrive");
    let loopback = machine.read("/sys/class/net/lo/flags");
    if !loopback.is_empty() && !is_up(&loopback) {
        let remedy = ShellLine::root(&["ip", "link", "set", "lo", "up"]);
        return Check::missing(NAME, format!("{finding}: the loopback interface is down"), remedy);
    }
    Check::missing(NAME, finding, let_pass(own, "INPUT")).hint(ELSEWHERE)
}

fn let_pass(own: SocketAddr, chain: &str) -> ShellLine {
    let command = if own.is_ipv4() { "iptables" } else { "ip6tables" };
    ShellLine::root(&[command, "-I", chain, "-p", "udp", "--dport", &own.port().to_string(), "-j", "ACCEPT"])
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::commands::doctor::check::CheckVerdict;

    fn own(text: &str) -> SocketAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn a_rule_that_refuses_to_send_gets_one_that_lets_it() {
        let refused = held_back(own("10.0.0.1:4791"), &ErrorKind::PermissionDenied.into());
        assert_eq!(refused.verdict, CheckVerdict::Missing);
        assert!(refused.finding.starts_with("a datagram to 10.0.0.1:4791 cannot be sent: "), "{}", refused.finding);
        assert_eq!(refused.remedy.as_deref(), Some("sudo iptables -I OUTPUT -p udp --dport 4791 -j ACCEPT"));
    }

    #[test]
    fn what_no_rule_refuses_is_a_matter_of_routes() {
        let lost = held_back(own("[fd00::1]:4791"), &ErrorKind::NetworkUnreachable.into());
        assert_eq!((lost.verdict, lost.remedy.as_deref()), (CheckVerdict::Missing, Some("ip route get fd00::1")));
    }

    #[test]
    fn a_datagram_that_does_not_arrive_is_let_in_at_its_port_and_family() {
        let root = tempfile::tempdir().expect("a directory");
        let remedy = |text| dropped(own(text), &Machine::at(root.path())).remedy;
        assert_eq!(remedy("10.0.0.1:20000").as_deref(), Some("sudo iptables -I INPUT -p udp --dport 20000 -j ACCEPT"));
        assert_eq!(remedy("[fd00::1]:4791").as_deref(), Some("sudo ip6tables -I INPUT -p udp --dport 4791 -j ACCEPT"));
    }

    #[test]
    fn a_loopback_interface_that_is_down_drops_them_too() {
        let root = tempfile::tempdir().expect("a directory");
        let loopback = root.path().join("sys/class/net/lo");
        fs::create_dir_all(&loopback).expect("a directory");
        let ask = |flags: &str| {
            fs::write(loopback.join("flags"), flags).expect("a file");
            dropped(own("10.0.0.1:4791"), &Machine::at(root.path()))
        };
        assert_eq!(ask("0x8\n").remedy.as_deref(), Some("sudo ip link set lo up"));
        let up = ask("0x9\n");
        assert_eq!((up.verdict, up.hint.as_deref()), (CheckVerdict::Missing, Some(ELSEWHERE)));
        assert!(up.remedy.expect("a command").contains("iptables"));
    }
}
