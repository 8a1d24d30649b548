//! Processors: how many, who else is on them, what they can do, and the clock.

use rustix::thread::{CpuSet, sched_getaffinity};

use super::check::Check;
use super::machine::Machine;
use super::shell::{ShellLine, THIS_SHELL};

pub(super) fn checks(machine: &Machine) -> Vec<Check> {
    let cpu = "/sys/devices/system/cpu";
    let online = list_len(&machine.read(format!("{cpu}/online")));
    let allowed = sched_getaffinity(None).map_or(0, |set| (0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).count());
    let clock = "/sys/devices/system/clocksource/clocksource0";
    let flags = flags(&machine.read("/proc/cpuinfo"));
    let read = |name: &str| machine.read(format!("{clock}/{name}"));
    vec![
        processors(online, allowed),
        isolated(&machine.read(format!("{cpu}/isolated")), online),
        threads(&machine.read(format!("{cpu}/smt/active"))),
        load(&machine.read("/proc/loadavg"), online),
        checksum(&flags),
        clock_source(&read("current_clocksource"), &read("available_clocksource"), &flags),
    ]
}

/// How many numbers a list of the kernel's has, such as `0-3,6`; nonsense has none.
fn list_len(text: &str) -> usize {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        last.checked_sub(first)?.checked_add(1)
    };
    text.trim().split(',').filter_map(range).fold(0, usize::saturating_add)
}

/// What the first processor can do.
fn flags(cpuinfo: &str) -> Vec<String> {
    let line = cpuinfo.lines().find_map(|line| line.strip_prefix("flags")?.trim_start().strip_prefix(':'));
    line.unwrap_or_default().split_whitespace().map(str::to_owned).collect()
}

fn processors(online: usize, allowed: usize) -> Check {
    let name = "processors";
    let pinned =
        if allowed < online { format!(", this process is pinned to {allowed} of them") } else { String::new() };
    if allowed.min(online) >= 2 {
        return Check::ok(name, format!("{online} online{pinned}"));
    }
    let finding = format!("{online} online{pinned}: two ranks take turns, at a scheduler's slice for each answer");
    if online >= 2 {
        let all = format!("0-{}", online - 1);
        Check::note(name, finding, ShellLine::run(&["taskset", "-pc", &all, THIS_SHELL]))
            .hint("for this shell, and what it starts")
    } else {
        Check::fact(name, finding)
    }
}

fn isolated(text: &str, online: usize) -> Check {
    let name = "isolated processors";
    match text.trim() {
        "" if online > 2 => {
            let last = online - 1;
            let remedy = ShellLine::reboot_with(&format!("isolcpus={last} nohz_full={last}"));
            Check::note(name, "none: anybody may run where an engine polls", remedy)
                .hint(format!("restarts this machine; then 'export ROCI_ENGINE_CPU={last}' puts an engine there"))
        }
        "" => Check::fact(name, "none, and too few processors to set one apart"),
        cpus => Check::ok(name, format!("{cpus}; ROCI_ENGINE_CPU puts an engine there")),
    }
}

fn threads(active: &str) -> Check {
    match active.trim() {
        "1" => Check::note(
            "SMT",
            "on: two pollers on one core share it",
            ShellLine::write("off", "/sys/devices/system/cpu/smt/control"),
        ),
        "0" => Check::ok("SMT", "off"),
        _ => Check::fact("SMT", "this kernel does not say"),
    }
}

fn load(text: &str, online: usize) -> Check {
    let Some(load) = text.split(' ').next().and_then(|word| word.parse::<f64>().ok()).filter(|load| load.is_finite())
    else {
        return Check::fact("load", "this kernel does not say");
    };
    if load < online as f64 * 0.5 {
        return Check::ok("load", format!("{load} on {online} processors"));
    }
    Check::note(
        "load",
        format!("{load} on {online} processors: what is measured now says little"),
        ShellLine::run(&["top"]),
    )
    .hint("shows who is on them")
}

/// The ICRC of each packet.
fn checksum(flags: &[String]) -> Check {
    let has = |flag: &str| flags.iter().any(|known| known == flag);
    match (has("vpclmulqdq"), has("pclmulqdq")) {
        (true, _) => Check::ok("ICRC", "carry-less multiplication, four at a time (vpclmulqdq)"),
        (_, true) => Check::ok("ICRC", "carry-less multiplication (pclmulqdq)"),
        _ => Check::fact("ICRC", "no carry-less multiplication: a checksum takes about ten times as long"),
    }
}

