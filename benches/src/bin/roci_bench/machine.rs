//! The machine that a report speaks of.

use std::fs::read_to_string;
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

/// A machine with more to do than this is not idle.
pub(crate) const IDLE_LOAD: f64 = 0.3;

/// For so long is looked at what it does.
const LOOK: Duration = Duration::from_secs(2);

/// The processor, kernel and memory of the host that measures.
#[derive(Clone, Debug)]
pub(crate) struct HostInfo {
    pub(crate) processor: String,
    pub(crate) cores: usize,
    pub(crate) kernel: String,
    pub(crate) memory_gib: f64,
    /// Processors that were busy before the first measurement. Not the kernel's load average, which remembers for a minute
    /// that this very program was just being compiled.
    pub(crate) load: f64,
    pub(crate) hugepages: u64,
    /// Debian's packages that take part, with their versions.
    pub(crate) versions: Vec<String>,
}

/// Those that the report speaks of, where they are installed.
const PACKAGES: [&str; 6] = ["libdpdk-dev", "ucx-utils", "libfabric-bin", "mpich", "openmpi-bin", "qemu-system-x86"];

impl HostInfo {
    pub(crate) fn look() -> Self {
        let read = |path| read_to_string(path).unwrap_or_default();
        let (cpuinfo, meminfo) = (read("/proc/cpuinfo"), read("/proc/meminfo"));
        let number = |text: Option<&str>| text.and_then(|text| text.split_whitespace().next()?.parse::<f64>().ok());
        Self {
            processor: field(&cpuinfo, "model name").unwrap_or("an unknown processor").to_owned(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            memory_gib: number(field(&meminfo, "MemTotal")).unwrap_or(0.0) / f64::from(1 << 20),
            load: load(),
            hugepages: number(field(&meminfo, "HugePages_Total")).unwrap_or(0.0) as u64,
            versions: versions(),
        }
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.load <= IDLE_LOAD
    }
}

/// What dpkg says of the packages; nothing where there is no dpkg.
fn versions() -> Vec<String> {
    let show = ["-W", "-f", "${db:Status-Abbrev}${Package} ${Version}\n"];
    let asked = Command::new("dpkg-query").args(show).args(PACKAGES).output();
    let text = asked.map_or_else(|_| String::new(), |output| String::from_utf8_lossy(&output.stdout).into_owned());
    text.lines().filter_map(|line| line.strip_prefix("ii ")).map(str::to_owned).collect()
}

/// How many processors are busy, as is seen in a moment.
pub(crate) fn load() -> f64 {
    busy_processors(|| read_to_string("/proc/stat").unwrap_or_default(), LOOK)
}

/// How many processors had work between two looks at the kernel's times (proc_stat(5)).
fn busy_processors(read: impl Fn() -> String, between: Duration) -> f64 {
    let before = Times::of(&read());
    sleep(between);
    let after = Times::of(&read());
    let all = after.all.saturating_sub(before.all).max(1);
    let idle = after.idle.saturating_sub(before.idle).min(all);
    (all - idle) as f64 / all as f64 * after.processors as f64
}

/// What all processors have spent, in ticks.
#[derive(Default)]
struct Times {
    processors: usize,
    all: u64,
    idle: u64,
}

impl Times {
    fn of(stat: &str) -> Self {
        let processors = stat.lines().filter(|line| line.starts_with("cpu") && !line.starts_with("cpu ")).count();
        let total = stat.lines().find_map(|line| line.strip_prefix("cpu ")).unwrap_or_default();
        // User, nice, system, idle, waiting for devices, interrupts of two kinds, stolen; guests are in user already.
        let ticks: Vec<u64> = total.split_whitespace().take(8).filter_map(|ticks| ticks.parse().ok()).collect();
        let idle = ticks.iter().skip(3).take(2).sum();
        Self { processors, all: ticks.iter().sum(), idle }
    }
}

/// The value behind a name and a colon.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(name)?.trim_start().strip_prefix(':')).map(str::trim)
}

/// How fast the time stamp counter counts. Where it is constant the kernel calibrates its delay loop by it, and a
/// "bogomips" is two of its cycles; nothing else shows it without privilege.
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
    fn work_is_counted_in_processors_between_two_looks() {
        let stats = std::cell::RefCell::new(vec![
            "cpu  150 0 60 280 10 0 0 0 99 0\ncpu0 75 0 30 140 5 0 0 0\ncpu1 75 0 30 140 5 0 0 0\nintr 5\n",
            "cpu  100 0 50 200 0 0 0 0 0 0\ncpu0 50 0 25 100 0 0 0 0\ncpu1 50 0 25 100 0 0 0 0\nintr 4\n",
        ]);
        let load = busy_processors(|| stats.borrow_mut().pop().unwrap_or_default().to_owned(), Duration::ZERO);
        assert!((load - 0.8).abs() < 1e-9, "60 of 150 ticks of two processors: {load}");
    }

    #[test]
    fn this_machine_has_a_kernel_and_processors() {
        let machine = HostInfo::look();
        assert!(machine.cores >= 1 && !machine.kernel.is_empty() && machine.memory_gib > 0.0, "{machine:?}");
    }
}
