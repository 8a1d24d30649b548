//! What is measured, and where.

use std::fmt;

/// Between which two ends a series is measured.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Topology {
    /// Two processes of this host: ours over memif, kernel sockets over loopback.
    Host,
    /// The same over vhost and virtio-user.
    Vhost,
    /// Two network namespaces, joined by a pair of kernel interfaces: ours over af_packet, the others over sockets.
    Veth,
    /// The same, and the interfaces carry packets of 9000 bytes.
    Jumbo,
    /// The same as [`Topology::Veth`], and each end loses a thousandth of what arrives.
    Loss01,
    /// A hundredth.
    Loss1,
    /// Two virtual machines, over their emulated NICs.
    Guests,
}

impl Topology {
    pub(crate) const ALL: [Self; 7] =
        [Self::Host, Self::Vhost, Self::Veth, Self::Jumbo, Self::Loss01, Self::Loss1, Self::Guests];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Vhost => "vhost",
            Self::Veth => "veth",
            Self::Jumbo => "jumbo",
            Self::Loss01 => "loss-0.1",
            Self::Loss1 => "loss-1",
            Self::Guests => "guests",
        }
    }

    pub(crate) fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|place| place.name() == name)
    }

    /// Whether the two ends are in namespaces of their own.
    pub(crate) const fn is_between_namespaces(self) -> bool {
        matches!(self, Self::Veth | Self::Jumbo) || self.is_lossy()
    }

    /// Whether packets are lost on the way.
    pub(crate) const fn is_lossy(self) -> bool {
        matches!(self, Self::Loss01 | Self::Loss1)
    }
}

/// Which number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Metric {
    /// Microseconds one way; of a READ or an atomic, there and back.
    Latency,
    /// The same, of the slowest in a hundred.
    Tail,
    /// 10^9 bytes of payload a second.
    Bandwidth,
    /// Million messages a second.
    Rate,
    /// Seconds of processor time, of both sides, for 10^9 bytes.
    Cpu,
    /// Cycles of the time stamp counter for a packet, on the busier side.
    Cycles,
    /// Bytes of one side's memory for a connection.
    Memory,
}

impl Metric {
    pub(crate) const ALL: [Self; 7] =
        [Self::Latency, Self::Tail, Self::Bandwidth, Self::Rate, Self::Cpu, Self::Cycles, Self::Memory];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Latency => "latency",
            Self::Tail => "latency that one in a hundred exceeds",
            Self::Bandwidth => "bandwidth",
            Self::Rate => "rate",
            Self::Cpu => "cpu",
            Self::Cycles => "cycles",
            Self::Memory => "memory",
        }
    }

    pub(crate) fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|metric| metric.name() == name)
    }

    pub(crate) const fn unit(self) -> &'static str {
        match self {
            Self::Latency | Self::Tail => "us",
            Self::Bandwidth => "GB/s",
            Self::Rate => "M messages/s",
            Self::Cpu => "processor seconds/GB",
            Self::Cycles => "cycles/packet",
            Self::Memory => "bytes/connection",
        }
    }
}

/// Of what.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Point {
    /// Bytes of a message.
    Size(u64),
    /// Connections that take turns.
    Connections(u64),
    /// Messages under way.
    Depth(u64),
    /// Frames lost, in hundredths of a per cent.
    Loss(u32),
}

impl Point {
    /// Where it stands on an axis.
    pub(crate) fn position(self) -> f64 {
        match self {
            Self::Size(bytes) => bytes as f64,
            Self::Connections(count) | Self::Depth(count) => count as f64,
            Self::Loss(hundredths) => f64::from(hundredths) / 100.0,
        }
    }
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Size(bytes) => f.write_str(&show_bytes(bytes)),
            Self::Connections(count) | Self::Depth(count) => write!(f, "{count}"),
            Self::Loss(_) => write!(f, "{} %", self.position()),
        }
    }
}

/// Bytes in the unit that divides them.
pub(crate) fn show_bytes(bytes: u64) -> String {
    const UNITS: [(u64, &str); 2] = [(1 << 20, "MiB"), (1 << 10, "KiB")];
    match UNITS.into_iter().find(|(unit, _)| bytes >= *unit && bytes.is_multiple_of(*unit)) {
        Some((unit, name)) => format!("{} {name}", bytes / unit),
        None => format!("{bytes} B"),
    }
}

/// One number that a command printed.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Reading {
    pub(crate) series: String,
    pub(crate) metric: Metric,
    pub(crate) point: Point,
    pub(crate) value: f64,
}

impl Reading {
    pub(crate) fn new(series: impl Into<String>, metric: Metric, point: Point, value: f64) -> Self {
        Self { series: series.into(), metric, point, value }
    }
}

#[cfg(test)]
mod tests {
    use super::{Point, show_bytes};

    #[test]
    fn points_are_shown_in_units_that_people_read() {
        assert_eq!([8, 1000, 1024, 1 << 16, 8 << 20].map(show_bytes), ["8 B", "1000 B", "1 KiB", "64 KiB", "8 MiB"]);
        assert_eq!(Point::Loss(10).to_string(), "0.1 %");
        assert_eq!(Point::Loss(500).to_string(), "5 %");
        assert_eq!(Point::Connections(4096).to_string(), "4096");
    }
}
