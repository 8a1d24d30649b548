//! What a report says of its chapters and rows: the texts that no measurement changes.

use crate::reading::Topology;

/// How cells are read, and what the rows are called.
pub(crate) const LEGEND: &str = "\
    ## How to read the tables\n\n\
    A cell has the median of the rounds, with the least and the most in brackets. `x` is a ratio, the median of the \
    ratios of single rounds. In tables by size it is the ratio to bare frames, unless the chapter says otherwise: for \
    latency to `raw`, for bandwidth to `raw, touched`.\n\n\
    | row | what it is |\n|---|---|\n\
    | `raw` | bare frames of the port, which are neither checked nor sent again, and whose bytes no processor looks \
    at; `raw, touched`: every byte is written and read |\n\
    | `send`, `write`, `read`, `atomic` | verbs over a reliable connection |\n\
    | `tag` | tagged messages, which are matched as MPI's are |\n\
    | `put`, `get`, `fadd`, `am` | one-sided operations, each until its end is known, and active messages |\n\
    | ..., `over UDP` | the same over UDP sockets, which need no privilege |\n\
    | ..., `unread` | the same, and the receiver does not look at what arrives, as the others do not |\n\
    | ..., `CMA` | the same, and the kernel copies the message from process to process (Cross Memory Attach): no packet \
    carries it |\n\
    | ..., `no ICRC` | the same without the checksum of RoCEv2's packets |\n\
    | `tag, dedicated engine` | the engine is a thread of its own, which shares a processor with its application by \
    turns |\n\
    | `memcpy` | one processor copies |\n\
    | `shared memory` | two processors copy a message in and, when it is whole, out |\n\
    | `kernel TCP`, `kernel UDP` | sockets, polled |\n\
    | `UCX`, `libfabric`, `MPICH`, `Open MPI` | these libraries, over the transport behind the comma |\n\
    | `Open MPI, roci` | Open MPI over this stack, by its provider for libfabric |\n\
    | `rdma_rxe` | Linux's software RDMA, by perftest |\n\n";

/// How often and with what checks it was measured, apart from the machine.
pub(crate) const METHOD: &str = "\
    - **Rounds.** Each round runs every command once. So a disturbance of the machine meets all commands alike.\n\
    - **Payloads.** This stack compares every payload, unless the row says otherwise. RDMA WRITEs give the peer no \
    completion, so it compares the last one, after the clock has stopped.\n\
    - **ICRC.** It is on, unless the row says otherwise.\n";

/// How the rows of one host came about.
const HOST: &str = "\
    Two processes, each on its processor. This stack uses memif, which is memory that both share; the others use \
    loopback.\n\n\
    - **Latency** is half a round trip, the median. That of a READ or an atomic is the whole round trip. For \
    libfabric it is the mean, because its tool prints nothing else.\n\
    - **Bandwidth** is that of a stream. This stack and MPI have up to 64 messages and 4 MiB under way, UCX as many \
    as it likes, sockets what the kernel's buffers hold. libfabric's tool has only ping-pongs, so its bandwidth is \
    that of one message under way.\n\
    - **Rows to compare.** The other programs do not read what they receive. So compare them with the rows `unread`.\n\
    - **Shared memory** is a yardstick, and no limit: it hands over whole messages, and longer ones are faster in \
    parts. MPICH and Open MPI are kept from using shared memory here.\n\
    - **Processor time** is that of both processes, with what the kernel does in their name.\n\
    - **Cycles** are those of the time stamp counter that pass for each packet of 64 B. Both ends poll all the \
    time.\n\n";

/// How the rows between namespaces came about.
const VETH: &str = "\
    Two network namespaces, joined by a pair of virtual interfaces (veth). This stack uses af_packet, or UDP sockets \
    in rows that say so; the others use sockets.\n\n\
    - **TCP** hands over up to 64 KiB at once and without checksums, which a virtual interface can carry and no wire \
    can. From 4 KiB on it is faster than this stack, and than bare frames, each of which takes a call of the kernel.\n\
    - **Bare frames** that are lost are not sent again; those that arrive count.\n";

/// How the rows with jumbo frames came about.
const JUMBO: &str = "\
    Two namespaces whose interfaces have an MTU of 9000, so that a packet of this stack carries 4 KiB. This stack uses UDP \
    sockets. `x` is the ratio to `raw, over UDP`.\n\n";

