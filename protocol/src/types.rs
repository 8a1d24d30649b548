//! The numbers that name things: packet sequence numbers, queue pairs, keys, message sequence numbers.

use std::fmt;
use std::str::FromStr;

/// Virtual or real time in nanoseconds since an origin that the caller chose.
pub type Nanos = u64;

const MASK_24: u32 = 0x00ff_ffff;

/// A 24-bit packet sequence number.
///
/// It wraps, so it has no `Ord`: [`Psn::since`] gives the signed distance, which is meaningful as long
/// as the two lie within 2^23 of each other (IBTA allows no more outstanding packets than that).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Psn(u32);

impl Psn {
    /// Takes the low 24 bits.
    #[inline]
    pub const fn new(value: u32) -> Self {
        Self(value & MASK_24)
    }

    /// The value, below 2^24.
    #[inline]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// This number advanced by `count` packets.
    #[inline]
    #[must_use]
    pub const fn plus(self, count: u32) -> Self {
        Self::new(self.0.wrapping_add(count))
    }

    /// The number before this one.
    #[inline]
    #[must_use]
    pub const fn previous(self) -> Self {
        Self::new(self.0.wrapping_sub(1))
    }

    /// How far this number lies after `other`; negative where it lies before.
    #[inline]
    pub const fn since(self, other: Self) -> i32 {
        (self.0.wrapping_sub(other.0) << 8).cast_signed() >> 8
    }

    /// Whether this number lies strictly before `other`.
    #[inline]
    pub const fn before(self, other: Self) -> bool {
        self.since(other) < 0
    }
}

impl fmt::Debug for Psn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "psn {:#08x}", self.0)
    }
}

impl fmt::Display for Psn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#08x}", self.0)
    }
}

/// A 24-bit queue pair number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Qpn(u32);

impl Qpn {
    /// Takes the low 24 bits.
    #[inline]
    pub const fn new(value: u32) -> Self {
        Self(value & MASK_24)
    }

    /// The value, below 2^24.
    #[inline]
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl fmt::Debug for Qpn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "qpn {:#x}", self.0)
    }
}

impl fmt::Display for Qpn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// A 24-bit message sequence number: counts the request messages that a responder completed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Msn(u32);

impl Msn {
    /// Takes the low 24 bits.
    #[inline]
    pub const fn new(value: u32) -> Self {
        Self(value & MASK_24)
    }

    /// The value, below 2^24.
    #[inline]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// The next number.
    #[inline]
    #[must_use]
    pub const fn next(self) -> Self {
        Self::new(self.0.wrapping_add(1))
    }

    /// How far this number lies after `other`; negative where it lies before.
    #[inline]
    pub const fn since(self, other: Self) -> i32 {
        (self.0.wrapping_sub(other.0) << 8).cast_signed() >> 8
    }
}

/// The key by which a peer names a memory region.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Rkey(pub u32);

impl fmt::Debug for Rkey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rkey {:#010x}", self.0)
    }
}

/// The key of a partition, which queue pairs must share to hear each other (IBTA 10.9): 15 bits of number, and whether this is
/// a full member of it or a limited one.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Pkey(pub u16);

impl Pkey {
    /// A full member of the partition that everybody is in.
    pub const DEFAULT: Self = Self(0xffff);

    const FULL: u16 = 0x8000;

    /// Whether it is a key at all: partition 0 is none (IBTA 10.9.1.2).
    pub const fn is_valid(self) -> bool {
        self.0 & !Self::FULL != 0
    }

    /// Whether a queue pair with this key hears one with `theirs`: they are in one partition, and not both limited members
    /// of it (IBTA 10.9.3).
    #[inline]
    pub const fn hears(self, theirs: Self) -> bool {
        // Of almost all pairs both keys are the same one.
        if self.0 == theirs.0 { self.0 > Self::FULL } else { self.hears_other(theirs) }
    }

    #[cold]
    const fn hears_other(self, theirs: Self) -> bool {
        self.0 | Self::FULL == theirs.0 | Self::FULL && self.is_valid()
    }
}

impl Default for Pkey {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// Reads `0x8001` or `32769`.
impl FromStr for Pkey {
    type Err = NoPkey;

    fn from_str(text: &str) -> Result<Self, NoPkey> {
        let number = text.strip_prefix("0x").map_or_else(|| text.parse(), |digits| u16::from_str_radix(digits, 16));
        let pkey = number.map(Self).map_err(|_| NoPkey::NoNumber)?;
        if pkey.is_valid() { Ok(pkey) } else { Err(NoPkey::NoPartition) }
    }
}

/// Why a text is no [`Pkey`].
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoPkey {
    /// It is neither a decimal number nor a hexadecimal one.
    #[error("is not a number of 16 bits")]
    NoNumber,
    /// The number without the bit of the membership is 0.
    #[error("names partition 0, which is none")]
    NoPartition,
}

impl fmt::Debug for Pkey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pkey {self}")
    }
}

impl fmt::Display for Pkey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#06x}", self.0)
    }
}

