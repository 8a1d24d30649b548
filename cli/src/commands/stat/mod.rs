//! `roci stat`: what running workers count, as they publish it: a screen that is drawn again each second, a page, JSON, or
//! Prometheus' text.

mod prometheus;
mod screen;
mod tables;

use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use roci_msgcore::PublishedStats;
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::options::StatOptions;
use crate::output;

use screen::Screen;

/// Clears a terminal and goes to its first place.
const CLEAR: &str = "\x1b[2J\x1b[H";

pub(crate) fn run(options: &StatOptions) -> Result<ExitCode, Failure> {
    let interval = Duration::from_secs(options.interval);
    let before = read(options)?;
    if options.json {
        output::line(json!(before.iter().map(as_json).collect::<Vec<_>>()))?;
        return Ok(ExitCode::SUCCESS);
    }
    if options.prometheus {
        output::line(prometheus::text(&before).trim_end())?;
        return Ok(ExitCode::SUCCESS);
    }
    let is_live = std::io::stdout().is_terminal() && !options.once;
    let mut screen = Screen::new(before, options.wide || options.pid.is_some());
    loop {
        thread::sleep(interval);
        let page = screen.update(read(options)?);
        if !is_live {
            output::line(page.trim_end())?;
            return Ok(ExitCode::SUCCESS);
        }
        let mut out = std::io::stdout().lock();
        out.write_all(format!("{CLEAR}{}", cut(&page, rows())).as_bytes())?;
        out.flush()?;
    }
}

/// Rows of the terminal.
fn rows() -> usize {
    const USUAL: usize = 24;
    rustix::termios::tcgetwinsize(std::io::stdout()).map_or(USUAL, |size| usize::from(size.ws_row))
}

/// As much of a page as a terminal has rows for, from its top.
fn cut(page: &str, rows: usize) -> String {
    let lines: Vec<_> = page.lines().collect();
    if lines.len() < rows || rows < 2 {
        return page.to_owned();
    }
    let (shown, left) = lines.split_at(rows - 2);
    format!("{}\n... {} more lines: --once prints them all\n", shown.join("\n"), left.len())
}

fn read(options: &StatOptions) -> Result<Vec<PublishedStats>, Failure> {
    let mut all = PublishedStats::read_all();
    if let Some(pid) = options.pid {
        all.retain(|stats| stats.pid == pid);
        if all.is_empty() {
            return Err(Failure::new(format!(
                "process {pid} publishes nothing: it has no worker, or ROCI_STATS_MS=0, or is another user's"
            )));
        }
    }
    Ok(all)
}

fn as_json(stats: &PublishedStats) -> Value {
    let mut scopes = serde_json::Map::new();
    for ((scope, name), value) in &stats.counters {
        let counters = scopes.entry(scope.clone()).or_insert_with(|| json!({}));
        counters[name] = json!(value);
    }
    json!({
        "pid": stats.pid, "rank": stats.rank, "size": stats.size, "program": stats.program, "device": stats.device,
        "age_ms": stats.age().as_millis() as u64, "counters": scopes, "report": stats.report,
    })
}

#[cfg(test)]
mod tests {
    use super::cut;

    #[test]
    fn a_page_longer_than_the_terminal_keeps_its_top() {
        assert_eq!(cut("a\nb\nc\n", 4), "a\nb\nc\n");
        assert_eq!(cut("a\nb\nc\nd\n", 4), "a\nb\n... 2 more lines: --once prints them all\n");
    }
}
