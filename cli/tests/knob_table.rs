//! The table of knobs in docs/tuning.md is what the code says. WRITE_KNOBS=1 writes it anew.

mod common;

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use common::roci;
use serde_json::Value;

const BEGIN: &str = "<!-- knobs -->\n";
const END: &str = "<!-- /knobs -->";

/// The text, which may break behind its commas: a word as long as a list makes the table wider than its page.
fn breakable(text: &str) -> String {
    text.replace(',', ",<wbr>").replace(",<wbr> ", ", ")
}

fn table() -> String {
    let said = roci(&["info", "--all", "--json"]).succeeded().stdout;
    let knobs: Vec<Value> = serde_json::from_str(&said).expect("an array");
    assert!(knobs.len() > 60, "there are {} knobs", knobs.len());
    let mut table = String::from("| knob | default | takes | what it is |\n|---|---|---|---|\n");
    for knob in knobs {
        let word = |name: &str| knob[name].as_str().unwrap_or_default().replace('|', "\\|");
        let (value, unit, reason) = (word("value"), word("unit"), word("reason"));
        let value = if value.is_empty() { "(empty)".into() } else { value };
        let unit = if word("range").starts_with(|first: char| first.is_ascii_digit()) {
            format!(" {unit}")
        } else {
            String::new()
        };
        let first = reason.split_once(". ").map_or(reason.as_str(), |(first, _)| first).trim_end_matches('.');
        let (range, first) = (breakable(&word("range").replace("\\|", ", ")), breakable(first));
        let _ = writeln!(table, "| `{}` | {value} | {range}{unit} | {first} |", word("environment"));
    }
    table
}

#[test]
fn the_table_of_knobs_is_that_of_the_code() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/tuning.md");
    let text = fs::read_to_string(&file).expect("a chapter");
    let (before, rest) = text.split_once(BEGIN).expect("the table begins");
    let (written, after) = rest.split_once(END).expect("the table ends");
    let table = table();
    if std::env::var_os("WRITE_KNOBS").is_some() {
        fs::write(&file, format!("{before}{BEGIN}{table}{END}{after}")).expect("the tree can be written");
    } else {
        assert!(written == table, "docs/tuning.md has another table of knobs: run this test with WRITE_KNOBS=1");
    }
}
