//! Bare frames on the same port: the limit that everything above is measured against.

use std::collections::VecDeque;

use roci_driver::link::{Batch, Full, Link, LinkState};
use roci_protocol::Nanos;

use super::PerfPlan;
use super::lane::VerbsEnd;
use super::ping_clock::PingClock;
use super::raw_header::RawHeader;
use super::report::Row;
use super::touch::TouchedPayload;
use crate::failure::Failure;

/// What follows the header: a kind and a number.
const TAG: usize = 9;
/// After this long without an answer a frame counts as lost.
const LOST_NS: Nanos = 100_000_000;
/// So long a side that is done answers questions: ten of them lost in a row are as good as a dead peer.
const LINGER_NS: Nanos = 500_000_000;
/// An end is asked for again this often.
const ASK_NS: Nanos = LINGER_NS / 10;
/// After this long without any sign the peer counts as gone.
const GONE_NS: Nanos = 10_000_000_000;

/// Polls that find nothing between two looks at the clock.
const LOOK_EVERY: u32 = 64;

/// After so many losses of one message in a row there is no peer.
const MOST_TRIES: u64 = 50;

const DATA: u8 = 1;
/// Of a message in several frames, any but the last.
const PART: u8 = 4;
const END: u8 = 2;
const REPORT: u8 = 3;
const BYE: u8 = 5;

/// Half a round trip of one message: a frame, or several where one does not hold it. One that seems lost is sent again;
/// an error is one whose answer has not come at the end: a peer that was not running for a while answers all of them.
pub(super) fn latency(lane: &mut VerbsEnd, plan: PerfPlan) -> Result<Option<Row>, Failure> {
    lane.meet_in_silence()?;
    let mut port = RawPort::new(lane, plan);
    let row = if port.lane.is_active() {
        Some(ping(&mut port, plan)?)
    } else {
        port.pong()?;
        None
    };
    lane.meet_in_silence()?;
    Ok(row)
}

fn ping(port: &mut RawPort<'_>, plan: PerfPlan) -> Result<Row, Failure> {
    let mut sent = 0;
    let mut clock = PingClock::start(plan, port.lane.now());
    for number in clock.numbers() {
        port.send_message(number)?;
        let mut tries = 0;
        while !port.wait_for(DATA, number)? {
            tries += 1;
            if tries == MOST_TRIES {
                let frames = port.parts + 1;
                let what = format!("{MOST_TRIES} times in a row a message of {frames} frames did not come back whole");
                return Err(Failure::new(format!("{what}: the port drops frames, or the peer is gone")));
            }
            port.send_message(number)?;
        }
        sent += 1 + tries;
        clock.answered(number, port.lane.now());
    }
    // The peer's last word comes behind all of its answers.
    port.finish()?;
    Ok(clock.row(sent.saturating_sub(port.messages)))
}

/// As many frames as the port takes, of which those count that arrive; a message longer than a frame is several.
pub(super) fn bandwidth(lane: &mut VerbsEnd, plan: PerfPlan) -> Result<Option<Row>, Failure> {
    lane.meet_in_silence()?;
    let mut port = RawPort::new(lane, plan);
    let row = if port.lane.is_active() {
        let start = port.lane.now();
        for number in 0..plan.iters {
            port.send_message_unflushed(number)?;
        }
        let sent = plan.iters * (port.parts as u64 + 1);
        let arrived = port.finish()?;
        let row = Row::bandwidth(plan, port.lane.now() - start, sent.saturating_sub(arrived));
        // What was lost on the way is no bandwidth.
        Some(row.with_share(arrived as f64 / sent as f64))
    } else {
        port.count()?;
        None
    };
    lane.meet_in_silence()?;
    Ok(row)
}

/// A port that sends and receives bare frames.
struct RawPort<'a> {
    lane: &'a mut VerbsEnd,
    header: RawHeader,
    /// A message is this many full frames, and one more of `last_len` bytes.
    parts: usize,
    full_len: usize,
    last_len: usize,
    batch: Batch<<roci_msgcore::LiveLink as Link>::Frame>,
    idle_polls: u32,
    /// Messages that have come whole, and the number of the last one.
    messages: u64,
    latest: u64,
    /// Other frames of ours that came while the port was full.
    kept: VecDeque<(u8, u64)>,
    /// `None` where payload is left alone.
    payload: Option<TouchedPayload>,
}

