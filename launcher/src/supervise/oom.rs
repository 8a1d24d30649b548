//! Whether the kernel killed a rank for want of memory. It counts such deaths for each control group, and for the machine;
//! the count has risen before the process is gone.

use std::fs;
use std::path::{Path, PathBuf};

const ADVICE: &str = "lower ROCI_ARENA_SIZE";
/// A limit of cgroup v1 that is none is the largest number of whole pages.
const NO_LIMIT: u64 = 1 << 62;

/// Finds out whether the OOM killer ended a rank. It reads the count of the control group that the launcher is in: the ranks
/// that it starts are in the same group.
pub(crate) struct OomWatch {
    counter: Counter,
    /// OOM kills that need no explanation any more: those before the launcher started, and those that it has explained.
    explained: Option<u64>,
}

/// Where the kernel counts.
enum Counter {
    /// Deaths in a control group.
    Group(Group),
    /// Deaths on the machine, where the processes are in no group whose memory is counted.
    Machine(PathBuf),
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Group {
    version: Version,
    /// Its own directory, and the topmost of those above it that can be seen.
    directory: PathBuf,
    top: PathBuf,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Version {
    One,
    Two,
}

impl OomWatch {
    /// From here on.
    pub(crate) fn new() -> Self {
        Self::of(&read("/proc/self/cgroup"), &read("/proc/self/mountinfo"), "/proc/vmstat")
    }

    fn of(groups: &str, mounts: &str, machine: &str) -> Self {
        let groups = [Version::One, Version::Two].into_iter().filter_map(|version| version.group(groups, mounts));
        let counter = groups.map(Counter::Group).find(|counter| counter.deaths().is_some());
        let counter = counter.unwrap_or_else(|| Counter::Machine(machine.into()));
        Self { explained: counter.deaths(), counter }
    }

    /// Returns why a killed process was killed, if the OOM killer did it: whose memory limit was reached, and what the user
    /// can change. Explains each death that the kernel has counted once.
    pub(crate) fn explain_death(&mut self) -> Option<String> {
        let explained = self.explained.as_mut()?;
        if self.counter.deaths()? <= *explained {
            return None;
        }
        *explained += 1;
        let limit = match &self.counter {
            Counter::Group(group) => group.limit(),
            Counter::Machine(_) => None,
        };
        Some(match limit {
            Some(limit) => {
                let limit = limit >> 20;
                format!("killed for want of memory (its cgroup's limit is {limit} MiB): raise the limit, or {ADVICE}")
            }
            None => format!("killed for want of memory (the machine has no more): {ADVICE}"),
        })
    }
}

impl Counter {
    fn deaths(&self) -> Option<u64> {
        let text = match self {
            Self::Group(group) => read(group.directory.join(group.version.counter())),
            Self::Machine(path) => read(path),
        };
        text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())
    }
}

impl Group {
    /// The lowest limit on the way up.
    fn limit(&self) -> Option<u64> {
        let way_up = self.directory.ancestors().take_while(|directory| directory.starts_with(&self.top));
        let limit = |directory: &Path| read(directory.join(self.version.limit())).trim().parse().ok();
        way_up.filter_map(limit).filter(|&limit| limit < NO_LIMIT).min()
    }
}

impl Version {
    const fn counter(self) -> &'static str {
        match self {
            Self::One => "memory.oom_control",
            Self::Two => "memory.events",
        }
    }

    const fn limit(self) -> &'static str {
        match self {
            Self::One => "memory.limit_in_bytes",
            Self::Two => "memory.max",
        }
    }

    /// The group of this version that counts memory, from what the kernel says of a process's groups (`ID:CONTROLLERS:PATH`)
    /// and mounts.
    fn group(self, groups: &str, mounts: &str) -> Option<Group> {
        let path = groups.lines().find_map(|line| {
            let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
            self.counts_memory(controllers).then_some(path)
        })?;
        let (root, top) = mounts.lines().find_map(|line| self.mount(line))?;
        let below = Path::new(path).strip_prefix(root).ok()?;
        Some(Group { version: self, directory: top.join(below), top: top.to_owned() })
    }

    fn counts_memory(self, controllers: &str) -> bool {
        match self {
            Self::One => controllers.split(',').any(|name| name == "memory"),
            Self::Two => controllers.is_empty(),
        }
    }

    /// Of a line of mountinfo (see proc_pid_mountinfo(5)): what is mounted, and where.
    fn mount(self, line: &str) -> Option<(&str, &Path)> {
        let (place, kind) = line.split_once(" - ")?;
        let (mut place, mut kind) = (place.split(' ').skip(3), kind.split(' '));
        let (root, top) = (place.next()?, place.next()?);
        let (name, options) = (kind.next()?, kind.nth(1)?);
        let is_it = match self {
            Self::One => name == "cgroup" && self.counts_memory(options),
            Self::Two => name == "cgroup2",
        };
        is_it.then_some((root, Path::new(top)))
    }
}

