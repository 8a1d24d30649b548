//! `roci doctor`: what this machine lacks, and the command that mends it.
//!
//! A row is *missing* where the device that was asked for would not run for the want of it, and a *note* where
//! something else would, or would run better. The status is 0 unless something is missing. What makes no difference to the
//! device is left out, unless all is asked for.

mod cards;
mod check;
mod iommu;
mod limits;
mod machine;
mod memory;
mod processor;
mod sockets;

use std::process::ExitCode;

use roci_driver::link::dpdk::Device;
use roci_driver::link::live::LinkDevice;
use serde_json::{Value, json};

use crate::commands::info::arena::ArenaInfo;
use crate::failure::Failure;
use crate::options::DoctorOptions;
use crate::output;
use check::{Check, CheckVerdict};
use machine::Machine;

pub(crate) fn run(options: &DoctorOptions) -> Result<ExitCode, Failure> {
    let config = options.port.config()?;
    let device = config.device_of(0)?;
    let machine = Machine::default();
    let checks: Vec<_> = std::iter::once(arena(&ArenaInfo::of(&config)))
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
fn arena(memory: &ArenaInfo) -> Check {
    match &memory.pages {
        Ok((pages, placement)) => Check::ok("arena", format!("{pages}, {placement}")),
        Err(error) => {
            Check::missing("arena", error.to_string(), "export ROCI_ARENA_PAGES=auto, or a smaller ROCI_ARENA_SIZE")
        }
    }
}

fn as_json(device: &LinkDevice, checks: &[Check]) -> Value {
    let row = |check: &Check| {
        json!({
            "check": check.name,
            "verdict": check.verdict.to_string(),
            "finding": check.finding,
            "remedy": check.remedy,
        })
    };
    let is_missing = |check: &Check| check.verdict == CheckVerdict::Missing;
    json!({
        "device": device.to_string(),
        "would_run": !checks.iter().any(is_missing),
        "checks": checks.iter().map(row).collect::<Vec<_>>(),
    })
}

/// A row a line, and its remedy on the next one, whole, so that it can be copied.
fn show(device: &LinkDevice, checks: &[Check]) -> Result<(), Failure> {
    let width = checks.iter().map(|check| check.name.len()).max().unwrap_or(0);
    for Check { name, verdict, finding, remedy } in checks {
        output::line(format!("{:<8} {name:<width$}  {finding}", verdict.to_string()))?;
        if let Some(remedy) = remedy {
            output::line(format!("{:<8} {:<width$}  $ {remedy}", "", ""))?;
        }
    }
    let missing = checks.iter().filter(|check| check.verdict == CheckVerdict::Missing).count();
    let verdict = if missing == 0 { "would run".to_owned() } else { format!("lacks {missing} of the above") };
    Ok(output::line(format!("device {device}: {verdict}"))?)
}
