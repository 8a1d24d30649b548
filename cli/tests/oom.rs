//! A rank that the kernel kills for want of memory, in a control group that the test makes. It needs root, and a cgroup
//! file system that can be written to.

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use common::finish;

/// More than the launcher and the shells take together, many times.
const LIMIT: &str = "67108864";

/// A control group of this test's, which goes with it.
struct Group(PathBuf);

impl Group {
    /// With a limit, or why there is none.
    fn new() -> Result<Self, String> {
        let (parent, limit) = parent()?;
        let group = Self(parent.join(format!("roci-test-{}", std::process::id())));
        fs::create_dir(&group.0).map_err(|error| format!("cannot make {}: {error}", group.0.display()))?;
        let limited = fs::write(group.0.join(limit), LIMIT);
        limited.map_err(|error| format!("cannot set {limit} of {}: {error}", group.0.display()))?;
        Ok(group)
    }

    fn processes(&self) -> String {
        self.0.join("cgroup.procs").display().to_string()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Its last process may not be gone yet.
        for _ in 0..100 {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}

/// Where a group can be made that limits memory, and the name of its limit.
fn parent() -> Result<(PathBuf, &'static str), String> {
    let v1 = Path::new("/sys/fs/cgroup/memory");
    if v1.join("memory.oom_control").exists() {
        return Ok((v1.into(), "memory.limit_in_bytes"));
    }
    let v2 = Path::new("/sys/fs/cgroup");
    let controllers = fs::read_to_string(v2.join("cgroup.subtree_control")).unwrap_or_default();
    if controllers.split_whitespace().any(|name| name == "memory") {
        return Ok((v2.into(), "memory.max"));
    }
    Err("no cgroup file system with a memory controller for new groups at /sys/fs/cgroup".into())
}

#[test]
fn a_rank_killed_for_want_of_memory_says_so_and_what_its_limit_is() {
    let group = match Group::new() {
        Ok(group) => group,
        Err(why) => return eprintln!("skipped: {why}"),
    };
    // Rank 1 takes memory without end, and rank 0 ends by itself.
    let rank = "if [ $ROCI_RANK = 1 ]; then exec tail /dev/zero; fi";
    let script = format!("echo $$ > {} && exec \"$0\" run -n 2 -- sh -c '{rank}'", group.processes());
    let child = Command::new("sh")
        .args(["-c", &script, env!("CARGO_BIN_EXE_roci")])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("a shell");
    let ended = finish(child);
    assert_eq!(ended.code(), Some(137), "{}", ended.stderr);
    let wanted = "roci: rank 1 was killed by signal 9: killed for want of memory (its cgroup's limit is 64 MiB): raise the \
                  limit, or lower ROCI_ARENA_SIZE\n";
    assert!(ended.stderr.contains(wanted), "{}", ended.stderr);
}