fn clock_source(current: &str, available: &str, flags: &[String]) -> Check {
    let name = "clock";
    let is_steady = ["constant_tsc", "nonstop_tsc"].iter().all(|flag| flags.iter().any(|known| known == flag));
    match current.trim() {
        "tsc" if is_steady => Check::ok(name, "tsc, constant"),
        "" => Check::fact(name, "this kernel does not say"),
        current if available.split_whitespace().any(|source| source == "tsc") && current != "tsc" => Check::note(
            name,
            format!("{current}: a system call where the time stamp counter is none"),
            ShellLine::write("tsc", "/sys/devices/system/clocksource/clocksource0/current_clocksource"),
        ),
        current if is_steady => {
            Check::fact(name, format!("the kernel takes {current}; links take the counter, which is constant"))
        }
        current => Check::fact(
            name,
            format!("{current}, and a time stamp counter that may change its pace: timeouts may, too"),
        ),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::check::CheckVerdict;
    use super::*;

    const INTEL: &str =
        "processor\t: 0\nflags\t\t: fpu constant_tsc nonstop_tsc pclmulqdq vpclmulqdq\n\nprocessor\t: 1\n";

    #[test]
    fn lists_are_counted() {
        assert_eq!(["0\n", "0-3,6\n", "", "3-1", "x", "0-18446744073709551615"].map(list_len), [1, 5, 0, 0, 0, 0]);
    }

    #[test]
    fn one_processor_is_too_few_and_a_mask_can_be_widened() {
        assert_eq!(processors(2, 2).verdict, CheckVerdict::Ok);
        assert_eq!(processors(4, 1).remedy.as_deref(), Some("taskset -pc 0-3 $$"));
        assert_eq!(processors(1, 1).remedy, None);
        assert!(processors(8, 4).finding.contains("pinned to 4"));
    }

    #[test]
    fn isolation_smt_and_load_are_checked() {
        assert_eq!(isolated("2-3\n", 4).verdict, CheckVerdict::Ok);
        let none = isolated("\n", 4);
        assert!(none.remedy.expect("a command").contains("isolcpus=3"));
        assert!(none.hint.expect("what is left to do").ends_with("'export ROCI_ENGINE_CPU=3' puts an engine there"));
        assert_eq!(isolated("", 2).remedy, None);
        assert_eq!(
            (threads("0\n").verdict, threads("1\n").verdict, threads("?").remedy),
            (CheckVerdict::Ok, CheckVerdict::Note, None)
        );
        assert_eq!(load("0.10 0.2 0.3 1/90 7\n", 2).verdict, CheckVerdict::Ok);
        assert_eq!(load("3.10 0.2 0.3 1/90 7\n", 2).remedy.as_deref(), Some("top"));
        let off = "echo off | sudo tee /sys/devices/system/cpu/smt/control";
        assert_eq!(threads("1\n").remedy.as_deref(), Some(off));
        assert_eq!(load("NaN", 2).finding, "this kernel does not say");
    }

    #[test]
    fn the_flags_of_the_processor_decide_about_checksum_and_clock() {
        let intel = flags(INTEL);
        assert_eq!(checksum(&intel).verdict, CheckVerdict::Ok);
        assert_eq!(checksum(&[]).verdict, CheckVerdict::Note);
        assert_eq!(clock_source("tsc\n", "tsc hpet\n", &intel).verdict, CheckVerdict::Ok);
        let tsc = "echo tsc | sudo tee /sys/devices/system/clocksource/clocksource0/current_clocksource";
        assert_eq!(clock_source("hpet\n", "tsc hpet\n", &intel).remedy.as_deref(), Some(tsc));
        assert!(clock_source("kvm-clock\n", "kvm-clock acpi_pm\n", &intel).remedy.is_none());
        assert!(clock_source("tsc\n", "tsc\n", &[]).finding.contains("pace"));
    }

    proptest! {
        #[test]
        fn no_text_takes_the_checks_down(text in "(flags|:|-|,| |\n|[0-9.]{1,25}|\\PC){0,30}", online: usize) {
            let flags = flags(&text);
            let _ = (list_len(&text), isolated(&text, online), threads(&text), load(&text, online), checksum(&flags));
            let _ = (processors(online, online / 2), clock_source(&text, &text, &flags));
        }
    }
}
