//! Huge pages, mounts of them, and transparent ones.

use roci_driver::link::dpdk::{Device, HUGE_PAGES};
use roci_driver::link::live::LinkDevice;
use rustix::fs::{Access, access};

use super::check::Check;
use super::machine::Machine;
use super::shell::ShellLine;

pub(super) fn checks(machine: &Machine, device: &LinkDevice) -> Vec<Check> {
    let needs_pool = matches!(device.dpdk(), Some(Device::Pci(_)));
    let pools = ["2M", "1G"].map(|size| HugePagePool::read(machine, size));
    let mut checks = pools.iter().map(HugePagePool::check).collect::<Vec<_>>();
    if needs_pool && pools.iter().all(|pool| pool.free == 0) {
        let remedy = pools[0].with_more(HUGE_PAGES);
        checks.push(Check::missing(
            "packet buffers",
            "a bound NIC takes them from huge pages, and none are free",
            remedy,
        ));
    }
    checks.push(mounts(&machine.read("/proc/self/mounts"), |path| access(path, Access::WRITE_OK).is_ok()));
    checks.push(transparent(&machine.read("/sys/kernel/mm/transparent_hugepage/enabled")));
    checks
}

/// One of the kernel's pools of huge pages.
struct HugePagePool {
    size: &'static str,
    /// `None` where the machine has no pages of this size.
    all: Option<u64>,
    /// Neither used nor promised.
    free: u64,
}

impl HugePagePool {
    fn read(machine: &Machine, size: &'static str) -> Self {
        let kib = if size == "2M" { 2048 } else { 1_048_576 };
        let file = |name: &str| machine.read(format!("/sys/kernel/mm/hugepages/hugepages-{kib}kB/{name}"));
        Self::parse(size, &file("nr_hugepages"), &file("free_hugepages"), &file("resv_hugepages"))
    }

    fn parse(size: &'static str, all: &str, free: &str, promised: &str) -> Self {
        let number = |text: &str| text.trim().parse().ok();
        let free = number(free).unwrap_or(0u64).saturating_sub(number(promised).unwrap_or(0));
        Self { size, all: number(all), free }
    }

    fn check(&self) -> Check {
        let name = format!("huge pages {}", self.size);
        let finding = match self.all {
            None => return Check::fact(name, "this processor or kernel has no pages of this size"),
            Some(all) if self.free > 0 => return Check::ok(name, format!("{} of {all} are free", self.free)),
            Some(0) => "none; arenas take smaller pages".to_owned(),
            Some(all) => format!("none of {all} are free"),
        };
        if self.size == "2M" {
            return Check::note(name, finding, self.with_more(512));
        }
        Check::note(name, finding, self.with_more(1)).hint("best soon after the boot: later, memory is in pieces")
    }

    /// A pool that has so many pages more: those that it has are somebody's.
    fn with_more(&self, count: u64) -> ShellLine {
        let all = self.all.unwrap_or(0).saturating_add(count);
        ShellLine::root(&["roci", "hugepages", "set", &all.to_string(), "--size", self.size])
    }
}

/// Mounts of hugetlbfs; an arena does without.
fn mounts(table: &str, may_write: impl Fn(&str) -> bool) -> Check {
    let words = table.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let ours: Vec<_> = words.filter(|words| words.get(2) == Some(&"hugetlbfs")).collect();
    let paths: Vec<_> = ours.iter().filter_map(|words| words.get(1).copied()).collect();
    let Some(closed) = paths.iter().find(|path| !may_write(path)) else {
        let found = if paths.is_empty() { "none; a memfd needs no mount".into() } else { paths.join(", ") };
        return Check::ok("hugetlbfs", found);
    };
    Check::note(
        "hugetlbfs",
        format!("{closed} cannot be written; a memfd needs no mount"),
        ShellLine::root(&["chmod", "1777", closed]),
    )
}

