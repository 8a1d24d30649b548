//! How the application's own memory would be registered, and who would watch it.

use roci_msgcore::{Config, Pin};
use serde_json::{Value, json};

/// What is done to it.
fn pin(config: &Config) -> &'static str {
    match config.dreg_pin {
        Pin::Auto => "as the device needs: nothing where it copies",
        Pin::Lock => "locked by the kernel",
    }
}

/// Names and values, for people.
pub(super) fn rows(config: &Config) -> Vec<(&'static str, String)> {
    let info = config.registration().probe();
    let mut rows = vec![("registration", format!("{}; watched by {}", pin(config), info.monitor))];
    rows.extend(info.reason.map(|reason| ("not cached", format!("because {reason}"))));
    rows
}

/// The same for programs.
pub(super) fn as_json(config: &Config) -> Value {
    let info = config.registration().probe();
    json!({"registered": pin(config), "monitor": info.monitor, "reason": info.reason})
}
