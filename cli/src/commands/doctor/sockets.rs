//! What a UDP socket needs: an address, packets of some length, and buffers that hold what comes between two polls.

use std::net::SocketAddr;

use roci_driver::link::Link;
use roci_driver::link::live::{AnyLink, LinkDevice};
use roci_driver::link::udp::{UdpAddress, UdpError, interface_of};
use roci_msgcore::ports::open_shared;
use roci_msgcore::{Config, WireupError};

use super::cards::{IF_CARRIED, USUAL_MTU, set_mtu};
use super::check::Check;
use super::firewall;
use super::machine::Machine;
use super::shell::ShellLine;

const NAME: &str = "UDP socket";

/// What one buffer should hold: a few bursts of 64 KiB from each of some peers, as the kernel counts them.
const BUFFER: u64 = 4 << 20;
/// Ethernet's header, which a packet does not count.
const ETHERNET: usize = 14;
/// Packets from which a path MTU of 4096 fits.
const JUMBO: usize = 4200;
/// What most NICs and switches carry that carry more than usual.
const LONG_MTU: usize = 9000;

pub(super) fn checks(machine: &Machine, device: &LinkDevice, config: &Config) -> Vec<Check> {
    let LinkDevice::Udp(address) = device else { return Vec::new() };
    let mut checks = socket(machine, device, *address, config);
    checks
        .extend(["rmem_max", "wmem_max"].map(|name| limit(name, &machine.read(format!("/proc/sys/net/core/{name}")))));
    checks
}

/// The socket that a worker would have: the very thing is tried, and whether a datagram for it arrives.
fn socket(machine: &Machine, device: &LinkDevice, address: UdpAddress, config: &Config) -> Vec<Check> {
    match open_shared(config, device, 1) {
        Ok(AnyLink::Udp(link)) => {
            let interface = interface_of(link.own().ip());
            let packet = link.max_frame() - ETHERNET;
            vec![
                opened(link.own(), packet, config.wanted_port_mtu(), interface.as_deref()),
                firewall::check(*link, machine),
            ]
        }
        Ok(AnyLink::Dpdk(_) | AnyLink::Closed(_)) => vec![Check::fact(NAME, "not asked for")],
        Err(error) => vec![unopened(&error, address)],
    }
}

/// Packets are as long as the interface's, unless shorter ones are wanted.
fn opened(own: SocketAddr, packet: usize, wanted: Option<u16>, interface: Option<&str>) -> Check {
    let finding = format!("{own}, packets of up to {packet} bytes");
    if packet >= JUMBO {
        return Check::ok(NAME, finding);
    }
    let finding = format!("{finding}: longer ones cost less for each byte");
    if wanted.is_some_and(|wanted| usize::from(wanted) <= packet) {
        let remedy = ShellLine::run(&["export", &format!("ROCI_PORT_MTU={LONG_MTU}")]);
        return Check::note(NAME, finding, remedy).hint("no packet is longer than its interface carries all the same");
    }
    match interface {
        Some(interface) => Check::note(NAME, finding, set_mtu(interface, LONG_MTU)).hint(IF_CARRIED),
        None => Check::fact(NAME, finding),
    }
}

/// What is done about a socket that cannot be had.
fn unopened(error: &WireupError, address: UdpAddress) -> Check {
    let missing = |remedy| Check::missing(NAME, error.to_string(), remedy);
    match error {
        WireupError::Udp(UdpError::Taken(..) | UdpError::Port(_)) => {
            let device = UdpAddress { port: None, ..address }.to_string();
            missing(ShellLine::run(&["roci", "doctor", "--device", &device])).hint("takes a port that is free")
        }
        WireupError::Udp(UdpError::Short(ip, _)) if let Some(interface) = interface_of(*ip) => {
            missing(set_mtu(&interface, USUAL_MTU))
        }
        WireupError::VlanOverSocket { .. } => missing(ShellLine::run(&["unset", "ROCI_VLAN"])),
        _ => missing(ShellLine::run(&["ip", "-brief", "address"]))
            .hint("the device is 'udp:' and one of those that it shows"),
    }
}

