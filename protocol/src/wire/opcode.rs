//! The opcode table (IBTA 9.2, table 38): transport, operation, place in the message, extension headers.

use super::bth;

/// The transport service, the opcode's high three bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transport {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Unreliable datagram.
    Ud,
    /// Congestion notification (annex A17).
    Cnp,
}

macro_rules! opcodes {
    ($($name:ident = $code:literal, $text:literal, $transport:ident, [$($ext:ident)*];)*) => {
        /// A known opcode.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
        #[repr(u8)]
        #[allow(missing_docs)] // the names are IBTA's own
        pub enum Opcode { $($name = $code),* }

        impl Opcode {
            /// Every opcode in the table.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// The opcode with this number, if the table has it.
            #[inline]
            pub const fn from_wire(code: u8) -> Option<Self> {
                KNOWN[code as usize]
            }

            /// The name that captures and counters print.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text),* }
            }

            /// The transport service.
            #[inline]
            pub const fn transport(self) -> Transport {
                match self { $(Self::$name => Transport::$transport),* }
            }

            /// Which extension headers follow the BTH.
            #[inline]
            pub const fn extensions(self) -> ExtensionSet {
                EXTENSIONS[self as usize]
            }
        }

        /// The opcodes by number: a jump for each packet would be mispredicted wherever requests and acknowledgements mix.
        static KNOWN: [Option<Opcode>; 256] = {
            let mut known = [None; 256];
            $(known[$code] = Some(Opcode::$name);)*
            known
        };

        /// Their extension headers.
        static EXTENSIONS: [ExtensionSet; 256] = {
            let mut extensions = [ExtensionSet::NONE; 256];
            $(extensions[$code] = ExtensionSet::NONE $(.with(ExtensionSet::$ext))*;)*
            extensions
        };
    };
}

opcodes! {
    RcSendFirst = 0x00, "RC_SEND_FIRST", Rc, [];
    RcSendMiddle = 0x01, "RC_SEND_MIDDLE", Rc, [];
    RcSendLast = 0x02, "RC_SEND_LAST", Rc, [];
    RcSendLastImm = 0x03, "RC_SEND_LAST_IMM", Rc, [IMMDT];
    RcSendOnly = 0x04, "RC_SEND_ONLY", Rc, [];
    RcSendOnlyImm = 0x05, "RC_SEND_ONLY_IMM", Rc, [IMMDT];
    RcWriteFirst = 0x06, "RC_WRITE_FIRST", Rc, [RETH];
    RcWriteMiddle = 0x07, "RC_WRITE_MIDDLE", Rc, [];
    RcWriteLast = 0x08, "RC_WRITE_LAST", Rc, [];
    RcWriteLastImm = 0x09, "RC_WRITE_LAST_IMM", Rc, [IMMDT];
    RcWriteOnly = 0x0a, "RC_WRITE_ONLY", Rc, [RETH];
    RcWriteOnlyImm = 0x0b, "RC_WRITE_ONLY_IMM", Rc, [RETH IMMDT];
    RcReadRequest = 0x0c, "RC_READ_REQ", Rc, [RETH];
    RcReadResponseFirst = 0x0d, "RC_READ_RESP_FIRST", Rc, [AETH];
    RcReadResponseMiddle = 0x0e, "RC_READ_RESP_MIDDLE", Rc, [];
    RcReadResponseLast = 0x0f, "RC_READ_RESP_LAST", Rc, [AETH];
    RcReadResponseOnly = 0x10, "RC_READ_RESP_ONLY", Rc, [AETH];
    RcAck = 0x11, "RC_ACK", Rc, [AETH];
    RcAtomicAck = 0x12, "RC_ATOMIC_ACK", Rc, [AETH ATOMIC_ACK];
    RcCompareSwap = 0x13, "RC_CMP_SWAP", Rc, [ATOMIC];
    RcFetchAdd = 0x14, "RC_FETCH_ADD", Rc, [ATOMIC];
    RcSendLastInvalidate = 0x16, "RC_SEND_LAST_INV", Rc, [IETH];
    RcSendOnlyInvalidate = 0x17, "RC_SEND_ONLY_INV", Rc, [IETH];
    UcSendFirst = 0x20, "UC_SEND_FIRST", Uc, [];
    UcSendMiddle = 0x21, "UC_SEND_MIDDLE", Uc, [];
    UcSendLast = 0x22, "UC_SEND_LAST", Uc, [];
    UcSendLastImm = 0x23, "UC_SEND_LAST_IMM", Uc, [IMMDT];
    UcSendOnly = 0x24, "UC_SEND_ONLY", Uc, [];
    UcSendOnlyImm = 0x25, "UC_SEND_ONLY_IMM", Uc, [IMMDT];
    UcWriteFirst = 0x26, "UC_WRITE_FIRST", Uc, [RETH];
    UcWriteMiddle = 0x27, "UC_WRITE_MIDDLE", Uc, [];
    UcWriteLast = 0x28, "UC_WRITE_LAST", Uc, [];
    UcWriteLastImm = 0x29, "UC_WRITE_LAST_IMM", Uc, [IMMDT];
    UcWriteOnly = 0x2a, "UC_WRITE_ONLY", Uc, [RETH];
    UcWriteOnlyImm = 0x2b, "UC_WRITE_ONLY_IMM", Uc, [RETH IMMDT];
    UdSendOnly = 0x64, "UD_SEND_ONLY", Ud, [DETH];
    UdSendOnlyImm = 0x65, "UD_SEND_ONLY_IMM", Ud, [DETH IMMDT];
    Cnp = 0x81, "CNP", Cnp, [];
}

