//! The lab: this stack against others, and on devices that this machine does not have, with QEMU guests.
//!
//! `scripts/lab build` makes the guest. `scripts/lab interop` runs our stack on one end of a wire and Linux's `rdma_rxe`
//! on the other: our port is vhost-user, straight to the guest's NIC. `scripts/lab nics` runs our stack inside of two
//! guests, on emulated PCI NICs; `scripts/lab verbs` compares both between the same two guests. Nothing here needs privileges, hugepages or a kernel module on the host.
#![deny(unsafe_code)]

mod faults;
mod guest;
mod interop;
mod lab;
mod lint;
mod machine;
mod nics;
mod report;
mod scenarios;
mod verbs;
mod wire;

use std::process::ExitCode;

use clap::Parser;

/// Any error, as a text.
type LabError = Box<dyn std::error::Error>;

/// Runs suites with guests made by `scripts/lab build`.
#[derive(Parser)]
enum Suite {
    /// Our stack against Linux's.
    Interop(interop::InteropOptions),
    /// Our stack on bound PCI NICs.
    Nics(nics::NicOptions),
    /// Linux's verbs against ours, between the same guests.
    Verbs(verbs::VerbsOptions),
}

fn main() -> ExitCode {
    let outcome = match Suite::parse() {
        Suite::Interop(options) => interop::run(&options),
        Suite::Nics(options) => nics::run(&options),
        Suite::Verbs(options) => verbs::run(&options),
    };
    match outcome {
        Ok(code) => code,
        Err(failure) => {
            eprintln!("lab: {failure}");
            ExitCode::FAILURE
        }
    }
}
