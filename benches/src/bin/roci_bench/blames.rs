//! What profiles of this stack have shown (`perf record -e cpu-clock`) where a target is missed. No figures of the
//! tables stand here: they differ from run to run.

/// What takes the time that a target wants less of.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Blame {
    pub(crate) title: &'static str,
    /// One finding each.
    pub(crate) findings: &'static [&'static str],
}

impl Blame {
    /// As a list under its title.
    pub(crate) fn markdown(&self) -> String {
        let findings: String = self.findings.iter().map(|finding| format!("- {finding}\n")).collect();
        format!("#### {}\n\n{findings}\n", self.title)
    }

    /// As one text.
    pub(crate) fn text(&self) -> String {
        format!("{}: {}", self.title, self.findings.join(" "))
    }
}

pub(crate) const PING_PONG: Blame = Blame {
    title: "Latency of 8 B",
    findings: &[
        "Of a ping-pong's samples 35 % are in memif's receive and 15 % in its transmit. Most of them are at the words \
         of the ring that both processes write, for which bare frames wait as well.",
        "20 % are in polls of ours that find nothing.",
        "Of what a message alone needs, the ICRC has 2.5 %, parsing 1.9 % and the acknowledgement 1.6 %: no single \
         thing is left.",
    ],
};
pub(crate) const STREAM: Blame = Blame {
    title: "Streams of 1 MiB",
    findings: &[
        "The sender works without rest, and the receiver waits for it in a quarter of its samples.",
        "Of the sender's samples, half are in memif's copy into the ring, 18 % in the ICRC and 9 % where a packet \
         buffer lets the payload go, which waits for the copy's stores.",
        "Without an ICRC the sender copies the payload once more (26 %), for only an ICRC shows that a payload which \
         is sent without a copy has changed meanwhile. Doing without that copy was no faster, as the first reader of \
         the payload waits for it.",
    ],
};
pub(crate) const RATE: Blame = Blame {
    title: "SENDs of 64 B",
    findings: &[
        "memif has 24 % of the samples, the ICRC 8 %, parsing and the completion queue 4 % each. Nothing else \
         stands out.",
    ],
};
pub(crate) const CONNECTIONS: Blame = Blame {
    title: "1,024 connections",
    findings: &[
        "From 64 connections on every message has an acknowledgement of its own, where one connection's share one. \
         That is most of it.",
        "The ICRC, parsing and looking for who owes an acknowledgement have 15 % of the samples.",
        "The rest is spread over all that looks at a connection, whose 3 KiB are no more in the second cache when its \
         turn comes. Asking for them ahead bought nothing.",
        "No list of work requests spans connections, so that the port is notified of every message.",
    ],
};
pub(crate) const GUESTS: Blame = Blame {
    title: "Between guests",
    findings: &[
        "`perf record -a` on their host, while ours runs: 46 % of QEMU's samples are in QEMU itself, which translates \
         code, looks it up and moves frames, 40 % in what it has translated and 8 % in the kernel. What is compared is \
         for the most part the emulator.",
        "Polling is processor time even when nothing comes, on both guests' processors all the time, where rxe's sleep \
         while QEMU moves a frame. Bare frames pay that as well.",
    ],
};
pub(crate) const TAGGED: Blame = Blame {
    title: "Tagged messages beside TCP, whose sockets are polled here",
    findings: &[
        "The lead shrinks with the length: what a short message saves is the way through the kernel, and a long one takes \
         the time of its bytes.",
        "From 16 KiB on a message crosses as a row of packets. Each byte is copied into memif's ring and out of it, as \
         TCP's loopback does in pieces of up to 64 KiB. The ICRC is computed at both ends, where TCP's loopback \
         checks nothing.",
        "In streams 40 to 46 % of either process's samples are in those copies, and 14 to 17 % in the ICRC.",
    ],
};
pub(crate) const RELIABLE_DATAGRAMS: Blame = Blame {
    title: "Beside libfabric's reliable datagrams",
    findings: &["What is said of TCP holds: the way through memif and the ICRC is what long messages take."],
};
pub(crate) const SOCKETS: Blame = Blame {
    title: "UDP sockets",
    findings: &[
        "Between namespaces a packet carries 1 KiB where the MTU is 1500, and 8 KiB of jumbo frames. TCP's segments of \
         64 KiB cross the pair of interfaces whole, so that the work for a packet is done once where ours is done 64 or 8 \
         times.",
        "The sender is the slower end. Of its samples in a stream of tagged messages of 64 KiB the kernel has 59 %, a fifth of all \
         in its copy, the ICRC 8 % and the copy of a payload to its packet 7 %. Bare frames have neither that copy nor \
         an ICRC, and their bytes are in the cache.",
        "The kernel takes a row of packets of one length at once. What answers a READ is such a row. The first packet of a WRITE is \
         longer than the others, so that 64 KiB are two rows.",
        "A message of 8 B is one system call at each end, as polled TCP's is. What it saves beside TCP is TCP's own work; what it \
         adds is the ICRC, the headers that a socket does not show, and an acknowledgement now and then.",
    ],
};
