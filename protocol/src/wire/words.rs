//! The headers that almost all packets have, as words: of a SEND or an RDMA WRITE in one packet, and of an acknowledgement.
//! They are made and read here without [`Headers`], in which every extension has its place.

use super::{Aeth, Headers, Opcode, Reth, bth, icrc};
use crate::{Msn, Pkey, Psn, Qpn, Rkey};

/// BTH, RETH and immediate data.
const MOST: usize = 8;
/// Words of a BTH.
const BTH: usize = bth::LEN / WORD;
const WORD: usize = 4;

/// In the first word of a BTH: the solicited event, the migration state and the pad. Opcode, version and partition are the rest.
const SOLICITED: u32 = 0x0080_0000;
const MIG_REQ: u32 = 0x0040_0000;
const PAD_SHIFT: u32 = 20;
const VARIABLE: u32 = 0x00f0_0000;
/// In the last word: somebody waits for an acknowledgement.
const ACK_REQ: u32 = 0x8000_0000;
/// In an AETH: what is set in all but a positive acknowledgement.
const NOT_POSITIVE: u32 = 0xe000_0000;

/// The headers of a packet that is sent, but for the pad of its payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HeaderWords {
    words: [u32; MOST],
    count: usize,
}

impl HeaderWords {
    /// A BTH, with the fields that [`bth::Bth::new`] gives it.
    #[inline]
    pub const fn new(opcode: Opcode, pkey: Pkey, dest_qpn: Qpn, psn: Psn) -> Self {
        let first = (opcode as u32) << 24 | MIG_REQ | pkey.0 as u32;
        Self { words: [first, dest_qpn.get(), psn.get(), 0, 0, 0, 0, 0], count: BTH }
    }

    /// The same, asking for an acknowledgement where `ack_req`.
    #[inline]
    #[must_use]
    pub const fn asking(mut self, ack_req: bool) -> Self {
        self.words[2] |= if ack_req { ACK_REQ } else { 0 };
        self
    }

    /// The same, with the solicited event where `is_solicited`.
    #[inline]
    #[must_use]
    pub const fn solicited(mut self, is_solicited: bool) -> Self {
        self.words[0] |= if is_solicited { SOLICITED } else { 0 };
        self
    }

    /// The same, with an RDMA header behind it.
    #[inline]
    #[must_use]
    pub const fn with_reth(self, reth: Reth) -> Self {
        self.with((reth.va >> 32) as u32).with(reth.va as u32).with(reth.rkey.0).with(reth.len)
    }

    /// The same, with immediate data behind it.
    #[inline]
    #[must_use]
    pub const fn with_imm(self, imm: u32) -> Self {
        self.with(imm)
    }

    /// The same, with an acknowledgement header behind it.
    #[inline]
    #[must_use]
    pub const fn with_aeth(self, aeth: Aeth) -> Self {
        self.with((aeth.syndrome.to_wire() as u32) << 24 | aeth.msn.get())
    }

    #[inline]
    const fn with(mut self, word: u32) -> Self {
        self.words[self.count] = word;
        self.count += 1;
        self
    }

    /// The queue pair that the packet is for.
    #[inline]
    pub const fn dest_qpn(&self) -> Qpn {
        Qpn::new(self.words[1])
    }

    /// Bytes that the headers take.
    #[inline]
    pub const fn wire_len(&self) -> usize {
        self.count * WORD
    }

    /// Writes the headers of a packet with so many bytes of pad to the front of `bytes`, and returns their length.
    #[inline]
    pub fn emit(&self, bytes: &mut [u8], pad: usize) -> usize {
        let mut words = self.words;
        words[0] |= (pad as u32) << PAD_SHIFT;
        match self.count {
            3 => put::<3>(bytes, &words),
            4 => put::<4>(bytes, &words),
            7 => put::<7>(bytes, &words),
            _ => put::<8>(bytes, &words),
        }
        self.wire_len()
    }

    /// The same headers by field.
    pub fn to_headers(&self) -> Headers {
        let mut bytes = [0; MOST * WORD];
        self.emit(&mut bytes, 0);
        let (headers, _) = Headers::parse(&bytes).expect("the words are those of a packet");
        debug_assert_eq!(headers.wire_len(), self.wire_len(), "the extensions are those of {:?}", headers.bth.opcode);
        headers
    }
}

#[inline]
fn put<const N: usize>(bytes: &mut [u8], words: &[u32; MOST]) {
    let (chunks, _) = bytes[..N * WORD].as_chunks_mut::<WORD>();
    for (chunk, word) in chunks.iter_mut().zip(words) {
        *chunk = word.to_be_bytes();
    }
}

/// A packet of these kinds that was received, and whose ICRC is right.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WordPacket<'a> {
    /// Its sequence number.
    pub psn: Psn,
    /// Its sender waits for an acknowledgement.
    pub ack_req: bool,
    /// Its receiver should raise a solicited event.
    pub solicited: bool,
    /// What it is.
    pub body: WordBody<'a>,
}

