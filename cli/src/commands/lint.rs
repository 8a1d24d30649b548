//! `roci lint`: which rules of IBTA do the packets of a capture break?

use std::process::ExitCode;

use roci_protocol::lint::{Finding, Lint};
use serde_json::{Value, json};

use super::decode::is_roce;
use crate::capture::for_each_frame;
use crate::failure::Failure;
use crate::options::LintOptions;
use crate::output;

/// Prints a line for each finding; with one or more of them the status is 1.
pub(crate) fn run(options: &LintOptions) -> Result<ExitCode, Failure> {
    let file = options.file.display();
    let mut lint = Lint::with_pkeys(options.pkey.as_slice());
    let (mut packets, mut findings) = (0_u64, 0_u64);
    for_each_frame(&options.file, |at, frame| {
        let at = at.ok_or_else(|| Failure::new(format!("{file}: a packet has no time")))?;
        packets += u64::from(is_roce(frame));
        for finding in lint.look(at, frame) {
            findings += 1;
            if options.json {
                output::line(row(&finding))?;
            } else {
                output::line(&finding)?;
            }
        }
        Ok(())
    })?;
    if packets == 0 {
        return Err(Failure::new(format!("{file}: none of its frames is a RoCEv2 packet")));
    }
    Ok(if findings == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn row(finding: &Finding) -> Value {
    json!({
        "index": finding.frame,
        "rule": finding.rule.name(),
        "source": finding.rule.source(),
        "expected": finding.expected,
        "seen": finding.seen,
    })
}
