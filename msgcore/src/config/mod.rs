//! The configuration: where its values come from, and what is wrong with them. The knobs themselves are rows of a table
//! in `knobs`.
//!
//! Order: default, then file, then environment, then code. What is not a knob is an error that names the
//! closest one.

mod bad_value;
mod demand;
mod effect;
mod knobs;
mod values;

use std::fmt;
use std::path::Path;

use roci_driver::link::dpdk::Device;
use roci_driver::link::live::{LinkDevice, ParseLinkDeviceError};
use roci_driver::{ArenaConfig, Mtu, RegistrationConfig};
use roci_protocol::msg;
use thiserror::Error;

use crate::core::lane::SEND_QUEUE;
use crate::receive_queues::{Kind, ReceiveQueue, ReceiveQueues};
use crate::services::rma::firehose;
use crate::services::tag::select::Rules;
use roci_launcher as job;

pub use crate::units::{parse_size, show_size};
pub use bad_value::BadKnobValue;
pub use demand::{Demand, TooMuch};
pub(crate) use effect::UNEXPECTED_SHARE;
pub use knobs::{Config, ConnectMethod, Initiative, KNOBS, LocalDevice, WireupTime};

/// Regions that `ndreg_entries` and Firehose may open together; the engine has a few keys more, for itself.
const MOST_REGIONS: usize = 16_000;
/// The largest job whose ranks post receives to each peer by default: those of 128 peers take 150 MiB.
const MANY_RANKS: usize = 129;
/// The most receives of the queue that the peers of a larger one share; a quarter is posted at the start.
const SHARED_RECEIVES: usize = 4096;

/// Where a value came from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    /// The default.
    Default,
    /// A parameter file.
    File,
    /// The environment.
    Environment,
    /// The program, or an option of its command line.
    Code,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Default => "default",
            Self::File => "file",
            Self::Environment => "environment",
            Self::Code => "code",
        })
    }
}

/// Why a configuration was refused.
#[derive(Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// No such knob.
    #[error("unknown knob '{name}'{}", did_you_mean(.closest))]
    Unknown {
        /// What was given.
        name: String,
        /// The knob with the most similar name, if one is similar.
        closest: Option<String>,
    },
    /// The value is not of the knob's kind, or out of its range.
    #[error("{name}={value}: {problem}")]
    Value {
        /// The knob.
        name: String,
        /// What was given.
        value: String,
        /// What is wrong.
        #[source]
        problem: BadKnobValue,
    },
    /// The file could not be read, or a line of it could not be taken.
    #[error("parameter file {path}: {problem}")]
    File {
        /// Which file.
        path: String,
        /// What is wrong.
        problem: String,
    },
}

fn did_you_mean(closest: &Option<String>) -> String {
    closest.as_ref().map_or_else(String::new, |name| format!(": did you mean '{name}'?"))
}

/// One row of the table.
pub struct Knob {
    /// The name in files; the environment's is `ROCI_` and this in upper case.
    pub name: &'static str,
    /// The unit of the value, or its kind.
    pub unit: &'static str,
    /// Which values are taken.
    pub range: &'static str,
    /// What it does, and why the default is what it is.
    pub reason: &'static str,
    get: fn(&Config) -> String,
    set: fn(&mut Config, &str) -> Result<(), BadKnobValue>,
}

impl Knob {
    /// The environment variable.
    pub fn environment_name(&self) -> String {
        format!("ROCI_{}", self.name.to_uppercase())
    }

    /// The value in a configuration, as text that the knob takes.
    pub fn value(&self, config: &Config) -> String {
        (self.get)(config)
    }
}