/// What a packet of these kinds is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WordBody<'a> {
    /// A SEND.
    Send {
        /// Immediate data.
        imm: Option<u32>,
        /// The message.
        payload: &'a [u8],
    },
    /// An RDMA WRITE.
    Write {
        /// Where it goes.
        reth: Reth,
        /// Immediate data.
        imm: Option<u32>,
        /// The message.
        payload: &'a [u8],
    },
    /// A positive acknowledgement without a payload.
    Ack {
        /// The number of the message that it is for.
        msn: Msn,
        /// The credit code.
        credit: u8,
    },
}

impl<'a> WordPacket<'a> {
    /// Whether a packet from BTH to ICRC may be of these kinds, by its first byte.
    #[inline]
    pub fn may_be(transport: &[u8]) -> bool {
        const KINDS: u32 = 1 << Opcode::RcSendOnly as u32
            | 1 << Opcode::RcSendOnlyImm as u32
            | 1 << Opcode::RcWriteOnly as u32
            | 1 << Opcode::RcWriteOnlyImm as u32
            | 1 << Opcode::RcAck as u32;
        transport.first().is_some_and(|opcode| KINDS >> (opcode & 31) & 1 == 1)
    }

    /// Reads a packet from BTH to ICRC; `None` where it is of another kind or of another partition, or where something is
    /// wrong with it: [`super::Packet::parse`] says what.
    #[inline(always)]
    pub fn parse(transport: &'a [u8], pkey: Pkey) -> Option<Self> {
        const SEND: u32 = (Opcode::RcSendOnly as u32) << 24;
        const SEND_IMM: u32 = (Opcode::RcSendOnlyImm as u32) << 24;
        const WRITE: u32 = (Opcode::RcWriteOnly as u32) << 24;
        const WRITE_IMM: u32 = (Opcode::RcWriteOnlyImm as u32) << 24;
        const ACK: u32 = (Opcode::RcAck as u32) << 24;
        let ([first, _, last], rest) = words::<BTH>(transport)?;
        let pad = (first >> PAD_SHIFT & 3) as usize;
        let payload = |rest: &'a [u8]| rest.get(..rest.len().checked_sub(icrc::LEN + pad)?);
        let body = match first & !VARIABLE ^ u32::from(pkey.0) {
            SEND => WordBody::Send { imm: None, payload: payload(rest)? },
            WRITE_IMM => {
                let ([high, low, rkey, len, imm], rest) = words::<5>(rest)?;
                WordBody::Write { reth: reth(high, low, rkey, len), imm: Some(imm), payload: payload(rest)? }
            }
            ACK => {
                let ([aeth], rest) = words::<1>(rest)?;
                if aeth & NOT_POSITIVE != 0 || pad != 0 || rest.len() != icrc::LEN {
                    return None;
                }
                WordBody::Ack { msn: Msn::new(aeth), credit: (aeth >> 24) as u8 }
            }
            WRITE => {
                let ([high, low, rkey, len], rest) = words::<4>(rest)?;
                WordBody::Write { reth: reth(high, low, rkey, len), imm: None, payload: payload(rest)? }
            }
            SEND_IMM => {
                let ([imm], rest) = words::<1>(rest)?;
                WordBody::Send { imm: Some(imm), payload: payload(rest)? }
            }
            _ => return None,
        };
        let is_aligned = transport.len().is_multiple_of(WORD);
        let solicited = first & SOLICITED != 0;
        is_aligned.then_some(Self { psn: Psn::new(last), ack_req: last & ACK_REQ != 0, solicited, body })
    }
}

#[inline]
fn reth(high: u32, low: u32, rkey: u32, len: u32) -> Reth {
    Reth { va: u64::from(high) << 32 | u64::from(low), rkey: Rkey(rkey), len }
}

