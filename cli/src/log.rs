//! What `RUST_LOG` chooses of the log, which goes to stderr.

use thiserror::Error;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::ParseError;

use crate::output;

const VARIABLE: &str = "RUST_LOG";
/// What is logged unless it is said.
const USUAL: &str = "warn";
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];
/// What the names of targets begin with.
const TARGETS: [&str; 2] = ["roci", "dpdk"];

/// Starts the log. What `RUST_LOG` says in error is complained of, unless `is_quiet`: a process that starts this one has done so.
pub(crate) fn start(is_quiet: bool) {
    let text = std::env::var_os(VARIABLE).unwrap_or_default();
    let filter = filter(&text.to_string_lossy()).unwrap_or_else(|problem| {
        if !is_quiet {
            output::complain(format!("{VARIABLE}={}: {problem}; warnings are logged", text.display()));
        }
        EnvFilter::new(USUAL)
    });
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).without_time().init();
}

/// The filter that a text stands for. A word without a level is a target, of which all is logged: so is a level that is
/// misspelt, which would be silence.
fn filter(text: &str) -> Result<EnvFilter, BadFilter> {
    if text.trim().is_empty() {
        return Ok(EnvFilter::new(USUAL));
    }
    let is_known = |word: &str| {
        let is_level = LEVELS.contains(&&*word.to_ascii_lowercase()) || word.parse::<u8>().is_ok_and(|level| level < 6);
        is_level || TARGETS.iter().any(|target| word.starts_with(target))
    };
    let words = text.split(',').map(str::trim).filter(|word| !word.contains(['=', '[']));
    if let Some(word) = words.filter(|word| !word.is_empty()).find(|word| !is_known(word)) {
        return Err(BadFilter::Word(word.to_owned()));
    }
    Ok(EnvFilter::try_new(text)?)
}

/// What is wrong with a filter.
#[derive(Debug, Error)]
enum BadFilter {
    #[error("'{0}' is neither a level ({levels}) nor a target of this command (such as roci_driver or dpdk)", levels = LEVELS.join(", "))]
    Word(String),
    #[error(transparent)]
    Directive(#[from] ParseError),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_and_targets_are_taken() {
        for text in ["", "info", "WARN", "3", "roci_driver=debug", "warn,roci_msgcore=trace, dpdk", "other=info"] {
            assert!(filter(text).is_ok(), "{text}");
        }
    }

    #[test]
    fn what_would_be_silence_is_a_problem() {
        for text in ["debgu", "warn,verbose", "roci_driver=loud", "roci_driver=debug=info"] {
            assert!(filter(text).is_err(), "{text}");
        }
        let problem = filter("debgu").expect_err("no level").to_string();
        assert!(problem.starts_with("'debgu' is neither a level (off, error, "), "{problem}");
    }
}
