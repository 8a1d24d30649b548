//! The transport packet: BTH, extension headers, payload, pad.

use super::bth::{self, Bth};
use super::opcode::{ExtensionSet, header_len};
use super::{Aeth, AtomicAckEth, AtomicEth, Deth, Ieth, ImmDt, Malformed, Reth};
use super::{aeth, atomic, deth, icrc, ieth, immdt, reth};

/// The extension headers of one packet; exactly those of its opcode are present.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Extensions {
    /// Datagram header.
    pub deth: Option<Deth>,
    /// RDMA header.
    pub reth: Option<Reth>,
    /// Atomic request.
    pub atomic: Option<AtomicEth>,
    /// Acknowledgement.
    pub aeth: Option<Aeth>,
    /// Atomic result.
    pub atomic_ack: Option<AtomicAckEth>,
    /// Immediate data.
    pub imm: Option<ImmDt>,
    /// Key to invalidate.
    pub ieth: Option<Ieth>,
}

impl Extensions {
    /// Reads those of `set`, and returns what follows them. Packets in the middle of a message have none: what they need is
    /// kept free of this.
    #[inline(never)]
    fn parse<'a>(&mut self, set: ExtensionSet, mut rest: &'a [u8]) -> Result<&'a [u8], Malformed> {
        if set.has(ExtensionSet::DETH) {
            rest = store(Deth::parse(rest)?, &mut self.deth);
        }
        if set.has(ExtensionSet::RETH) {
            rest = store(Reth::parse(rest)?, &mut self.reth);
        }
        if set.has(ExtensionSet::ATOMIC) {
            rest = store(AtomicEth::parse(rest)?, &mut self.atomic);
        }
        if set.has(ExtensionSet::AETH) {
            rest = store(Aeth::parse(rest)?, &mut self.aeth);
        }
        if set.has(ExtensionSet::ATOMIC_ACK) {
            rest = store(AtomicAckEth::parse(rest)?, &mut self.atomic_ack);
        }
        if set.has(ExtensionSet::IMMDT) {
            rest = store(ImmDt::parse(rest)?, &mut self.imm);
        }
        if set.has(ExtensionSet::IETH) {
            rest = store(Ieth::parse(rest)?, &mut self.ieth);
        }
        Ok(rest)
    }
}

/// BTH and extension headers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Headers {
    /// The base header; its pad count belongs to the payload that follows.
    pub bth: Bth,
    /// What the opcode adds.
    pub ext: Extensions,
}

/// A parsed packet: headers by value, payload by reference.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Packet<'a> {
    /// BTH and extension headers.
    pub headers: Headers,
    /// The payload without pad.
    pub payload: &'a [u8],
}

impl Headers {
    /// Headers with no extension.
    #[inline]
    pub const fn plain(bth: Bth) -> Self {
        let ext =
            Extensions { deth: None, reth: None, atomic: None, aeth: None, atomic_ack: None, imm: None, ieth: None };
        Self { bth, ext }
    }

    /// Bytes that the headers take.
    #[inline]
    pub const fn wire_len(&self) -> usize {
        header_len(self.bth.opcode)
    }

    /// Reads BTH and extension headers and returns what follows them.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<(Self, &[u8]), Malformed> {
        let (bth, rest) = Bth::parse(bytes)?;
        let mut headers = Self::plain(bth);
        let set = bth.opcode.extensions();
        let rest = if set == ExtensionSet::NONE { rest } else { headers.ext.parse(set, rest)? };
        Ok((headers, rest))
    }

    /// Writes the headers to the front of `bytes` and returns their length.
    ///
    /// # Panics
    /// When an extension that the opcode demands is missing: a bug of ours, never of the wire.
    #[inline]
    pub fn emit(&self, bytes: &mut [u8]) -> usize {
        self.bth.emit(bytes);
        let set = self.bth.opcode.extensions();
        let mut at = bth::LEN;
        if set == ExtensionSet::NONE {
            return at;
        }
        let ext = &self.ext;
        if set.has(ExtensionSet::DETH) {
            ext.deth.expect(MISSING).emit(&mut bytes[at..]);
            at += deth::LEN;
        }
        if set.has(ExtensionSet::RETH) {
            ext.reth.expect(MISSING).emit(&mut bytes[at..]);
            at += reth::LEN;
        }
        if set.has(ExtensionSet::ATOMIC) {
            ext.atomic.expect(MISSING).emit(&mut bytes[at..]);
            at += atomic::REQUEST_LEN;
        }
        if set.has(ExtensionSet::AETH) {
            ext.aeth.expect(MISSING).emit(&mut bytes[at..]);
            at += aeth::LEN;
        }
        if set.has(ExtensionSet::ATOMIC_ACK) {
            ext.atomic_ack.expect(MISSING).emit(&mut bytes[at..]);
            at += atomic::ACK_LEN;
        }
        if set.has(ExtensionSet::IMMDT) {
            ext.imm.expect(MISSING).emit(&mut bytes[at..]);
            at += immdt::LEN;
        }
        if set.has(ExtensionSet::IETH) {
            ext.ieth.expect(MISSING).emit(&mut bytes[at..]);
            at += ieth::LEN;
        }
        at
    }
}

impl<'a> Packet<'a> {
    /// Reads a packet from UDP's payload, whose last four bytes are the ICRC (not checked here).
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let (headers, rest) = Headers::parse(bytes)?;
        let padded = rest.len().checked_sub(icrc::LEN).ok_or(Malformed::Truncated)?;
        if !bytes.len().is_multiple_of(4) {
            return Err(Malformed::Alignment);
        }
        let len = padded.checked_sub(usize::from(headers.bth.pad)).ok_or(Malformed::Pad)?;
        Ok(Self { headers, payload: &rest[..len] })
    }
}

/// The zero bytes that fill a payload of `len` bytes up to a multiple of four.
#[inline]
pub const fn pad_of(len: usize) -> usize {
    len.wrapping_neg() & 3
}

const MISSING: &str = "the opcode demands this extension";

#[inline]
fn store<'a, H>((header, rest): (H, &'a [u8]), slot: &mut Option<H>) -> &'a [u8] {
    *slot = Some(header);
    rest
}
