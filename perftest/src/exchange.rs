//! The messages of the exchange, as bytes.
//!
//! The keys are a line of hexadecimal numbers with leading zeros: LID (4 digits), READs in flight (4), queue pair (6), first
//! PSN (6), key (8) and address (16) of the memory that the other side may reach, the 16 bytes of the GID (2 digits each),
//! and the number of a shared receive queue (8), with a colon behind each, and a zero at the end. Clients without a GID
//! send 59 bytes instead of 108.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

use roci_protocol::wire::cm::{gid_of, ip_of};
use roci_protocol::{Mtu, Psn, Qpn, Rkey};
use thiserror::Error;

/// Bytes of a version.
pub const VERSION_LEN: usize = 16;
/// Bytes of a path MTU.
pub const MTU_LEN: usize = 2;
/// Bytes of keys.
pub const KEYS_LEN: usize = 108;
/// Numbers in a report, of 8 bytes each.
pub const REPORT_NUMBERS: usize = 5;
/// The last message.
pub const DONE: [u8; 5] = *b"done\0";

/// What we say we are: newer clients then speak as this one does.
pub const OUR_VERSION: &str = "6.06";
/// The page of most machines.
pub const OUR_CYCLE_BUFFER: u32 = 4096;
/// The cache line of most machines.
pub const OUR_CACHE_LINE: u32 = 64;

/// Clients refuse older ones, too: they measured and counted otherwise.
const OLDEST: f64 = 5.70;
/// Of pages that are not huge, the longest is 64 KiB.
const LONGEST_CYCLE: u32 = 1 << 20;

/// Bytes that no client of perftest sends.
#[derive(Clone, PartialEq, Debug, Error)]
#[non_exhaustive]
pub enum MalformedExchange {
    /// No version.
    #[error("the client's version is '{0}': is it perftest?")]
    Version(String),
    /// A version that speaks otherwise.
    #[error("the client is perftest {0}: 5.70 and later are served")]
    TooOld(String),
    /// No page size.
    #[error("the client spreads its messages over {0} bytes, which is no page")]
    CycleBuffer(u32),
    /// No path MTU of IBTA's.
    #[error("the client's path MTU is '{0}', and not 1 to 5")]
    Mtu(String),
    /// No keys.
    #[error("the client's keys are '{0}'")]
    Keys(String),
    /// Keys of a client without a GID.
    #[error("the client sent no GID: run it with -x INDEX of a RoCE v2 GID, or on a RoCE device")]
    NoGid,
}

/// Bytes of a peer's, for a message about them.
fn shown(bytes: &[u8]) -> String {
    let text = bytes.strip_suffix(&[0]).unwrap_or(bytes);
    text.escape_ascii().to_string()
}

/// Our version, as it is sent.
pub fn our_version() -> [u8; VERSION_LEN] {
    let mut bytes = [0; VERSION_LEN];
    bytes[..OUR_VERSION.len()].copy_from_slice(OUR_VERSION.as_bytes());
    bytes
}

/// The client's version, if it is one that speaks as we do.
pub fn parse_version(bytes: &[u8; VERSION_LEN]) -> Result<String, MalformedExchange> {
    let len = bytes.iter().position(|&byte| byte == 0).unwrap_or(VERSION_LEN);
    let text = &bytes[..len];
    let number = version_number(text).ok_or_else(|| MalformedExchange::Version(shown(text)))?;
    let text = shown(text);
    if number >= OLDEST { Ok(text) } else { Err(MalformedExchange::TooOld(text)) }
}

/// A version is compared as a number: 6.06 is less than 6.1, and what follows a second dot is left out.
fn version_number(text: &[u8]) -> Option<f64> {
    if !text.iter().all(|byte| byte.is_ascii_digit() || *byte == b'.') {
        return None;
    }
    let parts: Vec<_> = std::str::from_utf8(text).ok()?.split('.').take(2).collect();
    if parts.iter().any(|part| part.is_empty()) {
        return None;
    }
    parts.join(".").parse().ok()
}

/// Over how many bytes the client spreads short messages: at least as many as we say.
pub fn parse_cycle_buffer(bytes: [u8; 4]) -> Result<usize, MalformedExchange> {
    let theirs = u32::from_be_bytes(bytes);
    if theirs.is_power_of_two() && theirs <= LONGEST_CYCLE {
        Ok(theirs.max(OUR_CYCLE_BUFFER) as usize)
    } else {
        Err(MalformedExchange::CycleBuffer(theirs))
    }
}

/// The path MTUs that have a number of IBTA's, from 1 on.
const MTUS: &[Mtu] = Mtu::ALL.split_at(5).0;

/// A path MTU, as it is sent: one above IBTA's largest is sent as the largest.
pub fn format_mtu(mtu: Mtu) -> [u8; MTU_LEN] {
    let number = MTUS.iter().filter(|&&smaller| smaller <= mtu).count() as u8;
    [b'0' + number, 0]
}

