//! The options of `roci perf`.

use std::str::FromStr;

use clap::{Args, ValueEnum};
use roci_msgcore::config::parse_size;

use super::{DeviceOptions, MAX_MESSAGE};
use crate::bad_value::BadOptionValue;
use crate::commands::perf::{EngineMode, MOST_IN_FLIGHT, PayloadMemory, PerfTest, UpToStep};

#[derive(Args)]
pub(crate) struct PerfOptions {
    /// One test, or several with commas: send_lat send_bw send_rate write_lat write_bw read_lat read_bw atomic_lat (verbs),
    /// tag_lat tag_bw (tagged messages), stream_lat stream_bw (byte streams), put_lat put_bw get_lat get_bw fadd_lat
    /// (one-sided), am_lat am_rate (active messages), raw_lat raw_bw (bare frames). A latency is half a round trip, but of
    /// reads, atomics, puts, gets and fadd_lat it is the time until the operation has ended
    #[arg(value_name = "TEST", required_unless_present = "perftest")]
    pub(crate) tests: Option<TestList>,
    /// The server, HOST:PORT; without it both sides run on this host, each on a processor of its own
    #[arg(value_name = "PEER", conflicts_with = "listen")]
    pub(crate) peer: Option<String>,
    #[command(flatten)]
    pub(crate) server: ServerOptions,
    /// Serve one unmodified client of perftest, ib_TEST, on a network device: send_lat send_bw write_lat write_bw read_lat
    /// read_bw atomic_lat atomic_bw. Give the client's size as --size or --all, and for write_lat its -n as --iters
    #[arg(long, value_name = "TEST", conflicts_with_all = [
        "tests", "peer", "no_verify", "touch", "stream", "connections", "depth", "memory", "engine",
    ])]
    pub(crate) perftest: Option<roci_perftest::Test>,
    /// The client of --perftest runs all sizes (its option -a)
    #[arg(long, requires = "perftest", conflicts_with_all = ["tests", "size"])]
    pub(crate) all: bool,
    #[command(flatten)]
    pub(crate) device: DeviceOptions,
    /// Message sizes, such as 8,4KiB,1MiB
    #[arg(long, value_name = "SIZES", value_delimiter = ',', value_parser = message_size)]
    pub(crate) size: Vec<usize>,
    /// Messages of each size [default: chosen by size; 1000 for --perftest write_lat]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub(crate) iters: Option<u64>,
    /// Print one JSON object for each row
    #[arg(long)]
    pub(crate) json: bool,
    /// Do not compare received payloads with what was sent
    #[arg(long)]
    pub(crate) no_verify: bool,
    /// Write and read every byte of bare frames, too (raw_lat, raw_bw); all other tests do so anyway
    #[arg(long)]
    pub(crate) touch: bool,
    /// Use the optimizations of byte streams up to this step
    #[arg(long, value_name = "STEP", value_enum, default_value_t = UpToStep::Zerocopy)]
    pub(crate) stream: UpToStep,
    #[command(flatten)]
    pub(crate) modes: PerfModes,
    /// Messages under way at once in send_bw, write_bw, read_bw, tag_bw, put_bw and get_bw, such as 1,4,16 [default: 64, and at
    /// most 4 MiB together]
    #[arg(long, value_name = "COUNTS", value_delimiter = ',', value_parser = depth)]
    pub(crate) depth: Vec<usize>,
    /// Whose memory holds the payloads of send, write and read tests
    #[arg(long, value_name = "WHOSE", value_enum, default_value_t = PayloadMemory::Arena)]
    pub(crate) memory: PayloadMemory,
    /// Where the worker runs, in all tests but those of verbs and bare frames
    #[arg(long, value_name = "MODE", value_enum, default_value_t = EngineMode::Inline)]
    pub(crate) engine: EngineMode,
}

/// What a measurement does otherwise than by itself.
#[derive(Args)]
pub(crate) struct PerfModes {
    /// Measure each size for so many seconds, instead of a number of messages
    #[arg(long, short = 'D', value_name = "SECONDS", conflicts_with_all = ["iters", "perftest"],
        value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(crate) duration: Option<u64>,
    /// Send from both sides at once in send_bw, write_bw, read_bw and tag_bw; a row has the sum
    #[arg(long, short, conflicts_with = "perftest")]
    pub(crate) bidirectional: bool,
    /// Send datagrams (UD) in send_lat and send_bw; a row says how many were lost
    #[arg(long, conflicts_with_all = ["perftest", "bidirectional", "connections", "memory"])]
    pub(crate) ud: bool,
    /// Queue pairs that take turns in send_bw, write_bw, read_bw (up to 64) and send_rate (up to 4096), such as 1,16,64
    #[arg(long = "qps", visible_alias = "connections", short, value_name = "COUNTS", value_delimiter = ',',
        value_parser = connection_count)]
    pub(crate) connections: Vec<usize>,
}

/// The server of two processes that were not started together.
#[derive(Args)]
pub(crate) struct ServerOptions {
    /// Be the server, at this ADDRESS:PORT: serve one client after the other; --perftest serves one [default for --perftest:
    /// 0.0.0.0:18515]
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(crate) listen: Option<String>,
    /// Serve one client, and end
    #[arg(long)]
    pub(crate) once: bool,
}

/// Tests, separated by commas. (A list of its own type: clap would let it swallow the peer.)
#[derive(Clone)]
pub(crate) struct TestList(pub(crate) Vec<PerfTest>);

impl FromStr for TestList {
    type Err = BadOptionValue;

    fn from_str(text: &str) -> Result<Self, BadOptionValue> {
        let known = || PerfTest::value_variants().iter().map(|test| test.name()).collect::<Vec<_>>().join(" ");
        let test = |name: &str| {
            PerfTest::from_str(name, false)
                .map_err(|_| BadOptionValue::UnknownTest { name: name.to_owned(), known: known() })
        };
        text.split(',').map(test).collect::<Result<_, _>>().map(Self)
    }
}

/// As many as the connections that an engine's connection manager has.
const MAX_CONNECTIONS: usize = 4096;

fn message_size(text: &str) -> Result<usize, BadOptionValue> {
    let size = parse_size(text).ok_or(BadOptionValue::NotASize("8, 4KiB, 1MiB"))?;
    if (1..=MAX_MESSAGE).contains(&size) { Ok(size) } else { Err(BadOptionValue::SizeRange(1)) }
}

fn connection_count(text: &str) -> Result<usize, BadOptionValue> {
    let count = text.parse().ok().filter(|count| (1..=MAX_CONNECTIONS).contains(count));
    count.ok_or(BadOptionValue::CountRange(MAX_CONNECTIONS))
}

fn depth(text: &str) -> Result<usize, BadOptionValue> {
    let depth = text.parse().ok().filter(|depth| (1..=MOST_IN_FLIGHT).contains(depth));
    depth.ok_or(BadOptionValue::DepthRange(MOST_IN_FLIGHT))
}
