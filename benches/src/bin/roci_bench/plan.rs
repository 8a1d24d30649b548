//! What is measured: the cells, as data.

use std::time::Duration;

use crate::reading::{Topology, show_bytes};
use crate::tools::{Guests, Libfabric, Loop, Mpi, RociPerf, Tool, Ucx, UcxTest, Which};

/// One command, or a pair of them, of each round.
pub(crate) struct Cell {
    pub(crate) group: &'static str,
    pub(crate) label: String,
    pub(crate) place: Topology,
    pub(crate) tool: Box<dyn Tool>,
    /// After so long it hangs.
    pub(crate) patience: Duration,
    /// It is too long for more rounds than these.
    pub(crate) most_rounds: usize,
}

impl Cell {
    fn new(place: Topology, group: &'static str, label: impl Into<String>, tool: impl Tool + 'static) -> Self {
        let patience = Duration::from_secs(20);
        Self { group, label: label.into(), place, tool: Box::new(tool), patience, most_rounds: usize::MAX }
    }

    /// What `--only` is compared with.
    pub(crate) fn name(&self) -> String {
        format!("{}/{}/{}", self.place.name(), self.group, self.label)
    }
}

/// How much a run measures.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Extent {
    Quick,
    Full,
}

impl Extent {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Quick => "quick",
            Self::Full => "full",
        }
    }

    pub(crate) fn of_name(name: &str) -> Option<Self> {
        [Self::Quick, Self::Full].into_iter().find(|extent| extent.name() == name)
    }
}

/// Sizes that have a number of messages in common: short ones often enough for a clock, long ones seldom enough for
/// patience.
struct Band {
    sizes: &'static str,
    latency: u64,
    stream: u64,
}

const fn band(sizes: &'static str, latency: u64, stream: u64) -> Band {
    Band { sizes, latency, stream }
}

/// Over memory that both ends share.
const QUICK: [Band; 3] = [band("8,64,4096", 10_000, 100_000), band("65536", 1_000, 4_000), band("1048576", 100, 300)];
const FULL: [Band; 4] = [
    band("8,64,512,4096", 20_000, 200_000),
    band("16384,65536", 2_000, 6_000),
    band("1048576", 200, 500),
    band("8388608", 30, 60),
];
/// Over kernel interfaces, whose every frame is a system call or more.
const QUICK_VETH: [Band; 3] = [band("8,64,4096", 2_000, 10_000), band("65536", 200, 500), band("1048576", 20, 50)];
const FULL_VETH: [Band; 4] = [
    band("8,64,512,4096", 5_000, 20_000),
    band("16384,65536", 500, 1_000),
    band("1048576", 50, 100),
    band("8388608", 10, 15),
];
const QUICK_SIZES: &str = "8,64,4096,65536,1048576";
const FULL_SIZES: &str = "8,64,512,4096,16384,65536,1048576,8388608";

/// What active messages hold.
const ACTIVE_SIZES: &str = "8,64,4096";
/// Bare frames of such a message do not come through vhost all: they are more than its ring holds.
const VHOST_LOSES: &str = "8388608";
const CONNECTIONS: &str = "--connections 1,4,16,64,256,1024,4096";
const DEPTHS: &str = "--depth 1,2,4,16,64";
/// Hundredths of a per cent.
const LOSSES: [u32; 7] = [0, 1, 10, 50, 100, 200, 500];

/// The kernel's own transports. Over UDP nothing is sent again, so it has no rows where packets are lost.
const SOCKETS: [(&str, &str); 2] = [("tcp", "kernel TCP"), ("udp", "kernel UDP")];

/// Every cell of a run, in the order in which a round runs them.
pub(crate) fn cells(extent: Extent) -> Vec<Cell> {
    let mut cells = limits(extent);
    for place in [Topology::Host, Topology::Veth] {
        cells.extend(ours(place, extent));
        cells.extend(one_sided(place, extent));
        cells.extend(without_icrc(place, extent));
        cells.extend(over_sockets(place, extent));
        cells.extend(sockets(place, extent));
        cells.extend(alternatives(place, extent));
    }
    for place in [Topology::Jumbo, Topology::Loss01, Topology::Loss1] {
        cells.extend(elsewhere(place, extent));
    }
    cells.extend(copied(extent));
    cells.extend(vhost(extent));
    cells.push(windows(extent));
    cells.extend(losses(extent));
    cells.extend(losses_over_sockets(extent));
    cells.extend(connections(extent));
    cells.push(guests(extent));
    cells
}

fn bands(place: Topology, extent: Extent) -> &'static [Band] {
    match (place, extent) {
        (Topology::Veth, Extent::Quick) => &QUICK_VETH,
        (Topology::Veth, Extent::Full) => &FULL_VETH,
        (_, Extent::Quick) => &QUICK,
        (_, Extent::Full) => &FULL,
    }
}

