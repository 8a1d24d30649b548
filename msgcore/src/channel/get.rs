//! The receiving half: copies out of the ring, and fetches payloads that were announced in it.

use roci_driver::link::Link;
use roci_driver::{Buffer, SendWr};

use super::Channel;
use super::error::ChannelError;
use super::peer::{Arrival, Core, Fetch, Peer, Work, wrapped};
use super::wire::ANNOUNCEMENT;
use crate::Rank;

impl<L: Link> Channel<L> {
    /// Gets what has come from rank `from`, as much as there is and as fits, and returns how much that was. The
    /// bytes come in the order in which they were put; where one put ended and the next began is not kept. Makes
    /// progress where nothing has come.
    ///
    /// What had come from a peer that is gone can still be got; then comes the error.
    pub fn get(&mut self, from: Rank, into: &mut [u8]) -> Result<usize, ChannelError> {
        let got = self.get_now(from, into)?;
        if got > 0 || into.is_empty() {
            return Ok(got);
        }
        self.progress();
        self.get_now(from, into)
    }

    fn get_now(&mut self, from: Rank, into: &mut [u8]) -> Result<usize, ChannelError> {
        let (core, peer, _) = self.parts(from)?;
        if matches!(peer.inn.fetch, Fetch::Direct { .. } | Fetch::Done { .. }) && peer.failure.is_none() {
            return Err(ChannelError::GetPending(from));
        }
        let got = peer.receive(core, into);
        core.stats.rx_bytes += got as u64;
        match &peer.failure {
            Some(failure) if got == 0 => Err(failure.clone()),
            _ => Ok(got),
        }
    }

    /// As [`Channel::get`], into a buffer. A payload that is next in the pipe and fits the buffer whole is fetched
    /// straight into it: then the buffer is taken, the call answers 0, and is repeated without a buffer until it
    /// answers with the payload's length and the buffer is back. A payload that does not fit comes piece by piece.
    ///
    /// Where the peer fails meanwhile the buffer is back, too.
    pub fn get_into(&mut self, from: Rank, buffer: &mut Option<Buffer>) -> Result<usize, ChannelError> {
        let got = self.get_into_now(from, buffer)?;
        if got > 0 || buffer.as_ref().is_some_and(|buffer| buffer.is_empty()) {
            return Ok(got);
        }
        self.progress();
        self.get_into_now(from, buffer)
    }

    fn get_into_now(&mut self, from: Rank, slot: &mut Option<Buffer>) -> Result<usize, ChannelError> {
        let (core, peer, _) = self.parts(from)?;
        let is_ours = matches!(peer.inn.fetch, Fetch::Direct { .. } | Fetch::Done { .. });
        if is_ours && slot.is_some() {
            return Err(ChannelError::GetPending(from));
        }
        if let Fetch::Done { .. } = peer.inn.fetch
            && let Fetch::Done { buffer, len } = std::mem::replace(&mut peer.inn.fetch, Fetch::None)
        {
            *slot = Some(buffer);
            core.stats.rx_bytes += len as u64;
            return peer.failure.clone().filter(|_| len == 0).map_or(Ok(len), Err);
        }
        if is_ours {
            return peer.failure.clone().map_or(Ok(0), Err);
        }
        let Some(buffer) = slot.as_mut() else {
            return Err(peer.failure.clone().unwrap_or(ChannelError::NoBuffer(from)));
        };
        if peer.fits_whole(buffer.len()) {
            if peer.failure.is_none()
                && peer.has_place(0, 1)
                && let Some(buffer) = slot.take()
            {
                peer.fetch_directly(core, buffer);
            }
            return peer.failure.clone().map_or(Ok(0), Err);
        }
        self.get_now(from, slot.as_deref_mut().unwrap_or_default())
    }
}

impl Peer {
    /// Copies what has come, and tells the peer of the room: at once at the end, or while it goes on where the tail is
    /// delayed anyway.
    fn receive<L: Link>(&mut self, core: &mut Core<L>, into: &mut [u8]) -> usize {
        let mut got = 0;
        while got < into.len() {
            let part = self.copy_out_some(core, &mut into[got..]);
            if part == 0 {
                break;
            }
            got += part;
            if core.config.tail_delay {
                self.tell_tail(core, false);
            }
        }
        if got > 0 {
            self.tell_tail(core, false);
        }
        got
    }

    /// Copies from the oldest thing in the pipe; 0 where nothing of it is here.
    fn copy_out_some<L: Link>(&mut self, core: &mut Core<L>, into: &mut [u8]) -> usize {
        match &self.inn.fetch {
            Fetch::Staged { .. } => self.copy_staged(into),
            Fetch::None => match self.inn.arrivals.front() {
                Some(&Arrival::Bytes { at, left }) => self.copy_ring(core, at, left, into),
                Some(Arrival::Payload { .. }) => {
                    self.fetch_part(core);
                    0
                }
                None => 0,
            },
            Fetch::Direct { .. } | Fetch::Done { .. } | Fetch::Staging { .. } => 0,
        }
    }

