//! Progress: polls the engine, and acts on what has ended and what has come.

use roci_driver::link::Link;
use roci_driver::{MemoryRegion, Operation, WcStatus, WorkCompletion};

use super::Channel;
use super::config::HEADER;
use super::error::{Breach, ChannelError};
use super::payload::MOST_PAYLOAD;
use super::peer::{Arrival, Core, HEAD_WORD, Peer, TAIL_WORD, Work, wrapped};
use super::wire::{ANNOUNCEMENT, Announcement, Header, News, WORD, parse_hello};
use crate::Rank;

/// Why a peer's message ends its connection.
enum Offence {
    Breach(Breach),
    /// No offence, but nothing can be done with it.
    OtherConfig(Box<super::ChannelConfig>),
}

impl From<Breach> for Offence {
    fn from(breach: Breach) -> Self {
        Self::Breach(breach)
    }
}

impl<L: Link> Channel<L> {
    /// Does what can be done now, without waiting; returns whether anything happened. All other calls do so too where
    /// they find nothing to do.
    #[inline]
    pub fn progress(&mut self) -> bool {
        let mut happened = self.core.engine.poll() > 0;
        while let Some(done) = self.core.engine.poll_cq(self.core.cq) {
            happened = true;
            self.on_completion(done);
        }
        happened
    }

    fn on_completion(&mut self, done: WorkCompletion) {
        let (rank, work) = Work::parse(done.wr_id);
        let (Some(work), Some(peer)) = (work, self.peers.get_mut(rank).and_then(Option::as_mut)) else { return };
        let status = done.status;
        if work == Work::Receive {
            if status.is_success() {
                self.on_message(rank, done);
                return;
            }
        } else {
            peer.on_sent(&mut self.core, work, done);
        }
        if !status.is_success() {
            self.fail(rank, ChannelError::PeerGone { rank, status });
        }
    }

    /// A message took a receive. It is posted again before anything else can be polled in: senders count on it.
    fn on_message(&mut self, rank: Rank, done: WorkCompletion) {
        let Some(peer) = self.peers[rank].as_mut() else { return };
        if peer.failure.is_some() {
            return; // It came before its sender's end, and is told after it.
        }
        let verdict = peer.on_message(&mut self.core, &done);
        // A queue pair that refuses has failed, and its completions say so.
        let _ = self.core.engine.post_recv(peer.qp, done.wr_id, done.buffer);
        match verdict {
            Ok(()) => {}
            Err(Offence::Breach(breach)) => self.fail(rank, ChannelError::PeerProtocol { rank, breach }),
            Err(Offence::OtherConfig(theirs)) => {
                // The connection stays, so that the peer hears of it from our own first message.
                let ours = Box::new(self.core.config);
                peer.failure = Some(ChannelError::OtherConfig { rank, theirs, ours });
            }
        }
    }

    /// Ends all conversation with a peer. Buffers that are under way come back with their completions.
    fn fail(&mut self, rank: Rank, error: ChannelError) {
        let Some(peer) = self.peers[rank].as_mut().filter(|peer| peer.failure.is_none()) else { return };
        peer.failure = Some(error);
        self.core.stats.peers_gone += 1;
        if let Some(lent) = peer.out.lent.take() {
            self.payloads.end_put(lent.payload);
            self.payloads.revoke(lent.payload, &mut self.core.engine);
        }
        self.core.engine.fail_qp(peer.qp, WcStatus::WrFlushErr);
    }
}

impl Peer {
    /// A work request of the send queue is over: its buffer is free, and its place.
    #[inline]
    fn on_sent<L: Link>(&mut self, core: &mut Core<L>, work: Work, done: WorkCompletion) {
        self.in_flight -= 1;
        let takes_receive = match work {
            Work::Hello | Work::Word => true,
            Work::Data => core.config.piggyback,
            Work::Receive | Work::Read => false,
        };
        self.notices -= usize::from(takes_receive);
        match work {
            Work::Data => self.out.staging.push(done.buffer),
            Work::Word => self.words.push(done.buffer),
            Work::Read => self.on_read(core, done.buffer, done.status.is_success()),
            Work::Hello | Work::Receive => {}
        }
        if self.inn.is_due {
            self.tell_tail(core, true);
        }
    }

    fn on_message<L: Link>(&mut self, core: &mut Core<L>, done: &WorkCompletion) -> Result<(), Offence> {
        match (done.operation, done.imm) {
            (Operation::Recv, None) => self.on_hello(core, &done.buffer[..done.len]),
            (Operation::RecvRdmaWithImm, Some(immediate)) => {
                if self.keys.is_none() {
                    return Err(Breach::EarlyNews.into());
                }
                Ok(self.on_news(core, immediate, done.len)?)
            }
            _ => Err(Breach::Hello.into()),
        }
    }

    fn on_hello<L: Link>(&mut self, core: &Core<L>, bytes: &[u8]) -> Result<(), Offence> {
        let (config, keys) = parse_hello(bytes).filter(|_| self.keys.is_none()).ok_or(Breach::Hello)?;
        if config != core.config {
            return Err(Offence::OtherConfig(Box::new(config)));
        }
        self.keys = Some(keys);
        Ok(())
    }