/// The client's path MTU.
pub fn parse_mtu(bytes: [u8; MTU_LEN]) -> Result<Mtu, MalformedExchange> {
    let number = bytes[0].wrapping_sub(b'1');
    let mtu = MTUS.get(usize::from(number)).filter(|_| bytes[1] == 0);
    mtu.copied().ok_or_else(|| MalformedExchange::Mtu(shown(&bytes)))
}

/// A queue pair, and memory that the other side may reach.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QpInfo {
    /// READs and atomics that the side takes at once.
    pub out_reads: u16,
    /// The queue pair.
    pub qpn: Qpn,
    /// The first PSN that it sends.
    pub psn: Psn,
    /// The key to the memory.
    pub rkey: Rkey,
    /// The address of the memory under that key.
    pub va: u64,
    /// The host.
    pub ip: IpAddr,
}

impl fmt::Display for QpInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { out_reads, qpn, psn, rkey, va, ip } = self;
        write!(f, "0000:{out_reads:04x}:{:06x}:{:06x}:{:08x}:{va:016x}:", qpn.get(), psn.get(), rkey.0)?;
        gid_of(*ip).octets().iter().try_for_each(|byte| write!(f, "{byte:02x}:"))?;
        f.write_str("00000000:")
    }
}

impl QpInfo {
    /// As they are sent.
    pub fn bytes(&self) -> [u8; KEYS_LEN] {
        let mut bytes = [0; KEYS_LEN];
        let text = self.to_string();
        bytes[..text.len()].copy_from_slice(text.as_bytes());
        bytes
    }

    /// Whether what has come so far can only end as the keys of a client without a GID: they are so short that nothing
    /// follows them.
    pub fn lack_gid(so_far: &[u8]) -> bool {
        const SHORT: usize = 59;
        so_far.len() == SHORT && so_far[SHORT - 1] == 0
    }

    /// Those of a client.
    pub fn parse(bytes: &[u8; KEYS_LEN]) -> Result<Self, MalformedExchange> {
        Self::read(bytes).ok_or_else(|| MalformedExchange::Keys(shown(bytes)))
    }

    fn read(bytes: &[u8; KEYS_LEN]) -> Option<Self> {
        let text = std::str::from_utf8(bytes).ok()?.strip_suffix(":\0")?;
        let mut fields = text.split(':');
        let _lid = hex(&mut fields, 4)?;
        let out_reads = hex(&mut fields, 4)? as u16;
        let (qpn, psn) = (hex(&mut fields, 6)? as u32, hex(&mut fields, 6)? as u32);
        let (rkey, va) = (hex(&mut fields, 8)? as u32, hex(&mut fields, 16)?);
        let mut gid = [0; 16];
        for byte in &mut gid {
            *byte = hex(&mut fields, 2)? as u8;
        }
        let _srqn = hex(&mut fields, 8)?;
        // Numbers 0 and 1 are those of management.
        let is_whole = fields.next().is_none() && qpn > 1;
        let ip = ip_of(Ipv6Addr::from(gid));
        is_whole.then_some(Self { out_reads, qpn: Qpn::new(qpn), psn: Psn::new(psn), rkey: Rkey(rkey), va, ip })
    }
}

/// The next field, of so many digits.
fn hex<'a>(fields: &mut impl Iterator<Item = &'a str>, digits: usize) -> Option<u64> {
    let field = fields.next()?;
    let is_number = field.len() == digits && field.bytes().all(|byte| byte.is_ascii_hexdigit());
    if is_number { u64::from_str_radix(field, 16).ok() } else { None }
}

/// What a client has measured; a clock that it cannot judge makes its figures endless, or none.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ClientReport {
    /// Bytes of a message: with `-a` of the last ones.
    pub size: u64,
    /// Messages.
    pub messages: u64,
    /// MB/s of 2^20 bytes, or Gb/s where the client was started so: the most.
    pub peak: f64,
    /// The same, on average.
    pub average: f64,
    /// Millions of messages a second.
    pub mmsgs: f64,
}