impl<'a> RawPort<'a> {
    fn new(lane: &'a mut VerbsEnd, PerfPlan { size, touch, .. }: PerfPlan) -> Self {
        let (header, full_len) = (lane.raw_header(), lane.max_frame());
        let (front, full) = (header.len(), full_len - header.len());
        let parts = size.saturating_sub(1) / full;
        let last_len = header.frame_len((size - parts * full).max(TAG));
        let header = header.prepared_for([full_len, last_len]);
        let payload = touch.then(|| TouchedPayload::new(parts, full, last_len - front));
        Self {
            lane,
            header,
            parts,
            full_len,
            last_len,
            batch: Batch::new(),
            idle_polls: 0,
            messages: 0,
            latest: 0,
            kept: VecDeque::new(),
            payload,
        }
    }

    /// Queues a frame, the one at index `part` of its message, waiting while the link is full, and taking what comes meanwhile: both ends
    /// may send, where one takes a message for lost. Beyond the number, the payload is only touched on request.
    #[inline]
    fn send_part(&mut self, kind: u8, number: u64, len: usize, part: usize) -> Result<(), Failure> {
        let header = self.header;
        let mut since = None;
        loop {
            let payload = self.payload.as_ref().filter(|_| matches!(kind, DATA | PART));
            let link = self.lane.link();
            let sent = link.transmit(len, |frame| {
                header.write(frame);
                let body = &mut frame[header.len()..];
                if let Some(payload) = payload {
                    payload.write(part, body);
                }
                body[0] = kind;
                body[1..TAG].copy_from_slice(&number.to_le_bytes());
            });
            let Err(Full) = sent else { return Ok(()) };
            link.flush();
            self.take_in();
            self.check_up(&mut since)?;
        }
    }

    /// Takes what has come, and keeps what is no message.
    fn take_in(&mut self) {
        self.lane.link().receive(&mut self.batch);
        for frame in self.batch.drain(..) {
            match take(&self.header, &mut self.payload, frame.as_ref()) {
                Some((DATA, number)) => {
                    self.messages += 1;
                    self.latest = number;
                }
                Some((PART, _)) | None => {}
                Some(word) => self.kept.push_back(word),
            }
        }
    }

    /// Sends a frame that is no message.
    #[inline]
    fn send(&mut self, kind: u8, number: u64, len: usize) -> Result<(), Failure> {
        self.send_part(kind, number, len, 0)?;
        self.lane.link().flush();
        Ok(())
    }

    #[inline]
    fn send_message_unflushed(&mut self, number: u64) -> Result<(), Failure> {
        for part in 0..self.parts {
            self.send_part(PART, number, self.full_len, part)?;
        }
        self.send_part(DATA, number, self.last_len, self.parts)
    }

    #[inline]
    fn send_message(&mut self, number: u64) -> Result<(), Failure> {
        self.send_message_unflushed(number)?;
        self.lane.link().flush();
        Ok(())
    }

    /// The peer is there, and something has happened since not too long ago.
    #[inline]
    fn check_up(&mut self, since: &mut Option<Nanos>) -> Result<Nanos, Failure> {
        // The limit is what the port can do, not what looking at clocks costs.
        self.idle_polls = self.idle_polls.wrapping_add(1);
        if !self.idle_polls.is_multiple_of(LOOK_EVERY) {
            return Ok(0);
        }
        let now = self.lane.now();
        let start = *since.get_or_insert(now);
        if self.lane.link().maintain(now) == LinkState::Down || now - start > GONE_NS {
            return Err(Failure::new("the peer is gone"));
        }
        Ok(now - start)
    }

