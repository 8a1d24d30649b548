//! The rules, and where they stand.

use std::fmt;

macro_rules! rules {
    ($($(#[$doc:meta])* $name:ident = $text:literal, $source:literal;)*) => {
        /// A rule for what is sent.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
        pub enum Rule { $($(#[$doc])* $name),* }

        impl Rule {
            /// All rules.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// Its name.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text),* }
            }

            /// Who says so.
            pub const fn source(self) -> &'static str {
                match self { $(Self::$name => $source),* }
            }
        }
    };
}

rules! {
    /// The invariant CRC covers the packet.
    Icrc = "icrc", "IBTA 7.8.1 and A17.3.3";
    /// The lengths of frame, IP and UDP agree, and the IPv4 header's checksum is right.
    Lengths = "lengths", "IBTA A17.3.1";
    /// The UDP destination port is 4791, and the source port is one of the dynamic ports, 0xc000 to 0xffff.
    UdpPorts = "udp-ports", "IBTA A17.3.2";
    /// All packets of a queue pair to a peer have the same UDP source port, so that no path overtakes another.
    PortOfFlow = "port-of-flow", "IBTA A17.3.2";
    /// The transport header has version 0.
    Version = "transport-version", "IBTA 9.2";
    /// The opcode is one of the table.
    Opcode = "opcode", "IBTA 9.2, table 38";
    /// Reserved bits are zero.
    Reserved = "reserved-bits", "IBTA 9.2";
    /// The pad fills the payload up to a multiple of four bytes, and its bytes are zero.
    Pad = "pad", "IBTA 9.2";
    /// A connection without alternate path is in the state "migrated": MigReq is 1.
    MigReq = "mig-req", "IBTA 9.2 and 17.2.8";
    /// The P_Key is one of those that are allowed: that of the default partition's full members unless others are named.
    PartitionKey = "p-key", "IBTA 10.9.1";
    /// Nothing goes to queue pair 0; management datagrams alone go to queue pair 1.
    Destination = "destination-qpn", "IBTA 9.2 and A17.3.1";
    /// Only the last packet of a message that takes a receive asks for a solicited event.
    Solicited = "solicited-event", "IBTA 9.2";
    /// The packets of a message are FIRST, MIDDLE and LAST, or ONLY, and no other message comes between them.
    MessageOrder = "message-order", "IBTA 9.4";
    /// Packets that are not the last of their message are full; the last one holds the rest; requests for data, and
    /// acknowledgements, have no payload.
    Payload = "payload-length", "IBTA 9.4";
    /// The payloads of a WRITE are together as long as its RETH says.
    WriteLength = "write-length", "IBTA 9.4.3";
    /// A new request has the PSN that follows the last one's, where a READ takes as many PSNs as it has responses.
    Psn = "psn", "IBTA 9.7.2";
    /// At most 2^23 - 1 PSNs are in flight.
    InFlight = "psns-in-flight", "IBTA 9.7.5.1";
    /// A packet that is sent again is the packet that was sent; a READ may be asked for again from its middle on.
    Repeat = "repeat", "IBTA 9.7.5.1";
    /// The last packet of a SEND or WRITE asks for an acknowledgement, and no response does. Of requests IBTA 9.7.3.3 leaves
    /// it open; this stack promises it to verbs peers. Its own ends ask each other only where somebody waits, and now and then.
    AckReq = "ack-req", "this stack's promise";
    /// After an RNR NAK the packet is not sent again before the NAK's time has passed.
    RnrWait = "rnr-wait", "IBTA 9.7.5.2.8, table 45";
    /// An RNR NAK names a packet that needs a receive.
    RnrPlace = "rnr-place", "IBTA 9.7.5.2.8";
    /// A response belongs to a READ or an atomic that was asked for.
    ResponsePsn = "response-psn", "IBTA 9.7.5.1";
    /// A READ's responses are FIRST, MIDDLE and LAST, or ONLY, in order, from where a request began.
    ResponseOrder = "response-order", "IBTA 9.4.4";
    /// An atomic that is asked for again is answered as the first time.
    AtomicReplay = "atomic-replay", "IBTA 9.7.4.1.6";
    /// The syndrome is one of the table, and a response that carries data has a positive one.
    Syndrome = "syndrome", "IBTA 9.3.5";
    /// An acknowledgement names a PSN that was sent.
    AckPsn = "ack-psn", "IBTA 9.7.5.1";
    /// A positive acknowledgement names no PSN whose answer is data.
    AckOfData = "ack-of-data", "IBTA 9.7.5.1";
    /// Positive acknowledgements do not go back.
    AckOrder = "ack-order", "IBTA 9.7.5.1";
    /// The message sequence number counts the messages executed.
    Msn = "msn", "IBTA 9.7.7.1";
    /// The credits are the receives that are posted, rounded down to a code, or 31 where they are shared.
    Credits = "credits", "IBTA 9.7.7.2, table 44";
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name(), self.source())
    }
}
