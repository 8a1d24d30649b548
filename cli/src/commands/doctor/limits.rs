//! What this user may do: memory that is locked, descriptors, packet sockets, faults in userspace.

use roci_driver::link::dpdk::Device;
use roci_driver::link::live::LinkDevice;
use roci_driver::{RegistrationConfig, RegistrationInfo};
use rustix::process::{Resource, Rlimit, getrlimit};

use super::check::Check;
use super::machine::Machine;
use super::shell::{ShellLine, THIS_SHELL};

/// Descriptors that a rank needs for ports to seven others, with some to spare.
const DESCRIPTORS: u64 = 256;
/// Numbers of capabilities (`linux/capability.h`).
const NET_ADMIN: u32 = 12;
const NET_RAW: u32 = 13;
const IPC_LOCK: u32 = 14;

pub(super) fn checks(machine: &Machine, device: &LinkDevice, arena: usize) -> Vec<Check> {
    let rights = Rights::parse(&machine.read("/proc/self/status"));
    let probed = RegistrationConfig::default().probe();
    let [sysctl, release] =
        ["vm/unprivileged_userfaultfd", "kernel/osrelease"].map(|name| machine.read(format!("/proc/sys/{name}")));
    vec![
        memlock(matches!(device.dpdk(), Some(Device::Pci(_))), getrlimit(Resource::Memlock), &rights, arena as u64),
        descriptors(getrlimit(Resource::Nofile)),
        packet_sockets(matches!(device.dpdk(), Some(Device::AfPacket(_))), &rights),
        userfaultfd(&probed, &sysctl, &release),
    ]
}

/// What a process may do beside what everybody may.
struct Rights {
    capabilities: u64,
}

impl Rights {
    /// Reads a process's status; where it says nothing, there are none.
    fn parse(status: &str) -> Self {
        let line = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
        let capabilities = u64::from_str_radix(line("CapEff:").trim(), 16).unwrap_or(0);
        Self { capabilities }
    }

    fn has(&self, capability: u32) -> bool {
        self.capabilities >> capability & 1 == 1
    }
}

/// vfio counts what it maps for a NIC; other devices map nothing.
fn memlock(is_needed: bool, limit: Rlimit, rights: &Rights, arena: u64) -> Check {
    let name = "locked memory";
    let shown = limit.current.map_or_else(|| "unlimited".into(), crate::output::bytes);
    if rights.has(IPC_LOCK) {
        return Check::ok(name, format!("{shown}, and CAP_IPC_LOCK, for which vfio does not count"));
    }
    if limit.current.is_none_or(|bytes| bytes > arena) {
        return Check::ok(name, shown);
    }
    let finding = format!("{shown}: less than an arena of {}, which a bound NIC maps", crate::output::bytes(arena));
    let remedy = ShellLine::fixed("echo \"$USER - memlock unlimited\" | sudo tee /etc/security/limits.d/60-roci.conf");
    Check::lack(is_needed, name, finding, remedy).hint("then log in again")
}

fn descriptors(limit: Rlimit) -> Check {
    let name = "descriptors";
    match limit.current {
        Some(count) if count < DESCRIPTORS => {
            Check::note(name, format!("{count}: too few for many ranks"), more_descriptors(limit.maximum))
                .hint("for this shell, and what it starts")
        }
        Some(count) => Check::ok(name, count.to_string()),
        None => Check::ok(name, "unlimited"),
    }
}

/// A limit is raised to the hard one by its user, and beyond it by root.
fn more_descriptors(hard: Option<u64>) -> ShellLine {
    if hard.is_none_or(|hard| hard >= DESCRIPTORS) {
        return ShellLine::run(&["ulimit", "-n", &DESCRIPTORS.to_string()]);
    }
    ShellLine::root(&["prlimit", "--pid", THIS_SHELL, &format!("--nofile={DESCRIPTORS}:{DESCRIPTORS}")])
}

fn packet_sockets(is_needed: bool, rights: &Rights) -> Check {
    let name = "packet sockets";
    let lacking = [(NET_RAW, "CAP_NET_RAW"), (NET_ADMIN, "CAP_NET_ADMIN")].into_iter();
    let lacking: Vec<_> = lacking.filter(|(number, _)| !rights.has(*number)).map(|(_, name)| name).collect();
    if lacking.is_empty() {
        return Check::ok(name, "allowed");
    }
    let remedy = ShellLine::fixed("sudo setcap cap_net_raw,cap_net_admin+ep \"$(readlink -f \"$(command -v roci)\")\"");
    Check::lack(is_needed, name, format!("af_packet devices need {}", lacking.join(" and ")), remedy).hint(
        "of any other program that opens such a device, too; 'unshare -Urn' gives both, with interfaces of its own",
    )
}

/// Checks userfaultfd: without it the driver cannot keep registrations of the application's own memory for the next use.
/// `probed` has the result of an attempt. Neither the user's id nor the sysctl is enough to know: seccomp may forbid it, and
/// since Linux 5.11 every user may do what is needed here.
fn userfaultfd(probed: &RegistrationInfo, sysctl: &str, release: &str) -> Check {
    let name = "userfaultfd";
    let Some(reason) = &probed.reason else { return Check::ok(name, "allowed") };
    let finding = format!("registrations of an application's own memory are not kept: {reason}");
    match sysctl.trim() {
        // The kernel has this file where it has the call.
        "" => Check::fact(name, format!("this kernel has none: {finding}")),
        "0" if is_before(release, (5, 11)) => {
            Check::note(name, finding, ShellLine::root(&["sysctl", "-w", "vm.unprivileged_userfaultfd=1"]))
        }
        // No command within a container changes what it may do.
        _ => Check::fact(name, finding).hint(
            "start the container with '--security-opt seccomp=unconfined', or with a profile that allows userfaultfd",
        ),
    }
}

