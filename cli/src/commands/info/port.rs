//! `roci info --port`: what the device does for a worker.

use std::process::ExitCode;

use roci_driver::link::Link;
use roci_driver::link::dpdk::{Description, DpdkLink};
use roci_driver::link::live::AnyLink;
use roci_driver::link::udp::UdpLink;
use roci_msgcore::Config;
use roci_msgcore::ports::open_shared;
use serde_json::json;

use super::new_table;
use crate::failure::{Failure, FailureContext};
use crate::output;

pub(super) fn run(config: &Config, as_json: bool) -> Result<ExitCode, Failure> {
    let device = config.device_of(0)?;
    if device.is_point_to_point() {
        return Err(Failure::new(format!("device {device}: its ports are there while two processes have their ends")));
    }
    match open_shared(config, &device, config.queues).context("cannot open the port")? {
        AnyLink::Udp(link) => show_socket(&link, &device.to_string(), as_json)?,
        AnyLink::Dpdk(link) => tell(&link, &device.to_string(), as_json)?,
        AnyLink::Closed(_) => return Err(Failure::new(format!("device {device}: the port is closed"))),
    }
    Ok(ExitCode::SUCCESS)
}

fn show_socket(link: &UdpLink, device: &str, as_json: bool) -> Result<(), Failure> {
    let (own, frame) = (link.own(), link.max_frame());
    let buffer = link.receive_buffer().context("cannot look at the socket")?;
    let (gso, gro) = link.offload();
    if as_json {
        let row = json!({
            "device": device, "address": own.to_string(), "max_frame": frame, "receive_buffer": buffer, "gso": gso, "gro": gro,
        });
        return Ok(output::line(row)?);
    }
    let does = |does: bool| if does { "yes" } else { "no" };
    let mut table = new_table(["port", device]);
    table.add_row(["address", &own.to_string()]);
    table.add_row(["longest frame", &format!("{frame} bytes")]);
    table.add_row(["receive buffer", &format!("{buffer} bytes, as the kernel counts them")]);
    table.add_row(["sends trains (UDP GSO)", does(gso)]);
    table.add_row(["receives trains (UDP GRO)", does(gro)]);
    Ok(output::line(table)?)
}

fn tell(link: &DpdkLink, device: &str, as_json: bool) -> Result<(), Failure> {
    let Description { queue: (_, queues), spread, checks, makes } = link.description();
    let (station, frame) = (link.mac().to_string(), link.max_frame());
    if as_json {
        let row = json!({
            "device": device, "station": station, "max_frame": frame, "queues": queues, "spread": spread,
            "checksums_verified": checks, "checksums_made": makes,
        });
        return Ok(output::line(row)?);
    }
    let mut table = new_table(["port", device]);
    table.add_row(["station", &station]);
    table.add_row(["longest frame", &format!("{frame} bytes")]);
    table.add_row(["queues", &queues.to_string()]);
    table.add_row(["spread over them", spread]);
    table.add_row(["verifies checksums", checks]);
    table.add_row(["makes checksums", makes]);
    Ok(output::line(table)?)
}
