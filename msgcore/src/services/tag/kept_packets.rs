//! Receiver: vbufs with several messages, which stay until the last message without a receive has one.

use std::ops::Range;

use roci_driver::Buffer;

use crate::core::slab::{Key, KeySource, Slab};

/// Vbufs with several messages, of which some have no receive yet.
pub(crate) struct KeptPackets {
    packets: Slab<KeptPacket>,
    /// What the vbufs take together.
    bytes: usize,
}

/// A vbuf with several messages.
struct KeptPacket {
    /// Nothing while its messages are acted upon.
    vbuf: Option<Buffer>,
    /// Bytes of the vbuf.
    bytes: usize,
    /// The receives that it is for; none where its sender is about to be ended.
    lane: Option<usize>,
    /// Messages in it that have no receive yet.
    messages: usize,
}

/// The place of a message in a vbuf.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct KeptMessage {
    packet: Key,
    at: u32,
    pub(super) len: u32,
}

impl Default for KeptPackets {
    fn default() -> Self {
        Self { packets: Slab::new(KeySource::new(u32::MAX as usize)), bytes: 0 }
    }
}

impl KeptPackets {
    /// Returns what the vbufs take together.
    #[inline]
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether each vbuf is there and has messages, of which there are so many, and they are charged for.
    pub(super) fn is_sound(&self, messages: usize) -> bool {
        let all = || self.packets.iter().map(|(_, kept)| kept);
        all().all(|kept| kept.vbuf.is_some() && kept.messages > 0)
            && all().map(|kept| kept.messages).sum::<usize>() <= messages
            && all().map(|kept| kept.bytes).sum::<usize>() == self.bytes
    }

    /// Names a vbuf of so many bytes, of which messages are about to be kept.
    pub(super) fn add(&mut self, bytes: usize) -> Key {
        self.bytes += bytes;
        let kept = KeptPacket { vbuf: None, bytes, lane: None, messages: 0 };
        self.packets.insert(kept).expect("each has memory of its own")
    }

    /// A message of a vbuf is kept, at this place in it.
    pub(super) fn keep(&mut self, packet: Key, place: Range<usize>) -> KeptMessage {
        self.packets.get_mut(packet).expect("it was added").messages += 1;
        KeptMessage { packet, at: place.start as u32, len: place.len() as u32 }
    }

    /// All messages of a vbuf were acted upon.
    pub(super) fn put(&mut self, key: Key, vbuf: Buffer, lane: Option<usize>) {
        let kept = self.packets.get_mut(key).expect("it is kept");
        assert!(kept.vbuf.is_none() && kept.messages > 0, "a vbuf is put once, and for a message");
        (kept.vbuf, kept.lane) = (Some(vbuf), lane);
    }

    /// Returns the bytes of a message.
    pub(super) fn get(&self, message: &KeptMessage) -> &[u8] {
        let vbuf = self.packets.get(message.packet).and_then(|kept| kept.vbuf.as_ref());
        &vbuf.expect("its messages keep it")[message.at as usize..][..message.len as usize]
    }

    /// A message is done with. Returns the vbuf with the last one of it, and the receives that it is for.
    pub(super) fn release(&mut self, message: &KeptMessage) -> Option<(Buffer, Option<usize>)> {
        let kept = self.packets.get_mut(message.packet).expect("its messages keep it");
        kept.messages -= 1;
        if kept.messages > 0 {
            return None;
        }
        let kept = self.packets.remove(message.packet)?;
        self.bytes -= kept.bytes;
        kept.vbuf.map(|vbuf| (vbuf, kept.lane))
    }
}