    fn copy_ring<L: Link>(&mut self, core: &mut Core<L>, at: usize, left: usize, into: &mut [u8]) -> usize {
        let config = &core.config;
        let (at, here) =
            if config.piggyback { (at, left) } else { (self.inn.tail_at, left.min(config.ring - self.inn.tail_at)) };
        let part = here.min(into.len());
        let copied = core.engine.read_region(core.pd, self.inn.ring, at, &mut into[..part]);
        debug_assert!(copied.is_some(), "lengths were checked when they came");
        let is_used_up = part == left;
        if is_used_up {
            self.inn.arrivals.pop_front();
        } else if let Some(front) = self.inn.arrivals.front_mut() {
            *front = Arrival::Bytes { at: at + part, left: left - part };
        }
        if config.piggyback {
            self.inn.tail += u64::from(is_used_up);
        } else {
            self.pass_bytes(config.ring, part);
        }
        part
    }

    /// Moves the tail on in a ring of bytes.
    #[inline]
    fn pass_bytes(&mut self, ring: usize, bytes: usize) {
        self.inn.tail += bytes as u64;
        self.inn.tail_at = wrapped(self.inn.tail_at, bytes, ring);
    }

    fn copy_staged(&mut self, into: &mut [u8]) -> usize {
        let Fetch::Staged { buffer, copied } = &mut self.inn.fetch else { return 0 };
        let part = (buffer.len() - *copied).min(into.len());
        into[..part].copy_from_slice(&buffer[*copied..*copied + part]);
        *copied += part;
        if *copied == buffer.len()
            && let Fetch::Staged { buffer, .. } = std::mem::replace(&mut self.inn.fetch, Fetch::None)
        {
            self.inn.stage = Some(buffer);
        }
        part
    }

    /// Whether a payload is next, none of it was fetched, and `room` holds it.
    fn fits_whole(&self, room: usize) -> bool {
        let is_free = matches!(self.inn.fetch, Fetch::None);
        let next = self.inn.arrivals.front();
        is_free && matches!(next, Some(&Arrival::Payload { len, left, .. }) if left == len && len <= room as u64)
    }

    /// Fetches the payload that is next into a buffer that holds it.
    fn fetch_directly<L: Link>(&mut self, core: &mut Core<L>, mut buffer: Buffer) {
        let Some(Arrival::Payload { rkey, len, left }) = self.inn.arrivals.front_mut() else { return };
        let room = buffer.len();
        buffer.set_len(*len as usize);
        *left = 0;
        let read = SendWr::read(Work::Read.name(self.rank), buffer, *rkey, 0);
        self.inn.fetch = Fetch::Direct { room };
        self.post_read(core, read);
    }

    /// Fetches the next part of a payload into the staging buffer.
    fn fetch_part<L: Link>(&mut self, core: &mut Core<L>) {
        if self.failure.is_some() || !self.has_place(0, 1) {
            return;
        }
        let Some(Arrival::Payload { rkey, len, left }) = self.inn.arrivals.front_mut() else { return };
        let Some(mut buffer) = self.inn.stage.take() else { return };
        let part = (core.config.ring as u64).min(*left);
        buffer.set_len(part as usize);
        let read = SendWr::read(Work::Read.name(self.rank), buffer, *rkey, *len - *left);
        *left -= part;
        self.inn.fetch = Fetch::Staging { len: part as usize };
        core.stats.rx_staged += 1;
        self.post_read(core, read);
    }

    fn post_read<L: Link>(&mut self, core: &mut Core<L>, read: SendWr) {
        match core.engine.post_send(self.qp, read) {
            Ok(()) => self.in_flight += 1,
            // The queue pair has failed, and its receives say so. The buffer is nobody else's.
            Err(refused) => self.on_read(core, refused.request.into_buffer(), false),
        }
    }

    /// A READ is over.
    pub(super) fn on_read<L: Link>(&mut self, core: &mut Core<L>, mut buffer: Buffer, has_worked: bool) {
        match std::mem::replace(&mut self.inn.fetch, Fetch::None) {
            Fetch::Direct { room } => {
                let len = if has_worked { buffer.len() } else { 0 };
                buffer.set_len(room);
                self.inn.fetch = Fetch::Done { buffer, len };
                core.stats.rx_direct += u64::from(has_worked);
            }
            Fetch::Staging { len } if has_worked => {
                buffer.set_len(len);
                self.inn.fetch = Fetch::Staged { buffer, copied: 0 };
            }
            _ => self.inn.stage = Some(buffer),
        }
        if has_worked && matches!(self.inn.arrivals.front(), Some(Arrival::Payload { left: 0, .. })) {
            self.inn.arrivals.pop_front();
            if core.config.piggyback {
                self.inn.tail += 1;
            } else {
                self.pass_bytes(core.config.ring, ANNOUNCEMENT);
            }
            // The sender waits for it.
            self.tell_tail(core, true);
        }
    }
}
