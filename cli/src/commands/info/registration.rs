//! How the application's own memory would be registered, and who would watch it.

use comfy_table::Table;
use roci_msgcore::{Config, Pin};
use serde_json::{Value, json};

use super::new_table;

/// What is done to it.
fn pin(config: &Config) -> &'static str {
    match config.dreg_pin {
        Pin::Auto => "as the device needs: nothing where it copies",
        Pin::Lock => "locked by the kernel",
    }
}

pub(super) fn table(config: &Config) -> Table {
    let info = config.registration().probe();
    let mut table = new_table(["memory of the application", ""]);
    table.add_row(["registered", pin(config)]).add_row(["watched by", info.monitor]);
    if let Some(reason) = info.reason {
        table.add_row(["not cached, because", &reason]);
    }
    table
}

/// The same for programs.
pub(super) fn as_json(config: &Config) -> Value {
    let info = config.registration().probe();
    json!({"registered": pin(config), "monitor": info.monitor, "reason": info.reason})
}
