//! The receiving half: copies out of the ring, and reads payloads that were announced in it.

use roci_driver::link::Link;
use roci_driver::{Buffer, Rkey};

use super::StreamService;
use super::end::{PayloadRead, StreamContext, StreamEnd, Unread, wrapped};
use super::error::StreamError;
use super::wire::ANNOUNCEMENT;
use crate::core::Core;
use crate::core::peer::Peer;

impl StreamService {
    /// Gets what has come, as much as there is and as fits, and returns how much that was.
    pub(crate) fn get<L: Link>(
        &mut self,
        core: &mut Core<L>,
        peer: &mut Peer,
        into: &mut [u8],
    ) -> Result<usize, StreamError> {
        let (mut cx, end, _) = self.parts(core, peer);
        if end.rx.is_reading_for_application() && end.failure.is_none() {
            return Err(StreamError::GetPending(cx.peer.id));
        }
        let got = end.receive(&mut cx, into);
        cx.stats.rx_bytes += got as u64;
        match &end.failure {
            Some(failure) if got == 0 => Err(failure.clone()),
            _ => Ok(got),
        }
    }

    /// As [`StreamService::get`], into a buffer, which a payload that fits is read into directly.
    pub(crate) fn get_into<L: Link>(
        &mut self,
        core: &mut Core<L>,
        peer: &mut Peer,
        slot: &mut Option<Buffer>,
    ) -> Result<usize, StreamError> {
        slot.as_ref().map_or(Ok(()), Buffer::check_borrowed)?;
        let (mut cx, end, _) = self.parts(core, peer);
        let is_reading = end.rx.is_reading_for_application();
        if is_reading && slot.is_some() {
            return Err(StreamError::GetPending(cx.peer.id));
        }
        if let Some((buffer, len)) = end.rx.take_done() {
            *slot = Some(buffer);
            cx.stats.rx_bytes += len as u64;
            return end.failure.clone().filter(|_| len == 0).map_or(Ok(len), Err);
        }
        if is_reading {
            // Where the peer has failed the READ ends, too, and brings the buffer back.
            return Ok(0);
        }
        let Some(buffer) = slot.as_mut() else {
            return Err(end.failure.clone().unwrap_or(StreamError::NoBuffer(cx.peer.id)));
        };
        if end.fits_whole(buffer.len()) {
            if end.failure.is_none()
                && cx.peer.has_room_for_read(end.next_payload())
                && let Some(buffer) = slot.take()
            {
                end.read_directly(&mut cx, buffer);
            }
            return end.failure.clone().map_or(Ok(0), Err);
        }
        self.get(core, peer, slot.as_deref_mut().unwrap_or_default())
    }
}

impl StreamEnd {
    /// Copies what has come, and reports the room to the peer: at once at the end, or while it goes on where the tail is
    /// delayed anyway.
    fn receive<L: Link>(&mut self, cx: &mut StreamContext<'_, L>, into: &mut [u8]) -> usize {
        let mut got = 0;
        while got < into.len() {
            let part = self.copy_out_some(cx, &mut into[got..]);
            if part == 0 {
                break;
            }
            got += part;
            if cx.config.tail_delay {
                self.report_tail(cx, false);
            }
        }
        if got > 0 {
            self.report_tail(cx, false);
        }
        got
    }

    /// Copies from the oldest thing in the pipe; 0 where nothing of it is here.
    fn copy_out_some<L: Link>(&mut self, cx: &mut StreamContext<'_, L>, into: &mut [u8]) -> usize {
        match &self.rx.read {
            PayloadRead::Staged { .. } => self.copy_staged(into),
            PayloadRead::None => match self.rx.unread.front() {
                Some(&Unread::Bytes { at, left }) => self.copy_ring(cx, at, left, into),
                Some(Unread::Payload { .. }) => {
                    self.read_part(cx);
                    0
                }
                None => 0,
            },
            PayloadRead::Direct { .. } | PayloadRead::Done { .. } | PayloadRead::Staging { .. } => 0,
        }
    }

    fn copy_ring<L: Link>(&mut self, cx: &mut StreamContext<'_, L>, at: usize, left: usize, into: &mut [u8]) -> usize {
        let config = cx.config;
        let (at, here) =
            if config.piggyback { (at, left) } else { (self.rx.tail_at, left.min(config.ring - self.rx.tail_at)) };
        let part = here.min(into.len());
        let copied = cx.core.engine.read_region(cx.core.pd, self.rx.ring, at, &mut into[..part]);
        debug_assert!(copied.is_some(), "lengths were checked when they came");
        let is_used_up = part == left;
        if is_used_up {
            self.rx.unread.pop_front();
        } else if let Some(front) = self.rx.unread.front_mut() {
            *front = Unread::Bytes { at: at + part, left: left - part };
        }
        if config.piggyback {
            self.rx.tail += u64::from(is_used_up);
        } else {
            self.pass_bytes(config.ring, part);
        }
        part
    }

