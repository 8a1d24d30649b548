//! Sizes: what has grown largest, for who looks, and the limits under which it may grow.

use roci_tidy::{Crate, Figures, Sized};

/// A crate, its largest struct, function and file, and its assertions.
type Limits = (&'static str, usize, usize, usize, usize);

/// What each crate's largest struct (fields), function (lines) and file (lines) had, and assertions in 1,000 lines, when this
/// was last looked at. The first three may only fall, the last only rise.
const LIMITS: [Limits; 6] = [
    ("protocol", 30, 48, 795, 3),
    ("driver", 24, 40, 557, 2),
    ("launcher", 11, 55, 400, 0),
    ("msgcore", 15, 45, 408, 3),
    ("perftest", 7, 25, 315, 0),
    ("cli", 16, 50, 432, 0),
];

#[test]
fn nothing_outgrows_what_was_largest_and_assertions_do_not_become_fewer() {
    let mut found = Vec::new();
    for (folder, ..) in LIMITS {
        let figures = Figures::of(&Crate::read(folder));
        let density = figures.assertions * 1000 / figures.lines;
        println!("{folder}: {} lines, {density} assertions in 1,000 of them", figures.lines);
        for (list, unit) in [(&figures.structs, "fields"), (&figures.functions, "lines"), (&figures.files, "lines")] {
            for Sized { size, what } in list.iter().take(3) {
                println!("  {size:4} {unit} {what}");
            }
        }
        let largest = |list: &[Sized]| list.first().map_or(0, |first| first.size);
        found.push((folder, largest(&figures.structs), largest(&figures.functions), largest(&figures.files), density));
    }
    let is_held =
        |(now, limit): (&Limits, &Limits)| now.1 <= limit.1 && now.2 <= limit.2 && now.3 <= limit.3 && now.4 >= limit.4;
    assert!(
        found.iter().zip(&LIMITS).all(is_held),
        "crate, struct, function, file, assertions:\nare    {found:?}\nlimits {LIMITS:?}"
    );
}