/// Empty where there is no such file.
fn read(path: impl AsRef<Path>) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine with one control group.
    struct Machine {
        directory: tempfile::TempDir,
        groups: String,
        mounts: String,
    }

    impl Machine {
        fn new(groups: &str, mount: impl Fn(&str) -> String, inner: &str) -> Self {
            let directory = tempfile::tempdir().expect("a directory");
            fs::create_dir_all(directory.path().join(inner)).expect("a directory");
            let mounts =
                format!("22 1 0:5 / /proc rw - proc proc rw\n{}\n", mount(&directory.path().display().to_string()));
            Self { groups: groups.into(), mounts, directory }
        }

        fn write(&self, name: &str, text: &str) {
            fs::write(self.directory.path().join(name), text).expect("a file");
        }

        fn watch(&self) -> OomWatch {
            let machine = self.directory.path().join("vmstat");
            OomWatch::of(&self.groups, &self.mounts, &machine.display().to_string())
        }
    }

    fn v2() -> Machine {
        let mount = |top: &str| format!("30 1 0:26 / {top} rw,relatime shared:4 - cgroup2 cgroup2 rw,nsdelegate");
        Machine::new("0::/slice/job\n", mount, "slice/job")
    }

    fn v1() -> Machine {
        let mount = |top: &str| {
            format!(
                "29 1 0:25 /docker/x /elsewhere rw - cgroup cgroup rw,cpu\n31 1 0:27 /docker/x {top} rw - cgroup cgroup rw,memory"
            )
        };
        Machine::new("5:cpu:/docker/x/job\n4:hugetlb,memory:/docker/x/job\n0::/\n", mount, "job")
    }

    #[test]
    fn of_cgroup_v2_each_death_is_explained_once_by_the_lowest_limit_above_the_process() {
        let machine = v2();
        machine.write("slice/job/memory.events", "low 0\noom 7\noom_kill 3\noom_group_kill 0\n");
        machine.write("slice/job/memory.max", "max\n");
        machine.write("slice/memory.max", "104857600\n");
        let mut watch = machine.watch();
        assert_eq!(watch.explain_death(), None, "earlier deaths are not of this job");
        machine.write("slice/job/memory.events", "oom 9\noom_kill 4\n");
        let text = watch.explain_death().expect("one has died");
        let wanted =
            "killed for want of memory (its cgroup's limit is 100 MiB): raise the limit, or lower ROCI_ARENA_SIZE";
        assert_eq!(text, wanted);
        assert_eq!(watch.explain_death(), None, "the launcher has explained this death");
    }

    #[test]
    fn of_cgroup_v1_the_group_is_found_below_what_is_mounted() {
        let machine = v1();
        machine.write("job/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 0\n");
        machine.write("job/memory.limit_in_bytes", "67108864\n");
        machine.write("memory.limit_in_bytes", "9223372036854771712\n");
        let mut watch = machine.watch();
        machine.write("job/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n");
        for _ in 0..2 {
            assert!(watch.explain_death().expect("two have died").contains("limit is 64 MiB"));
        }
        assert_eq!(watch.explain_death(), None);
    }

    #[test]
    fn without_a_group_that_counts_the_machine_does() {
        let machine = v2();
        machine.write("vmstat", "pgfault 12\noom_kill 1\n");
        let mut watch = machine.watch();
        assert_eq!(watch.explain_death(), None);
        machine.write("vmstat", "pgfault 12\noom_kill 2\n");
        let text = watch.explain_death().expect("one has died");
        assert_eq!(text, "killed for want of memory (the machine has no more): lower ROCI_ARENA_SIZE");
    }

    #[test]
    fn without_a_count_of_deaths_the_launcher_explains_none() {
        assert_eq!(v1().watch().explain_death(), None);
    }
}
