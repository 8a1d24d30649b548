//! `roci doctor`: what this machine lacks, and the command that mends it.
//!
//! A row is *missing* where the device that was asked for would not run for the want of it, and a *note* where
//! something else would, or would run better. The status is 0 unless something is missing. What makes no difference to the
//! device is left out, unless all is asked for.

mod cards;
mod check;
mod firewall;
mod iommu;
mod limits;
mod machine;
mod memory;
mod processor;
mod shell;
mod sockets;

use std::process::ExitCode;

use roci_driver::link::dpdk::Device;
use roci_driver::link::live::LinkDevice;
use roci_driver::{ArenaError, PageChoice};
use roci_msgcore::Config;
use serde_json::{Value, json};

use crate::commands::info::arena::ArenaInfo;
use crate::failure::Failure;
use crate::options::DoctorOptions;
use crate::output;
use check::{Check, CheckVerdict};
use machine::Machine;
use shell::ShellLine;

/// The knob takes no less.
const LEAST_ARENA_MIB: usize = 16;

pub(crate) fn run(options: &DoctorOptions) -> Result<ExitCode, Failure> {
    let config = options.port.config()?;
    let device = config.device_of(0)?;
    let machine = Machine::default();
    let checks: Vec<_> = std::iter::once(arena(&ArenaInfo::of(&config).pages, &config))
        .chain(memory::checks(&machine, &device))
        .chain(iommu::checks(&machine, &device))
        .chain(cards::checks(&machine, &device, config.wanted_port_mtu()))
        .chain(limits::checks(&machine, &device, config.arena_size))
        .chain(sockets::checks(&machine, &device, &config))
        .chain(processor::checks(&machine))
        .filter(|check| options.all || check.verdict == CheckVerdict::Missing || concerns(&device, &check.name))
        .collect();
    if options.json {
        output::line(as_json(&device, &checks))?;
    } else {
        show(&device, &checks)?;
    }
    let is_missing = checks.iter().any(|check| check.verdict == CheckVerdict::Missing);
    Ok(if is_missing { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Whether a finding makes a difference to a device: a NIC's driver is nothing to a socket.
fn concerns(device: &LinkDevice, check: &str) -> bool {
    let is_nic = matches!(device.dpdk(), Some(Device::Pci(_) | Device::Eal(_)));
    let is_interface = matches!(device.dpdk(), Some(Device::AfPacket(_) | Device::Eal(_)));
    match check {
        "IOMMU" | "vfio-pci" | "hugetlbfs" | "locked memory" | "isolated processors" => is_nic,
        "packet sockets" => is_interface,
        check if check.starts_with("NIC") => is_nic,
        _ => true,
    }
}

/// The memory that a worker would have: the very thing was tried.
fn arena(pages: &Result<(String, String), ArenaError>, config: &Config) -> Check {
    let error = match pages {
        Ok((pages, placement)) => return Check::ok("arena", format!("{pages}, {placement}")),
        Err(error) => error.to_string(),
    };
    if config.arena_pages != PageChoice::Auto {
        let remedy = ShellLine::run(&["export", "ROCI_ARENA_PAGES=auto"]);
        return Check::missing("arena", error, remedy).hint("a smaller ROCI_ARENA_SIZE may do, too");
    }
    let half = ((config.arena_size / 2) >> 20).max(LEAST_ARENA_MIB);
    let remedy = ShellLine::run(&["export", &format!("ROCI_ARENA_SIZE={half}MiB")]);
    Check::missing("arena", error, remedy).hint("half of what was asked for")
}

fn as_json(device: &LinkDevice, checks: &[Check]) -> Value {
    let row = |check: &Check| {
        json!({
            "check": check.name,
            "verdict": check.verdict.to_string(),
            "finding": check.finding,
            "remedy": check.remedy.as_deref(),
            "hint": check.hint,
        })
    };
    let is_missing = |check: &Check| check.verdict == CheckVerdict::Missing;
    json!({
        "device": device.to_string(),
        "would_run": !checks.iter().any(is_missing),
        "checks": checks.iter().map(row).collect::<Vec<_>>(),
    })
}

/// A row a line, and its remedy and hint on lines of their own.
fn show(device: &LinkDevice, checks: &[Check]) -> Result<(), Failure> {
    let width = checks.iter().map(|check| check.name.len()).max().unwrap_or(0);
    for check in checks {
        let Check { name, verdict, finding, .. } = check;
        output::line(format!("{:<8} {name:<width$}  {finding}", verdict.to_string()))?;
        for advice in check.advice() {
            output::line(format!("{:<8} {:<width$}  {advice}", "", ""))?;
        }
    }
    let missing = checks.iter().filter(|check| check.verdict == CheckVerdict::Missing).count();
    let verdict = if missing == 0 { "would run".to_owned() } else { format!("lacks {missing} of the above") };
    Ok(output::line(format!("device {device}: {verdict}"))?)
}

#[cfg(test)]
mod tests {
    use roci_driver::HugePage;

    use super::*;

    fn no_memory() -> Result<(String, String), ArenaError> {
        Err(ArenaError::Map { bytes: 1 << 30, passed_over: Vec::new() })
    }

    #[test]
    fn an_arena_of_pages_that_were_insisted_on_may_have_others() {
        let mut config = Config::default();
        config.arena_pages = PageChoice::Huge(HugePage::Size1G);
        let check = arena(&no_memory(), &config);
        assert_eq!(check.verdict, CheckVerdict::Missing);
        assert_eq!(check.remedy.as_deref(), Some("export ROCI_ARENA_PAGES=auto"));
    }

    #[test]
    fn an_arena_that_no_pages_are_enough_for_is_halved_down_to_the_least() {
        let remedy = |size| {
            let mut config = Config::default();
            config.arena_size = size;
            arena(&no_memory(), &config).remedy.expect("a command").to_string()
        };
        assert_eq!(remedy(1 << 30), "export ROCI_ARENA_SIZE=512MiB");
        assert_eq!(remedy(20 << 20), "export ROCI_ARENA_SIZE=16MiB");
    }

    #[test]
    fn a_command_is_whole_and_a_hint_is_a_comment() {
        let line = ShellLine::run(&["ip", "-brief", "link"]);
        let check = Check::missing("x", "is wrong", line).hint("shows those that there are");
        assert_eq!(check.advice(), ["$ ip -brief link", "# shows those that there are"]);
        assert_eq!(Check::fact("x", "is so").hint("ask root").advice(), ["# ask root"]);
        let said = as_json(&"udp".parse().expect("a device"), &[check]);
        let row = &said["checks"][0];
        assert_eq!((&row["remedy"], &row["hint"]), (&"ip -brief link".into(), &"shows those that there are".into()));
    }
}
