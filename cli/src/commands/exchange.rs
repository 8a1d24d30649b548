//! `roci exchange`: two ranks send each other a file through the messaging core, and compare its digests.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use indicatif::{ProgressBar, ProgressStyle};
use roci_msgcore::{Rank, Request, Tag, Worker};
use sha2::{Digest, Sha256};

use super::perf;
use crate::failure::{Failure, FailureContext};
use crate::options::ExchangeOptions;
use crate::output;

/// A file travels in pieces of this size, and its last one is shorter, or empty.
const PIECE: usize = 1 << 20;
/// Pieces in flight.
const DEPTH: usize = 4;

const PIECES: Tag = Tag::new(10);
const LENGTH: Tag = Tag::new(11);
const DIGEST: Tag = Tag::new(12);

/// The sizes of the table.
const SIZES: [usize; 8] = [8, 64, 512, 4 << 10, 32 << 10, 256 << 10, 1 << 20, 4 << 20];

pub(crate) fn run(options: &ExchangeOptions) -> Result<ExitCode, Failure> {
    let path = match &options.file {
        Some(path) => path.clone(),
        None => std::env::current_exe().context("cannot find this program")?,
    };
    // A file that cannot be read is better known before anybody waits.
    let len = length_of(&path)?;
    let config = options.device.config()?;
    let mut worker = Worker::open(&config)?;
    if worker.size() != 2 {
        return Err(Failure::new(format!("exchange is between 2 ranks, and this job has {}", worker.size())));
    }
    let bar = progress_bar(worker.rank(), len * 2);
    let first = transfer(&mut worker, 0, &path, len, &bar)?;
    let second = transfer(&mut worker, 1, &path, len, &bar)?;
    bar.finish_and_clear();
    let is_right = first.is_right && second.is_right;
    if worker.rank() == 0 {
        for (route, outcome) in [("0 -> 1", &first), ("1 -> 0", &second)] {
            report(route, &path, outcome)?;
        }
    }
    let mut wrong = u64::from(!is_right);
    if is_right && !options.no_table {
        wrong += perf::table(&mut worker, &config.device_of(0)?.to_string(), &SIZES)?;
    }
    worker.close()?;
    Ok(if wrong == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn length_of(path: &PathBuf) -> Result<u64, Failure> {
    let file = File::open(path).context(format!("cannot read {}", path.display()))?;
    let metadata = file.metadata().context(format!("cannot read {}", path.display()))?;
    if metadata.is_file() { Ok(metadata.len()) } else { Err(Failure::new(format!("{} is not a file", path.display()))) }
}

/// A bar on a terminal, nothing in a pipe.
fn progress_bar(rank: Rank, len: u64) -> ProgressBar {
    if rank != 0 || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:40} {bytes}/{total_bytes} {bytes_per_sec}");
    ProgressBar::new(len).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

/// The result of one direction.
struct DirectionResult {
    len: u64,
    digest: Vec<u8>,
    seconds: f64,
    is_right: bool,
}

/// Sends the file from rank `from` to the other one; both learn whether it arrived right.
fn transfer(
    worker: &mut Worker,
    from: Rank,
    path: &Path,
    len: u64,
    bar: &ProgressBar,
) -> Result<DirectionResult, Failure> {
    let start = Instant::now();
    let peer = 1 - worker.rank();
    let (len, digest) = if worker.rank() == from {
        let announce = worker.send_bytes(peer, LENGTH, &len.to_le_bytes())?;
        worker.wait(announce)?;
        (len, send_file(worker, peer, path, len, bar)?)
    } else {
        let announced = receive_word::<8>(worker, peer, LENGTH)?;
        let len = u64::from_le_bytes(announced);
        (len, receive_file(worker, peer, len, bar)?)
    };
    let seconds = start.elapsed().as_secs_f64();
    let ours = worker.send_bytes(peer, DIGEST, &digest)?;
    let theirs = receive_word::<32>(worker, peer, DIGEST)?;
    worker.wait(ours)?;
    Ok(DirectionResult { len, is_right: digest[..] == theirs, digest, seconds })
}

fn send_file(worker: &mut Worker, to: Rank, path: &Path, len: u64, bar: &ProgressBar) -> Result<Vec<u8>, Failure> {
    let cannot_read = format!("cannot read {}", path.display());
    let mut file = File::open(path).context(&cannot_read)?;
    let mut hash = Sha256::new();
    let mut sends: VecDeque<Request> = VecDeque::new();
    for piece in pieces(len) {
        let mut buffer = if sends.len() < DEPTH {
            worker.buffer(PIECE)?
        } else {
            let oldest = sends.pop_front().map(|oldest| worker.wait(oldest)).transpose()?;
            oldest.map_or_else(|| worker.buffer(PIECE), |done| Ok(done.buffer))?
        };
        buffer.set_len(piece);
        file.read_exact(&mut buffer).context(&cannot_read)?;
        hash.update(&buffer[..]);
        sends.push_back(worker.send(to, PIECES, buffer)?);
        bar.inc(piece as u64);
    }
    worker.wait_all(sends)?;
    Ok(hash.finalize().to_vec())
}

fn receive_file(worker: &mut Worker, from: Rank, len: u64, bar: &ProgressBar) -> Result<Vec<u8>, Failure> {
    let mut hash = Sha256::new();
    let mut left = pieces(len);
    let mut receives = VecDeque::new();
    for _ in left.by_ref().take(DEPTH) {
        receives.push_back(worker.recv(from, PIECES, worker.buffer(PIECE)?)?);
    }
    while let Some(receive) = receives.pop_front() {
        let message = worker.wait(receive)?;
        hash.update(&message.buffer[..message.len]);
        bar.inc(message.len as u64);
        if left.next().is_some() {
            let mut buffer = message.buffer;
            buffer.set_len(PIECE);
            receives.push_back(worker.recv(from, PIECES, buffer)?);
        }
    }
    Ok(hash.finalize().to_vec())
}

/// The lengths of the pieces of a file.
fn pieces(len: u64) -> impl Iterator<Item = usize> {
    let full = len / PIECE as u64;
    let rest = (len % PIECE as u64) as usize;
    (0..full).map(|_| PIECE).chain((rest > 0).then_some(rest))
}

fn receive_word<const N: usize>(worker: &mut Worker, from: Rank, tag: Tag) -> Result<[u8; N], Failure> {
    let receive = worker.recv(from, tag, worker.buffer(N)?)?;
    let message = worker.wait(receive)?;
    let word = message.buffer[..message.len].try_into();
    word.map_err(|_| Failure::new("the peer sent a word of another length"))
}

fn report(route: &str, path: &Path, outcome: &DirectionResult) -> Result<(), Failure> {
    let hex: String = outcome.digest.iter().map(|byte| format!("{byte:02x}")).collect();
    let verdict = if outcome.is_right { "equal" } else { "DIFFERENT" };
    let rate = outcome.len as f64 / outcome.seconds.max(1e-9) / 1e6;
    let (file, bytes) = (path.display(), output::bytes(outcome.len));
    output::line(format!("{route}: {file}, {bytes}, {rate:.0} MB/s with SHA-256, {verdict} {hex}"))?;
    Ok(())
}
