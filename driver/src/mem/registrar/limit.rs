//! How much a process may lock, and why the kernel would not lock more.

use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use super::RegisterError;

/// The number of the capability (`linux/capability.h`).
const IPC_LOCK: u32 = 14;
/// What a process of the initial user namespace sees of its users: all of them.
const ALL_USERS: [&str; 3] = ["0", "0", "4294967295"];

/// How much memory the process may lock (`RLIMIT_MEMLOCK`), and how much is locked.
#[derive(Clone, Copy, Debug)]
pub(super) struct MemlockLimit {
    /// `None` where there is none.
    bytes: Option<u64>,
    locked: u64,
}

impl MemlockLimit {
    /// That of this process, as far as it can tell.
    pub(super) fn now() -> Self {
        let read = |name: &str| std::fs::read_to_string(format!("/proc/self/{name}")).unwrap_or_default();
        Self::parse(&read("status"), &read("uid_map"), getrlimit(Resource::Memlock).current)
    }

    fn parse(status: &str, users: &str, bytes: Option<u64>) -> Self {
        let line = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().trim();
        let capabilities = u64::from_str_radix(line("CapEff:"), 16).unwrap_or(0);
        let kibibytes: u64 = line("VmLck:").trim_end_matches("kB").trim_end().parse().unwrap_or(0);
        // In a user namespace of its own the capability does not lift the limit.
        let is_exempt = capabilities >> IPC_LOCK & 1 == 1 && users.split_whitespace().eq(ALL_USERS);
        Self { bytes: bytes.filter(|_| !is_exempt), locked: kibibytes.saturating_mul(1024) }
    }

    /// What the failure to lock `len` bytes means.
    pub(super) fn why_not(self, error: Errno, len: usize) -> RegisterError {
        let Self { bytes, locked } = self;
        match (error, bytes) {
            (Errno::NOMEM | Errno::AGAIN | Errno::PERM, Some(limit)) if locked.saturating_add(len as u64) > limit => {
                RegisterError::NoMemory(format!(
                    "cannot lock {len} bytes beside {locked}, where {limit} may be locked in all: raise the limit by 'ulimit -l' (RLIMIT_MEMLOCK)"
                ))
            }
            (Errno::AGAIN, _) => RegisterError::NoMemory(format!("cannot lock {len} bytes more: memory is short")),
            // Nothing that ends would mend it for sure, so nothing is made to end.
            (Errno::NOMEM, _) => RegisterError::Refused(format!(
                "cannot lock {len} bytes: a part of them is not there, as behind the end of a file, or the process has as many mappings as it may: sysctl vm.max_map_count"
            )),
            _ => RegisterError::Refused(format!("cannot lock {len} bytes: {error}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const USER: &str = "Name:\troci\nVmLck:\t      12 kB\nCapEff:\t0000000000000000\n";
    const ROOT: &str = "VmLck:\t      12 kB\nCapEff:\t000001ffffffffff\n";
    const ALL: &str = "         0          0 4294967295\n";

    fn why_not(limit: MemlockLimit, error: Errno) -> RegisterError {
        limit.why_not(error, 8192)
    }

    #[test]
    fn the_limit_is_named_only_where_it_is_exceeded() {
        let exceeded = MemlockLimit::parse(USER, ALL, Some(16 << 10));
        for error in [Errno::NOMEM, Errno::AGAIN, Errno::PERM] {
            let RegisterError::NoMemory(text) = why_not(exceeded, error) else { panic!("{error}") };
            assert!(text.contains("8192 bytes beside 12288, where 16384") && text.contains("ulimit -l"), "{text}");
        }
        for limit in [Some(20 << 10), None] {
            let RegisterError::Refused(text) = why_not(MemlockLimit::parse(USER, ALL, limit), Errno::NOMEM) else {
                panic!()
            };
            assert!(text.contains("not there") && !text.contains("ulimit"), "{text}");
        }
        assert!(matches!(why_not(MemlockLimit::parse(USER, ALL, None), Errno::AGAIN), RegisterError::NoMemory(_)));
        assert!(matches!(why_not(exceeded, Errno::INVAL), RegisterError::Refused(_)));
    }

    #[test]
    fn a_capability_lifts_the_limit_but_not_in_a_user_namespace() {
        assert!(matches!(why_not(MemlockLimit::parse(ROOT, ALL, Some(0)), Errno::NOMEM), RegisterError::Refused(_)));
        let mapped = "         0       1000          1\n";
        assert!(matches!(
            why_not(MemlockLimit::parse(ROOT, mapped, Some(0)), Errno::NOMEM),
            RegisterError::NoMemory(_)
        ));
    }

    proptest! {
        #[test]
        fn no_text_takes_the_parser_down(text in "(VmLck:|CapEff:|kB| |\t|\n|[0-9a-f]{1,25}|\\PC){0,20}") {
            let _ = MemlockLimit::parse(&text, &text, Some(1)).why_not(Errno::NOMEM, usize::MAX);
        }
    }
}