impl Config {
    /// The defaults, then `file` if there is one, then the environment.
    pub fn load(file: Option<&Path>) -> Result<Self, ConfigError> {
        let variables = std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value)));
        let mut config = Self::default();
        if let Some(path) = file {
            config.read_file(path)?;
        }
        for (name, value) in variables.filter(|(name, _)| name.starts_with("ROCI_")) {
            if job::VARIABLES.contains(&name.as_str()) {
                continue;
            }
            let value = value.to_str().ok_or_else(|| ConfigError::Value {
                name: name.clone(),
                value: "?".into(),
                problem: BadKnobValue::NotUtf8,
            })?;
            config.set_from_environment(&name, value)?;
        }
        Ok(config)
    }

    /// Sets a knob by its name in files.
    pub fn set(&mut self, name: &str, value: &str, origin: Origin) -> Result<(), ConfigError> {
        let knob = KNOBS.iter().find(|knob| knob.name == name).ok_or_else(|| unknown(name, |knob| knob.name.into()))?;
        self.apply(knob, name, value, origin)
    }

    /// Where a knob's value came from.
    pub fn origin(&self, name: &str) -> Origin {
        self.origins.get(name).copied().unwrap_or(Origin::Default)
    }

    /// The same, whose peers all meet over the configured device unless something else was asked for: what is measured is that device.
    #[must_use]
    pub fn over_its_device(self) -> Self {
        let is_asked_for = self.origin("local") != Origin::Default;
        Self { local: if is_asked_for { self.local } else { LocalDevice::Off }, ..self }
    }

    /// The same, for the ranks of this job, which may be on several hosts.
    #[must_use]
    pub fn for_job(self, job: &job::Job) -> Self {
        if job.directory().is_some() { self } else { self.for_several_hosts() }
    }

    /// The same, for processes on several hosts: where no device was asked for they meet over `udp`, and those of one host over
    /// memif beside it ([`Config::local`]).
    #[must_use]
    pub fn for_several_hosts(self) -> Self {
        let is_asked_for = self.origin("device") != Origin::Default || !self.eal.is_empty();
        if is_asked_for { self } else { Self { device: "udp".into(), ..self } }
    }

    /// The same, for a process that is in no job: it connects by RDMA-CM, where nothing else was asked for.
    pub(crate) fn for_strangers(&self) -> Self {
        let mut config = self.clone().for_several_hosts();
        if config.origin("connect_method") == Origin::Default {
            config.connect_method = ConnectMethod::RdmaCm;
        }
        config
    }

    /// Whether knobs contradict each other, as far as one end alone can tell.
    pub fn check(&self) -> Result<(), ConfigError> {
        let most = self.ack_timeout_max_us;
        if self.ack_timeout_us <= most {
            return Ok(());
        }
        let (name, value) = ("ack_timeout_us".into(), self.ack_timeout_us.to_string());
        let problem = BadKnobValue::LongerThanLongestWait(most);
        Err(ConfigError::Value { name, value, problem })
    }

    /// The device, with `%r` replaced by the rank.
    pub fn device_of(&self, rank: usize) -> Result<LinkDevice, ConfigError> {
        if !self.eal.is_empty() {
            return Ok(Device::Eal(self.eal.replace("%r", &rank.to_string())).into());
        }
        let name = self.device.replace("%r", &rank.to_string());
        name.parse().map_err(|error: ParseLinkDeviceError| ConfigError::Value {
            name: "device".into(),
            value: name,
            problem: error.into(),
        })
    }

    /// The arena, near the device where one is given whose place is known.
    pub fn arena(&self, near: Option<&LinkDevice>) -> ArenaConfig {
        let node = near.and_then(LinkDevice::numa_node);
        ArenaConfig { bytes: self.arena_size, pages: self.arena_pages, node }
    }

    /// How the application's memory is registered.
    pub fn registration(&self) -> RegistrationConfig {
        RegistrationConfig {
            cache: self.dreg_cache,
            regions: self.dreg_cache_entries,
            bytes: self.dreg_cache_limit,
            monitor: self.dreg_monitor,
            pin: self.dreg_pin,
        }
    }

    /// The receive queues: those that are given, or one for each peer as `credits` and `vbuf_size` describe it, whose
    /// receives are posted again an eighth at a time.
    pub fn receive_queues(&self) -> ReceiveQueues {
        let num = u32::from(self.credits);
        let window = (num / 4).max(1);
        // Eight are posted again at a time, which spares most messages that detour.
        let low = num - (num / 8).max(1);
        let kind = Kind::PerPeer { num, low, window, reserve: (2 * num - 1) / window };
        let size = self.vbuf_size;
        let queues = self.receive_queues.clone().unwrap_or_else(|| ReceiveQueues::one(ReceiveQueue { kind, size }));
        queues.with_least_credits()
    }

    /// The receive queues of a job of so many ranks: as [`Config::receive_queues`], but that many peers share one queue where
    /// no knob asks for something else. What all peers may leave without a receive on shared queues, each as much as it has
    /// credits for, fits what such messages may take.
    pub fn receive_queues_for(&self, ranks: usize) -> ReceiveQueues {
        let is_asked_for = self.receive_queues.is_some() || self.origin("credits") != Origin::Default;
        let queues = if is_asked_for || ranks <= MANY_RANKS {
            self.receive_queues()
        } else {
            let shared = format!("S,{},{SHARED_RECEIVES},{}", self.vbuf_size, SHARED_RECEIVES / 2);
            shared.parse::<ReceiveQueues>().expect("a queue of that notation").with_least_credits()
        };
        let room = self.unexpected_limit.min(self.arena_size / UNEXPECTED_SHARE);
        queues.with_shared_credits_within(room, ranks.saturating_sub(1))
    }

    /// Bytes of an active message's payload at most: what the largest receives hold beside the header.
    pub fn max_active(&self) -> usize {
        self.receive_queues().max_payload()
    }

    /// What decides which protocol carries a message.
    pub fn rules(&self) -> Rules {
        let largest = self.max_active();
        // Unless somebody says otherwise an eager message is a single vbuf.
        let eager = if self.origin("eager_threshold") == Origin::Default { largest } else { self.eager_threshold };
        // A series leaves at once or not at all: it must find a place in the send queue, and its vbufs, when both are idle.
        let series = SEND_QUEUE.min(self.vbuf_max);
        Rules {
            eager: eager.min(series * largest),
            r3: self.r3_threshold,
            pipeline: self.pipeline_threshold,
            rendezvous: self.rndv_protocol,
            ours: msg::Capabilities { rdma: self.rdma },
        }
    }

    /// How much of the memory that a rank offers Firehose keeps pinned, in a job of so many ranks.
    pub fn firehose_limits(&self, ranks: usize) -> Result<firehose::Limits, firehose::BadLimits> {
        let bucket = self.firehose_bucket as u64;
        let settings = firehose::Settings { m: self.firehose_m, maxvictim: self.firehose_maxvictim_m, bucket };
        // Each bucket is a registration, of which some are left to this rank's own memory, and takes a key.
        let part = |of: usize| (of as u128 * u128::from(self.physmem_pinnable_ratio) / 1000) as usize;
        let (bytes, entries) = (part(self.dreg_cache_limit), part(self.dreg_cache_entries));
        let keys = MOST_REGIONS.saturating_sub(self.ndreg_entries).min(entries);
        firehose::Limits::new(settings, ranks, firehose::Pinnable { bytes: bytes as u64, keys: keys as u64 })
    }

    /// The path MTU.
    pub fn mtu(&self) -> Mtu {
        Mtu::from_bytes(self.mtu).expect("the knob takes no other sizes")
    }

    /// How long the packets of a port on a network may be, where that was said; else a port follows its device.
    pub fn wanted_port_mtu(&self) -> Option<u16> {
        (self.origin("port_mtu") != Origin::Default).then_some(self.port_mtu)
    }

    fn set_from_environment(&mut self, name: &str, value: &str) -> Result<(), ConfigError> {
        let knob = KNOBS.iter().find(|knob| knob.environment_name() == name);
        let knob = knob.ok_or_else(|| unknown(name, Knob::environment_name))?;
        self.apply(knob, name, value, Origin::Environment)
    }

    fn read_file(&mut self, path: &Path) -> Result<(), ConfigError> {
        let problem = |problem: String| ConfigError::File { path: path.display().to_string(), problem };
        let text = std::fs::read_to_string(path).map_err(|error| problem(error.to_string()))?;
        let table: toml::Table = text.parse().map_err(|error: toml::de::Error| {
            let line = error.span().map_or(1, |span| 1 + text[..span.start].matches('\n').count());
            problem(format!("line {line}: {} (a line is NAME = \"VALUE\")", error.message()))
        })?;
        for (name, value) in table {
            let value = match value {
                toml::Value::String(text) => text,
                other => other.to_string(),
            };
            self.set(&name, &value, Origin::File).map_err(|error| problem(error.to_string()))?;
        }
        Ok(())
    }

    fn apply(&mut self, knob: &'static Knob, name: &str, value: &str, origin: Origin) -> Result<(), ConfigError> {
        let refused = |problem| ConfigError::Value { name: name.into(), value: value.into(), problem };
        (knob.set)(self, value).map_err(refused)?;
        if knob.name == "device" {
            // A later word on the device takes back an earlier EAL line.
            self.eal.clear();
        }
        self.origins.insert(knob.name, origin);
        Ok(())
    }
}

