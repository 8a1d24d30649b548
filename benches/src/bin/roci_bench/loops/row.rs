//! What a loop prints: the rows of `roci perf --json`.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use serde_json::json;

use crate::statistics::Summary;

/// Half round trips in microseconds.
pub(super) fn print_latency(test: &str, bytes: usize, samples: Vec<f64>) {
    let iters = samples.len();
    if let Some(all) = Summary::of(samples) {
        let lat = json!({"min": all.min, "p50": all.median});
        println!(
            "{}",
            json!({"test": format!("{test}_lat"), "bytes": bytes, "iters": iters, "lat_us": lat, "errors": 0})
        );
    }
}

/// So many messages in so long; `cpu` is the processor time of both sides.
pub(super) fn print_stream(test: &str, bytes: usize, messages: u64, elapsed: Duration, cpu: Option<Duration>) {
    let seconds = elapsed.as_secs_f64().max(1e-9);
    let row = json!({
        "test": format!("{test}_bw"),
        "bytes": bytes,
        "iters": messages,
        "bw_gigabytes_per_s": messages as f64 * bytes as f64 / seconds / 1e9,
        "mmsgs": messages as f64 / seconds / 1e6,
        "cpu_s": cpu.map(|cpu| cpu.as_secs_f64()),
        "errors": 0,
    });
    println!("{row}");
}

/// Processor time of this process so far, in user and in system mode.
pub(super) fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
