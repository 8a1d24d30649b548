//! Byte streams: a stream of bytes to each peer and one back, over RDMA WRITEs into a ring at the receiver.
//!
//! This is the design that MPICH2 had over InfiniBand (Liu et al., IPDPS 2004), beside the tagged messages and not below
//! them. Put and get take and give as many bytes as they can now and never wait. Each step of that design is a switch of
//! [`StreamConfig`]:
//!
//! - *Basic.* The receiver has a ring in registered memory, the sender a staging ring of the same size. A put
//!   compares head and its replica of the tail, copies into the staging ring, and WRITEs the data, then the head. A
//!   get copies out of the ring and WRITEs the tail back.
//! - *Piggyback.* The ring is cut into chunks, each of which begins with a header: length, and the tail of the other
//!   direction. One WRITE brings data and news of it. A tail is reported by itself only when enough of the ring is free.
//! - *Pipelining.* A long put is cut into pieces, and each is sent as soon as it is copied, while the next is copied.
//! - *Zero-copy.* A long [`StreamPayload`] stays where it is. Its announcement goes through the ring, the receiver READs
//!   it straight into the buffer of its get, and the tail that passes the announcement says so to the sender: only then
//!   does the put return, with the whole length.
//!
//! # No flag in memory is ever polled
//! The original polls memory: the head's word, and flags at the start and the end of each chunk. That rests on
//! hardware that writes a message from its first byte to its last, and IBTA does not promise that: the order in
//! which the bytes of a WRITE become visible is not defined before it has completed at the responder. A responder that
//! keeps early packets, as selective repeat does, might place the end of a WRITE, flag and all, before a lost
//! packet of its middle. A port of the design that keeps the polling has a race that no test over a good wire shows.
//!
//! Here all news comes by completion: of a WRITE with immediate data, whose completion at the receiver comes in the order of
//! PSNs, after everything before it was executed, in both dialects. The immediate data says how far head or tail has moved;
//! the words in memory are there as in the original, and are compared with it. A word may be newer than the news that is
//! looked at, because a later WRITE was executed in the same poll: then the news counts, not the word.
//!
//! # Opening
//! An end makes its rings when it is first used, and offers them to the peer in a message ([`wire::StreamOffer`]). It
//! writes once its own offer has left and the peer's has come; both travel on the first lane, as all that follows does, so
//! they come first.
//!
//! # Flow control
//! A WRITE with immediate data uses up a receive of the peer's and costs a credit, as a control message does. The peer posts
//! that receive again at once, so the credit always comes back. At most 64 such WRITEs of a stream are
//! unacknowledged.
//!
//! # Hostile peers
//! A peer can write nonsense into the ring and the words, and nothing else. Whatever is read of them is copied
//! once and then checked; nonsense ends the connection with a
//! [`StreamBreach`], by name.

mod config;
mod end;
mod error;
mod get;
mod news;
mod payload;
mod put;
mod stats;
mod wire;

pub use config::{BadStreamConfig, StreamConfig, StreamStep};
pub use error::StreamError;
pub use payload::StreamPayload;
pub use stats::StreamStats;

use roci_driver::link::Link;
use roci_driver::{Buffer, WorkCompletion};
use roci_protocol::msg::{Header, Message};

use self::config::Sizes;
use self::end::{StreamContext, StreamEnd, StreamWork};
use self::payload::Payloads;
use self::wire::StreamOffer;
use crate::core::Core;
use crate::core::breach::{Breach, StreamBreach};
use crate::core::completion::OpError;
use crate::core::peer::{Peer, PeerId};

/// The streams of one end of all conversations.
pub(crate) struct StreamService {
    config: StreamConfig,
    sizes: Sizes,
    /// By peer; as long as the highest peer needs it.
    streams: Vec<PeerStreams>,
    payloads: Payloads,
    stats: StreamStats,
}

/// The two ends of the streams with one peer.
#[derive(Default)]
struct PeerStreams {
    /// The peer's, once it has offered it.
    theirs: Option<StreamOffer>,
    /// This end's, once it is used.
    ours: Option<Box<StreamEnd>>,
}

impl Default for StreamService {
    fn default() -> Self {
        let config = StreamConfig::default();
        let (sizes, payloads) = (config.sizes(), Payloads::new(config.registrations));
        Self { config, sizes, streams: Vec::new(), payloads, stats: StreamStats::default() }
    }
}

impl StreamService {
    /// Replaces the configuration.
    ///
    /// # Errors
    /// It is wrong, or something uses the one that was.
    pub(crate) fn configure(&mut self, config: StreamConfig) -> Result<(), StreamError> {
        config.check()?;
        if !self.payloads.is_empty() || self.streams.iter().any(|streams| streams.ours.is_some()) {
            return Err(StreamError::ConfigInUse);
        }
        (self.config, self.sizes, self.payloads) = (config, config.sizes(), Payloads::new(config.registrations));
        Ok(())
    }

