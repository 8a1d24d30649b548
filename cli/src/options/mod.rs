//! The command line.

mod perf;
mod run;

use std::ffi::OsString;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use clap::{Args, Parser, Subcommand};
use roci_msgcore::Config;
use roci_msgcore::config::{Origin, parse_size};
use roci_protocol::Pkey;
use roci_protocol::sim::Faults;

use crate::bad_value::BadOptionValue;
use crate::commands::decode::{Only, PrintedTime};
use crate::commands::perf::EngineMode;
use crate::failure::Failure;

pub(crate) use perf::PerfOptions;
pub(crate) use run::{
    BoardOptions, HostOptions, OutputOptions, RankOptions, RunOptions, TerminalOptions, with_mpirun_spelling,
};

/// RDMA semantics and MPI-class messaging over RoCEv2, in userspace, with or without privilege.
#[derive(Parser)]
#[command(name = "roci", version, disable_help_subcommand = true, arg_required_else_help = false, after_help = EXAMPLES)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: RociCommand,
}

impl Cli {
    /// An option that was given, and the one that it means nothing without, which was not.
    pub(crate) fn lone_option(&self) -> Option<(&'static str, &'static str)> {
        match &self.command {
            RociCommand::Run(run) if run.terminal.debugger.is_some() && !run.terminal.debug => {
                Some(("--debugger", "--debug"))
            }
            RociCommand::Perf(perf) if perf.server.once && perf.server.listen.is_none() => {
                Some(("--once", "--listen ADDRESS:PORT"))
            }
            _ => None,
        }
    }
}

const EXAMPLES: &str = "Examples:
  roci run -n 2 roci soak --seconds 5     # two ranks, verified messages
  roci perf tag_lat,tag_bw --size 8,1MiB  # latency and bandwidth
  roci doctor --device udp                # what does this machine lack?
'roci COMMAND --help' has the options of a command.";
const RUN_EXAMPLES: &str = "Examples:
  roci run -n 4 roci soak --seconds 10
  roci run -n 8 -hosts node1:4,node2:4 --prefix ./solver input
  roci run -n 2 --faults loss=0.01 --pcap /tmp/rank%r.pcap ./solver
  roci run -n 2 -hosts node1,node2 -show ./solver";
const PERF_EXAMPLES: &str = "Examples:
  roci perf raw_lat,send_lat,tag_lat --size 8
  roci perf tag_bw --device udp --listen 0.0.0.0:4800   # the server
  roci perf tag_bw --device udp server:4800             # its client
  roci perf --perftest send_bw --device af_packet:eth1  # for ib_send_bw";
const STAT_EXAMPLES: &str = "Examples:
  roci stat
  roci stat 12345
  roci stat --json | jq '.[].counters.engine.retransmitted_packets'";

#[derive(Subcommand)]
pub(crate) enum RociCommand {
    /// Start the ranks of a job, on this host or several
    #[command(after_help = RUN_EXAMPLES)]
    Run(RunOptions),
    /// Serve the job of ranks that are started by hand
    Board(BoardOptions),
    /// Measure latency and bandwidth between two ranks
    #[command(after_help = PERF_EXAMPLES)]
    Perf(PerfOptions),
    /// Send verified messages between all ranks of a job; start it with `roci run`
    Soak(SoakOptions),
    /// Exchange a file between the two ranks of a job, both ways, and compare digests; start it with `roci run -n 2`
    Exchange(ExchangeOptions),
    /// Print the RoCEv2 packets of a capture
    Decode(DecodeOptions),
    /// Print which rules of IBTA the packets of a capture break; status 1 if they break one
    Lint(LintOptions),
    /// Print devices, this configuration, and what a knob means
    Info(InfoOptions),
    /// Say what this machine lacks for a device, and the command that mends it; status 1 if the device would not run
    Doctor(DoctorOptions),
    /// Make huge pages, list them, or give them back: status, set N, undo
    #[command(disable_help_flag = true)]
    Hugepages(ToolOptions),
    /// Give a NIC to user space, or back to the kernel: status, bind, unbind
    #[command(disable_help_flag = true)]
    BindNic(ToolOptions),
    /// Show what running workers count and wait for
    #[command(after_help = STAT_EXAMPLES)]
    Stat(StatOptions),
    /// Run the reliable connection over a simulated network that loses, repeats and reorders packets
    Sim(SimOptions),
    /// Print a completion script for a shell
    Completions(CompletionsOptions),
    /// Write manual pages, one for each command
    Man(ManOptions),
    /// What `run` starts for each rank
    #[command(hide = true)]
    Rank(RankOptions),
    /// What `run` starts on another host
    #[command(hide = true)]
    Agent,
}

/// What a script is given.
#[derive(Args)]
pub(crate) struct ToolOptions {
    /// What to do; without it, the usage is printed
    #[arg(value_name = "WORD", trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) arguments: Vec<OsString>,
}

