//! SENDs as unreliable datagrams. What is lost is counted, and sent again only where a ping waits for it.

use std::collections::VecDeque;
use std::net::IpAddr;

use roci_driver::neighbour::Resolution;
use roci_driver::{AddressHandle, Buffer, DatagramQp, Destination, SendWr, WorkCompletion};
use roci_protocol::ud::GRH_LEN;
use roci_protocol::wire::MacAddr;
use roci_protocol::{Nanos, Qpn};

use super::PerfPlan;
use super::lane::{VerbsEnd, is_send};
use super::pattern::BytePattern;
use super::ping_clock::PingClock;
use super::report::Row;
use super::verbs::filled_buffers;
use crate::failure::{Failure, FailureContext};

/// A key that both sides know.
const QKEY: u32 = 0x1111_1111;
/// Receives that a side has posted: as many datagrams may come while it looks elsewhere.
const RECEIVES: usize = 128;
/// Ends of the datagrams' work requests and of the fabric's own.
const COMPLETIONS: usize = 1024;
/// A ping without an answer for so long is lost, and sent again.
const LOST_NS: Nanos = 100_000_000;
/// So many times in a row, and the peer is gone.
const MOST_TRIES: u32 = 50;
/// A network has so long to say which station the peer is.
const RESOLVE_NS: Nanos = 5_000_000_000;
/// What is on its way when the sender is done comes within this time after the last one.
const LATE_NS: Nanos = 50_000_000;

/// Half a round trip of a datagram.
pub(super) fn latency(lane: &mut VerbsEnd, plan: PerfPlan) -> Result<Option<Row>, Failure> {
    let mut side = DatagramEnd::open(lane, plan)?;
    let row = if side.lane.is_active() { Some(side.ping(plan)?) } else { side.pong(plan)? };
    side.close()?;
    Ok(row)
}

/// As many datagrams as the link takes, of which those count that arrive.
pub(super) fn bandwidth(lane: &mut VerbsEnd, plan: PerfPlan) -> Result<Option<Row>, Failure> {
    let mut side = DatagramEnd::open(lane, plan)?;
    let row = if side.lane.is_active() {
        let start = side.lane.now();
        for number in 0..plan.iters {
            side.send(number)?;
        }
        side.say_done()?;
        let elapsed = side.lane.now() - start;
        let arrived = side.lane.exchange_count(0)?;
        let wrong = side.lane.exchange_count(0)?;
        let row = Row::bandwidth(plan, elapsed, wrong).with_lost(plan.iters.saturating_sub(arrived));
        // What was lost on the way is no bandwidth.
        Some(row.with_share(arrived as f64 / plan.iters as f64))
    } else {
        let (arrived, wrong) = side.count(plan)?;
        side.lane.exchange_count(arrived)?;
        side.lane.exchange_count(wrong)?;
        None
    };
    side.close()?;
    Ok(row)
}

/// A datagram queue pair, and the peer's. The fabric's own queue pair, which loses nothing, says when a sender is done.
struct DatagramEnd<'a> {
    lane: &'a mut VerbsEnd,
    qp: DatagramQp,
    peer: (AddressHandle, Destination),
    pattern: BytePattern,
    verify: bool,
    free: Vec<Buffer>,
    /// Datagrams that came while a send waited for a buffer.
    arrived: VecDeque<WorkCompletion>,
    /// Sends that the link has not taken yet.
    under_way: usize,
    /// The peer has sent its last one.
    is_peer_done: bool,
}

