//! What a report says of its chapters and rows: the texts that no measurement changes.

use crate::reading::Topology;

/// How cells are read, and what the rows are called.
pub(crate) const LEGEND: &str = "\
    ## How to read the tables\n\n\
    A cell has the median of the rounds, with the least and the most in brackets. `x` is a ratio, the median of the \
    ratios of single rounds: by size it is the ratio to bare frames (latency: left alone; bandwidth: written and \
    read).\n\n\
    | row | what it is |\n|---|---|\n\
    | `raw` | bare frames of the port, unchecked and never sent again; `raw, touched`: written and read |\n\
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
    | `UCX`, `libfabric`, `MPICH`, `Open MPI` | the libraries, over what is named behind the comma |\n\
    | `Open MPI, roci` | Open MPI over this stack, by its provider for libfabric |\n\
    | `rdma_rxe` | Linux's software RDMA, by perftest |\n\n";

/// How often and with what checks it was measured, apart from the machine.
pub(crate) const METHOD: &str = "\
    - **Rounds.** Each round runs every command once, so that what disturbs the machine for a while disturbs all.\n\
    - **Payloads.** Ours compare every payload, but in rows that say otherwise. Of RDMA WRITEs, which give the peer no \
    completion, they compare the last, after the clock has stopped.\n\
    - **ICRC.** It is on, but in rows that say otherwise.\n";

/// How the rows of one host came about.
const HOST: &str = "\
    Two processes on a processor each: ours over memif, which is memory that both share, and the others over \
    loopback.\n\n\
    - **Latency** is half a round trip, its median. Of a READ or an atomic it is all of the round trip. Of libfabric, \
    whose tool prints nothing else, it is the mean.\n\
    - **Streams** of ours and of MPI have up to 64 messages and 4 MiB under way, UCX's as many as it likes, sockets' \
    what the kernel's buffers hold. libfabric's tool has only ping-pongs, so that its bandwidth is that of one \
    message under way.\n\
    - **Rows to compare.** What the other programs receive is not read, nor is ours in rows that are `unread`.\n\
    - **Shared memory** is no limit: longer messages overtake it by being passed on in parts. MPICH and Open MPI are \
    kept from it.\n\
    - **Processor time** is that of both processes. The kernel's share of sockets is in it where it runs in their \
    name.\n\
    - **Cycles** are those of the time stamp counter that pass for each packet of 64 B; both ends poll without \
    rest.\n\n";

/// How the rows between namespaces came about.
const VETH: &str = "\
    Two network namespaces, joined by a pair of kernel interfaces: ours over af_packet, or over UDP sockets, and the \
    others over sockets.\n\n\
    - **TCP** hands over up to 64 KiB at once and without checksums, because such a pair of interfaces carries what no \
    wire does. From 4 KiB on it is quicker than ours, and than bare frames, for each of which the kernel is asked.\n\
    - **Bare frames** are sent without regard to losses; those that arrive count.\n";

/// How the rows between guests came about.
const GUESTS: &str = "\
    Linux's software RDMA and this stack between the same two virtual machines, over the same emulated NIC.\n\n\
    - **Guests.** Each has one emulated processor and 1 GiB, so that only ratios mean something. They run Linux 6.1, \
    with rdma_rxe and perftest of Debian 12.\n\
    - **NIC.** It is a virtio-net NIC with packets of 4200 bytes. Its memory is the guest's own for the kernel's \
    driver, and behind an emulated IOMMU for ours (`iommu=pt`). What emulates it goes before the guests' processors, \
    as hardware does (`chrt --fifo`).\n\
    - **perftest** posts lists of 16 like ours (`-l 16`) and polls. It does not read what arrives, and so ours does \
    not.\n\
    - **Processor time** is of perftest all that both guests are not idle, less that of a run of 16 messages. Of ours \
    it is what both processes use from beginning to end of a stream, which they poll all through.\n\n\
    `scripts/lab verbs --list` prints the commands.\n\n";

/// What is measured with many connections.
pub(crate) const CONNECTIONS: &str = "\
    SENDs of 64 B over connections that take turns, as many under way as of one; `x` is the ratio to one \
    connection.\n\n\
    - **Ours** are posted one by one, and the port is notified of each, for a list belongs to one connection. Over one \
    connection, lists of 16 make it twice as many (the rates over memif above).\n\
    - **Kernel TCP** writes a message to each socket in turn, and its receiver asks epoll.\n\
    - **Memory** is what a connection takes of the sender, without its receives, which all share. The kernel's use is \
    unknown.\n\n";

/// What is measured under loss.
pub(crate) const LOSS: &str = "\
    Goodput on one host where frames are lost on their way, both ways; `x` is the ratio to none lost.\n\n\
    - **Kernel TCP** goes over loopback, where each socket's filter drops what comes in by the same chance.\n\
    - **Frames** of TCP hold up to 64 KiB and ours 8, so that of the same bytes TCP loses fewer frames.\n\n";

/// What is measured with more and more messages under way.
pub(crate) const WINDOWS: &str = "\
    Streams over memif that wait for an end once so many messages are under way; `x` is the ratio to one at a \
    time.\n\n";

/// What no cell can say of itself.
pub(crate) const NOT_THERE: [&str; 5] = [
    "vhost: bare frames of messages of 8 MiB, there and back: they are more than its ring holds, and it drops what \
     does not fit, so that no message comes through whole",
    "vhost: READ, atomics, `unread` rows, dedicated engines, rows without an ICRC: what differs from memif is the \
     port, which SEND, WRITE and tagged messages show",
    "veth: dedicated engines, which two processors that poll a kernel interface each leave no room for",
    "processor time of UCX, libfabric and MPI: their tools print none, and that of whole processes is for the most \
     part their start",
    "UCX, libfabric and MPI under loss and over many connections: a filter can be put on sockets that are one's own \
     only, and their tools have one connection",
];

/// What introduces the rows of a place.
pub(crate) fn introduction(place: Topology, interface_mtu: u16) -> String {
    match place {
        Topology::Host => HOST.to_owned(),
        Topology::Vhost => {
            "The same operations over the other device of one host; fewer tests (see the end).\n\n".to_owned()
        }
        Topology::Veth => format!(
            "{VETH}- **Interfaces** have an MTU of {interface_mtu}: a packet of ours carries a power of two of that, 1 \
             KiB of 1500, with its ICRC.\n\n"
        ),
        Topology::Guests => GUESTS.to_owned(),
    }
}

/// What the tables of a place are called.
pub(crate) const fn way(place: Topology) -> &'static str {
    match place {
        Topology::Host => "Over memif and loopback",
        Topology::Vhost => "Over vhost",
        Topology::Veth => "Between namespaces",
        Topology::Guests => "Between guests",
    }
}
