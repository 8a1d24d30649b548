//! `roci info`: a page of what this build can drive, of the memory that it would have and of what a connection costs; and what a
//! knob means.

pub(super) mod arena;
mod knobs;
mod page;
mod port;
mod protocols;
mod receives;
mod registration;

use std::process::ExitCode;

use comfy_table::{ContentArrangement, Table};
use roci_msgcore::Config;
use roci_msgcore::config::{KNOBS, sample_file};
use serde_json::json;

use crate::failure::Failure;
use crate::options::InfoOptions;
use crate::output;

use arena::ArenaInfo;

/// Devices with what they need, what they carry, and whether they send long payloads from where they lie.
fn known_devices() -> [[String; 4]; 6] {
    [
        ["memif", "nothing; two processes of one host", "9216 B, no loss", "yes"],
        ["vhost", "nothing; two processes of one host", "9216 B, no loss", "one end"],
        ["udp, udp:ADDRESS", "nothing; any interface", "the interface's", "no"],
        ["af_packet:IFACE", "CAP_NET_RAW, CAP_NET_ADMIN", "1514 B", "yes"],
        ["pci:ADDRESS", "a NIC bound to vfio-pci, hugepages", "1514 B", "if NIC can"],
        ["--eal \"...\"", "what the line needs", "1514 B", "no"],
    ]
    .map(|row| row.map(str::to_owned))
}

pub(crate) fn run(options: &InfoOptions) -> Result<ExitCode, Failure> {
    if options.sample {
        output::line(sample_file().trim_end())?;
        return Ok(ExitCode::SUCCESS);
    }
    let config = options.device.config_of(options.paramfile.as_deref())?;
    if options.all || !options.knobs.is_empty() {
        return knobs::run(&config, &options.knobs, options.json);
    }
    if options.protocols {
        return protocols::run(&config, options.json);
    }
    if options.port {
        return port::run(&config, options.json);
    }
    if options.json {
        output::line(as_json(&config))?;
    } else {
        output::line(page::text(&config)?)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn as_json(config: &Config) -> serde_json::Value {
    let device = |[name, needs, carries, zero_copy]: [String; 4]| json!({"name": name, "needs": needs, "carries": carries, "zero_copy": zero_copy});
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "devices": known_devices().map(device),
        "arena": ArenaInfo::of(config).as_json(),
        "registration": registration::as_json(config),
        "receives": receives::as_json(config),
        "knobs": KNOBS.iter().map(|knob| knobs::as_json(config, knob)).collect::<Vec<_>>(),
    })
}

fn new_table<const N: usize>(header: [&str; N]) -> Table {
    let mut table = Table::new();
    table.load_style(comfy_table::presets::UTF8_HORIZONTAL_ONLY);
    table.set_content_arrangement(ContentArrangement::Dynamic).set_header(header);
    table
}