impl<'a> DatagramEnd<'a> {
    fn open(lane: &'a mut VerbsEnd, plan: PerfPlan) -> Result<Self, Failure> {
        let (fabric, _) = lane.parts();
        fabric.engine.resize_cq(fabric.cq, COMPLETIONS);
        let qp = fabric.engine.create_datagram_qp((0, 0), fabric.cq, QKEY, RECEIVES).map_err(Failure::new)?;
        let theirs = lane.exchange(&format!("{} {}", qp.qpn().get(), lane.own_station()))?;
        let unreadable = "the peer's datagram address";
        let (qpn, station) = theirs.split_once(' ').ok_or_else(|| Failure::new(unreadable))?;
        let qpn = Qpn::new(qpn.parse().context(unreadable)?);
        let handle = address_handle(lane, station.parse().context(unreadable)?)?;
        let peer = (handle, Destination { qpn, qkey: QKEY });
        let pattern = BytePattern::new(plan.size);
        let free = filled_buffers(lane, &pattern, plan.size, plan.depth())?;
        let verify = plan.verify;
        let (arrived, under_way, is_peer_done) = (VecDeque::new(), 0, false);
        let mut side = Self { lane, qp, peer, pattern, verify, free, arrived, under_way, is_peer_done };
        for _ in 0..RECEIVES {
            let buffer = side.lane.buffer(GRH_LEN + plan.size)?;
            side.post_recv(buffer)?;
        }
        if !side.lane.is_active() {
            let word = side.lane.buffer(1)?;
            side.lane.post_recv(word)?;
        }
        side.lane.meet()?;
        Ok(side)
    }

    /// Ends the use of the queue pair, when neither side sends any more.
    fn close(self) -> Result<(), Failure> {
        self.lane.meet()?;
        let (fabric, _) = self.lane.parts();
        fabric.engine.destroy_datagram_qp(self.qp);
        fabric.engine.destroy_ah(self.peer.0);
        // Receives that are left, and datagrams that came too late.
        while fabric.engine.poll_cq(fabric.cq).is_some() {}
        Ok(())
    }

    fn ping(&mut self, plan: PerfPlan) -> Result<Row, Failure> {
        let mut lost = 0;
        let mut clock = PingClock::start(plan, self.lane.now());
        for number in clock.numbers() {
            lost += self.round_trip(number)?;
            clock.answered(number, self.lane.now());
        }
        self.say_done()?;
        let errors = self.lane.exchange_count(0)?;
        Ok(clock.row(errors).with_lost(lost))
    }

    /// Sends a message until it is answered rightly. Returns how often it was not.
    fn round_trip(&mut self, number: u64) -> Result<u64, Failure> {
        for lost in 0..MOST_TRIES {
            self.send(number)?;
            let sent = self.lane.now();
            while self.lane.now() - sent < LOST_NS {
                let Some(message) = self.receive()? else { continue };
                let is_right = !self.verify || self.pattern.matches(&message.buffer[GRH_LEN..message.len], number);
                self.post_recv(message.buffer)?;
                if is_right {
                    return Ok(lost.into());
                }
                // Where one was sent twice, an answer to it may come when it is not waited for any more.
            }
        }
        Err(Failure::new(format!("a datagram was lost {MOST_TRIES} times in a row: the peer is gone")))
    }

    /// Answers each message with the same, until the peer is done.
    fn pong(&mut self, plan: PerfPlan) -> Result<Option<Row>, Failure> {
        let (mut next, mut errors) = (0, 0);
        while !self.is_peer_done {
            let Some(message) = self.receive()? else { continue };
            let bytes = &message.buffer[GRH_LEN..message.len];
            // The one before, where its answer was lost.
            let is_again = next > 0 && self.pattern.matches(bytes, next - 1);
            errors += u64::from(plan.verify && !is_again && !self.pattern.matches(bytes, next));
            if !is_again {
                next += 1;
            }
            self.post_recv(message.buffer)?;
            self.send(next - 1)?;
        }
        self.lane.exchange_count(errors)?;
        Ok(None)
    }

    /// Receives until the peer is done, and nothing more is on its way. Returns how many messages came, and how many of
    /// them were wrong.
    fn count(&mut self, plan: PerfPlan) -> Result<(u64, u64), Failure> {
        let (mut arrived, mut wrong) = (0, 0);
        let mut last = self.lane.now();
        while !self.is_peer_done || self.lane.now() - last < LATE_NS {
            let Some(message) = self.receive()? else { continue };
            let bytes = &message.buffer[GRH_LEN..message.len];
            arrived += 1;
            wrong += u64::from(plan.verify && !self.pattern.matches(bytes, number_of(bytes)));
            self.post_recv(message.buffer)?;
            last = self.lane.now();
        }
        Ok((arrived, wrong))
    }

