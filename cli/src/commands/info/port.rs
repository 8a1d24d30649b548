//! `roci info --port`: what the device does for a worker.

use std::process::ExitCode;
use std::time::Duration;

use roci_driver::link::Link;
use roci_driver::link::dpdk::{Description, DpdkLink};
use roci_msgcore::Config;
use roci_msgcore::ports::shared_attachment;
use serde_json::json;

use super::new_table;
use crate::failure::{Failure, FailureContext};
use crate::output;

pub(super) fn run(config: &Config, as_json: bool) -> Result<ExitCode, Failure> {
    let device = config.device_of(0)?;
    if device.is_point_to_point() {
        return Err(Failure::new(format!("device {device}: its ports are there while two processes have their ends")));
    }
    let patience = Duration::from_secs(config.connect_timeout_s);
    let links = DpdkLink::open_all(&[shared_attachment(config, &device)], patience, &mut || false);
    let links = links.context("cannot open the port")?;
    for link in &links {
        tell(link, &device.to_string(), as_json)?;
    }
    Ok(ExitCode::SUCCESS)
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