#[inline]
fn words<const N: usize>(bytes: &[u8]) -> Option<([u32; N], &[u8])> {
    let (front, rest) = bytes.split_at_checked(N * WORD)?;
    let (chunks, _) = front.as_chunks::<WORD>();
    let mut words = [0; N];
    for (word, chunk) in words.iter_mut().zip(chunks) {
        *word = u32::from_be_bytes(*chunk);
    }
    Some((words, rest))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::wire::{Bth, ImmDt, Packet, Syndrome};

    const PKEY: Pkey = Pkey::DEFAULT;

    /// What a packet is, by its fields; `None` where it is not of these kinds.
    fn by_fields(transport: &[u8]) -> Option<WordPacket<'_>> {
        let Packet { headers: Headers { bth, ext }, payload } = Packet::parse(transport).ok()?;
        let imm = ext.imm.map(|imm| imm.0);
        let body = match (bth.opcode, ext.aeth) {
            (Opcode::RcSendOnly | Opcode::RcSendOnlyImm, _) => WordBody::Send { imm, payload },
            (Opcode::RcWriteOnly | Opcode::RcWriteOnlyImm, _) => WordBody::Write { reth: ext.reth?, imm, payload },
            (Opcode::RcAck, Some(Aeth { syndrome: Syndrome::Ack { credit }, msn })) => {
                // A pad without a payload is malformed.
                (transport.len() == bth::LEN + WORD + icrc::LEN).then_some(WordBody::Ack { msn, credit })?
            }
            _ => return None,
        };
        (bth.pkey == PKEY).then_some(WordPacket { psn: bth.psn, ack_req: bth.ack_req, solicited: bth.solicited, body })
    }

    fn kinds() -> impl Strategy<Value = HeaderWords> {
        let (qpn, psn) = ((0..1u32 << 24).prop_map(Qpn::new), (0..1u32 << 24).prop_map(Psn::new));
        (0..5, qpn, psn, any::<(bool, bool, u64, u32, u32, u32)>()).prop_map(|(kind, qpn, psn, fields)| {
            let (asks, solicited, va, rkey, len, imm) = fields;
            let reth = Reth { va, rkey: Rkey(rkey), len };
            let of = |opcode| {
                let words = HeaderWords::new(opcode, PKEY, qpn, psn).solicited(solicited);
                words.asking(asks)
            };
            match kind {
                0 => of(Opcode::RcSendOnly),
                1 => of(Opcode::RcSendOnlyImm).with_imm(imm),
                2 => of(Opcode::RcWriteOnly).with_reth(reth),
                3 => of(Opcode::RcWriteOnlyImm).with_reth(reth).with_imm(imm),
                _ => {
                    let syndrome = Syndrome::Ack { credit: imm as u8 & 0x1f };
                    of(Opcode::RcAck).with_aeth(Aeth { syndrome, msn: Msn::new(len) })
                }
            }
        })
    }

    /// The packet of these headers and a payload, with four bytes in place of its ICRC.
    fn packet(headers: &HeaderWords, payload: &[u8]) -> Vec<u8> {
        let pad = payload.len().wrapping_neg() & 3;
        let mut bytes = vec![0xee; headers.wire_len()];
        assert_eq!(headers.emit(&mut bytes, pad), bytes.len());
        bytes.extend(payload);
        bytes.resize(bytes.len() + pad + icrc::LEN, 0);
        bytes
    }

    #[test]
    fn a_bth_is_the_one_that_bth_makes() {
        let words = HeaderWords::new(Opcode::RcSendOnly, PKEY, Qpn::new(7), Psn::new(9)).asking(true).solicited(true);
        let bth = Bth { ack_req: true, solicited: true, ..Bth::new(Opcode::RcSendOnly, Qpn::new(7), Psn::new(9)) };
        assert_eq!((words.to_headers(), words.dest_qpn()), (Headers::plain(bth), Qpn::new(7)));
        assert_eq!(words.solicited(false), words);
        let imm = HeaderWords::new(Opcode::RcSendOnlyImm, PKEY, Qpn::new(7), Psn::new(9)).with_imm(5);
        assert_eq!(imm.to_headers().ext.imm, Some(ImmDt(5)));
    }

    proptest! {
        #[test]
        fn words_are_the_bytes_that_their_fields_are(headers in kinds(), pad in 0..4usize) {
            let (mut by_words, mut by_fields) = (vec![0; headers.wire_len()], vec![0; headers.wire_len()]);
            let mut fields = headers.to_headers();
            fields.bth.pad = pad as u8;
            prop_assert_eq!(headers.emit(&mut by_words, pad), fields.emit(&mut by_fields));
            prop_assert_eq!(by_words, by_fields);
        }

        #[test]
        fn a_packet_is_read_by_words_as_by_fields(headers in kinds(), payload in prop::collection::vec(any::<u8>(), 0..40)) {
            let bytes = packet(&headers, &payload);
            let is_ack_with_payload = headers.to_headers().bth.opcode == Opcode::RcAck && !payload.is_empty();
            let read = WordPacket::parse(&bytes, PKEY);
            prop_assert_eq!(read, by_fields(&bytes));
            prop_assert_eq!(read.is_none(), is_ack_with_payload);
            prop_assert!(WordPacket::may_be(&bytes));
            for len in 0..bytes.len() {
                prop_assert_eq!(WordPacket::parse(&bytes[..len], PKEY), by_fields(&bytes[..len]), "{} bytes", len);
            }
            for bit in 0..headers.wire_len() * 8 {
                let mut damaged = bytes.clone();
                damaged[bit / 8] ^= 1 << (bit % 8);
                prop_assert_eq!(WordPacket::parse(&damaged, PKEY), by_fields(&damaged), "bit {}", bit);
            }
        }
    }
}
