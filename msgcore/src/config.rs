//! The knobs: one row each, with its default, unit, range, reason and environment name.
//!
//! Order: default, then file, then environment, then code. What is not a knob is an error that names the
//! closest one.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use roci_driver::link::dpdk::Device;
use roci_driver::{Algorithm, Dialect, Mtu};
use roci_protocol::sim::Faults;
use roci_protocol::wire::MacAddr;
use thiserror::Error;

use crate::job;

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
#[derive(Clone, PartialEq, Eq, Debug, Error)]
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
        problem: String,
    },
    /// The file could not be read.
    #[error("cannot read parameter file {path}: {problem}")]
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
    set: fn(&mut Config, &str) -> Result<(), String>,
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

macro_rules! knobs {
    ($($(#[doc = $reason:literal])* $name:ident: $type:ty = $default:expr, $unit:literal, $range:literal, $parse:expr, $show:expr;)*) => {
        /// Every knob's value.
        #[derive(Clone, Debug)]
        pub struct Config {
            $($(#[doc = $reason])* pub $name: $type,)*
            origins: BTreeMap<&'static str, Origin>,
        }

        impl Default for Config {
            fn default() -> Self {
                Self { $($name: $default,)* origins: BTreeMap::new() }
            }
        }

        /// The table.
        pub const KNOBS: &[Knob] = &[$(Knob {
            name: stringify!($name),
            unit: $unit,
            range: $range,
            reason: concat!($($reason),*),
            get: |config| { let show: fn(&$type) -> String = $show; show(&config.$name) },
            set: |config, text| { let parse: fn(&str) -> Result<$type, String> = $parse; config.$name = parse(text)?; Ok(()) },
        }),*];
    };
}

knobs! {
    /// The port between ranks: memif (shared memory, no privilege), vhost, af_packet:IFACE, pci:ADDRESS; %r stands for the rank.
    device: String = "memif".into(), "device", "memif|vhost|af_packet:IFACE|pci:ADDRESS", parse_device, Clone::clone;
    /// A raw EAL line instead of a device; its first port is used, and shared by all peers.
    eal: String = String::new(), "EAL arguments", "any", |text| Ok(text.into()), Clone::clone;
    /// This rank's address on a shared device; empty gives 10.200.0.(rank + 1), which no router sees.
    ip: Option<IpAddr> = None, "address", "IPv4 or IPv6", parse_optional, show_optional;
    /// How many leading bits of the address are those of every host on the link; empty gives 24 (IPv4) or 64 (IPv6). Hosts elsewhere are reached through the gateway.
    prefix: Option<u8> = None, "bits", "0..128", |text| optional_number(text, 0, 128), show_optional;
    /// The VLAN that frames are tagged with; empty sends them untagged.
    vlan: Option<u16> = None, "VLAN id", "1..4094", |text| optional_number(text, 1, 4094), show_optional;
    /// The way to ranks on other links.
    gateway: Option<IpAddr> = None, "address", "IPv4 or IPv6", parse_optional, show_optional;
    /// Stations that are never asked for by ARP or neighbour discovery, such as 10.0.0.1=02:00:00:00:00:01, separated by commas.
    neighbours: Vec<(IpAddr, MacAddr)> = Vec::new(), "addresses", "IP=MAC,...", parse_neighbours, |neighbours| show_neighbours(neighbours);
    /// Memory for messages, reserved at once and touched as it is used.
    arena_size: usize = 1 << 30, "bytes", "16MiB..64GiB", |text| size(text, 16 << 20, 64 << 30), show_size;
    /// The largest path MTU; 4096 is IBTA's largest, 8192 only between workers of this library, and the link's frames must hold it.
    mtu: usize = 4096, "bytes", "256, 512, 1024, 2048, 4096, 8192", parse_mtu, show_size;
    /// How loss is repaired between ranks: by selective repeat with timeouts that follow the round trip, or as between verbs NICs (go-back-N).
    dialect: Dialect = Dialect::Rocinante, "dialect", "verbs, rocinante", parse_dialect, show_dialect;
    /// Congestion control between ranks: dcqcn needs switches that mark packets, delay needs nothing; a link of two needs none.
    congestion: Algorithm = Algorithm::Unlimited, "algorithm", "none, dcqcn, delay", parse_congestion, show_congestion;
    /// The link's speed, where congestion control starts from.
    link_rate: u64 = 100_000_000_000, "bits/s", "1000000..1000000000000", |text| number(text, 1_000_000, 1_000_000_000_000), ToString::to_string;
    /// Packets in flight to one peer; 128 keep a ring of 1024 descriptors busy and a go-back-N short.
    window: u32 = 128, "packets", "1..65536", |text| number(text, 1, 65_536), ToString::to_string;
    /// The first wait for an acknowledgement; longer than a scheduler's slice costs nothing without loss, shorter ones retransmit in vain.
    ack_timeout_us: u64 = 2_000, "us", "10..10000000", |text| number(text, 10, 10_000_000), ToString::to_string;
    /// Waits double up to this one: a peer that computes and does not poll must not be flooded.
    ack_timeout_max_us: u64 = 250_000, "us", "10..60000000", |text| number(text, 10, 60_000_000), ToString::to_string;
    /// Waits in a row until a peer is given up: with the two timeouts, about 30 s.
    retry_limit: u32 = 127, "retries", "1..100000", |text| number(text, 1, 100_000), ToString::to_string;
    /// Receive buffers posted to each peer, which is also the number of its credits.
    credits: u16 = 64, "messages", "2..4096", |text| number(text, 2, 4096), ToString::to_string;
    /// Bytes of such a buffer, with 32 of header; a message that fits is sent eagerly.
    vbuf_size: usize = 8192, "bytes", "256..1MiB", |text| size(text, 256, 1 << 20), show_size;
    /// The longest message that is sent eagerly, if a vbuf holds it; longer ones are fetched by the receiver without a copy.
    eager_threshold: usize = 8160, "bytes", "0..1MiB", |text| size(text, 0, 1 << 20), show_size;
    /// Memory for messages that nobody has asked for yet; beyond it credits are withheld, and senders wait.
    unexpected_limit: usize = 256 << 20, "bytes", "1MiB..64GiB", |text| size(text, 1 << 20, 64 << 30), show_size;
    /// How long a wait spins before it yields the processor. Measured: more buys nothing, because a yield to nobody is quick; with more ranks than processors it never spins.
    spin_us: u64 = 20, "us", "0..10000000", |text| number(text, 0, 10_000_000), ToString::to_string;
    /// How long a wait yields before it sleeps. Measured: without it, a sleep stands in the way of every answer (55 us instead of 1).
    yield_us: u64 = 2_000, "us", "0..10000000", |text| number(text, 0, 10_000_000), ToString::to_string;
    /// The longest sleep between two looks; sleeps double from 20 us up to this, which bounds the latency of an idle rank.
    sleep_max_us: u64 = 1_000, "us", "20..1000000", |text| number(text, 20, 1_000_000), ToString::to_string;
    /// How long a rank waits for its peers to appear.
    connect_timeout_s: u64 = 30, "s", "1..3600", |text| number(text, 1, 3_600), ToString::to_string;
    /// Faults injected into every frame sent, such as loss=0.01,dup=0.01,reorder=0.01,corrupt=0.001,seed=7; for tests.
    faults: Option<Faults> = None, "fault plan", "probabilities 0..1", parse_optional, show_faults;
    /// Writes every frame of the first port to this capture file; %r stands for the rank, and without it only rank 0 writes.
    pcap: Option<PathBuf> = None, "path", "any", parse_optional, |path| path.as_ref().map_or_else(String::new, |path| path.display().to_string());
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
                problem: "is not UTF-8".into(),
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

    /// The device, with `%r` replaced by the rank.
    pub fn device_of(&self, rank: usize) -> Result<Device, ConfigError> {
        if !self.eal.is_empty() {
            return Ok(Device::Eal(self.eal.replace("%r", &rank.to_string())));
        }
        let name = self.device.replace("%r", &rank.to_string());
        name.parse().map_err(|error: roci_driver::link::dpdk::ParseDeviceError| ConfigError::Value {
            name: "device".into(),
            value: name,
            problem: error.to_string(),
        })
    }

    /// The path MTU.
    pub fn mtu(&self) -> Mtu {
        Mtu::from_bytes(self.mtu).expect("the knob takes no other sizes")
    }

    fn set_from_environment(&mut self, name: &str, value: &str) -> Result<(), ConfigError> {
        let knob = KNOBS.iter().find(|knob| knob.environment_name() == name);
        let knob = knob.ok_or_else(|| unknown(name, Knob::environment_name))?;
        self.apply(knob, name, value, Origin::Environment)
    }

    fn read_file(&mut self, path: &Path) -> Result<(), ConfigError> {
        let problem = |problem: String| ConfigError::File { path: path.display().to_string(), problem };
        let text = std::fs::read_to_string(path).map_err(|error| problem(error.to_string()))?;
        let table: toml::Table = text.parse().map_err(|error: toml::de::Error| problem(error.message().into()))?;
        for (name, value) in table {
            let value = match value {
                toml::Value::String(text) => text,
                other => other.to_string(),
            };
            self.set(&name, &value, Origin::File)?;
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
    let closest = KNOBS.iter().map(known_as).min_by_key(distance).filter(|known| distance(known) <= known.len() / 2);
    ConfigError::Unknown { name: name.into(), closest }
}

fn number<T: FromStr + PartialOrd + fmt::Display>(text: &str, least: T, most: T) -> Result<T, String> {
    let value = text.trim().parse().map_err(|_| "is not a whole number".to_owned())?;
    if value < least || value > most {
        return Err(format!("lies outside {least}..{most}"));
    }
    Ok(value)
}

fn optional_number<T: FromStr + PartialOrd + fmt::Display>(text: &str, least: T, most: T) -> Result<Option<T>, String> {
    if text.trim().is_empty() { Ok(None) } else { number(text, least, most).map(Some) }
}

/// Reads `4096`, `8KiB`, `1MiB` or `2GiB`.
pub fn parse_size(text: &str) -> Option<usize> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let value: usize = text[..digits].parse().ok()?;
    let unit: usize = match text[digits..].trim() {
        "" | "B" => 1,
        "K" | "KiB" => 1 << 10,
        "M" | "MiB" => 1 << 20,
        "G" | "GiB" => 1 << 30,
        _ => return None,
    };
    value.checked_mul(unit)
}

fn size(text: &str, least: usize, most: usize) -> Result<usize, String> {
    let value = parse_size(text).ok_or("is not a size such as 4096, 8KiB, 1MiB")?;
    if value < least || value > most {
        return Err(format!("lies outside {}..{}", show_size(&least), show_size(&most)));
    }
    Ok(value)
}

/// The shortest way to say a size.
pub fn show_size(bytes: &usize) -> String {
    let units = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
    let unit = units.into_iter().find(|(shift, _)| *bytes > 0 && bytes.trailing_zeros() >= *shift);
    unit.map_or_else(|| bytes.to_string(), |(shift, name)| format!("{}{name}", bytes >> shift))
}

fn parse_mtu(text: &str) -> Result<usize, String> {
    let bytes = parse_size(text).and_then(Mtu::from_bytes);
    bytes.map(Mtu::bytes).ok_or_else(|| "is not one of 256, 512, 1024, 2048, 4096, 8192".into())
}

fn parse_neighbours(text: &str) -> Result<Vec<(IpAddr, MacAddr)>, String> {
    let parse = |part: &str| {
        let (ip, mac) = part.split_once('=')?;
        Some((ip.trim().parse().ok()?, mac.trim().parse().ok()?))
    };
    let parts = text.split(',').filter(|part| !part.trim().is_empty());
    parts.map(|part| parse(part).ok_or_else(|| format!("'{part}' is not of the form IP=MAC"))).collect()
}

fn show_neighbours(neighbours: &[(IpAddr, MacAddr)]) -> String {
    neighbours.iter().map(|(ip, mac)| format!("{ip}={mac}")).collect::<Vec<_>>().join(",")
}

fn parse_dialect(text: &str) -> Result<Dialect, String> {
    match text {
        "verbs" => Ok(Dialect::Verbs),
        "rocinante" => Ok(Dialect::Rocinante),
        _ => Err("is neither verbs nor rocinante".into()),
    }
}

fn show_dialect(dialect: &Dialect) -> String {
    match dialect {
        Dialect::Verbs => "verbs".into(),
        Dialect::Rocinante => "rocinante".into(),
    }
}

fn parse_congestion(text: &str) -> Result<Algorithm, String> {
    match text {
        "none" => Ok(Algorithm::Unlimited),
        "dcqcn" => Ok(Algorithm::Dcqcn),
        "delay" => Ok(Algorithm::Delay),
        _ => Err("is not one of none, dcqcn, delay".into()),
    }
}

fn show_congestion(algorithm: &Algorithm) -> String {
    match algorithm {
        Algorithm::Unlimited => "none".into(),
        Algorithm::Dcqcn => "dcqcn".into(),
        Algorithm::Delay => "delay".into(),
    }
}

fn parse_device(text: &str) -> Result<String, String> {
    match text.parse::<Device>() {
        Ok(_) => Ok(text.into()),
        Err(error) => Err(error.to_string()),
    }
}

fn parse_optional<T: FromStr>(text: &str) -> Result<Option<T>, String>
where
    T::Err: fmt::Display,
{
    if text.is_empty() { Ok(None) } else { text.parse().map(Some).map_err(|error: T::Err| error.to_string()) }
}

fn show_optional<T: fmt::Display>(value: &Option<T>) -> String {
    value.as_ref().map_or_else(String::new, T::to_string)
}

fn show_faults(faults: &Option<Faults>) -> String {
    let show = |Faults { loss, dup, reorder, corrupt, seed }: &Faults| {
        format!("loss={loss},dup={dup},reorder={reorder},corrupt={corrupt},seed={seed}")
    };
    faults.as_ref().map_or_else(String::new, show)
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn the_committed_sample_says_what_the_defaults_are() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs/param.sample");
        let committed = std::fs::read_to_string(path).expect("configs/param.sample");
        assert_eq!(committed, sample_file(), "regenerate it with: roci info --sample > configs/param.sample");
    }

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
    fn sizes_are_read_and_shown() {
        for (text, bytes) in [("0", 0), ("4096", 4096), ("8KiB", 8192), ("1MiB", 1 << 20), ("2G", 2 << 30)] {
            assert_eq!(parse_size(text), Some(bytes));
            assert_eq!(parse_size(&show_size(&bytes)), Some(bytes));
        }
        assert_eq!(["", "KiB", "1T", "-1", "99999999999999999999"].map(parse_size), [None; 5]);
    }
}