/// The text of a parameter file that says what the defaults are.
pub fn sample_file() -> String {
    let config = Config::default();
    let row = |knob: &Knob| {
        let (name, unit, range, reason) = (knob.name, knob.unit, knob.range, knob.reason);
        let (environment, value) = (knob.environment_name(), knob.value(&config));
        format!("\n#{reason}\n# unit: {unit}; range: {range}; environment: {environment}\n{name} = \"{value}\"\n")
    };
    let head = "# Every knob with its default. Order: default < this file < environment < options.\n";
    std::iter::once(head.to_owned()).chain(KNOBS.iter().map(row)).collect()
}

fn unknown(name: &str, known_as: impl Fn(&Knob) -> String) -> ConfigError {
    let distance = |known: &String| strsim::damerau_levenshtein(name, known);
    let closest = KNOBS.iter().map(known_as).min_by_key(distance).filter(|known| distance(known) <= known.len() / 3);
    ConfigError::Unknown { name: name.into(), closest }
}

#[cfg(test)]
mod tests {
    use super::*;
    use roci_driver::Pkey;

    #[test]
    fn a_partition_is_a_number_of_16_bits_other_than_none() {
        for (text, pkey) in [("0x8123", 0x8123), (" 32769 ", 0x8001), ("0x1", 1), ("0xffff", 0xffff)] {
            let mut config = Config::default();
            config.set("pkey", text, Origin::Code).expect("a P_Key");
            assert_eq!(config.pkey, Pkey(pkey));
        }
        for text in ["", "0", "0x8000", "0x10000", "-1", "0x", "ffff"] {
            assert!(Config::default().set("pkey", text, Origin::Code).is_err(), "{text}");
        }
    }