/// A name for any opcode: those of the table, and others by their transport and operation (IBTA 9.2, table 38), for
/// captures of traffic that this stack does not speak.
pub fn name_of(code: u8) -> String {
    const TRANSPORTS: [&str; 8] = ["RC", "UC", "RD", "UD", "CNP", "XRC", "RESERVED", "VENDOR"];
    const OPERATIONS: [&str; 24] = [
        "SEND_FIRST",
        "SEND_MIDDLE",
        "SEND_LAST",
        "SEND_LAST_IMM",
        "SEND_ONLY",
        "SEND_ONLY_IMM",
        "WRITE_FIRST",
        "WRITE_MIDDLE",
        "WRITE_LAST",
        "WRITE_LAST_IMM",
        "WRITE_ONLY",
        "WRITE_ONLY_IMM",
        "READ_REQ",
        "READ_RESP_FIRST",
        "READ_RESP_MIDDLE",
        "READ_RESP_LAST",
        "READ_RESP_ONLY",
        "ACK",
        "ATOMIC_ACK",
        "CMP_SWAP",
        "FETCH_ADD",
        "RESYNC",
        "SEND_LAST_INV",
        "SEND_ONLY_INV",
    ];
    if let Some(opcode) = Opcode::from_wire(code) {
        return opcode.name().into();
    }
    let transport = TRANSPORTS[usize::from(code >> 5)];
    match (code & 0x1f, OPERATIONS.get(usize::from(code & 0x1f))) {
        (_, Some(operation)) => format!("{transport}_{operation}"),
        (0x1c, _) => format!("{transport}_FLUSH"),
        (0x1d, _) => format!("{transport}_ATOMIC_WRITE"),
        (rest, _) => format!("{transport}_RESERVED_{rest:#04x}"),
    }
}

/// A set of extension headers; on the wire they stand in the order of the constants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ExtensionSet(u8);

impl ExtensionSet {
    /// No extension header.
    pub const NONE: Self = Self(0);
    /// Datagram header.
    pub const DETH: Self = Self(1);
    /// RDMA header.
    pub const RETH: Self = Self(2);
    /// Atomic request header.
    pub const ATOMIC: Self = Self(4);
    /// Acknowledgement header.
    pub const AETH: Self = Self(8);
    /// Atomic result header.
    pub const ATOMIC_ACK: Self = Self(16);
    /// Immediate data.
    pub const IMMDT: Self = Self(32);
    /// The key to invalidate.
    pub const IETH: Self = Self(64);

    /// This set and `other`.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether every header of `other` is in the set.
    #[inline]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Bytes that the set takes on the wire.
    #[inline]
    pub const fn wire_len(self) -> usize {
        const SIZES: [usize; 7] = [8, 16, 28, 4, 8, 4, 4];
        let mut sum = 0;
        let mut bit = 0;
        while bit < SIZES.len() {
            if self.0 & 1 << bit != 0 {
                sum += SIZES[bit];
            }
            bit += 1;
        }
        sum
    }
}

/// Bytes from the start of the BTH to the payload, by opcode: the data path looks it up.
#[inline]
pub const fn header_len(opcode: Opcode) -> usize {
    bth::LEN + opcode.extensions().wire_len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wire_numbers_round_trip_and_the_rest_is_unknown() {
        let known = (0..=u8::MAX).filter_map(Opcode::from_wire);
        assert!(known.eq(Opcode::ALL.iter().copied()));
        for &opcode in Opcode::ALL {
            assert_eq!(Opcode::from_wire(opcode as u8), Some(opcode));
        }
    }

    #[test]
    fn every_code_has_a_name_of_its_own() {
        let mut names: Vec<_> = (0..=u8::MAX).map(name_of).collect();
        assert_eq!(name_of(0x1d), "RC_ATOMIC_WRITE");
        assert_eq!(name_of(0xa4), "XRC_SEND_ONLY");
        assert_eq!(name_of(0x81), "CNP");
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), 256);
    }

    #[test]
    fn uc_requests_mirror_rc_requests() {
        for &opcode in Opcode::ALL.iter().filter(|o| o.transport() == Transport::Uc) {
            let rc = Opcode::from_wire(opcode as u8 - 0x20).expect("every UC opcode has an RC twin");
            assert_eq!(rc.extensions(), opcode.extensions());
            assert_eq!(rc.name()[2..], opcode.name()[2..]);
        }
    }

    #[test]
    fn header_lengths_are_those_of_ibta() {
        assert_eq!(header_len(Opcode::RcSendOnly), 12);
        assert_eq!(header_len(Opcode::RcWriteOnlyImm), 12 + 16 + 4);
        assert_eq!(header_len(Opcode::RcCompareSwap), 12 + 28);
        assert_eq!(header_len(Opcode::RcAtomicAck), 12 + 4 + 8);
        assert_eq!(header_len(Opcode::UdSendOnlyImm), 12 + 8 + 4);
    }
}