const fn sizes(extent: Extent) -> &'static str {
    match extent {
        Extent::Quick => QUICK_SIZES,
        Extent::Full => FULL_SIZES,
    }
}

fn size_list(extent: Extent) -> impl Iterator<Item = u64> {
    sizes(extent).split(',').filter_map(|size| size.parse().ok())
}

const fn a_loop(name: &'static str, series: &'static str, sizes: &'static str, millis: u32) -> Loop {
    Loop { name, series, sizes, millis, options: "", loss: None }
}

/// What the memory of the machine does.
fn limits(extent: Extent) -> Vec<Cell> {
    let limit = |name, series| Cell::new(Topology::Host, "limit", name, a_loop(name, series, sizes(extent), 20));
    vec![limit("memcpy", "memcpy"), limit("shared", "shared memory")]
}

/// Bare frames, verbs and tagged messages.
fn ours(place: Topology, extent: Extent) -> Vec<Cell> {
    let one_sided = "raw_lat,send_lat,write_lat,read_lat,atomic_lat,tag_lat";
    let streams = "raw_bw,send_bw,write_bw,read_bw,tag_bw";
    let mut cells = Vec::new();
    for band in bands(place, extent) {
        let mut add = |label: &str, tests, iters, options| {
            let tool = RociPerf { options, ..RociPerf::new(tests, band.sizes, iters) };
            cells.push(Cell::new(place, "ours", format!("{label} {}", band.sizes), tool));
        };
        add("latency", one_sided, band.latency, "");
        add("touched latency", "raw_lat", band.latency, "--touch");
        add("stream", streams, band.stream, "");
        add("touched stream", "raw_bw", band.stream, "--touch");
        add("unread latency", "tag_lat", band.latency, "--no-verify");
        add("unread stream", "tag_bw", band.stream, "--no-verify");
        if place == Topology::Host {
            let few = |iters: u64| (iters / 10).max(50);
            add("dedicated latency", "tag_lat", few(band.latency), "--engine dedicated");
            add("dedicated stream", "tag_bw", few(band.stream), "--engine dedicated");
        }
    }
    cells
}

/// Long messages that the kernel copies between the two processes.
fn copied(extent: Extent) -> Vec<Cell> {
    let cell = |label: &str, tests, sizes, iters| {
        let tool = RociPerf { options: "--no-verify", cma: true, ..RociPerf::new(tests, sizes, iters) };
        Cell::new(Topology::Host, "cma", format!("{label} {sizes}"), tool)
    };
    let both = |band: &Band| {
        let latency = cell("latency", "tag_lat", band.sizes, band.latency);
        [latency, cell("stream", "tag_bw", band.sizes, band.stream)]
    };
    // Those of the first band are short.
    bands(Topology::Host, extent).iter().skip(1).flat_map(both).collect()
}

/// What the ICRC takes: the same without.
fn without_icrc(place: Topology, extent: Extent) -> Vec<Cell> {
    let cell = |label: &str, tests, sizes, iters| {
        let tool = RociPerf { icrc: false, ..RociPerf::new(tests, sizes, iters) };
        Cell::new(place, "icrc", format!("{label} {sizes}"), tool)
    };
    let both = |band: &Band| {
        let latency = cell("latency", "send_lat,tag_lat", band.sizes, band.latency);
        [latency, cell("stream", "send_bw,write_bw,tag_bw", band.sizes, band.stream)]
    };
    bands(place, extent).iter().flat_map(both).collect()
}

/// The same over UDP sockets, which need no privilege: what stands beside the kernel's own, and beside others that use them.
fn over_sockets(place: Topology, extent: Extent) -> Vec<Cell> {
    let cell = |label: &str, tests, sizes, iters| {
        let tool = RociPerf { sockets: true, ..RociPerf::new(tests, sizes, iters) };
        Cell::new(place, "over udp", format!("{label} {sizes}"), tool)
    };
    let both = |band: &Band| {
        let latency = cell("latency", "raw_lat,send_lat,tag_lat", band.sizes, band.latency);
        // Bare frames have no flow control: of a stream of them some are lost at the receiver's buffer.
        [latency, cell("stream", "raw_bw,send_bw,write_bw,tag_bw", band.sizes, band.stream)]
    };
    bands(Topology::Veth, extent).iter().flat_map(both).collect()
}