/// Where the ranks' ports are.
#[derive(Args, Clone, Default)]
pub(crate) struct PortOptions {
    /// memif, vhost, udp, udp:ADDRESS, af_packet:IFACE, pci:ADDRESS; %r stands for the rank
    #[arg(long, value_name = "DEVICE")]
    pub(crate) device: Option<String>,
    /// A DPDK EAL line instead of a device; its first port is used
    #[arg(long, value_name = "ARGUMENTS", conflicts_with = "device", allow_hyphen_values = true)]
    pub(crate) eal: Option<String>,
}

/// The same, and what is done to their frames.
#[derive(Args, Clone, Default)]
pub(crate) struct DeviceOptions {
    #[command(flatten)]
    pub(crate) port: PortOptions,
    /// Inject faults into sent frames: loss=0.01,dup=0.01,reorder=0.01,corrupt=0.001,seed=7
    #[arg(long, value_name = "PLAN")]
    pub(crate) faults: Option<Faults>,
    /// Write the frames of each rank's first port to this file; %r stands for the rank
    #[arg(long, value_name = "FILE")]
    pub(crate) pcap: Option<PathBuf>,
}

impl PortOptions {
    fn knobs(&self) -> impl Iterator<Item = (&'static str, String)> {
        let given = [("device", &self.device), ("eal", &self.eal)];
        given.into_iter().filter_map(|(name, value)| Some((name, value.clone()?)))
    }

    /// The configuration: environment and these options.
    pub(crate) fn config(&self) -> Result<Config, Failure> {
        self.config_of(None)
    }

    /// The same, above what stands in a parameter file.
    pub(crate) fn config_of(&self, paramfile: Option<&Path>) -> Result<Config, Failure> {
        configure(paramfile, self.knobs())
    }
}

impl DeviceOptions {
    /// The knobs that were given, by name.
    pub(crate) fn knobs(&self) -> Vec<(&'static str, String)> {
        let faults = self.faults.map(|Faults { loss, dup, reorder, corrupt, seed }| {
            format!("loss={loss},dup={dup},reorder={reorder},corrupt={corrupt},seed={seed}")
        });
        let pcap = self.pcap.as_ref().map(|path| path.display().to_string());
        let frames = [("faults", faults), ("pcap", pcap)].into_iter().filter_map(|(name, value)| Some((name, value?)));
        self.port.knobs().chain(frames).collect()
    }

    /// The configuration: environment and these options.
    pub(crate) fn config(&self) -> Result<Config, Failure> {
        configure(None, self.knobs())
    }
}

fn configure(
    paramfile: Option<&Path>,
    knobs: impl IntoIterator<Item = (&'static str, String)>,
) -> Result<Config, Failure> {
    let mut config = Config::load(paramfile)?;
    for (name, value) in knobs {
        config.set(name, &value, Origin::Code)?;
    }
    Ok(config)
}

#[derive(Args)]
pub(crate) struct SoakOptions {
    /// How many seconds to run
    #[arg(long, default_value_t = 10, value_name = "S", value_parser = clap::value_parser!(u64).range(1..=31_536_000))]
    pub(crate) seconds: u64,
    /// The longest message
    #[arg(long, default_value = "64KiB", value_name = "B", value_parser = soak_size)]
    pub(crate) max_size: usize,
    /// The seed that sizes, tags and contents follow from
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(crate) seed: u64,
    /// Where the workers run
    #[arg(long, value_enum, default_value_t = EngineMode::Inline)]
    pub(crate) engine: EngineMode,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) device: DeviceOptions,
}

#[derive(Args)]
pub(crate) struct ExchangeOptions {
    /// The file; without it, this very program
    pub(crate) file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) device: DeviceOptions,
    /// Print no latency and bandwidth table afterwards
    #[arg(long)]
    pub(crate) no_table: bool,
}

#[derive(Args)]
pub(crate) struct DecodeOptions {
    /// A capture, pcap or pcapng
    #[arg(required_unless_present = "dissector")]
    pub(crate) file: Option<PathBuf>,
    /// Print one JSON object for each packet or conversation
    #[arg(long)]
    pub(crate) json: bool,
    /// Which time of a packet is printed
    #[arg(long, value_name = "WHICH", value_enum, default_value_t = PrintedTime::Relative)]
    pub(crate) time: PrintedTime,
    /// Only packets to this queue pair, such as 17 or 0x11; several are separated by commas
    #[arg(long, value_name = "QPN", value_delimiter = ',', value_parser = queue_pair_number)]
    pub(crate) qpn: Vec<u32>,
    /// Only packets from or to this host
    #[arg(long, value_name = "IP", value_delimiter = ',')]
    pub(crate) host: Vec<IpAddr>,
    /// Only packets whose name contains this, such as SEND, or RC_ACK
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub(crate) opcode: Vec<String>,
    /// Only packets that show trouble
    #[arg(long, value_name = "KIND", value_enum, value_delimiter = ',')]
    pub(crate) only: Vec<Only>,
    /// Print one line for all packets from a host to a queue pair
    #[arg(long, conflicts_with_all = ["qpn", "host", "opcode", "only"])]
    pub(crate) conversations: bool,
    /// Print a Wireshark dissector for what this stack adds to RoCEv2: `roci decode --dissector > rocinante.lua`
    #[arg(long, conflicts_with_all = ["file", "json", "conversations"])]
    pub(crate) dissector: bool,
}

