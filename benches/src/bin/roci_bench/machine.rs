//! The machine that a report speaks of.

use std::fs::read_to_string;

/// A machine with more to do than this is not idle.
pub(crate) const IDLE_LOAD: f64 = 0.3;

/// What a reader must know of it.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    pub(crate) processor: String,
    pub(crate) cores: usize,
    pub(crate) kernel: String,
    pub(crate) memory_gib: f64,
    /// Over the last minute, before the first measurement.
    pub(crate) load: f64,
    pub(crate) hugepages: u64,
}

impl Machine {
    pub(crate) fn look() -> Self {
        let read = |path| read_to_string(path).unwrap_or_default();
        let (cpuinfo, meminfo) = (read("/proc/cpuinfo"), read("/proc/meminfo"));
        let number = |text: Option<&str>| text.and_then(|text| text.split_whitespace().next()?.parse::<f64>().ok());
        Self {
            processor: field(&cpuinfo, "model name").unwrap_or("an unknown processor").to_owned(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            memory_gib: number(field(&meminfo, "MemTotal")).unwrap_or(0.0) / f64::from(1 << 20),
            load: number(Some(&read("/proc/loadavg"))).unwrap_or(0.0),
            hugepages: number(field(&meminfo, "HugePages_Total")).unwrap_or(0.0) as u64,
        }
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.load <= IDLE_LOAD
    }
}

/// The value behind a name and a colon.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(name)?.trim_start().strip_prefix(':')).map(str::trim)
}

/// How fast the time stamp counter counts. Where it is constant the kernel calibrates its delay loop by it, and a
/// "bogomips" is two of its cycles; nothing else tells it without privilege.
pub(crate) fn time_stamp_hz() -> Option<f64> {
    let cpuinfo = read_to_string("/proc/cpuinfo").ok()?;
    let is_constant = field(&cpuinfo, "flags")?.split(' ').any(|flag| flag == "constant_tsc");
    let bogomips: f64 = field(&cpuinfo, "bogomips")?.parse().ok()?;
    is_constant.then_some(bogomips / 2.0 * 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_their_whole_name() {
        let text = "model\t\t: 143\nmodel name\t: Some Processor\nbogomips\t: 5200.00\n";
        assert_eq!(field(text, "model name"), Some("Some Processor"));
        assert_eq!(field(text, "model"), Some("143"));
        assert_eq!(field(text, "cache"), None);
    }

    #[test]
    fn this_machine_has_a_kernel_and_processors() {
        let machine = Machine::look();
        assert!(machine.cores >= 1 && !machine.kernel.is_empty() && machine.memory_gib > 0.0, "{machine:?}");
    }
}