/// What a memory region allows a peer to do (IBTA 10.6.3.1, `ibv_access_flags`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Access(u8);

impl Access {
    /// Only the local process.
    pub const LOCAL: Self = Self(0);
    /// The peer may write by RDMA WRITE.
    pub const REMOTE_WRITE: Self = Self(1);
    /// The peer may read by RDMA READ.
    pub const REMOTE_READ: Self = Self(2);
    /// The peer may COMPARE_SWAP and FETCH_ADD.
    pub const REMOTE_ATOMIC: Self = Self(4);
    /// Memory windows may be bound to it.
    pub const WINDOW_BIND: Self = Self(8);

    /// Both sets of rights.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether every right in `needed` is granted.
    #[inline]
    pub const fn allows(self, needed: Self) -> bool {
        self.0 & needed.0 == needed.0
    }
}

/// The path MTU: the payload of a full packet (IBTA 9.4.8).
///
/// The five sizes of IBTA are what verbs peers know. `Mtu8192` belongs to our own dialect, for links that
/// carry such frames, and is only ever used where both peers agreed on it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord)]
pub enum Mtu {
    /// 256 bytes.
    Mtu256,
    /// 512 bytes.
    Mtu512,
    /// 1024 bytes: what fits standard Ethernet.
    Mtu1024,
    /// 2048 bytes.
    Mtu2048,
    /// 4096 bytes: the largest that IBTA knows.
    Mtu4096,
    /// 8192 bytes, between our own peers only.
    Mtu8192,
}

impl Mtu {
    /// All sizes, rising.
    pub const ALL: [Self; 6] = [Self::Mtu256, Self::Mtu512, Self::Mtu1024, Self::Mtu2048, Self::Mtu4096, Self::Mtu8192];

    /// The size in bytes.
    #[inline]
    pub const fn bytes(self) -> usize {
        1 << self.shift()
    }

    /// log2 of the size: the data path shifts instead of dividing.
    #[inline]
    pub const fn shift(self) -> u32 {
        8 + self as u32
    }

    /// The size with this many bytes, if there is one.
    pub fn from_bytes(bytes: usize) -> Option<Self> {
        Self::ALL.into_iter().find(|mtu| mtu.bytes() == bytes)
    }

    /// The next smaller size, if there is one.
    pub fn shorter(self) -> Option<Self> {
        Self::ALL.into_iter().rev().find(|&mtu| mtu < self)
    }

    /// How many packets a message of `len` bytes takes: at least one.
    #[inline]
    pub const fn packets(self, len: u32) -> u32 {
        let packets = (len as u64 + self.bytes() as u64 - 1) >> self.shift();
        if packets == 0 { 1 } else { packets as u32 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_are_shared_unless_both_are_limited_members() {
        let keys = [0xffff, 0x7fff, 0x8001, 0x0001, 0x8000, 0].map(Pkey);
        let hears = |ours: Pkey| keys.map(|theirs| u8::from(ours.hears(theirs)));
        let table = keys.map(hears);
        assert_eq!(
            table,
            [[1, 1, 0, 0, 0, 0], [1, 0, 0, 0, 0, 0], [0, 0, 1, 1, 0, 0], [0, 0, 1, 0, 0, 0], [0; 6], [0; 6]]
        );
    }

    #[test]
    fn a_partition_is_read_in_both_notations() {
        let [pkey, number, partition] = [Ok(Pkey(0x8001)), Err(NoPkey::NoNumber), Err(NoPkey::NoPartition)];
        let cases = [
            ("0x8001", pkey),
            ("32769", pkey),
            ("0x10000", number),
            ("-1", number),
            ("", number),
            ("0x", number),
            ("0x8000", partition),
            ("0", partition),
        ];
        for (text, expected) in cases {
            assert_eq!(text.parse(), expected, "{text}");
        }
    }

    #[test]
    fn psn_distance_is_signed_across_the_wrap() {
        let last = Psn::new(0xff_ffff);
        assert_eq!(last.plus(1), Psn::new(0));
        assert_eq!(Psn::new(2).since(last), 3);
        assert_eq!(last.since(Psn::new(2)), -3);
        assert!(last.before(Psn::new(0)));
        assert_eq!(Psn::new(0).previous(), last);
        assert_eq!(Psn::new(0x80_0000).since(Psn::new(0)), -0x80_0000);
    }

    #[test]
    fn packets_of_a_message_are_at_least_one() {
        assert_eq!(Mtu::Mtu1024.packets(0), 1);
        assert_eq!(Mtu::Mtu1024.packets(1024), 1);
        assert_eq!(Mtu::Mtu1024.packets(1025), 2);
        assert_eq!(Mtu::Mtu4096.packets(u32::MAX), 1 << 20);
    }

    #[test]
    fn mtu_shift_agrees_with_its_name() {
        assert_eq!(Mtu::ALL.map(Mtu::bytes), [256, 512, 1024, 2048, 4096, 8192]);
    }
}
