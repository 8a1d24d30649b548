//! Words: one name means one thing, errors have types, and the field's words are ours.

use std::collections::BTreeMap;
use std::fs;

use roci_tidy::{Crate, Figures, count_words, root, rust_files};

const CRATES: [&str; 11] =
    ["protocol", "driver", "testkit", "perftest", "launcher", "msgcore", "libfabric", "cli", "benches", "lab", "fuzz"];

/// Words that a reader who knows verbs would have to guess.
const RIDDLES: [&str; 8] = ["lent", "lend", "told", "tells", "heard", "nobody", "whoever", "spoke"];

// What there was when this was last looked at. May only fall.
const RIDDLES_LEFT: usize = 30;

fn hold(what: &str, count: usize, limit: usize) {
    println!("{what}: {count}");
    assert!(count <= limit, "{what}: {count}, and there were {limit}");
    assert!(count == limit, "{what}: lower the limit from {limit} to {count}");
}

#[test]
fn riddles_become_fewer() {
    let mut counts: Vec<_> = rust_files()
        .into_iter()
        .filter(|path| !path.starts_with("tests/tidy"))
        .map(|path| (count_words(&fs::read_to_string(root().join(&path)).expect("a file"), &RIDDLES), path))
        .filter(|(count, _)| *count > 0)
        .collect();
    counts.sort();
    for (count, path) in counts.iter().rev().take(10) {
        println!("{count:4} {}", path.display());
    }
    hold("riddles", counts.iter().map(|(count, _)| count).sum(), RIDDLES_LEFT);
}

#[test]
fn no_error_is_a_text() {
    let counts = CRATES.map(|folder| (folder, Figures::of(&Crate::read(folder)).string_errors));
    let found: Vec<_> = counts.iter().filter(|(_, count)| *count > 0).collect();
    assert!(found.is_empty(), "functions whose error is a text: {found:?}");
}

#[test]
fn an_error_that_a_crate_gives_away_shows_its_sentence() {
    let mut found = Vec::new();
    for folder in ["protocol", "driver", "launcher", "msgcore", "perftest"] {
        let given = fs::read_to_string(root().join(folder).join("src/lib.rs")).expect("a crate");
        let figures = Figures::of(&Crate::read(folder));
        let shown = figures.debug_errors.into_iter().filter(|name| count_words(&given, &[name]) > 0);
        found.extend(shown.map(|name| format!("{folder}: {name}")));
    }
    assert!(found.is_empty(), "errors whose Debug form is derived: a main that returns one prints that: {found:?}");
}

#[test]
fn no_two_types_have_one_name() {
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, path) in CRATES.iter().flat_map(|folder| Figures::of(&Crate::read(folder)).types) {
        places.entry(name).or_default().push(path);
    }
    places.retain(|_, paths| paths.len() > 1);
    let twins: Vec<_> = places.iter().map(|(name, paths)| format!("{name}: {}", paths.join(", "))).collect();
    assert!(twins.is_empty(), "types of one name:\n{}", twins.join("\n"));
}
