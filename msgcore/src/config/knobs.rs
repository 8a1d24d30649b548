//! The knobs: one row each, with its default, unit, range, reason and environment name.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;

use roci_driver::{Algorithm, Dialect, HugePage, MonitorChoice, PageChoice, Pin};
use roci_protocol::Pkey;
use roci_protocol::msg::RendezvousProtocol;
use roci_protocol::sim::Faults;
use roci_protocol::wire::MacAddr;

use super::bad_value::BadKnobValue;
use super::values::{
    Choices, choose, megabytes, name_of, number, optional_number, optional_size, parse_device, parse_mtu,
    parse_neighbours, parse_optional, ratio, show_faults, show_megabytes, show_neighbours, show_optional,
    show_optional_size, show_ratio, size,
};
use super::{Knob, Origin};
use crate::receive_queues::ReceiveQueues;
use crate::services::tag::select::Rendezvous;
use crate::units::show_size;

/// How peers of one host meet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LocalDevice {
    /// By a memif port for each pair, beside the configured port.
    Memif,
    /// As all others, over the configured port.
    Off,
}

/// When ranks are connected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WireupTime {
    /// All with all, before anything else.
    Static,
    /// Each with each at the first message.
    Lazy,
}

/// Who asks for a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Initiative {
    /// The higher rank of each pair; the lower one serves.
    ClientServer,
    /// The rank that needs it first, maybe both.
    PeerToPeer,
}

/// How connections are made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConnectMethod {
    /// Over the launcher.
    OutOfBand,
    /// By RDMA-CM, over the ports themselves.
    RdmaCm,
}

const DIALECTS: &Choices<Dialect> = &[("verbs", Dialect::Verbs), ("rocinante", Dialect::Rocinante)];
const ALGORITHMS: &Choices<Algorithm> =
    &[("none", Algorithm::Unlimited), ("dcqcn", Algorithm::Dcqcn), ("delay", Algorithm::Delay)];
const LOCAL_DEVICES: &Choices<LocalDevice> = &[("memif", LocalDevice::Memif), ("off", LocalDevice::Off)];
const SWITCH: &Choices<bool> = &[("on", true), ("off", false)];
const MONITORS: &Choices<MonitorChoice> = &[
    ("auto", MonitorChoice::Auto),
    ("userfaultfd", MonitorChoice::Userfaultfd),
    ("none", MonitorChoice::None),
    ("unsafe-none", MonitorChoice::UnsafeNone),
];
const PINS: &Choices<Pin> = &[("auto", Pin::Auto), ("lock", Pin::Lock)];
const TIMES: &Choices<WireupTime> = &[("static", WireupTime::Static), ("lazy", WireupTime::Lazy)];
const INITIATIVES: &Choices<Initiative> =
    &[("client-server", Initiative::ClientServer), ("peer-to-peer", Initiative::PeerToPeer)];
const METHODS: &Choices<ConnectMethod> = &[("oob", ConnectMethod::OutOfBand), ("rdma_cm", ConnectMethod::RdmaCm)];
const PAGES: &Choices<PageChoice> = &[
    ("auto", PageChoice::Auto),
    ("1g", PageChoice::Huge(HugePage::Size1G)),
    ("2m", PageChoice::Huge(HugePage::Size2M)),
    ("thp", PageChoice::Transparent),
    ("4k", PageChoice::Base),
];
const RENDEZVOUS: &Choices<Rendezvous> = &[
    ("auto", Rendezvous::Auto),
    ("r3", Rendezvous::Always(RendezvousProtocol::R3)),
    ("rget", Rendezvous::Always(RendezvousProtocol::Rget)),
    ("rput", Rendezvous::Always(RendezvousProtocol::Rput)),
    ("pipeline", Rendezvous::Always(RendezvousProtocol::Pipeline)),
];