/// How the rows of two namespaces that lose packets came about.
const LOSSY: &str = "\
    Two namespaces, each of which drops at random a part of what arrives (iptables). This stack uses UDP sockets. `x` is the \
    ratio to kernel TCP.\n\n\
    - **A packet** is here what the kernel handles as one: up to 64 KiB of TCP's segments, or of this stack's packets.\n\
    - **Latency** is the median, which so few losses hardly move. For libfabric it is the mean, which has every timeout in \
    it.\n\
    - **A row that is not there** did not come to its end: [why](#what-was-not-run).\n\n";

/// How the rows between guests came about.
const GUESTS: &str = "\
    Linux's software RDMA and this stack between the same two virtual machines, over the same emulated NIC.\n\n\
    - **Guests.** Each has one emulated processor and 1 GiB, so that only ratios mean something. They run Linux 6.1, \
    with rdma_rxe and perftest of Debian 12.\n\
    - **NIC.** It is a virtio-net NIC with packets of 4200 bytes. The kernel's driver uses the guest's memory \
    directly, and this stack's goes through an emulated IOMMU (`iommu=pt`). The thread that emulates the NIC has \
    precedence over the guests' processors, as hardware has (`chrt --fifo`).\n\
    - **perftest** posts lists of 16 work requests (`-l 16`) and polls, and so does this stack. Neither reads what it \
    receives.\n\
    - **Processor time** of perftest is all the time that both guests are not idle, less that of a run of 16 \
    messages. That of this stack is what both processes use from the beginning to the end of a stream; they poll all \
    the time.\n\n\
    `scripts/lab verbs --list` prints the commands.\n\n";

/// What is measured with many connections.
pub(crate) const CONNECTIONS: &str = "\
    SENDs of 64 B over connections that take turns. As many messages are under way as over one connection. `x` is the \
    ratio to one connection.\n\n\
    - **This stack** posts the SENDs one by one, and notifies the port of each, because a list of work requests \
    belongs to one connection. Over one connection, lists of 16 double the rate (the rates over memif above).\n\
    - **Kernel TCP** writes a message to each socket in turn, and its receiver asks epoll.\n\
    - **Memory** is what a connection takes of the sender, without its receives, which all share. The kernel's use is \
    unknown.\n\n";

/// What is measured under loss.
pub(crate) const LOSS: &str = "\
    Goodput on one host while frames are lost in both directions. `x` is the ratio to no loss.\n\n\
    - **Kernel TCP** goes over loopback. A filter at each socket drops incoming frames with the same probability.\n\
    - **Frames** of TCP hold up to 64 KiB, and those of this stack 8 KiB. So of the same bytes TCP loses fewer \
    frames.\n\n";

/// What is measured with more and more messages under way.
pub(crate) const WINDOWS: &str = "\
    Streams over memif with so many messages under way at once. `x` is the ratio to one at a time.\n\n";

/// What no cell can say of itself.
pub(crate) const NOT_THERE: [&str; 5] = [
    "vhost: bare frames of messages of 8 MiB, there and back: they are more than its ring holds, and it drops what \
     does not fit, so that no message comes through whole",
    "vhost: READ, atomics, `unread` rows, dedicated engines, rows without an ICRC: what differs from memif is the \
     port, which SEND, WRITE and tagged messages show",
    "between namespaces: dedicated engines, because both processors are busy with polling a kernel interface",
    "processor time of UCX, libfabric and MPI: their tools print none, and that of whole processes is for the most \
     part their start",
    "UCX, libfabric and MPI under loss on one host and over many connections: their sockets cannot be given a filter, \
    and their tools have one connection. MPI with jumbo frames and between namespaces that lose packets",
];

/// What introduces the rows of a place.
pub(crate) fn introduction(place: Topology, interface_mtu: u16) -> String {
    match place {
        Topology::Host => HOST.to_owned(),
        Topology::Vhost => {
            "The same operations over vhost, the other device between processes of one host. There are fewer tests \
            ([why](#what-was-not-run)).\n\n"
                .to_owned()
        }
        Topology::Veth => format!(
            "{VETH}- **Interfaces** have an MTU of {interface_mtu}. A packet of this stack carries a power of two: 1 KiB of \
             1500.\n\n"
        ),
        Topology::Jumbo => JUMBO.to_owned(),
        Topology::Loss01 | Topology::Loss1 => LOSSY.to_owned(),
        Topology::Guests => GUESTS.to_owned(),
    }
}

/// What the tables of a place are called.
pub(crate) const fn way(place: Topology) -> &'static str {
    match place {
        Topology::Host => "Over memif and loopback",
        Topology::Vhost => "Over vhost",
        Topology::Veth => "Between namespaces",
        Topology::Jumbo => "With jumbo frames",
        Topology::Loss01 => "With 0.1 % lost",
        Topology::Loss1 => "With 1 % lost",
        Topology::Guests => "Between guests",
    }
}