/// The longest buffer that the kernel gives to a process without privilege.
fn limit(name: &str, text: &str) -> Check {
    let shown = text.trim();
    match shown.parse::<u64>() {
        Ok(bytes) if bytes >= BUFFER => Check::ok(format!("net.core.{name}"), format!("{bytes} bytes")),
        Ok(bytes) => Check::note(
            format!("net.core.{name}"),
            format!("{bytes} bytes: what comes in bursts is lost, and sent again"),
            ShellLine::root(&["sysctl", "-w", &format!("net.core.{name}={BUFFER}")]),
        ),
        // A network namespace of one's own does not show it.
        Err(_) => Check::fact(format!("net.core.{name}"), "not shown in this network namespace: the host's holds"),
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::commands::doctor::check::CheckVerdict;

    #[test]
    fn a_short_buffer_is_a_note_with_the_command_that_raises_it() {
        let short = limit("rmem_max", "212992\n");
        assert_eq!(short.verdict, CheckVerdict::Note);
        assert_eq!(short.remedy.as_deref(), Some("sudo sysctl -w net.core.rmem_max=4194304"));
        assert_eq!(limit("rmem_max", "4194304\n").verdict, CheckVerdict::Ok);
        assert_eq!(limit("wmem_max", "").verdict, CheckVerdict::Note);
    }

    #[test]
    fn a_socket_is_tried_where_the_device_is_one() {
        let root = tempfile::tempdir().expect("a directory");
        let (machine, config) = (Machine::at(root.path()), Config::default());
        let of = |device: &str| checks(&machine, &device.parse().expect("a device"), &config);
        assert!(of("memif").is_empty());
        let [socket, firewall, ..] = &of("udp:127.0.0.1")[..] else { panic!("two checks at least") };
        assert_eq!((socket.verdict, firewall.verdict), (CheckVerdict::Ok, CheckVerdict::Ok), "{}", firewall.finding);
        let missing = &of("udp:192.0.2.77")[0];
        assert!(missing.verdict == CheckVerdict::Missing && missing.finding.contains("192.0.2.77"));
        assert_eq!(missing.remedy.as_deref(), Some("ip -brief address"));
    }

    #[test]
    fn short_packets_are_the_interfaces_or_the_knobs() {
        let own = "10.0.0.1:4791".parse().expect("an address");
        let ask = |packet, wanted| opened(own, packet, wanted, Some("eth1"));
        let short = ask(1500, None);
        assert_eq!(short.verdict, CheckVerdict::Note);
        assert_eq!(short.remedy.as_deref(), Some("sudo ip link set eth1 mtu 9000"));
        assert_eq!(short.hint.as_deref(), Some(IF_CARRIED));
        assert_eq!(ask(1500, Some(4200)).remedy, short.remedy);
        assert_eq!(ask(4199, Some(4199)).remedy.as_deref(), Some("export ROCI_PORT_MTU=9000"));
        assert_eq!(ask(4200, None).verdict, CheckVerdict::Ok);
        assert_eq!(opened(own, 1500, None, None).remedy, None);
    }

    #[test]
    fn what_keeps_a_socket_from_being_opened_is_mended_by_its_own_command() {
        let remedy = |error: WireupError| {
            let address = "10.0.0.1:4791".parse().expect("an address");
            unopened(&error, address).remedy.expect("a command").to_string()
        };
        let ip = Ipv4Addr::LOCALHOST.into();
        assert_eq!(remedy(UdpError::Short(ip, 500).into()), "sudo ip link set lo mtu 1500");
        let elsewhere = "roci doctor --device udp:10.0.0.1";
        assert_eq!([remedy(UdpError::Taken(ip, 4791).into()), remedy(UdpError::Port(7).into())], [elsewhere; 2]);
        let device = "udp".parse().expect("a device");
        assert_eq!(remedy(WireupError::VlanOverSocket { device, vlan: 7 }), "unset ROCI_VLAN");
    }
}
