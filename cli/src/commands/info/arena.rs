//! The memory that a worker of this configuration would have: mapped as the worker maps it, and given back.

use roci_driver::{Arena, ArenaError, PassedOver};
use roci_msgcore::Config;
use serde_json::{Value, json};

/// The pages that an arena got, or why it got none.
pub(in crate::commands) struct ArenaInfo {
    /// The pages and where they are from, or why there are none.
    pub(in crate::commands) pages: Result<(String, String), ArenaError>,
    passed_over: Vec<PassedOver>,
}

impl ArenaInfo {
    /// Maps an arena, which takes its huge pages for a moment, and asks it what it is.
    pub(in crate::commands) fn of(config: &Config) -> Self {
        let arena = config.arena(config.device_of(0).ok().as_ref());
        match Arena::with(arena) {
            Ok(arena) => Self {
                pages: Ok((arena.pages().to_string(), arena.placement().to_string())),
                passed_over: arena.passed_over().to_vec(),
            },
            Err(error) => Self { pages: Err(error), passed_over: Vec::new() },
        }
    }

    pub(super) fn as_json(&self) -> Value {
        let passed_over = |passed: &PassedOver| json!({"pages": passed.pages.to_string(), "why": passed.why});
        let passed_over: Vec<_> = self.passed_over.iter().map(passed_over).collect();
        match &self.pages {
            Ok((pages, placement)) => json!({"pages": pages, "placement": placement, "passed_over": passed_over}),
            Err(error) => json!({"error": error.to_string()}),
        }
    }

    /// Names and values, for people.
    pub(super) fn rows(&self) -> Vec<(&'static str, String)> {
        let mut rows = match &self.pages {
            Ok((pages, placement)) => vec![("arena", format!("{pages}, memory of {placement}"))],
            Err(error) => vec![("arena", format!("missing: {error}"))],
        };
        rows.extend(self.passed_over.iter().map(|passed| ("passed over", passed.to_string())));
        rows
    }
}