impl ClientReport {
    /// From its numbers, in the order in which they come.
    pub fn parse([size, messages, peak, average, mmsgs]: [[u8; 8]; REPORT_NUMBERS]) -> Self {
        let [peak, average, mmsgs] = [peak, average, mmsgs].map(f64::from_be_bytes);
        Self { size: u64::from_be_bytes(size), messages: u64::from_be_bytes(messages), peak, average, mmsgs }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `ib_read_lat -d rxe0 -x 1 -F -n 20` 4.5+0.17 sent.
    const KEYS: &[u8; KEYS_LEN] = b"0000:0080:00001a:49f0fa:00000be1:00005646ef0c3000:\
        00:00:00:00:00:00:00:00:00:00:ff:ff:0a:4d:00:02:00000000:\0";

    fn keys() -> QpInfo {
        QpInfo {
            out_reads: 0x80,
            qpn: Qpn::new(0x1a),
            psn: Psn::new(0x49_f0fa),
            rkey: Rkey(0xbe1),
            va: 0x5646_ef0c_3000,
            ip: [10, 77, 0, 2].into(),
        }
    }

    fn edited(at: usize, by: &str) -> [u8; KEYS_LEN] {
        let mut bytes = *KEYS;
        bytes[at..at + by.len()].copy_from_slice(by.as_bytes());
        bytes
    }

    #[test]
    fn keys_are_what_perftest_sends_and_takes() {
        assert_eq!(QpInfo::parse(KEYS), Ok(keys()));
        assert_eq!(keys().bytes(), *KEYS);
        let v6 = QpInfo { ip: "fd77::1".parse().expect("an address"), ..keys() };
        assert_eq!(QpInfo::parse(&v6.bytes()), Ok(v6));
        let widest = QpInfo { out_reads: u16::MAX, rkey: Rkey(u32::MAX), va: u64::MAX, ..keys() };
        assert_eq!(QpInfo::parse(&widest.bytes()), Ok(widest));
    }

    #[test]
    fn keys_that_are_odd_anywhere_are_refused() {
        let odd = [
            edited(0, "x"),
            edited(0, "+"),
            edited(4, "0"),
            edited(10, "000001"),
            edited(10, "000000"),
            edited(10, " 0001a"),
            edited(50, "0:0"),
            edited(98, "g"),
            edited(106, "0"),
            edited(106, "::"),
            edited(107, ":"),
            [0; KEYS_LEN],
            [0xff; KEYS_LEN],
        ];
        for bytes in odd {
            assert_eq!(QpInfo::parse(&bytes), Err(MalformedExchange::Keys(shown(&bytes))));
        }
        let message = MalformedExchange::Keys(shown(&edited(0, "\x1b[2J"))).to_string();
        assert!(message.contains("\\x1b[2J") && !message.contains('\x1b'), "{message}");
    }

    #[test]
    fn keys_without_a_gid_are_known_by_their_end() {
        let short = b"0001:0001:00001a:49f0fa:00000be1:00005646ef0c3000:00000000\0";
        assert!(QpInfo::lack_gid(short));
        assert!(!QpInfo::lack_gid(&KEYS[..59]));
        assert!(!QpInfo::lack_gid(&short[..58]));
        assert!(!QpInfo::lack_gid(KEYS));
    }

    #[test]
    fn versions_compare_as_numbers() {
        let parse = |text: &str| {
            let mut bytes = [0; VERSION_LEN];
            bytes[..text.len()].copy_from_slice(text.as_bytes());
            parse_version(&bytes)
        };
        assert_eq!(parse_version(b"6.06\0\0\0\0\0\0\0\0\0\0\0\0"), Ok("6.06".into()));
        assert_eq!(parse_version(&our_version()), Ok(OUR_VERSION.into()));
        for good in ["5.70", "5.7.1", "5.8", "6", "24.07.0", "26.04.17"] {
            assert_eq!(parse(good), Ok(good.to_owned()));
        }
        for old in ["5.69", "5.69.9", "4.5", "0.1"] {
            assert_eq!(parse(old), Err(MalformedExchange::TooOld(old.to_owned())));
        }
        for none in ["", ".", "6.", ".6", "6,06", "GET / HTTP/1.1", "+6.06", "6e9", "inf"] {
            assert!(matches!(parse(none), Err(MalformedExchange::Version(_))), "{none}");
        }
    }

    #[test]
    fn a_cycle_buffer_is_a_page_of_some_machine() {
        assert_eq!(parse_cycle_buffer(*b"\0\0\x10\0"), Ok(4096));
        assert_eq!(parse_cycle_buffer(65_536_u32.to_be_bytes()), Ok(65_536));
        // The larger one holds.
        assert_eq!(parse_cycle_buffer(1024_u32.to_be_bytes()), Ok(4096));
        for odd in [0, 4097, LONGEST_CYCLE * 2, u32::MAX] {
            assert_eq!(parse_cycle_buffer(odd.to_be_bytes()), Err(MalformedExchange::CycleBuffer(odd)));
        }
    }

    #[test]
    fn path_mtus_are_ibta_s_numbers() {
        for (mtu, number) in [(Mtu::Mtu256, b"1\0"), (Mtu::Mtu1024, b"3\0"), (Mtu::Mtu4096, b"5\0")] {
            assert_eq!(&format_mtu(mtu), number);
            assert_eq!(parse_mtu(*number), Ok(mtu));
        }
        assert_eq!(&format_mtu(Mtu::Mtu8192), b"5\0");
        for odd in [b"0\0", b"6\0", b"55", b"\0\0", b"x\0"] {
            assert_eq!(parse_mtu(*odd), Err(MalformedExchange::Mtu(shown(odd))));
        }
    }

    /// What `ib_write_bw -d rxe0 -x 1 -F -n 20` sent, and what it printed.
    #[test]
    fn a_report_has_what_the_client_printed() {
        let report = ClientReport::parse([
            *b"\0\0\0\0\0\x01\0\0",
            *b"\0\0\0\0\0\0\0\x14",
            *b"@M&9\x0b\xe4\t\xf7",
            *b"@H\xae\x93h=V\x96",
            *b"?I\xe1\x81\xc7UNC",
        ]);
        assert_eq!((report.size, report.messages), (65_536, 20));
        let printed = format!("{:.2} {:.2} {:.6}", report.peak, report.average, report.mmsgs);
        assert_eq!(printed, "58.30 49.36 0.000790");
    }
}