    /// Makes this end of the streams with a peer, where there is none, and has it offered.
    ///
    /// # Errors
    /// The peer has failed, or there is no memory.
    pub(crate) fn open<L: Link>(&mut self, core: &mut Core<L>, peer: &mut Peer) -> Result<(), StreamError> {
        if self.end(peer.id).is_some() {
            return Ok(());
        }
        if let Some(failure) = &peer.failure {
            return Err(failure.clone().into());
        }
        let mut end = Box::new(StreamEnd::new(core, &self.config, &self.sizes)?);
        let config = self.config;
        let streams = self.streams_with(peer.id);
        if let Some(offer) = streams.theirs {
            end.accept(peer.id, offer, &config);
        }
        streams.ours = Some(end);
        peer.tx.stream_waits = true;
        Ok(())
    }

    /// Whether this end of the streams with a peer is made.
    #[inline]
    pub(crate) fn is_opened(&self, peer: PeerId) -> bool {
        self.end(peer).is_some()
    }

    /// Whether puts to a peer can take something.
    ///
    /// # Errors
    /// The stream has failed.
    pub(crate) fn is_open(&self, peer: PeerId) -> Result<bool, StreamError> {
        let Some(end) = self.end(peer) else { return Ok(false) };
        end.failure.clone().map_or(Ok(end.is_open()), Err)
    }

    /// Whether everything that was put to a peer is in its memory.
    ///
    /// # Errors
    /// The stream has failed.
    pub(crate) fn is_flushed(&self, peer: PeerId) -> Result<bool, StreamError> {
        let Some(end) = self.end(peer) else { return Ok(false) };
        end.failure.clone().map_or(Ok(end.is_flushed()), Err)
    }

    /// Takes a buffer in, to be put without a copy. All of it is the payload.
    pub(crate) fn adopt(&mut self, buffer: Buffer) -> Result<StreamPayload, StreamError> {
        self.payloads.adopt(buffer)
    }

    /// Writes to a payload that is not being put; it stays registered if it was.
    pub(crate) fn write_payload<L: Link>(
        &mut self,
        core: &mut Core<L>,
        (payload, offset): (StreamPayload, usize),
        bytes: &[u8],
    ) -> Result<(), StreamError> {
        self.payloads.write(payload, offset, bytes, core)
    }

    /// Gives a payload's memory back, which no peer can read from here on.
    pub(crate) fn release_payload<L: Link>(
        &mut self,
        core: &mut Core<L>,
        payload: StreamPayload,
    ) -> Result<Buffer, StreamError> {
        self.payloads.release(payload, core)
    }

    /// Returns how many payloads are being put and have not been read.
    pub(crate) fn payloads_under_way(&self) -> usize {
        self.ends().filter(|end| end.failure.is_none() && end.tx.payload.is_some()).count()
    }

    /// Returns the slots of the peers with whom there is a stream that has not failed.
    pub(crate) fn slots(&self) -> impl Iterator<Item = usize> {
        let live = |streams: &PeerStreams| streams.ours.as_ref().is_some_and(|end| end.failure.is_none());
        self.streams.iter().enumerate().filter(move |(_, streams)| live(streams)).map(|(slot, _)| slot)
    }

    /// Returns the counters.
    pub(crate) fn stats(&self) -> StreamStats {
        self.stats
    }

    /// Whether what is known of all rings fits them.
    pub(crate) fn is_sound(&self) -> bool {
        self.ends().filter(|end| end.failure.is_none()).all(|end| end.is_sound(&self.sizes))
    }

    /// Sends what had no room before: the offer of this end, and a tail.
    pub(crate) fn go_on<L: Link>(&mut self, core: &mut Core<L>, peer: &mut Peer) {
        peer.tx.stream_waits = false;
        if self.end(peer.id).is_none() {
            return;
        }
        let (mut cx, end, _) = self.parts(core, peer);
        if !(cx.core.terms.capabilities.rdma && cx.peer.connection.capabilities.rdma) {
            end.failure.get_or_insert(StreamError::NoRdma(cx.peer.id));
            return;
        }
        if !end.is_offered {
            let is_admitted = cx.peer.lanes[0].admits_control();
            if !cx.core.has_send_room(cx.peer, 0, 1, is_admitted) {
                cx.peer.tx.stream_waits = true;
                return;
            }
            cx.core.post_vbuf(cx.peer, 0, Header::new(Message::StreamOffer), &end.offer(cx.config).emit());
            end.is_offered = true;
        }
        if end.rx.is_due {
            end.report_tail(&mut cx, true);
        }
    }