/// Between namespaces that carry longer packets, or lose some: fewer sizes, over sockets and beside them.
fn elsewhere(place: Topology, extent: Extent) -> Vec<Cell> {
    let mut cells = Vec::new();
    // Bare frames that are lost are not sent again.
    let (latencies, streams) = if place.is_lossy() {
        ("send_lat,tag_lat", "write_bw,tag_bw")
    } else {
        ("raw_lat,send_lat,tag_lat", "raw_bw,send_bw,write_bw,tag_bw")
    };
    let mut ours = |label, tests, sizes, iters| {
        let tool = RociPerf { sockets: true, ..RociPerf::new(tests, sizes, iters) };
        cells.push(Cell::new(place, "over udp", format!("{label} {sizes}"), tool));
    };
    ours("latency", latencies, "8", 2_000);
    ours("latency", latencies, "65536", 200);
    ours("latency", latencies, "1048576", 20);
    ours("stream", streams, "8", 10_000);
    ours("stream", streams, "65536", 1_000);
    ours("stream", streams, "1048576", 100);
    // TCP's timeouts are as long as it was measured between namespaces that lose nothing.
    let millis = if place.is_lossy() { 500 } else { 50 };
    let sockets = if place.is_lossy() { &SOCKETS[..1] } else { &SOCKETS };
    for &(name, series) in sockets {
        cells.push(Cell::new(place, "sockets", name, a_loop(name, series, "8,65536,1048576", millis)));
    }
    if extent == Extent::Full {
        cells.extend([8, 64 << 10, 1 << 20].into_iter().flat_map(|size| rivals(place, size)));
    }
    cells
}

/// The other device of this host: fewer tests, for what differs is the port.
fn vhost(extent: Extent) -> Vec<Cell> {
    let mut cells = Vec::new();
    for band in bands(Topology::Vhost, extent) {
        let mut add = |label: &str, tests, iters, options| {
            let tool = RociPerf { options, ..RociPerf::new(tests, band.sizes, iters) };
            cells.push(Cell::new(Topology::Vhost, "ours", format!("{label} {}", band.sizes), tool));
        };
        let is_longer_than_the_ring = band.sizes == VHOST_LOSES;
        let latencies = if is_longer_than_the_ring { "send_lat,tag_lat" } else { "raw_lat,send_lat,tag_lat" };
        add("latency", latencies, band.latency, "");
        add("stream", "raw_bw,send_bw,write_bw,tag_bw", band.stream, "");
        add("touched stream", "raw_bw", band.stream, "--touch");
    }
    cells
}

/// Operations on a peer's memory, each until its end is known, and active messages.
fn one_sided(place: Topology, extent: Extent) -> Vec<Cell> {
    let cell = |label: String, tests, sizes, iters| {
        let tool = RociPerf::new(tests, sizes, iters);
        Cell::new(place, "one-sided", label, tool)
    };
    let of_band = |band: &Band| {
        let latency = cell(format!("latency {}", band.sizes), "put_lat,get_lat", band.sizes, band.latency);
        [latency, cell(format!("stream {}", band.sizes), "put_bw,get_bw", band.sizes, band.stream)]
    };
    let mut cells: Vec<_> = bands(place, extent).iter().flat_map(of_band).collect();
    let Some(short) = bands(place, extent).first() else { return cells };
    cells.push(cell("atomic latency".into(), "atomic_lat,fadd_lat", "8", short.latency));
    cells.push(cell("active latency".into(), "am_lat", ACTIVE_SIZES, short.latency));
    cells.push(cell("active stream".into(), "am_rate", ACTIVE_SIZES, short.stream));
    cells
}

fn sockets(place: Topology, extent: Extent) -> Vec<Cell> {
    SOCKETS.map(|(name, series)| Cell::new(place, "sockets", name, a_loop(name, series, sizes(extent), 50))).into()
}

fn alternatives(place: Topology, extent: Extent) -> Vec<Cell> {
    let mut cells: Vec<_> = size_list(extent).flat_map(|size| rivals(place, size)).collect();
    let mut programs =
        vec![("mpich", Which::Mpich), ("openmpi", Which::OpenMpi), ("openmpi over roci", Which::OpenMpiRoci)];
    if place == Topology::Host {
        programs.push(("openmpi over rxd", Which::OpenMpiRxd));
    }
    for (name, which) in programs {
        cells.push(Cell::new(place, "mpi", name, Mpi { which, sizes: sizes(extent), millis: 50 }));
    }
    cells
}

/// Libraries over the kernel's sockets, at one size.
fn rivals(place: Topology, size: u64) -> [Cell; 4] {
    let often = ((8 << 20) / size).clamp(20, 2_000);
    let label = |name: &str| format!("{name} {}", show_bytes(size));
    let ucx = |test, iters| Ucx { test, size, iters };
    let libfabric = |provider, endpoint| Libfabric { provider, endpoint, size, iters: often };
    [
        Cell::new(place, "ucx", label("latency"), ucx(UcxTest::TagLatency, often)),
        Cell::new(place, "ucx", label("stream"), ucx(UcxTest::TagBandwidth, often * 5)),
        Cell::new(place, "libfabric", label("tcp"), libfabric("tcp", "msg")),
        Cell::new(place, "libfabric", label("udp"), libfabric("udp;ofi_rxd", "rdm")),
    ]
}

