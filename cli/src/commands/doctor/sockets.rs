//! What a UDP socket needs: an address, packets of some length, and buffers that hold what comes between two polls.

use std::net::UdpSocket;
use std::time::{Duration, Instant};

use roci_driver::link::live::{AnyLink, LinkDevice};
use roci_driver::link::udp::UdpLink;
use roci_driver::link::{Batch, Link};
use roci_msgcore::Config;
use roci_msgcore::ports::open_shared;

use super::check::Check;
use super::machine::Machine;

/// What one buffer should hold: a few bursts of 64 KiB from each of some peers, as the kernel counts them.
const BUFFER: u64 = 4 << 20;
/// How long a datagram may take on its way through this host.
const PASSAGE: Duration = Duration::from_millis(200);
/// Ethernet's header, which a packet does not count.
const ETHERNET: usize = 14;
/// Packets from which a path MTU of 4096 fits.
const JUMBO: usize = 4200;

pub(super) fn checks(machine: &Machine, device: &LinkDevice, config: &Config) -> Vec<Check> {
    let LinkDevice::Udp(_) = device else { return Vec::new() };
    let mut checks = socket(device, config);
    checks
        .extend(["rmem_max", "wmem_max"].map(|name| limit(name, &machine.read(format!("/proc/sys/net/core/{name}")))));
    checks
}

/// The socket that a worker would have: the very thing is tried, and whether a datagram for it arrives.
fn socket(device: &LinkDevice, config: &Config) -> Vec<Check> {
    let name = "UDP socket";
    match open_shared(config, device, 1) {
        Ok(AnyLink::Udp(link)) => {
            let (own, packet) = (link.own(), link.max_frame() - ETHERNET);
            let finding = format!("{own}, packets of up to {packet} bytes");
            let opened = if packet < JUMBO {
                let remedy = "ip link set dev IFACE mtu 9000, at both ends and on all switches between them";
                Check::note(name, format!("{finding}: longer ones cost less for each byte"), remedy)
            } else {
                Check::ok(name, finding)
            };
            vec![opened, passage(*link)]
        }
        Ok(AnyLink::Dpdk(_) | AnyLink::Closed(_)) => vec![Check::fact(name, "not asked for")],
        Err(error) => vec![Check::missing(
            name,
            error.to_string(),
            "roci doctor --device udp:ADDRESS, with one that 'ip address' shows",
        )],
    }
}

/// Whether the host's own rules let datagrams for the socket pass: what its firewall drops of its own, it drops of others. Those of
/// other hosts may be dropped all the same, by rules for them or on the way.
fn passage(mut link: UdpLink) -> Check {
    let (name, own) = ("firewall", link.own());
    let sent = UdpSocket::bind((own.ip(), 0)).and_then(|socket| socket.send_to(&[0; 60], own));
    if let Err(error) = sent {
        let remedy = format!("let UDP to port {} pass (nft list ruleset, iptables -L -n)", own.port());
        return Check::missing(name, format!("a datagram to {own} cannot be sent: {error}"), remedy);
    }
    let deadline = Instant::now() + PASSAGE;
    while link.stats().rx_frames == 0 && Instant::now() < deadline {
        link.receive(&mut Batch::new());
        std::thread::sleep(Duration::from_millis(1));
    }
    if link.stats().rx_frames > 0 {
        return Check::ok(name, format!("a datagram to {own} arrives"));
    }
    let remedy = format!("let UDP to port {} in (nft list ruleset, iptables -L -n)", own.port());
    Check::missing(name, format!("a datagram to {own} does not arrive"), remedy)
}

/// The longest buffer that the kernel gives to a process without privilege.
fn limit(name: &str, text: &str) -> Check {
    let shown = text.trim();
    match shown.parse::<u64>() {
        Ok(bytes) if bytes >= BUFFER => Check::ok(format!("net.core.{name}"), format!("{bytes} bytes")),
        Ok(bytes) => Check::note(
            format!("net.core.{name}"),
            format!("{bytes} bytes: what comes in bursts is lost, and sent again"),
            format!("sudo sysctl -w net.core.{name}={BUFFER}"),
        ),
        // A network namespace of one's own does not show it.
        Err(_) => Check::fact(format!("net.core.{name}"), "not shown in this network namespace: the host's holds"),
    }
}

#[cfg(test)]
mod tests {
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
    }
}