    /// A peer has offered its end.
    ///
    /// # Errors
    /// It is no offer, or not the first one.
    pub(crate) fn on_offer(&mut self, peer: &Peer, bytes: &[u8]) -> Result<(), Breach> {
        let config = self.config;
        let streams = self.streams_with(peer.id);
        let offer = StreamOffer::parse(bytes).filter(|_| streams.theirs.is_none()).ok_or(StreamBreach::Offer)?;
        streams.theirs = Some(offer);
        if let Some(end) = &mut streams.ours {
            end.accept(peer.id, offer, &config);
        }
        Ok(())
    }

    /// A peer has written `written` bytes with immediate data.
    ///
    /// # Errors
    /// It may not, or what it wrote does not fit.
    pub(crate) fn on_write<L: Link>(
        &mut self,
        core: &mut Core<L>,
        peer: &mut Peer,
        (immediate, written): (u32, usize),
    ) -> Result<(), Breach> {
        if self.end(peer.id).is_none() {
            return Err(Breach::UnaskedWrite);
        }
        let (mut cx, end, _) = self.parts(core, peer);
        if end.keys.is_none() {
            return Err(StreamBreach::EarlyNews.into());
        }
        Ok(end.on_news(&mut cx, immediate, written)?)
    }

    /// A READ or WRITE is over, well or not; returns it where it is another service's.
    #[inline]
    pub(crate) fn on_work_done<L: Link>(
        &mut self,
        core: &mut Core<L>,
        peer: &mut Peer,
        done: WorkCompletion,
    ) -> Option<WorkCompletion> {
        let Some(work) = StreamWork::of(done.wr_id) else { return Some(done) };
        let (mut cx, end, _) = self.parts(core, peer);
        end.on_work_done(&mut cx, work, done.buffer, done.status.is_success());
        None
    }

    /// A peer is gone. What had come can still be got; buffers that are under way come back with their completions.
    pub(crate) fn on_peer_down<L: Link>(&mut self, core: &mut Core<L>, peer: PeerId, error: &OpError) {
        let Some(streams) = self.streams.get_mut(peer.slot()) else { return };
        let Some(end) = &mut streams.ours else { return };
        end.failure.get_or_insert_with(|| error.clone().into());
        if let Some(put) = end.tx.payload.take() {
            self.payloads.end_put(put.payload);
            self.payloads.revoke(put.payload, core);
        }
    }

    /// Forgets the streams with a peer that has given its slot up, and closes their memory to peers.
    pub(crate) fn forget<L: Link>(&mut self, core: &mut Core<L>, peer: PeerId) {
        let Some(streams) = self.streams.get_mut(peer.slot()).map(std::mem::take) else { return };
        if let Some(end) = streams.ours {
            for region in [end.rx.ring, end.rx.words] {
                drop(core.engine.deregister(region));
            }
        }
    }

    fn end(&self, peer: PeerId) -> Option<&StreamEnd> {
        self.streams.get(peer.slot())?.ours.as_deref()
    }

    fn ends(&self) -> impl Iterator<Item = &StreamEnd> {
        self.streams.iter().filter_map(|streams| streams.ours.as_deref())
    }

    fn streams_with(&mut self, peer: PeerId) -> &mut PeerStreams {
        if self.streams.len() <= peer.slot() {
            self.streams.resize_with(peer.slot() + 1, PeerStreams::default);
        }
        &mut self.streams[peer.slot()]
    }

    /// Returns this end of the streams with a peer, which is open, and what it works with.
    #[inline]
    fn parts<'a, L: Link>(
        &'a mut self,
        core: &'a mut Core<L>,
        peer: &'a mut Peer,
    ) -> (StreamContext<'a, L>, &'a mut StreamEnd, &'a mut Payloads) {
        let Self { config, sizes, streams, payloads, stats } = self;
        let end = streams.get_mut(peer.id.slot()).and_then(|streams| streams.ours.as_deref_mut());
        let end = end.expect("a stream is opened before it is used");
        (StreamContext { core, peer, config, sizes, stats }, end, payloads)
    }

    /// The same of an end that has not failed.
    #[inline]
    fn live_parts<'a, L: Link>(
        &'a mut self,
        core: &'a mut Core<L>,
        peer: &'a mut Peer,
    ) -> Result<(StreamContext<'a, L>, &'a mut StreamEnd, &'a mut Payloads), StreamError> {
        let (cx, end, payloads) = self.parts(core, peer);
        match &end.failure {
            Some(failure) => Err(failure.clone()),
            None => Ok((cx, end, payloads)),
        }
    }
}