    fn send(&mut self, number: u64) -> Result<(), Failure> {
        let mut buffer = loop {
            if let Some(buffer) = self.free.pop() {
                break buffer;
            }
            if let Some(done) = self.lane.poll()? {
                let arrived = self.end(done);
                self.arrived.extend(arrived);
            }
        };
        BytePattern::stamp(&mut buffer, number);
        let (handle, to) = self.peer;
        let (fabric, _) = self.lane.parts();
        let posted = fabric.engine.post_datagram(self.qp, handle, to, SendWr::send(number, buffer));
        self.under_way += 1;
        posted?;
        Ok(())
    }

    fn say_done(&mut self) -> Result<(), Failure> {
        while self.under_way > 0 {
            self.receive()?;
        }
        let word = self.lane.buffer(1)?;
        self.lane.post_sends(std::iter::once(SendWr::send(0, word)))?;
        self.under_way += 1;
        while self.under_way > 0 {
            self.receive()?;
        }
        self.free.pop();
        Ok(())
    }

    fn post_recv(&mut self, buffer: Buffer) -> Result<(), Failure> {
        let (fabric, _) = self.lane.parts();
        let posted = fabric.engine.post_datagram_recv(self.qp, 0, buffer);
        Ok(posted?)
    }

    /// The next datagram, if there is one now.
    fn receive(&mut self) -> Result<Option<WorkCompletion>, Failure> {
        match self.arrived.pop_front() {
            Some(message) => Ok(Some(message)),
            None => Ok(self.lane.poll()?.and_then(|done| self.end(done))),
        }
    }

    /// Takes the end of a send, or the peer's last word. Returns a datagram.
    fn end(&mut self, done: WorkCompletion) -> Option<WorkCompletion> {
        if is_send(&done) {
            self.under_way -= 1;
            self.free.push(done.buffer);
            return None;
        }
        if done.qp == self.qp.queue_pair() {
            return Some(done);
        }
        self.is_peer_done = true;
        None
    }
}

/// The number in the first bytes of a message.
fn number_of(bytes: &[u8]) -> u64 {
    let mut number = [0; 8];
    let len = bytes.len().min(number.len());
    number[..len].copy_from_slice(&bytes[..len]);
    u64::from_le_bytes(number)
}

/// The way to the peer, whose port has that station address; beyond a gateway, to the gateway, which the network may have to be
/// asked for.
fn address_handle(lane: &mut VerbsEnd, station: MacAddr) -> Result<AddressHandle, Failure> {
    let peer = lane.peer_ip();
    let (fabric, _) = lane.parts();
    let is_direct = !fabric.is_on_network() || fabric.engine.is_on_link(0, 0, peer);
    let station = if is_direct { station } else { gateway_to(lane, peer)? };
    let (fabric, _) = lane.parts();
    let handle = fabric.engine.create_ah((0, 0), peer, station).map_err(Failure::new)?;
    // The peer may still ask.
    lane.meet()?;
    Ok(handle)
}

fn gateway_to(lane: &mut VerbsEnd, peer: IpAddr) -> Result<MacAddr, Failure> {
    let (fabric, _) = lane.parts();
    let begun = fabric.engine.now();
    loop {
        match fabric.engine.resolve(0, 0, peer) {
            Resolution::Known(station) => return Ok(station),
            Resolution::Unreachable(reason) => return Err(Failure::new(format!("{peer}: {reason}"))),
            Resolution::Pending if fabric.engine.now() - begun > RESOLVE_NS => {
                return Err(Failure::new(format!("no gateway says that it leads to {peer}")));
            }
            Resolution::Pending => fabric.engine.poll(),
        };
    }
}
