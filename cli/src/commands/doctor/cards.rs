//! NICs: which there are, who drives them, and which must not be taken away.

use roci_driver::link::dpdk::Device;
use roci_driver::link::live::LinkDevice;
use roci_protocol::Mtu;
use roci_protocol::wire::MAX_OVERHEAD;

use super::check::Check;
use super::machine::Machine;
use super::shell::ShellLine;

/// Drivers that hand a device to userspace.
const USERSPACE: [&str; 3] = ["vfio-pci", "uio_pci_generic", "igb_uio"];
/// The longest packet that is sent over an interface of the kernel's, and the header before it.
pub(super) const USUAL_MTU: usize = 1500;
const ETHERNET: usize = 14;
/// A longer packet that something on the way does not carry is lost, with no word.
pub(super) const IF_CARRIED: &str = "only where the other end, and each switch on the way, carry as much";
/// More NICs than this are counted, and not listed.
const LISTED: usize = 16;

/// A NIC: an interface of the kernel's, a PCI device, or both.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Card {
    interface: Option<String>,
    address: Option<String>,
    driver: Option<String>,
    is_up: bool,
    has_default_route: bool,
}

pub(super) fn checks(machine: &Machine, device: &LinkDevice, wanted_mtu: Option<u16>) -> Vec<Check> {
    let cards = cards(machine);
    let mut checks: Vec<_> = cards.iter().take(LISTED).map(fact).collect();
    if cards.len() > LISTED {
        checks.push(Check::fact("NICs", format!("{} more", cards.len() - LISTED)));
    }
    match device.dpdk() {
        Some(Device::Pci(address)) => checks.push(bound(&address.to_string(), &cards)),
        Some(Device::AfPacket(interface)) => checks.push(interface_of(interface, wanted_mtu, machine)),
        _ if cards.is_empty() => checks.push(Check::fact("NICs", "none that are devices")),
        _ => {}
    }
    checks
}

fn cards(machine: &Machine) -> Vec<Card> {
    let routes = default_routes(&machine.read("/proc/net/route"));
    let interfaces = machine.names("/sys/class/net").into_iter().filter_map(|name| {
        let device = format!("/sys/class/net/{name}/device");
        // What is no device (lo, bridges, veth) shows none.
        machine.exists(&device).then(|| Card {
            address: pci_address(machine, &device),
            driver: machine.target(format!("{device}/driver")),
            is_up: is_up(&machine.read(format!("/sys/class/net/{name}/flags"))),
            has_default_route: routes.contains(&name),
            interface: Some(name),
        })
    });
    let mut cards: Vec<_> = interfaces.collect();
    for address in machine.names("/sys/bus/pci/devices") {
        let device = format!("/sys/bus/pci/devices/{address}");
        let is_known = cards.iter().any(|card| card.address.as_ref() == Some(&address));
        // Class 02 is a network controller.
        if !is_known && machine.read(format!("{device}/class")).starts_with("0x02") {
            let driver = machine.target(format!("{device}/driver"));
            cards.push(Card { address: Some(address), driver, ..Card::default() });
        }
    }
    cards
}

/// A virtio NIC is a device on a PCI device.
fn pci_address(machine: &Machine, device: &str) -> Option<String> {
    let is_address = |name: &String| name.matches(':').count() == 2 && name.contains('.');
    machine.target(device).filter(is_address).or_else(|| {
        let path = std::fs::canonicalize(machine.path(device)).ok()?;
        let name = path.parent()?.file_name()?.to_string_lossy().into_owned();
        is_address(&name).then_some(name)
    })
}

/// The interfaces whose route leads everywhere.
fn default_routes(table: &str) -> Vec<String> {
    let row = |line: &str| {
        let mut words = line.split_whitespace();
        let (interface, destination, mask) = (words.next()?, words.next()?, words.nth(5)?);
        (destination == "00000000" && mask == "00000000").then(|| interface.to_owned())
    };
    table.lines().skip(1).filter_map(row).collect()
}

/// The kernel shows flags as a hexadecimal number, whose lowest bit says up.
pub(super) fn is_up(flags: &str) -> bool {
    flags
        .trim()
        .strip_prefix("0x")
        .and_then(|digits| u32::from_str_radix(digits, 16).ok())
        .is_some_and(|flags| flags & 1 != 0)
}

