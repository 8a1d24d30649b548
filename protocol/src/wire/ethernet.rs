//! Ethernet II with at most one 802.1Q tag.

use std::fmt;
use std::str::FromStr;

use static_assertions::const_assert_eq;
use zerocopy::byteorder::network_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{Malformed, take};

/// EtherType of IPv4.
pub const ETHERTYPE_IPV4: u16 = 0x0800;
/// EtherType of IPv6.
pub const ETHERTYPE_IPV6: u16 = 0x86dd;
/// EtherType of an 802.1Q tag.
pub const ETHERTYPE_VLAN: u16 = 0x8100;

/// The header's length without a tag.
pub const LEN: usize = 14;
/// The VLAN id's bits in a tag.
pub const VID_MASK: u16 = 0x0fff;

/// A 48-bit station address.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(transparent)]
pub struct MacAddr(pub [u8; 6]);

impl fmt::Display for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

/// The text is no station address.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not of the form 02:00:00:00:00:01")]
pub struct ParseMacError;

impl FromStr for MacAddr {
    type Err = ParseMacError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut bytes = [0; 6];
        let mut parts = text.split(':');
        for byte in &mut bytes {
            let is_octet = |digits: &&str| digits.len() == 2 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
            let digits = parts.next().filter(is_octet).ok_or(ParseMacError)?;
            *byte = u8::from_str_radix(digits, 16).map_err(|_| ParseMacError)?;
        }
        if parts.next().is_some() { Err(ParseMacError) } else { Ok(Self(bytes)) }
    }
}

impl fmt::Debug for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// The station that a frame comes from, by its place alone.
pub fn source(frame: &[u8]) -> Option<MacAddr> {
    frame.get(6..12)?.first_chunk().copied().map(MacAddr)
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct EthernetView {
    destination: MacAddr,
    source: MacAddr,
    ethertype: U16,
}
const_assert_eq!(size_of::<EthernetView>(), LEN);

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct VlanView {
    control: U16,
    ethertype: U16,
}
const_assert_eq!(size_of::<VlanView>(), 4);

/// An Ethernet header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ethernet {
    /// The receiving station.
    pub destination: MacAddr,
    /// The sending station.
    pub source: MacAddr,
    /// The 802.1Q tag control information (priority, DEI, VLAN id), where the frame is tagged.
    pub vlan: Option<u16>,
    /// What follows.
    pub ethertype: u16,
}

impl Ethernet {
    /// Reads the header and returns what follows it.
    pub fn parse(bytes: &[u8]) -> Result<(Self, &[u8]), Malformed> {
        let (view, rest) = take::<EthernetView>(bytes)?;
        let mut header =
            Self { destination: view.destination, source: view.source, vlan: None, ethertype: view.ethertype.get() };
        if header.ethertype != ETHERTYPE_VLAN {
            return Ok((header, rest));
        }
        let (tag, rest) = take::<VlanView>(rest)?;
        header.vlan = Some(tag.control.get());
        header.ethertype = tag.ethertype.get();
        Ok((header, rest))
    }

    /// The VLAN that the frame is on; a tag with VLAN 0 only says its priority (IEEE 802.1Q 9.6).
    #[inline]
    pub const fn vlan_id(&self) -> Option<u16> {
        match self.vlan {
            Some(control) if control & VID_MASK != 0 => Some(control & VID_MASK),
            _ => None,
        }
    }

    /// The header's length: 14 or 18 bytes.
    pub const fn wire_len(&self) -> usize {
        if self.vlan.is_some() { LEN + size_of::<VlanView>() } else { LEN }
    }

    /// Writes the header to the front of `bytes`, which must have room for [`Self::wire_len`].
    pub fn emit(&self, bytes: &mut [u8]) {
        let outer = if self.vlan.is_some() { ETHERTYPE_VLAN } else { self.ethertype };
        let view = EthernetView { destination: self.destination, source: self.source, ethertype: outer.into() };
        bytes[..LEN].copy_from_slice(view.as_bytes());
        if let Some(control) = self.vlan {
            let tag = VlanView { control: control.into(), ethertype: self.ethertype.into() };
            bytes[LEN..LEN + size_of::<VlanView>()].copy_from_slice(tag.as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_station_address_survives_its_text_and_others_are_refused() {
        let mac = MacAddr([2, 0, 0xab, 0xff, 0, 1]);
        assert_eq!(mac.to_string().parse(), Ok(mac));
        for bad in
            ["", "02:00:00:00:00", "02:00:00:00:00:01:02", "02:00:00:00:00:+1", "2:0:0:0:0:1", "02-00-00-00-00-01"]
        {
            assert_eq!(bad.parse::<MacAddr>(), Err(ParseMacError), "{bad}");
        }
    }

    #[test]
    fn a_priority_tag_is_no_vlan() {
        let ethernet = |vlan| Ethernet { destination: MacAddr([0; 6]), source: MacAddr([0; 6]), vlan, ethertype: 0 };
        assert_eq!([None, Some(0xe000), Some(0xe007)].map(|tag| ethernet(tag).vlan_id()), [None, None, Some(7)]);
    }
}