    /// Moves the tail on in a ring of bytes.
    #[inline]
    fn pass_bytes(&mut self, ring: usize, bytes: usize) {
        self.rx.tail += bytes as u64;
        self.rx.tail_at = wrapped(self.rx.tail_at, bytes, ring);
    }

    fn copy_staged(&mut self, into: &mut [u8]) -> usize {
        let PayloadRead::Staged { buffer, copied } = &mut self.rx.read else { return 0 };
        let part = (buffer.len() - *copied).min(into.len());
        into[..part].copy_from_slice(&buffer[*copied..*copied + part]);
        *copied += part;
        if *copied == buffer.len()
            && let PayloadRead::Staged { buffer, .. } = std::mem::replace(&mut self.rx.read, PayloadRead::None)
        {
            self.rx.stage = Some(buffer);
        }
        part
    }

    /// Whether a payload is next, none of it was fetched, and `room` holds it.
    fn fits_whole(&self, room: usize) -> bool {
        let is_free = matches!(self.rx.read, PayloadRead::None);
        let next = self.rx.unread.front();
        is_free && matches!(next, Some(&Unread::Payload { len, left, .. }) if left == len && len <= room as u64)
    }

    /// Returns the length of the payload that is next.
    fn next_payload(&self) -> usize {
        match self.rx.unread.front() {
            Some(&Unread::Payload { len, .. }) => len as usize,
            _ => 0,
        }
    }

    /// Fetches the payload that is next into a buffer that holds it.
    fn read_directly<L: Link>(&mut self, cx: &mut StreamContext<'_, L>, mut buffer: Buffer) {
        let Some(Unread::Payload { rkey, len, left }) = self.rx.unread.front_mut() else { return };
        let room = buffer.len();
        buffer.set_len(*len as usize);
        *left = 0;
        let rkey = *rkey;
        self.rx.read = PayloadRead::Direct { room };
        self.start_read(cx, buffer, (rkey, 0));
    }

    /// Fetches the next part of a payload into the staging buffer.
    fn read_part<L: Link>(&mut self, cx: &mut StreamContext<'_, L>) {
        if self.failure.is_some() || !cx.peer.has_room_for_read(cx.config.ring) {
            return;
        }
        let Some(Unread::Payload { rkey, len, left }) = self.rx.unread.front_mut() else { return };
        let Some(mut buffer) = self.rx.stage.take() else { return };
        let part = (cx.config.ring as u64).min(*left);
        buffer.set_len(part as usize);
        let source = (*rkey, *len - *left);
        *left -= part;
        self.rx.read = PayloadRead::Staging { len: part as usize };
        cx.stats.rx_staged += 1;
        self.start_read(cx, buffer, source);
    }

    /// Where it is refused the queue pair has failed, and its completions say so: the buffer comes back as from a failed READ.
    fn start_read<L: Link>(&mut self, cx: &mut StreamContext<'_, L>, buffer: Buffer, source: (Rkey, u64)) {
        if let Err(buffer) = self.post_read(cx, buffer, source) {
            self.on_read(cx, buffer, false);
        }
    }

    /// A READ is over.
    pub(super) fn on_read<L: Link>(&mut self, cx: &mut StreamContext<'_, L>, mut buffer: Buffer, has_worked: bool) {
        match std::mem::replace(&mut self.rx.read, PayloadRead::None) {
            PayloadRead::Direct { room } => {
                let len = if has_worked { buffer.len() } else { 0 };
                buffer.set_len(room);
                self.rx.read = PayloadRead::Done { buffer, len };
                cx.stats.rx_direct += u64::from(has_worked);
            }
            PayloadRead::Staging { len } if has_worked => {
                buffer.set_len(len);
                self.rx.read = PayloadRead::Staged { buffer, copied: 0 };
            }
            _ => self.rx.stage = Some(buffer),
        }
        if has_worked && matches!(self.rx.unread.front(), Some(Unread::Payload { left: 0, .. })) {
            self.rx.unread.pop_front();
            if cx.config.piggyback {
                self.rx.tail += 1;
            } else {
                self.pass_bytes(cx.config.ring, ANNOUNCEMENT);
            }
            // The sender waits for it.
            self.report_tail(cx, true);
        }
    }
}
