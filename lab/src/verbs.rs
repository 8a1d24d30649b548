//! Linux's verbs against ours: perftest over `rdma_rxe`, and `roci perf`, by turns, between the same two guests, on the
//! same NICs and the same wire. The processors are emulated, so that only ratios mean something.

mod ours;
mod perftest;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use crate::LabError;
use crate::nics::bench::{Bench, BenchFiles, Purpose};
use crate::nics::models::virtio;

/// What to run.
#[derive(Args)]
pub(crate) struct VerbsOptions {
    /// The guests' kernel.
    #[arg(long)]
    kernel: PathBuf,
    /// The guests' initial disk, with this stack's command in it.
    #[arg(long)]
    initrd: PathBuf,
    /// QEMU.
    #[arg(long, default_value = "qemu-system-x86_64")]
    qemu: PathBuf,
    /// How often each is measured.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Fewer messages.
    #[arg(long)]
    quick: bool,
    /// Name what would be measured and end.
    #[arg(long)]
    list: bool,
}

/// A size, and how many messages of it are sent.
#[derive(Clone, Copy)]
struct Load {
    bytes: u64,
    pings: u32,
    stream: u32,
}

const LOADS: [Load; 4] = [
    Load { bytes: 64, pings: 400, stream: 2000 },
    Load { bytes: 1 << 10, pings: 400, stream: 2000 },
    Load { bytes: 64 << 10, pings: 50, stream: 200 },
    Load { bytes: 1 << 20, pings: 10, stream: 32 },
];

impl Load {
    /// A few messages at the least, and of streams whole lists, or perftest refuses.
    fn scaled(self, is_quick: bool) -> Self {
        let part = if is_quick { 4 } else { 1 };
        let stream = (self.stream / part).next_multiple_of(perftest::LIST);
        Self { pings: (self.pings / part).max(5), stream, ..self }
    }
}

/// Prints a row of results for each measurement, in the form of `roci perf --json`, with the round and the stack.
pub(crate) fn run(options: &VerbsOptions) -> Result<ExitCode, LabError> {
    if options.list {
        for test in &perftest::TESTS {
            println!("{} [SERVER]", perftest::words(test, "BYTES", "COUNT"));
        }
        for tests in [ours::LIMITS, ours::LATENCIES, ours::STREAMS] {
            println!("{} roci {}", ours::SETTINGS, ours::words(tests, "BYTES", "COUNT"));
        }
        for Load { bytes, pings, stream } in LOADS.map(|load| load.scaled(options.quick)) {
            println!("{bytes} bytes: {pings} pings, streams of {stream}");
        }
        return Ok(ExitCode::SUCCESS);
    }
    let directory = tempfile::tempdir()?;
    let VerbsOptions { qemu, kernel, initrd, .. } = options;
    let mut bench =
        Bench::start(virtio(), &BenchFiles { qemu, kernel, initrd, directory: directory.path() }, Purpose::Measuring)?;
    let loads = LOADS.map(|load| load.scaled(options.quick));
    for round in 1..=options.rounds {
        perftest::measure(&mut bench, &loads, round)?;
        ours::measure(&mut bench, &loads, round)?;
    }
    Ok(ExitCode::SUCCESS)
}