    /// Waits for a frame of this kind and number; `false` where it seems lost.
    #[inline]
    fn wait_for(&mut self, kind: u8, number: u64) -> Result<bool, Failure> {
        let mut since = None;
        loop {
            self.lane.link().receive(&mut self.batch);
            let (header, payload, messages) = (&self.header, &mut self.payload, &mut self.messages);
            let mut is_found = false;
            for frame in self.batch.drain(..) {
                let word = take(header, payload, frame.as_ref());
                *messages += u64::from(matches!(word, Some((DATA, _))));
                is_found |= word == Some((kind, number));
            }
            if is_found {
                return Ok(true);
            }
            if self.check_up(&mut since)? > LOST_NS {
                return Ok(false);
            }
        }
    }

    /// Answers every message with its like, until the peer sends END. Of several messages that have come at once the peer
    /// has taken all but the last for lost: it ignores the numbers of their answers.
    fn pong(&mut self) -> Result<(), Failure> {
        let mut since = None;
        loop {
            let mut answered = self.messages;
            let Some((kind, number)) = self.receive_one() else {
                self.check_up(&mut since)?;
                continue;
            };
            since = None;
            if kind == DATA {
                self.latest = number;
            }
            while answered < self.messages {
                self.send_message(self.latest)?;
                answered += 1;
            }
            if kind == END {
                return self.report(0);
            }
        }
    }

    /// Counts frames until the peer sends END, and reports the count.
    fn count(&mut self) -> Result<(), Failure> {
        let (mut arrived, mut since, mut ended) = (0u64, None, false);
        while !ended {
            self.lane.link().receive(&mut self.batch);
            if self.batch.is_empty() {
                self.check_up(&mut since)?;
                continue;
            }
            since = None;
            for frame in self.batch.drain(..) {
                match take(&self.header, &mut self.payload, frame.as_ref()) {
                    Some((DATA | PART, _)) => arrived += 1,
                    Some((END, _)) => ended = true,
                    _ => {}
                }
            }
            let now = self.lane.now();
            self.lane.link().maintain(now);
        }
        self.report(arrived)
    }

    /// Sends the count of frames to the peer, as often as it asks: a report may be lost.
    fn report(&mut self, arrived: u64) -> Result<(), Failure> {
        self.send(REPORT, arrived, self.header.shortest())?;
        let mut quiet = None;
        while self.check_up(&mut quiet)? < LINGER_NS {
            match self.receive_one() {
                Some((BYE, _)) => break,
                Some((END, _)) => {
                    quiet = None;
                    self.send(REPORT, arrived, self.header.shortest())?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Sends END to the peer, and returns how many frames arrived there.
    fn finish(&mut self) -> Result<u64, Failure> {
        let mut since = None;
        loop {
            self.send(END, 0, self.header.shortest())?;
            let asked = self.lane.now();
            while self.lane.now() - asked < ASK_NS {
                if let Some((REPORT, arrived)) = self.receive_one() {
                    // If this is lost, the peer only lingers a little.
                    self.send(BYE, 0, self.header.shortest())?;
                    return Ok(arrived);
                }
                self.check_up(&mut since)?;
            }
        }
    }

    /// One frame of ours, if one has come.
    #[inline]
    fn receive_one(&mut self) -> Option<(u8, u64)> {
        if let Some(word) = self.kept.pop_front() {
            return Some(word);
        }
        self.lane.link().receive(&mut self.batch);
        let (header, payload, messages) = (&self.header, &mut self.payload, &mut self.messages);
        let words = self.batch.drain(..).filter_map(|frame| take(header, payload, frame.as_ref()));
        words.inspect(|(kind, _)| *messages += u64::from(*kind == DATA)).last()
    }
}

/// The frame's kind and number, its payload read where it is to be touched.
#[inline]
fn take(header: &RawHeader, payload: &mut Option<TouchedPayload>, frame: &[u8]) -> Option<(u8, u64)> {
    let body = header.behind(frame)?;
    let &[kind, number @ ..] = body.first_chunk::<TAG>()?;
    if let Some(payload) = payload
        && matches!(kind, DATA | PART)
    {
        payload.read(body, kind == DATA);
    }
    Some((kind, u64::from_le_bytes(number)))
}