    #[test]
    fn every_default_is_within_its_own_range() {
        let defaults = Config::default();
        for knob in KNOBS {
            let mut config = Config::default();
            let value = knob.value(&defaults);
            config.set(knob.name, &value, Origin::Code).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(knob.value(&config), value, "{}", knob.name);
        }
    }

    #[test]
    fn the_ranks_of_a_large_job_share_one_queue_unless_a_knob_asks_for_another() {
        let is_shared = |config: &Config, ranks| {
            let queues = config.receive_queues_for(ranks);
            matches!(queues.get(0).expect("one").kind, Kind::Shared { .. })
        };
        let mut config = Config::default();
        assert_eq!([2, 129, 130, 10_000].map(|ranks| is_shared(&config, ranks)), [false, false, true, true]);
        assert_eq!(config.receive_queues_for(130).largest(), config.vbuf_size);
        config.set("credits", "128", Origin::Code).expect("in range");
        assert!(!is_shared(&config, 10_000), "it was asked for");
        let mut config = Config::default();
        config.set("receive_queues", "P,8KiB,16", Origin::Code).expect("in range");
        assert!(!is_shared(&config, 10_000), "it was asked for");
    }

    #[test]
    fn the_committed_sample_says_what_the_defaults_are() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs/param.sample");
        let committed = std::fs::read_to_string(path).expect("configs/param.sample");
        assert_eq!(committed, sample_file(), "regenerate it with: roci info --sample > configs/param.sample");
    }

    /// A document about another system's parameters, which names at least so many of our knobs: all of them are some.
    fn document(name: &str, least: usize) -> String {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs").join(name);
        let text = std::fs::read_to_string(path).expect(name);
        let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
        let ours: Vec<_> = words.filter(|word| word.starts_with("ROCI_")).collect();
        assert!(ours.len() > least, "{ours:?}");
        for name in ours {
            assert!(KNOBS.iter().any(|knob| knob.environment_name() == name), "{name} is no knob");
        }
        text
    }

    fn assert_rows(text: &str, names: &str) {
        for name in names.split_whitespace() {
            let rows = text.lines().filter(|line| line.starts_with('|') && line.contains(&format!("`{name}`")));
            assert_eq!(rows.count(), 1, "{name} needs one row");
        }
    }

    #[test]
    fn the_table_of_mvichs_parameters_names_knobs_that_there_are() {
        assert_rows(&document("mvich-parameters.md", 20), MVICH_PARAMETERS);
    }

    #[test]
    fn the_table_of_gasnets_parameters_names_knobs_that_there_are() {
        assert_rows(&document("gasnet-parameters.md", 5), GASNET_PARAMETERS);
    }

    const GASNET_PARAMETERS: &str = "
        GASNET_FIREHOSE_M GASNET_FIREHOSE_MAXVICTIM_M GASNET_FIREHOSE_R GASNET_FIREHOSE_MAXVICTIM_R
        GASNET_FIREHOSE_MAXREGION_SIZE GASNET_FIREHOSE_TABLE_SCALE GASNET_FIREHOSE_VERBOSE GASNET_USE_FIREHOSE
        GASNET_PHYSMEM_MAX GASNET_PHYSMEM_PROBE GASNET_PHYSMEM_PINNABLE_RATIO";

    /// Without their prefix, `VIADEV_`.
    const MVICH_PARAMETERS: &str = "
        USE_RDMAOE DEVICE USE_LMC USE_APM USE_APM_TEST APM_COUNT NFR_ACK_THRESHOLD DEFAULT_PORT MULTIPORT USE_MULTIPORT
        MULTIHCA USE_MULTIHCA MAX_PORTS DEBUG_LEVEL PROGRESS_THRESHOLD MAX_INLINE_SIZE DREG_CACHE_LIMIT MAX_RDMA_SIZE
        DEFAULT_MTU USE_NFR RNDV_PROTOCOL ASYNC_SCHEDULE R3_NOCACHE_THRESHOLD R3_THRESHOLD DEFAULT_QP_OUS_RD_ATOM
        DEFAULT_PSN DEFAULT_PKEY DEFAULT_MIN_RNR_TIMER DEFAULT_SERVICE_LEVEL DEFAULT_TIME_OUT DEFAULT_STATIC_RATE
        DEFAULT_SRC_PATH_BITS MAX_FAST_EAGER_SIZE DEFAULT_RETRY_COUNT DEFAULT_RNR_RETRY DEFAULT_MAX_SG_LIST
        DEFAULT_MAX_RDMA_DST_OPS NDREG_ENTRIES USE_DREG_CACHE SQ_SIZE CQ_SIZE NUM_RDMA_BUFFER ADAPTIVE_RDMA_THRESHOLD
        ADAPTIVE_RDMA_LIMIT ADAPTIVE_ENABLE_LIMIT USE_XRC USE_SRQ SRQ_MAX_SIZE SRQ_SIZE SRQ_LIMIT SRQ_ZERO_POST_MAX
        USE_COALESCE USE_COALESCE_SAME COALESCE_THRESHOLD_SQ COALESCE_THRESHOLD_SIZE EAGER_OK_EXT_LIMIT PREPOST_DEPTH
        PREPOST_THRESHOLD VBUF_POOL_SIZE VBUF_TOTAL_SIZE VBUF_SECONDARY_POOL_SIZE VBUF_EXTRA VBUF_MAX
        MAX_R3_PENDING_DATA PREPOST_RENDEZVOUS_EXTRA RENDEZVOUS_THRESHOLD PREPOST_NOOP_EXTRA INITIAL_PREPOST_DEPTH
        CREDIT_PRESERVE CREDIT_NOTIFY_THRESHOLD DYNAMIC_CREDIT_THRESHOLD ON_DEMAND_THRESHOLD NO_INLINE_THRESHOLD
        USE_BLOCKING MAX_SPIN_COUNT USE_COMPAT_MODE";

    #[test]
    fn unknown_knobs_name_the_closest() {
        let mut config = Config::default();
        let error = config.set("vbuf_sise", "1", Origin::File).expect_err("no such knob").to_string();
        assert_eq!(error, "unknown knob 'vbuf_sise': did you mean 'vbuf_size'?");
        let error = config.set_from_environment("ROCI_EAGER_TRESHOLD", "1").expect_err("no such knob").to_string();
        assert_eq!(error, "unknown knob 'ROCI_EAGER_TRESHOLD': did you mean 'ROCI_EAGER_THRESHOLD'?");
        let error = config.set("x", "1", Origin::File).expect_err("no such knob").to_string();
        assert_eq!(error, "unknown knob 'x'");
    }

    #[test]
    fn values_out_of_range_are_refused() {
        let refusal = |name: &str, value: &str| {
            Config::default().set(name, value, Origin::Code).expect_err("out of range").to_string()
        };
        assert_eq!(refusal("credits", "1"), "credits=1: lies outside 2..4096");
        assert_eq!(refusal("vbuf_size", "2MiB"), "vbuf_size=2MiB: lies outside 256..1MiB");
        assert_eq!(refusal("mtu", "1500"), "mtu=1500: is not one of 256, 512, 1024, 2048, 4096, 8192");
        assert!(refusal("device", "tcp").contains("known are memif"));
    }

    #[test]
    fn a_first_wait_that_is_longer_than_the_longest_is_refused() {
        let mut config = Config::default();
        config.set("ack_timeout_max_us", "1999", Origin::Code).expect("in range");
        let error = config.check().expect_err("2000 is more").to_string();
        let said =
            "ack_timeout_us=2000: is more than ack_timeout_max_us=1999, which waits grow to: lower it, or raise that";
        assert_eq!(error, said);
        config.set("ack_timeout_us", "1999", Origin::Code).expect("in range");
        assert_eq!(config.check(), Ok(()));
    }

    #[test]
    fn megabytes_are_read_as_gasnet_reads_them() {
        let parsed = |text: &str| {
            let mut config = Config::default();
            config.set("firehose_m", text, Origin::Code).map(|()| (config.firehose_m, show(&config)))
        };
        fn show(config: &Config) -> String {
            KNOBS.iter().find(|knob| knob.name == "firehose_m").expect("a knob").value(config)
        }
        for (text, bytes, shown) in [
            ("", None, ""),
            ("0", None, ""),
            ("0G", None, ""),
            ("512", Some(512 << 20), "512M"),
            (" 512M ", Some(512 << 20), "512M"),
            ("1024", Some(1 << 30), "1G"),
            ("3G", Some(3 << 30), "3G"),
            ("99999g", Some(99_999 << 30), "99999G"),
        ] {
            assert_eq!(parsed(text), Ok((bytes, shown.into())), "{text}");
        }
        let problem = |text: &str| parsed(text).expect_err("no such size").to_string();
        for text in ["100000", "100000G", "99999999999999999999999M"] {
            assert_eq!(problem(text), format!("firehose_m={text}: lies outside 0..99999"));
        }
        for text in ["-1", "1T", "1MiB", "x", "M", "g", "0x10", "1 M", "+1", "1.5G"] {
            let expected = format!("firehose_m={text}: is not a number of megabytes such as 512, 512M or 2G");
            assert_eq!(problem(text), expected);
        }
    }

    #[test]
    fn firehose_shares_keys_with_other_registrations() {
        let mut config = Config::default();
        let limits = config.firehose_limits(4).expect("3072 registrations");
        assert_eq!((limits.victims(), limits.firehoses()), (768, 2_304 / 3), "as it comes");
        assert_eq!(config.firehose_limits(1024).expect("as many").firehoses(), 2);
        config.set("physmem_pinnable_ratio", "0.5", Origin::Code).expect("in range");
        assert_eq!(config.firehose_limits(4).expect("2048 registrations").firehoses(), 1_536 / 3);
        assert_eq!(
            KNOBS.iter().find(|knob| knob.name == "physmem_pinnable_ratio").expect("a knob").value(&config),
            "0.5"
        );
        for (text, problem) in
            [("1.1", "lies outside"), ("0", "lies outside"), ("half", "is not a ratio"), ("NaN", "lies")]
        {
            let error = config.set("physmem_pinnable_ratio", text, Origin::Code).expect_err("it is none").to_string();
            assert!(error.contains(problem), "{text}: {error}");
        }
        config.set("physmem_pinnable_ratio", "1", Origin::Code).expect("in range");
        config.set("ndreg_entries", "16000", Origin::Code).expect("in range");
        let error = config.firehose_limits(4).expect_err("no keys").to_string();
        assert!(error.starts_with("firehose needs 36 buckets of 64KiB for 4 ranks, and 0 can be pinned"), "{error}");
        config.set("ndreg_entries", "4000", Origin::Code).expect("in range");
        config.set("dreg_cache_entries", "16000", Origin::Code).expect("in range");
        let limits = config.firehose_limits(4).expect("12000 keys");
        assert_eq!((limits.victims(), limits.firehoses()), (3_000, 9_000 / 3));
        config.set("firehose_m", "100", Origin::Code).expect("in range");
        let limits = config.firehose_limits(4).expect("12000 keys");
        assert_eq!((limits.victims(), limits.firehoses()), (12_000 - 1600, 1600 / 3));
        assert!(config.set("firehose_bucket", "12KiB", Origin::Code).is_err());
    }

    #[test]
    fn sizes_are_read_and_shown() {
        for (text, bytes) in [("0", 0), ("4096", 4096), ("8KiB", 8192), ("1MiB", 1 << 20), ("2G", 2 << 30)] {
            assert_eq!(parse_size(text), Some(bytes));
            assert_eq!(parse_size(&show_size(&bytes)), Some(bytes));
        }
        assert_eq!(["", "KiB", "1T", "-1", "99999999999999999999"].map(parse_size), [None; 5]);
    }
}