    #[inline]
    fn on_news<L: Link>(&mut self, core: &mut Core<L>, immediate: u32, written: usize) -> Result<(), Breach> {
        let known = if News::is_tail(immediate) { self.out.tail } else { self.inn.head };
        let (news, advance) = News::parse(immediate, known).ok_or(Breach::Immediate(immediate))?;
        if news == News::Tail {
            return self.on_tail_word(core, advance, written);
        }
        let room = core.sizes.capacity - (self.inn.head - self.inn.tail);
        if advance == 0 || advance > room {
            return Err(Breach::Head { advance, room });
        }
        if matches!(self.inn.arrivals.back(), Some(Arrival::Payload { .. })) {
            return Err(Breach::Unasked);
        }
        if core.config.piggyback {
            if advance != 1 {
                return Err(Breach::Head { advance, room });
            }
            self.on_chunk(core, news, written)?;
        } else {
            self.on_head_word(core, news, advance, written)?;
        }
        self.inn.head += advance;
        let bytes = if core.config.piggyback { core.config.chunk } else { advance as usize };
        self.inn.head_at = wrapped(self.inn.head_at, bytes, core.config.ring);
        Ok(())
    }

    /// A chunk has come: header and data in one.
    #[inline]
    fn on_chunk<L: Link>(&mut self, core: &mut Core<L>, news: News, written: usize) -> Result<(), Breach> {
        let at = self.inn.head_at;
        let header = Header::parse(&read(core, self.inn.ring, at));
        let Header { number, len, tail } = header;
        let is_right = number == self.inn.head as u32 && len > 0 && len as usize <= core.sizes.piece;
        if !is_right || written != HEADER + len as usize {
            return Err(Breach::Header { number, len, written });
        }
        self.on_tail(tail)?;
        let arrival = match news {
            News::Announcement if len as usize == ANNOUNCEMENT => {
                announced(core, Announcement::parse(&read(core, self.inn.ring, at + HEADER)))?
            }
            News::Announcement => return Err(Breach::Announcement(len.into())),
            _ => Arrival::Bytes { at: at + HEADER, left: len as usize },
        };
        self.inn.arrivals.push_back(arrival);
        Ok(())
    }

    /// A head has come behind its data. The word may be newer than the news of it; what counts is the news.
    fn on_head_word<L: Link>(
        &mut self,
        core: &mut Core<L>,
        news: News,
        advance: u64,
        written: usize,
    ) -> Result<(), Breach> {
        let word = self.word(core, HEAD_WORD, written)?;
        let head = self.inn.head + advance;
        if !(head..=self.inn.tail + core.config.ring as u64).contains(&word) {
            return Err(Breach::HeadWord(word));
        }
        if news == News::Announcement {
            if advance != ANNOUNCEMENT as u64 {
                return Err(Breach::Announcement(advance));
            }
            let announcement = self.announcement_at(core, self.inn.head_at);
            self.inn.arrivals.push_back(announced(core, announcement)?);
        } else if let Some(Arrival::Bytes { left, .. }) = self.inn.arrivals.back_mut() {
            *left += advance as usize;
        } else {
            self.inn.arrivals.push_back(Arrival::Bytes { at: 0, left: advance as usize });
        }
        Ok(())
    }

    /// An announcement in a ring of bytes, whose end may lie in the middle of it.
    fn announcement_at<L: Link>(&self, core: &Core<L>, at: usize) -> Announcement {
        let mut bytes = [0; ANNOUNCEMENT];
        for (offset, byte) in bytes.iter_mut().enumerate() {
            [*byte] = read(core, self.inn.ring, wrapped(at, offset, core.config.ring));
        }
        Announcement::parse(&bytes)
    }

    fn on_tail_word<L: Link>(&mut self, core: &Core<L>, advance: u64, written: usize) -> Result<(), Breach> {
        let word = self.word(core, TAIL_WORD, written)?;
        let tail = self.out.tail.saturating_add(advance);
        self.on_tail(tail)?;
        let is_in_order = (tail..=self.out.head).contains(&word);
        if is_in_order { Ok(()) } else { Err(self.bad_tail(word)) }
    }

    #[inline]
    fn on_tail(&mut self, tail: u64) -> Result<(), Breach> {
        if !(self.out.tail..=self.out.head).contains(&tail) {
            return Err(self.bad_tail(tail));
        }
        self.out.tail = tail;
        Ok(())
    }

    fn bad_tail(&self, tail: u64) -> Breach {
        Breach::Tail { tail, known: self.out.tail, head: self.out.head }
    }

    fn word<L: Link>(&self, core: &Core<L>, at: usize, written: usize) -> Result<u64, Breach> {
        if written != WORD {
            return Err(Breach::Notice(written));
        }
        Ok(u64::from_le_bytes(read(core, self.inn.words, at)))
    }
}

/// Checks an announcement. The key is judged by the peer's own key table.
fn announced<L: Link>(core: &Core<L>, announcement: Announcement) -> Result<Arrival, Breach> {
    let Announcement { rkey, len } = announcement;
    if core.config.zero_copy.is_none() {
        return Err(Breach::Unasked);
    }
    if !(1..=MOST_PAYLOAD).contains(&len) {
        return Err(Breach::Announcement(len));
    }
    Ok(Arrival::Payload { rkey, len, left: len })
}

/// A copy of what lies in memory that the peer may write: looked at once, and checked afterwards.
#[inline]
fn read<const N: usize, L: Link>(core: &Core<L>, region: MemoryRegion, at: usize) -> [u8; N] {
    let mut bytes = [0; N];
    let copied = core.engine.read_region(core.pd, region, at, &mut bytes);
    debug_assert!(copied.is_some(), "the place lies in the region");
    bytes
}
