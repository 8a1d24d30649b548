//! What knobs mean, a paragraph each.

use std::io::{IsTerminal, stdout};
use std::process::ExitCode;

use roci_msgcore::Config;
use roci_msgcore::config::{KNOBS, Knob};
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::output;

/// Explains the knobs of these names, or all where there are none.
pub(super) fn run(config: &Config, names: &[String], is_json: bool) -> Result<ExitCode, Failure> {
    let chosen: Vec<&Knob> = if names.is_empty() {
        KNOBS.iter().collect()
    } else {
        names.iter().map(|name| find(name)).collect::<Result<_, _>>()?
    };
    if is_json {
        output::line(json!(chosen.iter().map(|knob| as_json(config, knob)).collect::<Vec<_>>()))?;
        return Ok(ExitCode::SUCCESS);
    }
    let paragraphs: Vec<_> = chosen.iter().map(|knob| paragraph(config, knob)).collect();
    output::line(paragraphs.join("\n\n"))?;
    Ok(ExitCode::SUCCESS)
}

/// The knob that is called so in files, or in the environment.
fn find(name: &str) -> Result<&'static Knob, Failure> {
    let is_it = |knob: &&Knob| knob.name == name || knob.environment_name() == name;
    KNOBS.iter().find(is_it).ok_or_else(|| {
        let known: Vec<_> = KNOBS.iter().map(|knob| knob.name).filter(|known| known.contains(name)).collect();
        let hint = if known.is_empty() {
            "'roci info' lists all".to_owned()
        } else {
            format!("there are {}", known.join(", "))
        };
        Failure::new(format!("unknown knob '{name}': {hint}"))
    })
}

/// Columns of a paragraph: what a program reads is not broken into lines.
fn width() -> usize {
    if stdout().is_terminal() { 80 } else { u16::MAX.into() }
}

fn paragraph(config: &Config, knob: &Knob) -> String {
    // What is chosen from a list has no unit.
    let is_choice = knob.range.contains(['|', ',']) && !knob.range.contains("..");
    let unit = if is_choice { String::new() } else { format!(" {}", knob.unit) };
    let effect = config.in_effect(knob.name).map_or_else(String::new, |effect| format!(", in effect {effect}"));
    let value = knob.value(config);
    let value = if value.is_empty() { "empty".to_owned() } else { value };
    let head = format!("{}  {}", knob.name, knob.environment_name());
    let values = format!("{value}{effect} ({}); takes {}{unit}", config.origin(knob.name), knob.range);
    let indented = textwrap::Options::new(width()).initial_indent("    ").subsequent_indent("    ");
    format!("{head}\n{}\n{}", textwrap::fill(&values, &indented), textwrap::fill(knob.reason.trim(), &indented))
}

/// The same for programs.
pub(super) fn as_json(config: &Config, knob: &Knob) -> Value {
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
}
