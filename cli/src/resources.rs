//! What this process has taken: processor time and memory.

use rustix::time::{ClockId, clock_gettime};

use crate::failure::{Failure, FailureContext};

/// Nanoseconds of processor time of all threads so far, in user and in system mode.
pub(crate) fn cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Bytes of memory that are there, and not only reserved.
pub(crate) fn resident_bytes() -> Result<u64, Failure> {
    let text = std::fs::read_to_string("/proc/self/statm").context("cannot read /proc/self/statm")?;
    let pages = resident_pages(&text).ok_or_else(|| Failure::new("/proc/self/statm has no resident size"))?;
    Ok(pages * rustix::param::page_size() as u64)
}

/// The second number of statm.
fn resident_pages(statm: &str) -> Option<u64> {
    statm.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::hint::black_box;

    use super::*;

    #[test]
    fn the_resident_size_is_the_second_number() {
        assert_eq!(resident_pages("9000 123 45 6 0 78 0\n"), Some(123));
        for text in ["", "9000", "9000 -1", "9000 x"] {
            assert_eq!(resident_pages(text), None, "{text}");
        }
    }

    #[test]
    fn memory_that_is_touched_is_seen() {
        let before = resident_bytes().expect("Linux");
        let held = vec![1u8; 64 << 20];
        let after = resident_bytes().expect("Linux");
        assert!(black_box(&held).iter().all(|&byte| byte == 1));
        assert!(after > before + (32 << 20), "{before} {after}");
    }

    #[test]
    fn work_takes_processor_time() {
        let before = cpu_ns();
        // However slow the clock is, it moves in the end.
        while cpu_ns() == before {
            black_box((0..10_000u64).sum::<u64>());
        }
    }
}