fn transparent(text: &str) -> Check {
    let name = "transparent pages";
    let mode = text.split_whitespace().find_map(|word| word.strip_prefix('[')?.strip_suffix(']'));
    match mode {
        Some(mode @ ("always" | "madvise")) => Check::ok(name, mode),
        Some(mode) => {
            let remedy = ShellLine::write("madvise", "/sys/kernel/mm/transparent_hugepage/enabled");
            Check::note(name, format!("{mode}: large arenas have ordinary pages where no pool has any"), remedy)
        }
        None => Check::fact(name, "this kernel has none"),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use proptest::prelude::*;

    use super::super::check::CheckVerdict;
    use super::*;

    #[test]
    fn pools_count_what_is_neither_used_nor_promised() {
        let pool = |all, free, promised| HugePagePool::parse("2M", all, free, promised).check();
        assert_eq!(pool("64\n", "64\n", "60\n"), Check::ok("huge pages 2M", "4 of 64 are free"));
        assert_eq!(pool("64", "3", "9").verdict, CheckVerdict::Note);
        assert_eq!(pool("0", "0", "0").remedy.as_deref(), Some("sudo roci hugepages set 512 --size 2M"));
        assert_eq!(pool("", "", "").remedy, None);
        assert_eq!(pool("-1", "x", "18446744073709551616").remedy, None);
    }

    #[test]
    fn a_pool_whose_pages_are_all_used_gets_more_and_keeps_those() {
        let used = HugePagePool::parse("2M", "64\n", "0\n", "0\n").check();
        assert_eq!((used.verdict, used.finding.as_str()), (CheckVerdict::Note, "none of 64 are free"));
        assert_eq!(used.remedy.as_deref(), Some("sudo roci hugepages set 576 --size 2M"));
    }

    #[test]
    fn a_page_of_1_gib_is_made_alone_and_soon() {
        let none = HugePagePool::parse("1G", "0\n", "0\n", "0\n").check();
        assert_eq!((none.name.as_str(), none.verdict), ("huge pages 1G", CheckVerdict::Note));
        assert_eq!(none.remedy.as_deref(), Some("sudo roci hugepages set 1 --size 1G"));
        assert!(none.hint.expect("when").contains("boot"));
    }

    #[test]
    fn packet_buffers_are_pages_beside_those_that_are_used() {
        let root = tempfile::tempdir().expect("a directory");
        let pool = root.path().join("sys/kernel/mm/hugepages/hugepages-2048kB");
        fs::create_dir_all(&pool).expect("a directory");
        let ask = |all: &str, free: &str| {
            fs::write(pool.join("nr_hugepages"), all).expect("a file");
            fs::write(pool.join("free_hugepages"), free).expect("a file");
            let device = "pci:00:04.0".parse().expect("a device");
            checks(&Machine::at(root.path()), &device).into_iter().find(|check| check.name == "packet buffers")
        };
        let remedy = |all| ask(all, "0\n").expect("a row").remedy;
        assert_eq!(remedy("0\n").as_deref(), Some("sudo roci hugepages set 256 --size 2M"));
        assert_eq!(remedy("300\n").as_deref(), Some("sudo roci hugepages set 556 --size 2M"));
        assert_eq!(ask("300\n", "1\n"), None);
    }

    #[test]
    fn transparent_pages_that_are_off_are_turned_on_for_who_asks() {
        let off = transparent("always madvise [never]\n");
        assert_eq!(off.verdict, CheckVerdict::Note);
        let file = "/sys/kernel/mm/transparent_hugepage/enabled";
        assert_eq!(off.remedy.as_deref(), Some(&*format!("echo madvise | sudo tee {file}")));
        assert_eq!(transparent("always [madvise] never\n"), Check::ok("transparent pages", "madvise"));
        assert_eq!(transparent("").remedy, None);
    }

    #[test]
    fn a_bound_nic_cannot_do_without_pages() {
        let root = tempfile::TempDir::new().expect("a directory");
        let machine = Machine::at(root.path());
        let missing = |device: Device| {
            checks(&machine, &device.into()).iter().any(|check| check.verdict == CheckVerdict::Missing)
        };
        assert!(missing("pci:00:04.0".parse().expect("a device")));
        assert!(!missing(Device::Memif));
    }

    #[test]
    fn a_mount_without_write_permission_gets_a_remedy() {
        let table = "proc /proc proc rw 0 0\nnone /dev/hugepages hugetlbfs rw,pagesize=2M 0 0\n";
        assert_eq!(mounts(table, |_| true), Check::ok("hugetlbfs", "/dev/hugepages"));
        assert_eq!(mounts(table, |_| false).remedy.as_deref(), Some("sudo chmod 1777 /dev/hugepages"));
        assert_eq!(mounts("", |_| false).verdict, CheckVerdict::Ok);
    }

    proptest! {
        #[test]
        fn no_text_takes_the_checks_down(text in "(hugetlbfs|\\[|\\]| |\n|-?[0-9]{1,25}|\\PC){0,30}") {
            let _ = (mounts(&text, |_| false), transparent(&text), HugePagePool::parse("1G", &text, &text, &text).check());
        }
    }
}