#[derive(Args)]
pub(crate) struct LintOptions {
    /// A capture, pcap or pcapng
    pub(crate) file: PathBuf,
    /// A P_Key that packets may have; several are separated by commas
    #[arg(long, value_name = "KEY", value_delimiter = ',', default_values_t = [Pkey::DEFAULT])]
    pub(crate) pkey: Vec<Pkey>,
    /// Print one JSON object for each finding
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args)]
pub(crate) struct InfoOptions {
    /// Explain these knobs: credits, or ROCI_CREDITS
    #[arg(value_name = "KNOB", conflicts_with_all = ["all", "sample", "protocols", "port"])]
    pub(crate) knobs: Vec<String>,
    /// Explain all knobs
    #[arg(long, conflicts_with_all = ["sample", "protocols", "port"])]
    pub(crate) all: bool,
    #[command(flatten)]
    pub(crate) device: PortOptions,
    /// Read knobs from this file, as `run` does
    #[arg(long, value_name = "FILE")]
    pub(crate) paramfile: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// Print a parameter file with every default
    #[arg(long, conflicts_with = "json")]
    pub(crate) sample: bool,
    /// Print which protocol carries which lengths, and why; within a job, for each peer
    #[arg(long, conflicts_with = "sample")]
    pub(crate) protocols: bool,
    /// Open the device's port as a worker would, and print its queues, how frames are spread over them, and which checksums
    /// it verifies
    #[arg(long, conflicts_with_all = ["sample", "protocols"])]
    pub(crate) port: bool,
}

#[derive(Args)]
pub(crate) struct DoctorOptions {
    #[command(flatten)]
    pub(crate) port: PortOptions,
    /// Also look at what only other devices need
    #[arg(long)]
    pub(crate) all: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args)]
pub(crate) struct StatOptions {
    /// Only this process, with all that --wide shows
    pub(crate) pid: Option<u32>,
    /// Also what each worker waits for, its peers, and histograms
    #[arg(long)]
    pub(crate) wide: bool,
    /// Print one page and end, as a pipe gets it too
    #[arg(long)]
    pub(crate) once: bool,
    /// Seconds between two pages, over which rates are measured
    #[arg(long, value_name = "SECONDS", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub(crate) interval: u64,
    /// Print a JSON array, with every counter
    #[arg(long, conflicts_with_all = ["once", "prometheus"])]
    pub(crate) json: bool,
    /// Print Prometheus' text format, with every counter
    #[arg(long, conflicts_with = "once")]
    pub(crate) prometheus: bool,
}

#[derive(Args)]
pub(crate) struct CompletionsOptions {
    /// The shell
    #[arg(value_enum)]
    pub(crate) shell: clap_complete::Shell,
}

#[derive(Args)]
pub(crate) struct ManOptions {
    /// The directory to write to, such as /usr/local/share/man/man1
    #[arg(value_name = "DIR")]
    pub(crate) directory: PathBuf,
}

#[derive(Args)]
#[group(required = true, multiple = false)]
pub(crate) struct SimOptions {
    /// Replay one seed
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// Run the seeds from A to B, both included
    #[arg(long, value_name = "A..B", value_parser = seed_range)]
    pub(crate) seeds: Option<(u64, u64)>,
}

/// The longest message of a measurement: it and its copies fit the arena's default.
const MAX_MESSAGE: usize = 64 << 20;

fn queue_pair_number(text: &str) -> Result<u32, BadOptionValue> {
    let number = text.strip_prefix("0x").map_or_else(|| text.parse(), |digits| u32::from_str_radix(digits, 16));
    number.ok().filter(|number| *number < 1 << 24).ok_or(BadOptionValue::QueuePairNumber)
}

fn soak_size(text: &str) -> Result<usize, BadOptionValue> {
    let size = parse_size(text).ok_or(BadOptionValue::NotASize("64KiB, 1MiB"))?;
    if size <= MAX_MESSAGE { Ok(size) } else { Err(BadOptionValue::SizeRange(0)) }
}

fn seed_range(text: &str) -> Result<(u64, u64), BadOptionValue> {
    let (first, last) = text.split_once("..").ok_or(BadOptionValue::NotARange)?;
    let bounds = first.parse().ok().zip(last.parse().ok());
    bounds.filter(|(first, last)| first <= last).ok_or(BadOptionValue::NotRising)
}