/// What a stream carries with so many messages under way.
fn windows(extent: Extent) -> Cell {
    let iters = if extent == Extent::Quick { 2_000 } else { 10_000 };
    let (tests, sizes) = ("send_bw,write_bw,read_bw,tag_bw", "64,4096,65536");
    let tool = RociPerf { options: DEPTHS, ..RociPerf::new(tests, sizes, iters) };
    Cell::new(Topology::Host, "scale", "messages under way", tool)
}

/// Goodput of a stream whose frames are lost, and sent again.
fn losses(extent: Extent) -> Vec<Cell> {
    let is_quick = extent == Extent::Quick;
    let (iters, millis) = if is_quick { (1_000, 300) } else { (3_000, 1_000) };
    let both = |loss| {
        let ours = RociPerf { loss: Some(loss), ..RociPerf::new("write_bw,tag_bw", "65536", iters) };
        let tcp = Loop { loss: Some(loss), ..a_loop("tcp", "kernel TCP", "65536", millis) };
        let label = format!("{} %", f64::from(loss) / 100.0);
        let tcp = Cell::new(Topology::Host, "loss", format!("tcp {label}"), tcp);
        [Cell::new(Topology::Host, "loss", label, ours), tcp]
    };
    LOSSES.into_iter().flat_map(both).collect()
}

/// The same over UDP sockets.
fn losses_over_sockets(extent: Extent) -> Vec<Cell> {
    let (tests, sizes) = ("write_bw,tag_bw", "65536");
    let iters = if extent == Extent::Quick { 1_000 } else { 3_000 };
    let cell = |loss| {
        let tool = RociPerf { loss: Some(loss), sockets: true, ..RociPerf::new(tests, sizes, iters) };
        Cell::new(Topology::Host, "loss", format!("over udp {} %", f64::from(loss) / 100.0), tool)
    };
    LOSSES.into_iter().map(cell).collect()
}

/// The rate of messages over ever more connections, which take turns.
fn connections(extent: Extent) -> [Cell; 2] {
    let iters = if extent == Extent::Quick { 50_000 } else { 200_000 };
    let ours = RociPerf { options: CONNECTIONS, ..RociPerf::new("send_rate", "64", iters) };
    let tcp = Loop { options: CONNECTIONS, ..a_loop("tcp", "kernel TCP", "64", 100) };
    let patient = |cell| Cell { patience: Duration::from_mins(1), ..cell };
    [
        Cell::new(Topology::Host, "scale", "connections", ours),
        Cell::new(Topology::Host, "scale", "tcp connections", tcp),
    ]
    .map(patient)
}

/// Linux's verbs. Booting takes longer than anything else here, and so as long as a round of all others.
fn guests(extent: Extent) -> Cell {
    let is_quick = extent == Extent::Quick;
    let patience = Duration::from_mins(if is_quick { 2 } else { 5 });
    let most_rounds = if is_quick { 1 } else { 3 };
    Cell { patience, most_rounds, ..Cell::new(Topology::Guests, "verbs", "perftest", Guests { is_quick }) }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn cells_are_distinguished_by_their_names() {
        for extent in [Extent::Quick, Extent::Full] {
            let cells = cells(extent);
            let names: BTreeSet<_> = cells.iter().map(Cell::name).collect();
            assert_eq!(names.len(), cells.len());
            assert!(names.contains("veth/libfabric/udp 4 KiB") && names.contains("host/loss/0.1 %"), "{names:?}");
            assert!(names.iter().any(|name| name.starts_with("host/icrc/latency 8,64")), "{names:?}");
            assert!(names.contains("veth/icrc/stream 1048576"), "{names:?}");
            assert!(names.contains("host/over udp/latency 65536") || extent == Extent::Full, "{names:?}");
            assert!(
                names.contains("veth/over udp/stream 1048576") && names.contains("host/loss/over udp 1 %"),
                "{names:?}"
            );
        }
    }

    #[test]
    fn a_size_of_an_alternative_is_one_of_ours_too() {
        for (place, extent) in [(Topology::Host, Extent::Quick), (Topology::Veth, Extent::Full)] {
            let ours: Vec<u64> = bands(place, extent)
                .iter()
                .flat_map(|band| band.sizes.split(','))
                .map(|size| size.parse().expect("a number"))
                .collect();
            assert_eq!(ours, size_list(extent).collect::<Vec<_>>(), "{place:?}");
        }
    }
}