fn fact(card: &Card) -> Check {
    let name =
        card.interface.as_ref().or(card.address.as_ref()).map_or_else(|| "NIC".into(), |name| format!("NIC {name}"));
    let place = card.address.as_deref().map_or("on no PCI bus", |address| address);
    let driver = card.driver.as_deref().unwrap_or("no driver");
    let mut finding = format!("{place}, {driver}");
    if USERSPACE.contains(&driver) {
        finding += ": bound";
    } else if card.interface.is_some() {
        finding += if card.is_up { ", up" } else { ", down" };
    }
    if card.has_default_route {
        finding += "; carries the default route: do not bind it";
    }
    Check::fact(name, finding)
}

/// Whether a NIC of this address can be driven from here.
fn bound(address: &str, cards: &[Card]) -> Check {
    let name = format!("pci:{address}");
    let is_it = |card: &&Card| card.address.as_deref() == Some(address);
    let Some(card) = cards.iter().find(is_it) else {
        return Check::missing(
            name,
            "there is no NIC at this address",
            ShellLine::run(&["roci", "bind-nic", "status"]),
        )
        .hint("the device is 'pci:' and one of those that it shows");
    };
    let bind = ShellLine::root(&["roci", "bind-nic", "bind", address]);
    match card.driver.as_deref() {
        Some(driver) if USERSPACE.contains(&driver) => Check::ok(name, format!("bound to {driver}")),
        _ if card.has_default_route => instead(name, cards),
        Some(driver) => Check::missing(name, format!("the kernel's {driver} drives it"), bind),
        None => Check::missing(name, "no driver has it", bind),
    }
}

/// Of the NIC that leads to all others: it stays where it is, and something else is used.
fn instead(name: String, cards: &[Card]) -> Check {
    let finding = "it carries the default route: binding it cuts this machine off";
    let doctor = |device: &str| ShellLine::run(&["roci", "doctor", "--device", device]);
    match second(cards) {
        Some(address) => Check::missing(name, finding, doctor(&format!("pci:{address}")))
            .hint("a second NIC of this machine; or use this one through its kernel driver, as udp"),
        None => Check::missing(name, finding, doctor("udp"))
            .hint("use it through its kernel driver: there is no second NIC to bind"),
    }
}

/// A NIC that may be bound, rather one that is, or that is not in use.
fn second(cards: &[Card]) -> Option<&str> {
    let is_bound = |card: &Card| card.driver.as_deref().is_some_and(|driver| USERSPACE.contains(&driver));
    let may_be = cards.iter().filter(|card| !card.has_default_route && card.address.is_some());
    may_be.min_by_key(|card| (!is_bound(card), card.is_up))?.address.as_deref()
}

fn interface_of(interface: &str, wanted: Option<u16>, machine: &Machine) -> Check {
    let name = format!("af_packet:{interface}");
    // A rank's number stands in the name of each rank's own.
    let directory = format!("/sys/class/net/{interface}");
    if interface.is_empty() || interface.contains('/') || !machine.exists(&directory) {
        return Check::missing(name, "there is no such interface", ShellLine::run(&["ip", "-brief", "link"]))
            .hint("the device is 'af_packet:' and one of those that it shows");
    }
    if is_up(&machine.read(format!("{directory}/flags"))) {
        return carrying(name, interface, wanted, &machine.read(format!("{directory}/mtu")));
    }
    Check::missing(name, "it is down", ShellLine::root(&["ip", "link", "set", interface, "up"]))
}

/// What an interface that is up carries: frames follow its MTU, and the path MTU follows them; those that are wanted must fit.
fn carrying(name: String, interface: &str, wanted: Option<u16>, mtu: &str) -> Check {
    let Ok(mtu) = mtu.trim().parse::<usize>() else { return Check::ok(name, "up") };
    if let Some(wanted) = wanted.filter(|&wanted| usize::from(wanted) > mtu) {
        let finding = format!("it carries packets of {mtu} bytes at most, and {wanted} are wanted (ROCI_PORT_MTU)");
        return Check::missing(name, finding, set_mtu(interface, usize::from(wanted))).hint(IF_CARRIED);
    }
    let remedy = set_mtu(interface, USUAL_MTU);
    match path_mtu(mtu) {
        None => Check::missing(name, format!("packets of {mtu} bytes are too short for any path MTU"), remedy),
        Some(ours) if mtu < USUAL_MTU && ours < Mtu::Mtu1024 => {
            Check::note(name, format!("up, but its packets of {mtu} bytes make the path MTU {}", ours.bytes()), remedy)
        }
        Some(_) => Check::ok(name, "up"),
    }
}

