//! This stack's own command in both guests, on the NICs that it takes from the kernel for as long.

use std::time::Duration;

use serde_json::Value;

use super::Load;
use crate::LabError;
use crate::nics::bench::Bench;

pub(super) const LIMITS: &str = "raw_lat,raw_bw";
pub(super) const LATENCIES: &str = "send_lat,write_lat";
pub(super) const STREAMS: &str = "send_bw,write_bw,read_bw";

const PATIENCE: Duration = Duration::from_mins(3);
/// Packets of this length have a path MTU of 4096, as those of `rdma_rxe` on the same NIC.
pub(super) const SETTINGS: &str = "ROCI_PORT_MTU=4200";

pub(super) fn measure(bench: &mut Bench, loads: &[Load], round: u32) -> Result<(), LabError> {
    let address = bench.model.address();
    for end in [0, 1] {
        bench.run(end, &format!("bind-nic bind {address}"))?;
    }
    for load in loads {
        // Bare frames that are lost make the command fail, which is no reason not to read its rows.
        let command = words(LIMITS, &load.bytes.to_string(), &load.pings.to_string());
        print(&bench.job(&command, SETTINGS, PATIENCE, |_| Ok(()))?[0].output, round)?;
        for (tests, iters) in [(LATENCIES, load.pings), (STREAMS, load.stream)] {
            let command = words(tests, &load.bytes.to_string(), &iters.to_string());
            print(&bench.good_job(&command, SETTINGS, PATIENCE)?, round)?;
        }
    }
    for end in [0, 1] {
        bench.run(end, &format!("bind-nic unbind {address}"))?;
    }
    Ok(())
}

/// The command, behind the name of the program: perftest does not look at what arrives either.
pub(super) fn words(tests: &str, bytes: &str, count: &str) -> String {
    format!("perf {tests} --size {bytes} --iters {count} --no-verify --json")
}

fn print(output: &str, round: u32) -> Result<(), LabError> {
    for line in output.lines().filter(|line| line.starts_with('{')) {
        let mut row: Value = serde_json::from_str(line)?;
        row["stack"] = "roci".into();
        row["round"] = round.into();
        println!("{row}");
    }
    Ok(())
}
