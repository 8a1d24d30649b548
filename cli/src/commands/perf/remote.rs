//! A server and a client of `roci perf`, on two hosts or two that were not started together. The client is rank 0; both print.

use std::net::{SocketAddr, TcpListener};
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use roci_launcher::{Board, Job, JobError, Token};
use roci_msgcore::{Config, WireupError};

use super::{Printing, measure};
use crate::failure::{Failure, FailureContext};
use crate::options::PerfOptions;
use crate::output;

/// So long a server waits for its client to hang up when both are done.
const FAREWELL: Duration = Duration::from_secs(5);
/// How often a server looks for a client, and a client for its server.
const LOOK: Duration = Duration::from_millis(20);
const CLIENT: usize = 0;
const SERVER: usize = 1;

/// Serves clients one after the other, until a signal ends it; or the first one alone.
pub(super) fn serve(address: &str, options: &PerfOptions, config: &Config) -> Result<ExitCode, Failure> {
    check_reach(config, SERVER)?;
    let token = Token::from_environment()?;
    let listener = TcpListener::bind(address).context(format!("cannot listen at {address}"))?;
    let place = listener.local_addr().context("cannot listen")?;
    loop {
        output::complain(format!("waiting for a client at {place}"));
        let outcome = serve_one(&listener, place, &token, options, config);
        match outcome {
            outcome if options.server.once => return outcome,
            // Its end is the client's, and its own to explain.
            Err(failure) => drop(failure.report()),
            Ok(_) => {}
        }
    }
}

fn serve_one(
    listener: &TcpListener,
    place: SocketAddr,
    token: &Token,
    options: &PerfOptions,
    config: &Config,
) -> Result<ExitCode, Failure> {
    let board = Board::new(2, token.clone());
    board.serve_tcp(listener.try_clone().context("cannot listen")?).context("cannot listen")?;
    let job = Job::connect(&format!("tcp:{place}"), token, SERVER, 2, patience(config))?;
    let from = loop {
        if let Some(from) = board.origin(CLIENT) {
            break from;
        }
        thread::sleep(LOOK);
    };
    output::complain(format!("connected from {from}"));
    let outcome = measure(options, config, job, Printing::Both);
    // The last word that the client waits for comes from this process.
    board.outlast(CLIENT, FAREWELL);
    outcome
}

/// Measures with a server, which may come later.
pub(super) fn call(server: &str, options: &PerfOptions, config: &Config) -> Result<ExitCode, Failure> {
    check_reach(config, CLIENT)?;
    let (place, token) = (format!("tcp:{server}"), Token::from_environment()?);
    let deadline = Instant::now() + patience(config);
    let mut is_said = false;
    loop {
        let joined = Job::connect(&place, &token, CLIENT, 2, patience(config));
        match joined.and_then(|mut job| job.check_all_present().map(|()| job)) {
            Ok(job) => return measure(options, config, job, Printing::Both),
            // It is not there yet, or is taking leave of another client, whose job this one has just joined.
            Err(JobError::Unreachable { .. } | JobError::Gone | JobError::Failed(_)) if Instant::now() < deadline => {}
            Err(error) => return Err(error.into()),
        }
        if !is_said {
            output::complain(format!("waiting for a server at {server}"));
            is_said = true;
        }
        thread::sleep(LOOK);
    }
}

/// Refuses a point-to-point device for two processes that were not started together: they can meet on a network only. Each
/// checks this before it connects to the other, or it would report the other's end instead.
fn check_reach(config: &Config, rank: usize) -> Result<(), Failure> {
    let device = config.device_of(rank)?;
    if device.is_point_to_point() { Err(WireupError::NeedsOneHost(device).into()) } else { Ok(()) }
}

fn patience(config: &Config) -> Duration {
    Duration::from_secs(config.connect_timeout_s)
}