macro_rules! knobs {
    ($($(#[doc = $reason:literal])* $name:ident: $type:ty = $default:expr, $unit:literal, $range:literal, $parse:expr, $show:expr;)*) => {
        /// Every knob's value.
        #[derive(Clone, Debug)]
        pub struct Config {
            $($(#[doc = $reason])* pub $name: $type,)*
            pub(super) origins: BTreeMap<&'static str, Origin>,
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
            set: |config, text| { let parse: fn(&str) -> Result<$type, BadKnobValue> = $parse; config.$name = parse(text)?; Ok(()) },
        }),*];
    };
}

knobs! {
    /// The port between ranks: memif (shared memory, no privilege), vhost, udp (a socket, no privilege; udp:ADDRESS and udp:ADDRESS:PORT say where), af_packet:IFACE, pci:ADDRESS; %r stands for the rank. Ranks that may be on several hosts take udp where this is not set, and so does a worker alone. Over udp ranks that a launcher started on one host meet on the loopback interface, and others at the address that leads to other hosts.
    device: String = "memif".into(), "device", "memif|vhost|udp[:ADDRESS]|af_packet:IFACE|pci:ADDRESS", parse_device, Clone::clone;
    /// A raw EAL line instead of a device; its first port is used, and shared by all peers.
    eal: String = String::new(), "EAL arguments", "any", |text| Ok(text.into()), Clone::clone;
    /// This rank's address on a shared device; empty gives 10.200.0.(rank + 1), which no router sees. Over udp it is one of the host's own, and empty gives one by itself.
    ip: Option<IpAddr> = None, "address", "IPv4 or IPv6", parse_optional, show_optional;
    /// How many leading bits of the address are those of every host on the link; empty gives 24 (IPv4) or 64 (IPv6). Hosts elsewhere are reached through the gateway.
    prefix: Option<u8> = None, "bits", "0..128", |text| optional_number(text, 0, 128), show_optional;
    /// The VLAN that frames are tagged with; empty sends them untagged.
    vlan: Option<u16> = None, "VLAN id", "1..4094", |text| optional_number(text, 1, 4094), show_optional;
    /// The partition that ranks are in, as a P_Key: packets of another one are dropped. The highest bit says whether this rank is a full member; two limited members do not reach each other.
    pkey: Pkey = Pkey::DEFAULT, "P_Key", "0x0001..0x7fff, 0x8001..0xffff", |text| Ok(text.trim().parse()?), ToString::to_string;
    /// The router to ranks on other links.
    gateway: Option<IpAddr> = None, "address", "IPv4 or IPv6", parse_optional, show_optional;
    /// Stations that are never asked for by ARP or neighbour discovery, such as 10.0.0.1=02:00:00:00:00:01, separated by commas.
    neighbours: Vec<(IpAddr, MacAddr)> = Vec::new(), "addresses", "IP=MAC,...", parse_neighbours, |neighbours| show_neighbours(neighbours);
    /// Bytes of the arena, the memory that messages are sent from and received in, reserved at once; huge pages of a pool are touched at once, others as they are used.
    arena_size: usize = 1 << 30, "bytes", "16MiB..64GiB", |text| size(text, 16 << 20, 64 << 30), show_size;
    /// Pages of the arena: auto takes the largest that can be had and are not wasted, 1g and 2m are those of the kernel's pools (roci hugepages makes them), thp are ordinary memory that the kernel makes huge pages of. All but auto insist.
    arena_pages: PageChoice = PageChoice::Auto, "pages", "auto, 1g, 2m, thp, 4k", |text| choose(PAGES, text), |value| name_of(PAGES, value);
    /// Packets whose payload is at least so long are sent from where it lies, where the device can (roci info); off copies all. Measured over memif, which copies once more itself: packets of 4 KiB gain 1 to 5 %, of 8 KiB between -4 and 14 %, shorter ones lose up to 38 %. A NIC that reads memory itself may gain from less.
    zcopy_threshold: Option<usize> = Some(4096), "bytes", "off, 1..8192", |text| optional_size(text, 1, 8192), show_optional_size;
    /// The largest path MTU. IBTA ends at 4096; 8192 is spoken between workers of this library, over links whose frames hold it, and measured over memif it carries 1.05 to 1.3 times as much.
    mtu: usize = 8192, "bytes", "256, 512, 1024, 2048, 4096, 8192", parse_mtu, show_size;
    /// The longest packet of a network device, Ethernet aside: 1500 pass every switch and make the path MTU 1024; for 4096 they must be 4200, at every NIC (pci:ADDRESS) and switch on the way. What is set here and not carried is an error: af_packet:IFACE carries what its interface does (ip link), and never more than 1500. Where nothing is set packets follow an interface that carries less, and the path MTU with them. memif and vhost carry 9202 whatever this says, and udp what the interface does, or less where that is set.
    port_mtu: u16 = 1500, "bytes", "576..9000", |text| number(text, 576, 9000), ToString::to_string;
    /// Queues of a network device (all but memif and vhost), and so workers of this process that share it, with one address; a NIC spreads flows over them by RSS. All of them must poll, or be dedicated: frames for one may come in at another's queue. With 1 the port is one worker's alone.
    queues: u16 = 1, "queues", "1..8", |text| number(text, 1, 8), ToString::to_string;
    /// How peers on the same host meet where the device leads to a network: by a memif port for each pair, opened at the first contact, or as all others (off). They have the same kernel, network namespace, user and directory for temporary files, or they meet over the network. With pcap set it is off unless it is set, too. Measured here: 8 bytes take a third of the time that UDP sockets need.
    local: LocalDevice = LocalDevice::Memif, "device", "memif, off", |text| choose(LOCAL_DEVICES, text), |value| name_of(LOCAL_DEVICES, value);
    /// Whether a long message between two processes of one host is copied once, by the kernel, from the sender's memory to the receiver's (Cross Memory Attach), and not sent in packets. Both have the same network namespace and user, and the kernel lets the receiver read the sender's memory: kernel.yama.ptrace_scope is 0, where there is such a setting. Otherwise packets are sent; and so they are with local off, with faults, with pcap unless local is set, and where rndv_protocol is not auto.
    cma: bool = true, "switch", "on, off", |text| choose(SWITCH, text), |value| name_of(SWITCH, value);
    /// Memif ports of a worker to peers on the same host; further ones are reached over the network. DPDK has 32 in a process. Each takes 16 MiB for packets.
    local_ports: usize = 8, "ports", "0..31", |text| number(text, 0, 31), ToString::to_string;
    /// How often a worker publishes its counters for roci stat, in memory that its user's processes may read; 0 publishes nothing.
    stats_ms: u64 = 250, "ms", "0..60000", |text| number(text, 0, 60_000), ToString::to_string;
    /// How loss is repaired between ranks: by selective repeat with timeouts that follow the round trip, or as between verbs NICs (go-back-N).
    dialect: Dialect = Dialect::Rocinante, "dialect", "verbs, rocinante", |text| choose(DIALECTS, text), |value| name_of(DIALECTS, value);
    /// Whether packets between ranks carry an ICRC, and are dropped where it is wrong; they go without only where both ranks say off. Then damage that Ethernet's checksum does not find, such as a switch's or a memory's, reaches the application.
    icrc: bool = true, "switch", "on, off", |text| choose(SWITCH, text), |value| name_of(SWITCH, value);
    /// Congestion control between ranks: dcqcn needs switches that mark packets, delay needs nothing; a link of two needs none.
    congestion: Algorithm = Algorithm::Unlimited, "algorithm", "none, dcqcn, delay", |text| choose(ALGORITHMS, text), |value| name_of(ALGORITHMS, value);
    /// The link's speed, from which congestion control starts.
    link_rate: u64 = 100_000_000_000, "bits/s", "1000000..1000000000000", |text| number(text, 1_000_000, 1_000_000_000_000), ToString::to_string;
    /// The DSCP of packets between ranks, by which switches choose a queue; RoCE's lossless class is often 26. Who is asked by RDMA-CM takes the asker's.
    dscp: u8 = 0, "DSCP", "0..63", |text| number(text, 0, 63), ToString::to_string;
    /// The DSCP of congestion notifications; 48 is what NICs use.
    cnp_dscp: u8 = 48, "DSCP", "0..63", |text| number(text, 0, 63), ToString::to_string;
    /// The 802.1p priority of frames between ranks, by which flow control by priority (PFC) goes; other than 0 it takes a tag, of VLAN 0 where there is no VLAN.
    pcp: u8 = 0, "priority", "0..7", |text| number(text, 0, 7), ToString::to_string;
    /// Packets in flight to one peer; 128 keep a ring of 1024 descriptors busy and a go-back-N short.
    window: u32 = 128, "packets", "1..65536", |text| number(text, 1, 65_536), ToString::to_string;
    /// The first wait for an acknowledgement; longer than a scheduler's slice costs nothing without loss, shorter ones retransmit in vain.
    ack_timeout_us: u64 = 2_000, "us", "10..10000000", |text| number(text, 10, 10_000_000), ToString::to_string;
    /// The longest wait for an acknowledgement, up to which waits double: a peer that computes and does not poll must not be flooded.
    ack_timeout_max_us: u64 = 250_000, "us", "10..60000000", |text| number(text, 10, 60_000_000), ToString::to_string;
    /// Waits in a row until a peer is given up: with the two timeouts, about 10 min. It is for peers that live and do not answer, which may compute so long without a call, or be stopped: a process that has ended is known sooner, by its link or by the launcher.
    retry_limit: u32 = 2_400, "retries", "1..100000", |text| number(text, 1, 100_000), ToString::to_string;
    /// Seconds without a packet from a peer that something waits for, after which it is probed: by an RDMA WRITE of no bytes, which takes no receive and no credit there. From then on retry_limit says when it is given up. 0 sends no probes: a rank that computes for minutes without a call acknowledges none, unless it has an engine of its own. Then the end of a peer that nothing is sent to is not noticed where neither its link nor the launcher shows it; a worker alone has no launcher.
    keepalive_s: u64 = 0, "s", "0..3600", |text| number(text, 0, 3_600), ToString::to_string;
    /// When ranks are connected: all at the start, which shows what is wrong before it matters, or each pair at its first message, which is quicker with many ranks that speak to few.
    wireup: WireupTime = WireupTime::Static, "time", "static, lazy", |text| choose(TIMES, text), |value| name_of(TIMES, value);
    /// Who asks for a connection: the higher rank of each pair, or the one that needs it first. Where both have asked, the lower rank's request goes on.
    connect: Initiative = Initiative::ClientServer, "side", "client-server, peer-to-peer", |text| choose(INITIATIVES, text), |value| name_of(INITIATIVES, value);
    /// How connections are made: out of band over the launcher, which is quicker, or in band by RDMA-CM, which needs it for nothing but hosts.
    connect_method: ConnectMethod = ConnectMethod::OutOfBand, "method", "oob, rdma_cm", |text| choose(METHODS, text), |value| name_of(METHODS, value);
    /// The port of RDMA-CM's service that rank 0 listens at, and the others at those behind it; or a worker alone at this one.
    service: u16 = 28_416, "port", "1024..60000", |text| number(text, 1024, 60_000), ToString::to_string;
    /// Peers that a worker alone may be connected with, which memory is planned for: receives that they share have credits for all of them. Half of them may come without having been inserted.
    peers: usize = 1024, "peers", "1..65536", |text| number(text, 1, 65_536), ToString::to_string;
    /// Receive buffers posted to each peer, which is also the number of its credits; receive_queues overrules it. Ranks of a job of more than 129 share one queue of receives among all peers, unless this knob or receive_queues is set. The least in effect is 3, for an eager message, an announcement and a control message; 2 means 3. With fewer credits than messages under way, messages are announced and streamed (R3), at two thirds of the rate where it was measured.
    credits: u16 = 128, "messages", "2..4096", |text| number(text, 2, 4096), ToString::to_string;
    /// Bytes of a vbuf, the buffer that an eager message is sent from and received in, 40 bytes of header among them; a message that fits is sent eagerly; receive_queues overrules it.
    vbuf_size: usize = 8192, "bytes", "256..1MiB", |text| size(text, 256, 1 << 20), show_size;
    /// Receive queues in Open MPI's notation, such as P,512,64,32,16,7:S,8KiB,1024,512,128,256,48: P for each peer, with credits, S shared by all peers; empty gives one for each peer, of credits and vbuf_size.
    receive_queues: Option<ReceiveQueues> = None, "queues", "P,size,num[,low[,win[,rsv]]] or S,size,num[,low[,maxsends[,init[,limit]]]], up to 8 separated by :", parse_optional, show_optional;
    /// Credits that eager messages leave to announcements of a rendezvous, which take little memory at the receiver and always get through; an eager message that finds no more becomes R3. At least 2, and at most half of all.
    credit_preserve: u16 = 4, "messages", "1..4096", |text| number(text, 1, 4096), ToString::to_string;
    /// Credits owed to a peer that are worth a message of their own when the peer has no more than credit_preserve; fewer are raised to what the reserve of receives allows.
    credit_notify_threshold: u16 = 5, "messages", "1..4096", |text| number(text, 1, 4096), ToString::to_string;
    /// Send buffers (vbufs) made at the start, for each receive queue.
    vbuf_pool: usize = 128, "buffers", "1..65536", |text| number(text, 1, 65_536), ToString::to_string;
    /// Buffers made together when none is left, for sending or for receiving.
    vbuf_secondary_pool: usize = 32, "buffers", "1..4096", |text| number(text, 1, 4096), ToString::to_string;
    /// The most send buffers of a receive queue; when all are in use, messages wait. A peer to which nothing is under way may have one more.
    vbuf_max: usize = 4096, "buffers", "16..1048576", |text| number(text, 16, 1_048_576), ToString::to_string;
    /// The longest message that is sent eagerly; one that no vbuf holds goes in a series of them. Unless it is given, it is what a vbuf holds. Longer ones go by rendezvous.
    eager_threshold: usize = 8152, "bytes", "0..1MiB", |text| size(text, 0, 1 << 20), show_size;
    /// The longest message that shares a packet with others to the same peer, where its doorbell waits; 0: each has one of its own. No message is longer than half a packet that does.
    coalesce_threshold: usize = 4096, "bytes", "0..1MiB", |text| size(text, 0, 1 << 20), show_size;
    /// What a rendezvous is: auto takes RGET, for very long ones PIPELINE. RGET is fetched by RDMA READ, RPUT written by RDMA WRITE, PIPELINE written in pieces, R3 streamed in vbufs, which also carries what cannot go otherwise.
    rndv_protocol: Rendezvous = Rendezvous::Auto, "protocol", "auto, r3, rget, rput, pipeline", |text| choose(RENDEZVOUS, text), |value| name_of(RENDEZVOUS, value);
    /// Rendezvous shorter than this go by R3, where the protocol is auto. Measured: RGET is quicker at any length.
    r3_threshold: usize = 0, "bytes", "0..1GiB", |text| size(text, 0, 1 << 30), show_size;
    /// Rendezvous of at least this length go in pieces, where the protocol is auto, so that other messages get between.
    pipeline_threshold: usize = 64 << 20, "bytes", "64KiB..2GiB", |text| size(text, 64 << 10, 2 << 30), show_size;
    /// Bytes of a piece of a PIPELINE rendezvous.
    pipeline_chunk: usize = 1 << 20, "bytes", "4KiB..64MiB, in multiples of 4KiB", |text| size(text, 4 << 10, 64 << 20).and_then(|bytes| if bytes.is_multiple_of(4096) { Ok(bytes) } else { Err(BadKnobValue::NoMultiple(4096)) }), show_size;
    /// Pieces of one message on their way at once; as many pieces of staging memory are registered at the start, for receives whose own memory cannot be.
    pipeline_depth: usize = 4, "pieces", "1..64", |text| number(text, 1, 64), ToString::to_string;
    /// Pieces of memory that may be open to peers at once; a message that would need one more goes by R3, a very long one by PIPELINE.
    ndreg_entries: usize = 8_000, "regions", "0..16000", |text| number(text, 0, 16_000), ToString::to_string;
    /// Whether registrations of the application's own memory outlive their use.
    dreg_cache: bool = true, "switch", "on, off", |text| choose(SWITCH, text), |value| name_of(SWITCH, value);
    /// Registered regions of the application's memory, in use or not; for one more the least recently used goes, and where all are in use its bytes are copied. MVICH's cache had 1000, libfabric's has 1024. Of them physmem_pinnable_ratio may be what peers reach of memory that is offered.
    dreg_cache_entries: usize = 4096, "regions", "1..16000", |text| number(text, 1, 16_000), ToString::to_string;
    /// Bytes of all registered regions of the application's memory.
    dreg_cache_limit: usize = 1 << 30, "bytes", "4KiB..1024GiB", |text| size(text, 4 << 10, 1 << 40), show_size;
    /// What reports that registered memory of the application's is unmapped: the kernel by userfaultfd, where it may, or nothing, and then nothing is cached. auto takes the better one. With unsafe-none nothing reports it and all is cached: wrong data is sent once memory comes and goes. Of guard regions (MADV_GUARD_INSTALL) and segments attached over memory (shmat with SHM_REMAP) the kernel reports nothing: keep them from memory that is sent from, or choose none.
    dreg_monitor: MonitorChoice = MonitorChoice::Auto, "monitor", "auto, userfaultfd, none, unsafe-none", |text| choose(MONITORS, text), |value| name_of(MONITORS, value);
    /// What registering is: auto does what the devices need, which is nothing where they copy, and lock has the kernel lock the pages (mlock), so that no transfer waits for one; a lock of the application's own on such a page ends with it.
    dreg_pin: Pin = Pin::Auto, "pin", "auto, lock", |text| choose(PINS, text), |value| name_of(PINS, value);
    /// Whether this rank can do RDMA. Without, it is like a peer on a port that cannot: everything long goes by R3.
    rdma: bool = true, "switch", "on, off", |text| choose(SWITCH, text), |value| name_of(SWITCH, value);
    /// Whether gets are RDMA READs where both ends have RDMA. Where they are not the target writes what was asked for into the origin's memory, which takes its processor (GASNet's RDMA gets).
    rdma_gets: bool = true, "switch", "on, off", |text| choose(SWITCH, text), |value| name_of(SWITCH, value);
    /// Firehose: which part of dreg_cache_limit and dreg_cache_entries may be memory that is offered to peers and pinned because they reach it; the rest is left to a rank's own transfers.
    physmem_pinnable_ratio: u16 = 750, "ratio", "0.001..1", ratio, show_ratio;
    /// Firehose: of the memory that a rank offers its peers, what stays pinned because they use it, in equal shares; at least a bucket for each rank. Empty or 0: what firehose_maxvictim_m leaves, or three quarters of what can be pinned.
    firehose_m: Option<u64> = None, "megabytes", "0..99999, of G where a G follows", megabytes, show_megabytes;
    /// Firehose: of the memory that a rank offers its peers, what stays pinned though none uses it any more; at least 32 buckets. Empty or 0: what firehose_m leaves, or a quarter of what can be pinned.
    firehose_maxvictim_m: Option<u64> = None, "megabytes", "0..99999, of G where a G follows", megabytes, show_megabytes;
    /// Firehose: memory that is offered is pinned in buckets of so many bytes, each with a key; there are 16000 keys less ndreg_entries, and physmem_pinnable_ratio of dreg_cache_entries and dreg_cache_limit. A larger bucket takes fewer keys, a smaller one pins less that was not asked for.
    firehose_bucket: usize = 64 << 10, "bytes", "4KiB..1GiB, a power of two", |text| size(text, 4 << 10, 1 << 30).and_then(|bytes| if bytes.is_power_of_two() { Ok(bytes) } else { Err(BadKnobValue::NoPowerOfTwo) }), show_size;
    /// Memory for copies that buffered sends wait in; beyond it they are refused.
    buffered_limit: usize = 16 << 20, "bytes", "0..64GiB", |text| size(text, 0, 64 << 30), show_size;
    /// Memory for messages that have no receive yet, of which a quarter of the arena is the most; beyond it, or where less than a sixteenth of the arena is free, the credits of eager messages are withheld, and senders announce what they would have sent.
    unexpected_limit: usize = 256 << 20, "bytes", "1MiB..64GiB", |text| size(text, 1 << 20, 64 << 30), show_size;
    /// How long a wait spins before it yields the processor. Measured: more buys nothing, because a yield with no other process to run is quick; with more ranks than processors it never spins.
    spin_us: u64 = 20, "us", "0..10000000", |text| number(text, 0, 10_000_000), ToString::to_string;
    /// How long a wait yields before it sleeps. Measured: without it, a sleep stands in the way of every answer (55 us instead of 1).
    yield_us: u64 = 2_000, "us", "0..10000000", |text| number(text, 0, 10_000_000), ToString::to_string;
    /// The longest sleep between two looks; sleeps double from 20 us up to this, which bounds the latency of an idle rank.
    sleep_max_us: u64 = 1_000, "us", "20..1000000", |text| number(text, 20, 1_000_000), ToString::to_string;
    /// The processor that the thread of a dedicated worker runs on; empty lets the system choose. One that no other thread uses is worth it.
    engine_cpu: Option<usize> = None, "processor", "0..1023", |text| optional_number(text, 0, 1023), show_optional;
    /// How long a rank waits for its peers to appear, and, when all of them close, for their answers. It is for peers that live, and compute or are stopped: a process that has ended is known sooner.
    connect_timeout_s: u64 = 600, "s", "1..3600", |text| number(text, 1, 3_600), ToString::to_string;
    /// How long a rank that ends without a close, because its worker is dropped, waits until what it has sent is in its peers' memory. A short message's send is over before that, as MPI has it, so without the wait some would be lost: 18 of 50 over af_packet. 0 does not wait.
    linger_ms: u64 = 1_000, "ms", "0..600000", |text| number(text, 0, 600_000), ToString::to_string;
    /// Faults injected into every frame sent, such as loss=0.01,dup=0.01,reorder=0.01,corrupt=0.001,seed=7; for tests.
    faults: Option<Faults> = None, "fault plan", "probabilities 0..1", parse_optional, show_faults;
    /// Writes every frame of the first port to this capture file; %r stands for the rank, and without it only rank 0 writes.
    pcap: Option<PathBuf> = None, "path", "any", parse_optional, |path| path.as_ref().map_or_else(String::new, |path| path.display().to_string());
}
