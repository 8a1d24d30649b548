//! `roci info`: what this build can drive, the memory that it would have, what a connection costs, and every knob.

pub(super) mod arena;
mod port;
mod protocols;
mod receives;
mod registration;

use std::process::ExitCode;

use comfy_table::{ContentArrangement, Table};
use roci_driver::link::dpdk::SEGMENTS;
use roci_msgcore::Config;
use roci_msgcore::config::{KNOBS, sample_file};
use serde_json::json;

use crate::failure::Failure;
use crate::options::InfoOptions;
use crate::output;

use arena::ArenaInfo;

/// Devices with what they need, what they carry, and whether they send long payloads from where they lie.
fn known_devices() -> [[String; 4]; 6] {
    let segments = format!("where it takes {SEGMENTS} segments");
    [
        ["memif", "nothing; two processes of one host", "frames of 9216 bytes, loses none", "yes"],
        ["vhost", "nothing; two processes of one host", "frames of 9216 bytes, loses none", "the lower rank does"],
        ["udp, udp:ADDRESS", "nothing; any interface", "frames of the interface's, may lose some", "no"],
        ["af_packet:IFACE", "CAP_NET_RAW, CAP_NET_ADMIN", "frames of 1514 bytes, may lose some", "yes"],
        ["pci:ADDRESS", "a NIC bound to vfio-pci, hugepages", "frames of 1514 bytes, may lose some", &segments],
        ["--eal \"...\"", "whatever the line needs", "frames of 1514 bytes, may lose some", "no"],
    ]
    .map(|row| row.map(str::to_owned))
}

pub(crate) fn run(options: &InfoOptions) -> Result<ExitCode, Failure> {
    if options.sample {
        output::line(sample_file().trim_end())?;
        return Ok(ExitCode::SUCCESS);
    }
    let config = Config::load(options.paramfile.as_deref())?;
    if options.protocols {
        return protocols::run(&config, options.json);
    }
    if options.port {
        return port::run(&config, options.json);
    }
    if options.json {
        output::line(as_json(&config))?;
    } else {
        output::line(format!("roci {}", env!("CARGO_PKG_VERSION")))?;
        output::line(devices())?;
        output::line(ArenaInfo::of(&config).as_table())?;
        output::line(registration::table(&config))?;
        output::line(receives::table(&config))?;
        output::line(knobs(&config))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn as_json(config: &Config) -> serde_json::Value {
    let knob = |knob: &roci_msgcore::config::Knob| {
        json!({
            "name": knob.name,
            "value": knob.value(config),
            "in_effect": config.in_effect(knob.name),
            "origin": config.origin(knob.name).to_string(),
            "unit": knob.unit,
            "range": knob.range,
            "environment": knob.environment_name(),
            "reason": knob.reason.trim(),
        })
    };
    let device = |[name, needs, carries, zero_copy]: [String; 4]| json!({"name": name, "needs": needs, "carries": carries, "zero_copy": zero_copy});
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "devices": known_devices().map(device),
        "arena": ArenaInfo::of(config).as_json(),
        "registration": registration::as_json(config),
        "receives": receives::as_json(config),
        "knobs": KNOBS.iter().map(knob).collect::<Vec<_>>(),
    })
}

fn devices() -> Table {
    let mut table = new_table(["device", "needs", "carries", "zero copy"]);
    for row in known_devices() {
        table.add_row(row);
    }
    table
}

fn knobs(config: &Config) -> Table {
    let mut table = new_table(["knob", "value", "origin", "unit", "range", "meaning"]);
    for knob in KNOBS {
        let origin = config.origin(knob.name).to_string();
        let value = match config.in_effect(knob.name) {
            Some(effect) => format!("{} (in effect: {effect})", knob.value(config)),
            None => knob.value(config),
        };
        table.add_row([knob.name, &value, &origin, knob.unit, knob.range, knob.reason.trim()]);
    }
    table
}

fn new_table<const N: usize>(header: [&str; N]) -> Table {
    let mut table = Table::new();
    table.load_style(comfy_table::presets::UTF8_HORIZONTAL_ONLY);
    table.set_content_arrangement(ContentArrangement::Dynamic).set_header(header);
    table
}