pub(super) fn set_mtu(interface: &str, mtu: usize) -> ShellLine {
    ShellLine::root(&["ip", "link", "set", interface, "mtu", &mtu.to_string()])
}

/// The largest path MTU whose packets have at most so many bytes, Ethernet aside.
fn path_mtu(packet: usize) -> Option<Mtu> {
    let fits = |mtu: &Mtu| mtu.bytes() + MAX_OVERHEAD <= packet.saturating_add(ETHERNET);
    Mtu::ALL.into_iter().rev().find(fits)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use proptest::prelude::*;
    use tempfile::TempDir;

    use super::super::check::CheckVerdict;
    use super::*;

    const ROUTES: &str = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\n\
                          eth0\t00000000\t0100A8C0\t0003\t0\t0\t0\t00000000\t0\n\
                          eth1\t0000A8C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\n";

    /// eth0 of virtio with the default route, eth1 of e1000, and a card bound to vfio.
    fn machine() -> TempDir {
        let root = TempDir::new().expect("a directory");
        let sys = root.path().join("sys");
        let (pci, net) = (sys.join("bus/pci/devices"), sys.join("class/net"));
        let device = |address: &str, driver: &str| {
            let directory = pci.join(address);
            fs::create_dir_all(directory.join("virtio0")).expect("a directory");
            fs::write(directory.join("class"), "0x020000\n").expect("a file");
            symlink(format!("/sys/bus/pci/drivers/{driver}"), directory.join("driver")).expect("a link");
            directory
        };
        let virtio = device("0000:00:03.0", "virtio-pci").join("virtio0");
        symlink("/sys/bus/virtio/drivers/virtio_net", virtio.join("driver")).expect("a link");
        let e1000 = device("0000:00:04.0", "e1000");
        device("0000:00:05.0", "vfio-pci");
        for (name, device, flags) in [("eth0", virtio, "0x1003\n"), ("eth1", e1000, "0x1002\n")] {
            fs::create_dir_all(net.join(name)).expect("a directory");
            symlink(device, net.join(name).join("device")).expect("a link");
            fs::write(net.join(name).join("flags"), flags).expect("a file");
        }
        fs::create_dir_all(net.join("lo")).expect("a directory");
        fs::create_dir_all(root.path().join("proc/net")).expect("a directory");
        fs::write(root.path().join("proc/net/route"), ROUTES).expect("a file");
        root
    }

    #[test]
    fn every_nic_is_listed_with_its_driver() {
        let root = machine();
        let findings: Vec<_> = checks(&Machine::at(root.path()), &Device::Memif.into(), None)
            .into_iter()
            .map(|check| (check.name, check.finding))
            .collect();
        let expected = [
            ("NIC eth0", "0000:00:03.0, virtio_net, up; carries the default route: do not bind it"),
            ("NIC eth1", "0000:00:04.0, e1000, down"),
            ("NIC 0000:00:05.0", "0000:00:05.0, vfio-pci: bound"),
        ];
        assert_eq!(findings, expected.map(|(name, finding)| (name.to_owned(), finding.to_owned())));
    }

    #[test]
    fn a_nic_that_is_asked_for_is_bound_or_the_check_shows_the_command_that_binds_it() {
        let root = machine();
        let ask = |device: &str| {
            let device = device.parse().expect("a device");
            checks(&Machine::at(root.path()), &device, None).pop().expect("the device's row")
        };
        assert_eq!(ask("pci:0000:00:05.0").verdict, CheckVerdict::Ok);
        assert_eq!(ask("pci:00:05.0").verdict, CheckVerdict::Ok);
        assert_eq!(ask("pci:0000:00:04.0").remedy.as_deref(), Some("sudo roci bind-nic bind 0000:00:04.0"));
        let absent = ask("pci:0000:00:09.0");
        assert_eq!(
            (absent.verdict, absent.finding.as_str()),
            (CheckVerdict::Missing, "there is no NIC at this address")
        );
        assert_eq!(absent.remedy.as_deref(), Some("roci bind-nic status"));
        assert_eq!(ask("af_packet:eth0").verdict, CheckVerdict::Ok);
        assert_eq!(ask("af_packet:eth1").remedy.as_deref(), Some("sudo ip link set eth1 up"));
        assert_eq!(ask("af_packet:../net/eth0").verdict, CheckVerdict::Missing);
    }

    /// What is said of eth0, which has the default route.
    fn only_way_out(root: &TempDir) -> Check {
        let device = "pci:0000:00:03.0".parse().expect("a device");
        checks(&Machine::at(root.path()), &device, None).pop().expect("the device's row")
    }

    #[test]
    fn the_nic_with_the_default_route_is_left_where_it_is_and_another_is_named() {
        let root = machine();
        let devices = root.path().join("sys/bus/pci/devices");
        let bound = only_way_out(&root);
        assert_eq!(bound.verdict, CheckVerdict::Missing);
        assert_eq!(bound.finding, "it carries the default route: binding it cuts this machine off");
        assert_eq!(bound.remedy.as_deref(), Some("roci doctor --device pci:0000:00:05.0"));
        fs::remove_dir_all(devices.join("0000:00:05.0")).expect("it was there");
        assert_eq!(only_way_out(&root).remedy.as_deref(), Some("roci doctor --device pci:0000:00:04.0"));
    }

    #[test]
    fn the_only_nic_is_used_through_the_kernel() {
        let root = machine();
        for gone in ["bus/pci/devices/0000:00:05.0", "bus/pci/devices/0000:00:04.0", "class/net/eth1"] {
            fs::remove_dir_all(root.path().join("sys").join(gone)).expect("it was there");
        }
        let only = only_way_out(&root);
        assert_eq!((only.verdict, only.remedy.as_deref()), (CheckVerdict::Missing, Some("roci doctor --device udp")));
        assert!(only.hint.expect("why").contains("no second NIC"));
    }

    #[test]
    fn a_nic_that_no_driver_has_is_bound_as_any_other() {
        let root = machine();
        fs::remove_file(root.path().join("sys/bus/pci/devices/0000:00:04.0/driver")).expect("it was there");
        let device = "pci:0000:00:04.0".parse().expect("a device");
        let alone = checks(&Machine::at(root.path()), &device, None).pop().expect("the device's row");
        assert_eq!((alone.verdict, alone.finding.as_str()), (CheckVerdict::Missing, "no driver has it"));
        assert_eq!(alone.remedy.as_deref(), Some("sudo roci bind-nic bind 0000:00:04.0"));
    }

    #[test]
    fn an_interface_whose_packets_are_short_is_noticed_with_the_command_that_mends_it() {
        let root = machine();
        let ask = |mtu: &str| {
            fs::write(root.path().join("sys/class/net/eth0/mtu"), mtu).expect("a file");
            interface_of("eth0", None, &Machine::at(root.path()))
        };
        for mtu in ["1500\n", "9000\n", "65536\n", "1127\n", "nonsense"] {
            assert_eq!(ask(mtu).verdict, CheckVerdict::Ok, "{mtu}");
        }
        let short = ask("1126\n");
        assert_eq!(short.verdict, CheckVerdict::Note);
        assert_eq!(short.finding, "up, but its packets of 1126 bytes make the path MTU 512");
        assert_eq!(short.remedy.as_deref(), Some("sudo ip link set eth0 mtu 1500"));
        assert_eq!((ask("358\n").verdict, ask("359\n").verdict), (CheckVerdict::Missing, CheckVerdict::Note));
        assert_eq!(ask("358\n").finding, "packets of 358 bytes are too short for any path MTU");
        assert_eq!(ask("358\n").remedy.as_deref(), Some("sudo ip link set eth0 mtu 1500"));
        ask("9000\n");
        let ask_for = |mtu| interface_of("eth0", Some(mtu), &Machine::at(root.path()));
        assert_eq!(ask_for(9000).verdict, CheckVerdict::Ok);
        let beyond = ask_for(9001);
        assert_eq!(beyond.verdict, CheckVerdict::Missing);
        assert_eq!(beyond.finding, "it carries packets of 9000 bytes at most, and 9001 are wanted (ROCI_PORT_MTU)");
        assert_eq!(beyond.remedy.as_deref(), Some("sudo ip link set eth0 mtu 9001"));
        assert_eq!(beyond.hint.as_deref(), Some(IF_CARRIED));
    }

    proptest! {
        #[test]
        fn no_text_takes_the_checks_down(text in "(0x|00000000|\t|\n|[0-9a-f]{1,12}|\\PC){0,40}") {
            let _ = (default_routes(&text), is_up(&text), bound(&text, &[Card::default()]));
            let _ = carrying(text.clone(), &text, Some(1), &text);
        }
    }
}
