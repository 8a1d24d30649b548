//! News: what the peer has written, checked before anything of it is used.

use roci_driver::MemoryRegion;
use roci_driver::link::Link;

use super::config::HEADER;
use super::end::{HEAD_WORD, StreamContext, StreamEnd, TAIL_WORD, Unread, wrapped};
use super::payload::MOST_PAYLOAD;
use super::wire::{ANNOUNCEMENT, Announcement, ChunkHeader, News, WORD};
use crate::core::breach::StreamBreach;

impl StreamEnd {
    /// A WRITE with immediate data of the peer's has been executed, of `written` bytes.
    ///
    /// # Errors
    /// It does not fit what was known.
    #[inline]
    pub(super) fn on_news<L: Link>(
        &mut self,
        cx: &mut StreamContext<'_, L>,
        immediate: u32,
        written: usize,
    ) -> Result<(), StreamBreach> {
        let known = if News::is_tail(immediate) { self.tx.tail } else { self.rx.head };
        let (news, advance) = News::parse(immediate, known).ok_or(StreamBreach::Immediate(immediate))?;
        if news == News::Tail {
            return self.on_tail_word(cx, advance, written);
        }
        let room = cx.sizes.capacity - (self.rx.head - self.rx.tail);
        if advance == 0 || advance > room {
            return Err(StreamBreach::Head { advance, room });
        }
        if matches!(self.rx.unread.back(), Some(Unread::Payload { .. })) {
            return Err(StreamBreach::Unasked);
        }
        if cx.config.piggyback {
            if advance != 1 {
                return Err(StreamBreach::Head { advance, room });
            }
            self.on_chunk(cx, news, written)?;
        } else {
            self.on_head_word(cx, news, advance, written)?;
        }
        self.rx.head += advance;
        assert!(self.rx.head - self.rx.tail <= cx.sizes.capacity, "no more has come than the ring holds");
        let bytes = if cx.config.piggyback { cx.config.chunk } else { advance as usize };
        self.rx.head_at = wrapped(self.rx.head_at, bytes, cx.config.ring);
        Ok(())
    }

    /// A chunk has come: header and data in one.
    #[inline]
    fn on_chunk<L: Link>(
        &mut self,
        cx: &mut StreamContext<'_, L>,
        news: News,
        written: usize,
    ) -> Result<(), StreamBreach> {
        let at = self.rx.head_at;
        let header = ChunkHeader::parse(&read(cx, self.rx.ring, at));
        let ChunkHeader { number, len, tail } = header;
        let is_right = number == self.rx.head as u32 && len > 0 && len as usize <= cx.sizes.piece;
        if !is_right || written != HEADER + len as usize {
            return Err(StreamBreach::Chunk { number, len, written });
        }
        self.on_tail(tail)?;
        let arrival = match news {
            News::Announcement if len as usize == ANNOUNCEMENT => {
                announced(cx, Announcement::parse(&read(cx, self.rx.ring, at + HEADER)))?
            }
            News::Announcement => return Err(StreamBreach::Announcement(len.into())),
            _ => Unread::Bytes { at: at + HEADER, left: len as usize },
        };
        self.rx.unread.push_back(arrival);
        Ok(())
    }

    /// A head has come behind its data. The word may be newer than the news of it; what counts is the news.
    fn on_head_word<L: Link>(
        &mut self,
        cx: &mut StreamContext<'_, L>,
        news: News,
        advance: u64,
        written: usize,
    ) -> Result<(), StreamBreach> {
        let word = self.word(cx, HEAD_WORD, written)?;
        let head = self.rx.head + advance;
        if !(head..=self.rx.tail + cx.config.ring as u64).contains(&word) {
            return Err(StreamBreach::HeadWord(word));
        }
        if news == News::Announcement {
            if advance != ANNOUNCEMENT as u64 {
                return Err(StreamBreach::Announcement(advance));
            }
            let announcement = self.announcement_at(cx, self.rx.head_at);
            self.rx.unread.push_back(announced(cx, announcement)?);
        } else if let Some(Unread::Bytes { left, .. }) = self.rx.unread.back_mut() {
            *left += advance as usize;
        } else {
            self.rx.unread.push_back(Unread::Bytes { at: 0, left: advance as usize });
        }
        Ok(())
    }

    /// An announcement in a ring of bytes, whose end may lie in the middle of it.
    fn announcement_at<L: Link>(&self, cx: &StreamContext<'_, L>, at: usize) -> Announcement {
        let mut bytes = [0; ANNOUNCEMENT];
        for (offset, byte) in bytes.iter_mut().enumerate() {
            [*byte] = read(cx, self.rx.ring, wrapped(at, offset, cx.config.ring));
        }
        Announcement::parse(&bytes)
    }

    fn on_tail_word<L: Link>(
        &mut self,
        cx: &StreamContext<'_, L>,
        advance: u64,
        written: usize,
    ) -> Result<(), StreamBreach> {
        let word = self.word(cx, TAIL_WORD, written)?;
        let tail = self.tx.tail.saturating_add(advance);
        self.on_tail(tail)?;
        let is_in_order = (tail..=self.tx.head).contains(&word);
        if is_in_order { Ok(()) } else { Err(self.bad_tail(word)) }
    }

    #[inline]
    fn on_tail(&mut self, tail: u64) -> Result<(), StreamBreach> {
        if !(self.tx.tail..=self.tx.head).contains(&tail) {
            return Err(self.bad_tail(tail));
        }
        self.tx.tail = tail;
        assert!(self.tx.tail <= self.tx.head, "the peer has got no more than was put");
        Ok(())
    }

    fn bad_tail(&self, tail: u64) -> StreamBreach {
        StreamBreach::Tail { tail, known: self.tx.tail, head: self.tx.head }
    }

    fn word<L: Link>(&self, cx: &StreamContext<'_, L>, at: usize, written: usize) -> Result<u64, StreamBreach> {
        if written != WORD {
            return Err(StreamBreach::Word(written));
        }
        Ok(u64::from_le_bytes(read(cx, self.rx.words, at)))
    }
}

/// Checks an announcement. The key is judged by the peer's own key table.
fn announced<L: Link>(cx: &StreamContext<'_, L>, announcement: Announcement) -> Result<Unread, StreamBreach> {
    let Announcement { rkey, len } = announcement;
    if cx.config.zero_copy.is_none() {
        return Err(StreamBreach::Unasked);
    }
    if !(1..=MOST_PAYLOAD).contains(&len) {
        return Err(StreamBreach::Announcement(len));
    }
    Ok(Unread::Payload { rkey, len, left: len })
}

/// A copy of what lies in memory that the peer may write: looked at once, and checked afterwards.
#[inline]
fn read<const N: usize, L: Link>(cx: &StreamContext<'_, L>, region: MemoryRegion, at: usize) -> [u8; N] {
    let mut bytes = [0; N];
    let copied = cx.core.engine.read_region(cx.core.pd, region, at, &mut bytes);
    debug_assert!(copied.is_some(), "the place lies in the region");
    bytes
}
