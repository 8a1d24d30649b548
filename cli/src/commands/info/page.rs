//! The page: 80 columns and 60 lines at most, so that it fits a terminal and a mail.

use std::fmt::Write as _;

use roci_msgcore::Config;
use roci_msgcore::config::{KNOBS, Origin};

use super::arena::ArenaInfo;
use super::{known_devices, receives, registration};
use crate::failure::Failure;

/// Columns of the page.
const WIDTH: usize = 80;

pub(super) fn text(config: &Config) -> Result<String, Failure> {
    let mut page = format!("roci {}: RoCEv2 in userspace, and messages over it\n", env!("CARGO_PKG_VERSION"));
    devices(&mut page);
    page.push_str("\nThis configuration\n");
    row(&mut page, "device", &config.device_of(0)?.to_string());
    for (name, value) in ArenaInfo::of(config).rows() {
        row(&mut page, name, &value);
    }
    for (name, value) in registration::rows(config) {
        row(&mut page, name, &value);
    }
    for (name, value) in receives::rows(config) {
        row(&mut page, name, &value);
    }
    changed(&mut page, config);
    page.push_str("\nKnobs ('roci info KNOB' explains one; of the environment it is ROCI_KNOB)\n");
    let names = KNOBS.iter().map(|knob| knob.name).collect::<Vec<_>>().join(" ");
    let indented = textwrap::Options::new(WIDTH).initial_indent("  ").subsequent_indent("  ");
    page.push_str(&textwrap::fill(&names, indented));
    page.push_str("\n\n'roci doctor --device DEVICE' says what this machine lacks for one");
    Ok(page)
}

fn devices(page: &mut String) {
    line(page, ["Device", "needs", "frames", "zero copy"]);
    for device in known_devices() {
        let [name, needs, carries, zero_copy] = &device;
        line(page, [name, needs, carries, zero_copy]);
    }
}

fn line(page: &mut String, [name, needs, carries, zero_copy]: [&str; 4]) {
    let indent = if name == "Device" { "\n" } else { "  " };
    let width = if name == "Device" { 18 } else { 16 };
    let line = format!("{indent}{name:width$} {needs:34} {carries:15} {zero_copy}");
    page.push_str(line.trim_end());
    page.push('\n');
}

fn row(page: &mut String, name: &str, value: &str) {
    let indent = format!("  {name:16} ");
    let rest = " ".repeat(indent.len());
    page.push_str(&textwrap::fill(
        value,
        textwrap::Options::new(WIDTH).initial_indent(&indent).subsequent_indent(&rest),
    ));
    page.push('\n');
}

/// The knobs that somebody has set.
fn changed(page: &mut String, config: &Config) {
    let is_set = |name| config.origin(name) != Origin::Default;
    if KNOBS.iter().any(|knob| is_set(knob.name)) {
        page.push_str("\nKnobs that are set\n");
    }
    for knob in KNOBS.iter().filter(|knob| is_set(knob.name)) {
        let effect = config.in_effect(knob.name).map_or_else(String::new, |effect| format!(", in effect {effect}"));
        let _ = writeln!(page, "  {} = {}{effect} ({})", knob.name, knob.value(config), config.origin(knob.name));
    }
}