/// Whether a kernel is older; one that does not say is not.
fn is_before(release: &str, version: (u32, u32)) -> bool {
    let mut numbers = release.trim().split(['.', '-', '+']).map_while(|part| part.parse().ok());
    numbers.next().zip(numbers.next()).is_some_and(|its| its < version)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::check::CheckVerdict;
    use super::*;

    const ROOT: &str = "Name:\troci\nCapEff:\t000001ffffffffff\n";
    const USER: &str = "Name:\troci\nCapEff:\t0000000000000000\n";

    fn limit(bytes: u64) -> Rlimit {
        Rlimit { current: Some(bytes), maximum: Some(bytes) }
    }

    #[test]
    fn rights_are_read_and_nonsense_gives_none() {
        assert!(Rights::parse(ROOT).has(NET_RAW) && !Rights::parse(USER).has(NET_RAW));
        assert!(!Rights::parse("CapEff:\tzz\n").has(NET_RAW));
    }

    #[test]
    fn locked_memory_matters_to_bound_nics_only() {
        let (user, root) = (Rights::parse(USER), Rights::parse(ROOT));
        assert_eq!(memlock(true, limit(8 << 20), &user, 1 << 30).verdict, CheckVerdict::Missing);
        assert_eq!(memlock(false, limit(8 << 20), &user, 1 << 30).verdict, CheckVerdict::Note);
        assert_eq!(memlock(true, limit(2 << 30), &user, 1 << 30).verdict, CheckVerdict::Ok);
        assert_eq!(memlock(true, Rlimit { current: None, maximum: None }, &user, u64::MAX).verdict, CheckVerdict::Ok);
        assert_eq!(memlock(true, limit(0), &root, 1 << 30).verdict, CheckVerdict::Ok);
    }

    #[test]
    fn each_limit_that_is_too_low_has_the_command_that_raises_it() {
        let user = Rights::parse(USER);
        let locked = memlock(true, limit(8 << 20), &user, 1 << 30);
        let line = "echo \"$USER - memlock unlimited\" | sudo tee /etc/security/limits.d/60-roci.conf";
        assert_eq!((locked.remedy.as_deref(), locked.hint.as_deref()), (Some(line), Some("then log in again")));
        let sockets = packet_sockets(true, &user);
        let line = "sudo setcap cap_net_raw,cap_net_admin+ep \"$(readlink -f \"$(command -v roci)\")\"";
        assert_eq!(sockets.remedy.as_deref(), Some(line));
        assert!(sockets.hint.expect("the way without root").contains("'unshare -Urn'"));
    }

    #[test]
    fn descriptors_beyond_the_hard_limit_are_roots_to_give() {
        let remedy = |current, maximum| descriptors(Rlimit { current: Some(current), maximum }).remedy;
        for hard in [Some(256), None] {
            assert_eq!(remedy(255, hard).as_deref(), Some("ulimit -n 256"));
        }
        assert_eq!(remedy(64, Some(255)).as_deref(), Some("sudo prlimit --pid $$ --nofile=256:256"));
        assert_eq!(remedy(256, Some(256)), None);
    }

    #[test]
    fn packet_sockets_name_the_right_that_lacks() {
        assert_eq!(packet_sockets(true, &Rights::parse(ROOT)).verdict, CheckVerdict::Ok);
        let half = Rights::parse("CapEff:\t0000000000002000\n");
        let check = packet_sockets(true, &half);
        assert_eq!(
            (check.verdict, check.finding.as_str()),
            (CheckVerdict::Missing, "af_packet devices need CAP_NET_ADMIN")
        );
        assert_eq!(packet_sockets(false, &half).verdict, CheckVerdict::Note);
    }

    #[test]
    fn userfaultfd_is_what_was_found_by_trying() {
        let probed = |reason: Option<&str>| RegistrationInfo {
            monitor: if reason.is_none() { "userfaultfd" } else { "none" },
            reason: reason.map(str::to_owned),
            last_failure: None,
        };
        for sysctl in ["0\n", "1\n", ""] {
            assert_eq!(userfaultfd(&probed(None), sysctl, "6.1.0-13-amd64\n").verdict, CheckVerdict::Ok);
        }
        let denied = probed(Some("Operation not permitted"));
        let ask = |sysctl, release| userfaultfd(&denied, sysctl, release);
        for (sysctl, release) in [("0\n", "5.11.0\n"), ("0\n", "6.1\n"), ("1\n", "5.4.0\n"), ("0\n", "?")] {
            let Check { verdict, remedy, hint, .. } = ask(sysctl, release);
            assert_eq!((verdict, remedy), (CheckVerdict::Note, None), "{sysctl} {release}");
            assert!(hint.is_some_and(|hint| hint.contains("--security-opt seccomp=unconfined")), "{sysctl} {release}");
        }
        let old = ask("0\n", "5.10.0-26-amd64\n");
        assert_eq!(old.remedy.as_deref(), Some("sudo sysctl -w vm.unprivileged_userfaultfd=1"));
        assert_eq!((ask("", "6.1.0\n").remedy, ask("", "6.1.0\n").hint), (None, None));
        assert!(userfaultfd(&denied, "0", "6.1").finding.contains("Operation not permitted"));
    }

    proptest! {
        #[test]
        fn no_text_takes_the_checks_down(text in "(CapEff:|\t|\n|[0-9a-f]{1,20}|\\PC){0,20}", bytes: u64) {
            let rights = Rights::parse(&text);
            let _ = (memlock(true, limit(bytes), &rights, 1), descriptors(limit(bytes)), packet_sockets(true, &rights));
            let _ = is_before(&text, (5, 11));
        }
    }
}
