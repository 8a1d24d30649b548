//! Receiver: several eager messages that have come in one vbuf. Those at the front may have found their receives already, while they
//! were in the packet. Those that find none stay in the vbuf, until the last of them is received: they take no other memory.

use roci_driver::Buffer;
use roci_driver::link::Link;
use roci_protocol::msg::{self, BadMessage, Header, Label, Message, Mode};

use super::TagService;
use super::eager::acknowledge_match;
use super::kept_packets::KeptMessage;
use super::matching::MatchLabel;
use super::stored::UnexpectedBody;
use crate::core::Core;
use crate::core::breach::Breach;
use crate::core::completion::Done;
use crate::core::peer::Peer;
use crate::core::request::Request;
use crate::core::rx::Outcome;
use crate::core::slab::Key;

/// A vbuf whose messages are acted upon.
struct CoalescedVbuf {
    vbuf: Buffer,
    /// Where the next message begins.
    at: usize,
    /// Its name, once a message of it is kept.
    kept: Option<Key>,
    is_any_copied: bool,
}

impl CoalescedVbuf {
    /// A vbuf whose view begins behind the first message's header.
    fn new(mut vbuf: Buffer) -> Self {
        let (at, end) = (vbuf.skipped() - msg::LEN, vbuf.skipped() + vbuf.len());
        vbuf.reset();
        vbuf.set_len(end);
        Self { vbuf, at, kept: None, is_any_copied: false }
    }

    /// Returns the payload of the next message, if so much is there.
    fn payload(&self, len: u64) -> Option<&[u8]> {
        self.vbuf.get(self.at + msg::LEN..)?.get(..usize::try_from(len).ok()?)
    }

    /// Goes past the next message, and reads the header of the one behind it.
    fn advance(&mut self, len: usize) -> Result<Header, BadMessage> {
        self.at += msg::span(len);
        Header::parse(self.vbuf.get(self.at..).unwrap_or_default()).map(|(header, _)| header)
    }
}

impl TagService {
    /// Receiver: several messages came, of which this is the first that no receive has taken. Together they cost one credit.
    pub(crate) fn on_coalesced<L: Link>(
        &mut self,
        core: &mut Core<L>,
        peer: &mut Peer,
        lane: usize,
        first: &Header,
        vbuf: Buffer,
    ) -> Result<Outcome, Breach> {
        let mut packet = CoalescedVbuf::new(vbuf);
        let outcome = self.on_each(core, peer, lane, *first, &mut packet);
        let CoalescedVbuf { vbuf, kept, is_any_copied, .. } = packet;
        if let Some(key) = kept {
            self.kept_packets.put(key, vbuf, outcome.is_ok().then_some(lane));
            return outcome.map(|()| Outcome::Stored);
        }
        outcome.map(|()| if is_any_copied { Outcome::Copied(vbuf) } else { Outcome::Used(Some(vbuf)) })
    }

    fn on_each<L: Link>(
        &mut self,
        core: &mut Core<L>,
        peer: &mut Peer,
        lane: usize,
        mut header: Header,
        packet: &mut CoalescedVbuf,
    ) -> Result<(), Breach> {
        loop {
            let Message::Eager { label, len, id, mode } = header.message else {
                return Err(Breach::Sequence { sequence: header.sequence });
            };
            let payload = packet.payload(len).ok_or(Breach::Beginning { id })?;
            let len = payload.len();
            peer.advance_sequence();
            if let Some(request) = self.meet_posted(&MatchLabel::new(peer.id, label), len) {
                core.stats.rx_expected += 1;
                acknowledge_match(peer, id, mode);
                self.deliver_copy(core, request, (peer, label), payload);
            } else {
                core.stats.rx_ready_unmatched += u64::from(mode == Mode::Ready);
                self.keep_one(core, peer, lane, (label, id, mode), (packet, len));
            }
            if !header.has_more {
                return Ok(());
            }
            header = packet.advance(len)?;
            if header.sequence != peer.rx.expected_sequence || header.credits > 0 {
                return Err(Breach::Sequence { sequence: header.sequence });
            }
        }
    }

    /// Keeps the next message of a vbuf in it. A shared queue needs its vbufs back, or other peers wait for them: it is copied there,
    /// if there is memory.
    fn keep_one<L: Link>(
        &mut self,
        core: &mut Core<L>,
        peer: &Peer,
        lane: usize,
        (label, id, mode): (Label, u64, Mode),
        (packet, len): (&mut CoalescedVbuf, usize),
    ) {
        let data = label.data;
        let place = packet.at + msg::LEN..packet.at + msg::LEN + len;
        let copy =
            if core.receives.is_shared(lane) { core.copy_to_store(lane, &packet.vbuf[place.clone()]) } else { None };
        packet.is_any_copied |= copy.is_some();
        let body = match copy {
            Some(vbuf) => UnexpectedBody::Whole { id, mode, lane: None, vbuf, data },
            None => {
                let key = *packet.kept.get_or_insert_with(|| self.kept_packets.add(packet.vbuf.capacity()));
                UnexpectedBody::Kept { id, mode, message: self.kept_packets.keep(key, place), data }
            }
        };
        self.store(core, peer.id, label, body);
    }

    /// Gives a message in a kept vbuf to the receive that takes it.
    pub(super) fn deliver_kept<L: Link>(
        &mut self,
        core: &mut Core<L>,
        request: Request,
        label: &MatchLabel,
        data: Option<u64>,
        message: &KeptMessage,
    ) {
        if let Some(mut buffer) = self.buffer_for(core, request, label.source, label.wire(data), message.len as usize) {
            buffer.copy_in(0, self.kept_packets.get(message));
            let done = Done::new(buffer, message.len as usize, label.source, label.wire(data));
            self.requests.end(request, Ok(done));
        }
        self.release_kept(core, message);
    }

    /// A message in a kept vbuf is done with.
    pub(super) fn release_kept<L: Link>(&mut self, core: &mut Core<L>, message: &KeptMessage) {
        if let Some((vbuf, Some(lane))) = self.kept_packets.release(message) {
            core.give_receive_vbuf(lane, vbuf);
        }
    }

    fn deliver_copy<L: Link>(
        &mut self,
        core: &mut Core<L>,
        request: Request,
        (peer, label): (&Peer, Label),
        payload: &[u8],
    ) {
        if let Some(mut buffer) = self.buffer_for(core, request, peer.id, label, payload.len()) {
            buffer.copy_in(0, payload);
            self.requests.end(request, Ok(Done::new(buffer, payload.len(), peer.id, label)));
        }
    }
}
