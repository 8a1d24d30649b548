//! Loops of our own: what the memory of this machine does, and what its kernel's sockets do.

mod lossy;
mod many;
mod memory;
mod row;
mod shared;
mod sockets;
mod tcp;
mod udp;

use std::net::SocketAddr;
use std::time::Duration;

use clap::Args;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::failure::{BenchFailure, NotPercent};

/// The options of a loop within this process.
#[derive(Args)]
pub(crate) struct LoopOptions {
    /// Bytes of messages
    #[arg(long, value_delimiter = ',', required = true, value_parser = clap::value_parser!(u64).range(1..=64 << 20))]
    size: Vec<u64>,
    /// For each size and test
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    millis: u64,
    /// Processors for both sides, with a comma between
    #[arg(long, value_delimiter = ',', default_value = "0,1")]
    cpus: Vec<usize>,
}

impl LoopOptions {
    fn sizes(&self) -> impl Iterator<Item = usize> {
        self.size.iter().map(|&size| size as usize)
    }

    fn duration(&self) -> Duration {
        Duration::from_millis(self.millis)
    }

    /// Checks that the loop runs on the given processors: elsewhere it would measure something else.
    fn check_processors(&self, allowed: &[usize], sides: usize) -> Result<(), BenchFailure> {
        let list = |cpus: &[usize]| cpus.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        if let Some(cpu) = self.cpus.iter().find(|cpu| !allowed.contains(cpu)) {
            return Err(BenchFailure::Processor { cpu: *cpu, allowed: list(allowed) });
        }
        match self.cpus[..] {
            [cpu] if sides == 2 => Err(BenchFailure::OneProcessor(cpu)),
            _ => Ok(()),
        }
    }

    /// The processor of a side.
    fn cpu(&self, side: usize) -> Option<usize> {
        self.cpus.get(side).copied()
    }
}

/// The options of a loop over sockets.
#[derive(Args)]
pub(crate) struct SocketOptions {
    /// Serve one client at this address
    #[arg(long, value_name = "ADDRESS", conflicts_with = "connect", required_unless_present = "connect")]
    listen: Option<SocketAddr>,
    /// Measure against the server at this address
    #[arg(long, value_name = "ADDRESS")]
    connect: Option<SocketAddr>,
    /// Bytes of messages
    #[arg(long, value_delimiter = ',', default_value = "8", value_parser = clap::value_parser!(u64).range(1..=64 << 20))]
    size: Vec<u64>,
    /// For each size and test
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    millis: u64,
}

/// The further options of a loop over TCP.
#[derive(Args)]
pub(crate) struct TcpOptions {
    #[command(flatten)]
    sockets: SocketOptions,
    /// Per cent of the segments that each end loses: goodput of one size
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    loss: Option<f64>,
    /// Connections that take turns: the rate of messages of one size
    #[arg(long, value_name = "COUNTS", value_delimiter = ',', conflicts_with = "loss", value_parser = clap::value_parser!(u16).range(1..=8192))]
    connections: Vec<u16>,
}

pub(crate) fn run_memcpy(options: &LoopOptions) -> Result<(), BenchFailure> {
    options.check_processors(&allowed_processors()?, 1)?;
    memory::copy(options);
    Ok(())
}

pub(crate) fn run_shared(options: &LoopOptions) -> Result<(), BenchFailure> {
    options.check_processors(&allowed_processors()?, 2)?;
    shared::between_threads(options);
    Ok(())
}

fn percent(text: &str) -> Result<f64, NotPercent> {
    let number = text.parse().ok().filter(|number| (0.0..=100.0).contains(number));
    number.ok_or(NotPercent)
}

pub(crate) fn run_tcp(options: &TcpOptions) -> Result<(), BenchFailure> {
    let TcpOptions { sockets, loss, connections } = options;
    let size = sockets.size[0] as usize;
    let duration = Duration::from_millis(sockets.millis);
    let done = match (sockets.listen, sockets.connect, *loss, connections.is_empty()) {
        (_, _, None, true) => return run_sockets::<tcp::Tcp>(sockets),
        (Some(address), _, Some(loss), _) => lossy::serve(address, loss),
        (None, Some(address), Some(loss), _) => lossy::measure(address, size, duration, loss),
        (Some(address), ..) => many::serve(address),
        (None, Some(address), ..) => {
            let counts: Vec<usize> = connections.iter().map(|&count| count.into()).collect();
            many::measure(address, size, &counts, duration)
        }
        (None, None, ..) => return Err(BenchFailure::NoAddress),
    };
    Ok(done?)
}

pub(crate) fn run_udp(options: &SocketOptions) -> Result<(), BenchFailure> {
    run_sockets::<udp::UdpEnd>(options)
}

fn run_sockets<T: sockets::SocketTransport>(options: &SocketOptions) -> Result<(), BenchFailure> {
    let done = match (options.listen, options.connect) {
        (Some(address), _) => sockets::serve::<T>(address),
        (None, Some(address)) => sockets::measure::<T>(address, &options.size, Duration::from_millis(options.millis)),
        (None, None) => return Err(BenchFailure::NoAddress),
    };
    Ok(done?)
}

/// Keeps this thread to one processor.
fn pin(cpu: Option<usize>) {
    if let Some(cpu) = cpu {
        let mut set = CpuSet::new();
        set.set(cpu);
        // It was allowed a moment ago. One that is taken away since is rarer than what could be done about it is worth.
        let _ = sched_setaffinity(None, &set);
    }
}

/// Those that this process may use.
pub(crate) fn allowed_processors() -> Result<Vec<usize>, BenchFailure> {
    let set = sched_getaffinity(None).map_err(BenchFailure::Affinity)?;
    Ok((0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_processor_that_cannot_be_had_is_an_error() {
        let check = |cpus: &[usize], sides| {
            let options = LoopOptions { size: vec![8], millis: 5, cpus: cpus.to_vec() };
            options.check_processors(&[2, 5], sides).map_err(|failure| failure.to_string())
        };
        assert_eq!(check(&[2, 5], 2), Ok(()));
        assert_eq!(check(&[5, 5], 2), Ok(()));
        assert_eq!(check(&[5], 1), Ok(()));
        let trouble =
            "processor 999 is not among those that this process may use, which are 2,5: name others by --cpus";
        assert_eq!(check(&[2, 999], 2), Err(trouble.into()));
        assert_eq!(check(&[2], 2), Err("--cpus names 1 processor, and 2 are needed: 2,2 would share it".into()));
    }
}
