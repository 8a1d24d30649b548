//! Headers with fields that dice chose among plausible ones.

use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use roci_driver::Rkey;
use roci_protocol::msg::{
    self, ActiveKind, AtomicOp, AtomicWidth, DATA_LEN, GetOnMiss, Header, Label, Message, Mode, RendezvousProtocol,
};

/// Bytes of the victim's segment.
pub(crate) const SEGMENT: u64 = 4096;

/// Where what the victim offers begins, and its bytes: so many buckets of a page.
pub(crate) const OFFER: u64 = 4096;
pub(crate) const OFFERED: usize = 64 * 4096;

/// What the hostile peer has seen, and says again in the wrong place.
pub(crate) struct Known {
    /// Names of operations, the victim's own.
    pub(crate) names: Vec<u64>,
    /// Names that it gave itself.
    pub(crate) own: u64,
    pub(crate) keys: Vec<Rkey>,
    /// The place of its next matched message.
    pub(crate) sequence: u16,
    /// A series that it has begun: its name, what came, what is left.
    pub(crate) series: Option<(u64, u64, u64)>,
    /// The name of the victim's handler on the wire.
    pub(crate) handler: u32,
}

impl Known {
    /// What the victim has said.
    pub(crate) fn learn(&mut self, header: &Header) {
        match header.message {
            Message::Eager { id, .. } | Message::Cancel { id } => self.names.push(id),
            Message::RequestToSend { id, rkey, .. } => {
                self.names.push(id);
                self.keys.push(rkey);
            }
            Message::ClearToSend { id, reply, rkey, .. } => {
                self.names.extend([id, reply]);
                self.keys.push(rkey);
            }
            Message::Get { id, rkey, into, .. } => {
                self.names.push(id);
                self.keys.push(rkey);
                self.keys.extend(into);
            }
            Message::Put { id, .. } => self.names.extend(id),
            Message::Atomic { id, .. } => self.names.push(id.into()),
            Message::Active { token, .. } => self.names.push(token.into()),
            _ => {}
        }
    }

    fn name(&self, dice: &mut StdRng) -> u64 {
        match dice.random_range(0..8) {
            0 => dice.random_range(0..4) << 32 | dice.random_range(0..4),
            1 => dice.random(),
            _ => self.names.choose(dice).copied().unwrap_or(1 << 32),
        }
    }

    fn own_name(&mut self, dice: &mut StdRng) -> u64 {
        // Sometimes one again that is in use.
        self.own += u64::from(dice.random_ratio(9, 10));
        self.own
    }

    /// A header, and how long a payload is to follow it; `room` is what a vbuf holds.
    pub(crate) fn header(&mut self, dice: &mut StdRng, room: usize) -> (Header, usize) {
        let (message, len) = self.message(dice, room);
        let is_matched = matches!(message, Message::Eager { .. } | Message::RequestToSend { .. });
        let sequence = if dice.random_ratio(1, 30) { dice.random() } else { self.sequence };
        self.sequence = self.sequence.wrapping_add(u16::from(is_matched));
        let credits = if dice.random_ratio(1, 40) { dice.random_range(1..100) } else { 0 };
        let queue = if dice.random_ratio(1, 40) { dice.random() } else { 0 };
        (Header { credits, queue, sequence, ..Header::new(message) }, len)
    }

    /// The first header of a SEND with several messages, and all that follows it.
    pub(crate) fn coalesced(&mut self, dice: &mut StdRng, room: usize) -> (Header, Vec<u8>) {
        let (mut first, mut behind) = (None, Vec::new());
        for is_last in [false, dice.random(), dice.random(), true] {
            // Relative to the end of the first header.
            let at = (behind.len() + msg::LEN).next_multiple_of(msg::ALIGN) - msg::LEN;
            let room = if first.is_none() { room } else { room.saturating_sub(at + msg::LEN) };
            let (header, len) = if dice.random_ratio(1, 20) {
                self.header(dice, room)
            } else {
                let (label, len) = (
                    Label { context: 0, tag: dice.random_range(0..3), data: None },
                    dice.random_range(0..=room.min(200)),
                );
                let mode = if dice.random_ratio(1, 10) { Mode::Synchronous } else { Mode::Standard };
                let message = Message::Eager { label, len: len as u64, id: self.own_name(dice), mode };
                self.sequence = self.sequence.wrapping_add(1);
                (Header { sequence: self.sequence.wrapping_sub(1), ..Header::new(message) }, len)
            };
            let says_more = is_last == dice.random_ratio(1, 30);
            let header = Header { has_more: says_more && matches!(header.message, Message::Eager { .. }), ..header };
            if first.is_none() {
                first = Some(header);
            } else {
                behind.resize(at + msg::LEN, 0);
                header.emit(&mut behind[at..]);
            }
            behind.resize(behind.len() + len, 7);
            if is_last {
                break;
            }
        }
        (first.expect("there is one"), behind)
    }

    fn message(&mut self, dice: &mut StdRng, room: usize) -> (Message, usize) {
        let label =
            Label { context: 0, tag: dice.random_range(0..3), data: dice.random_bool(0.3).then(|| dice.random()) };
        let mode = *[Mode::Standard, Mode::Synchronous, Mode::Ready].choose(dice).expect("some");
        let protocol =
            *[RendezvousProtocol::R3, RendezvousProtocol::Rget, RendezvousProtocol::Rput, RendezvousProtocol::Pipeline]
                .choose(dice)
                .expect("some");
        let rkey = self.keys.choose(dice).copied().unwrap_or(Rkey(dice.random()));
        let (id, reply, len) = (self.name(dice), self.name(dice), length(dice));
        match dice.random_range(0..130) {
            0..20 => {
                let len = dice.random_range(0..=room);
                (Message::Eager { label, len: len as u64, id: self.own_name(dice), mode }, len)
            }
            20..35 => self.begin(dice, room, label, mode),
            35..50 => self.go_on(dice, room),
            50..60 => {
                let address = dice.random_bool(0.3).then(|| dice.random());
                let behind = [label.data, address].iter().flatten().count() * DATA_LEN;
                (Message::RequestToSend { label, len, id: self.own_name(dice), protocol, rkey, address, mode }, behind)
            }
            60..68 => (Message::Cancel { id: self.own.saturating_sub(dice.random_range(0..4)) }, 0),
            68..76 => {
                (Message::ClearToSend { id, reply, protocol, rkey, va: dice.random_range(0..9), len: len as u32 }, 0)
            }
            76..82 => (Message::Data { reply, offset: dice.random_range(0..2) * len }, dice.random_range(0..=room)),
            82..85 => (Message::Written { reply, len }, 0),
            85..88 => (Message::Finished { id }, 0),
            88..91 => (Message::Matched { id }, 0),
            91..94 => (Message::Cancelled { id, is_withdrawn: dice.random() }, 0),
            94..99 => (Message::Credit, dice.random_range(0..2)),
            99 => (Message::Terms, dice.random_range(0..100)),
            _ => self.one_sided(dice, room),
        }
    }

    /// Puts, gets and atomics on the victim's memory, active messages, and answers to its own.
    fn one_sided(&self, dice: &mut StdRng, room: usize) -> (Message, usize) {
        // Mostly such a name as the victim gives: numbers from 0 on.
        let few = u64::from(dice.random_range(0_u32..4));
        let name = if dice.random_ratio(3, 4) { few } else { self.name(dice) };
        let rkey = self.keys.choose(dice).copied().unwrap_or(Rkey(dice.random()));
        let va = if dice.random_ratio(1, 8) { dice.random() } else { dice.random_range(0..SEGMENT) };
        let len = dice.random_range(0..=room);
        match dice.random_range(0..17) {
            14 => (Message::FindKey { key: few }, 0),
            15 => (Message::KeyFound { key: few, rkey: dice.random_bool(0.7).then_some(rkey) }, 0),
            16 => (Message::KeyGone { key: few }, 0),
            12.. => {
                let va = if dice.random_ratio(1, 4) { va } else { OFFER + va };
                let get = GetOnMiss { va, len: len as u32, id: name };
                (Message::Firehose { get: dice.random_bool(0.5).then_some(get) }, 0)
            }
            0 | 1 => (Message::Put { rkey, va, id: dice.random_bool(0.5).then_some(name) }, len),
            2 | 3 => {
                let into = dice.random_bool(0.5).then(|| Rkey(dice.random()));
                let len = if dice.random_ratio(1, 8) { dice.random() } else { dice.random_range(0..SEGMENT as u32) };
                (Message::Get { rkey, va, len, into, id: name }, 0)
            }
            4 => {
                let width = if dice.random() { AtomicWidth::U32 } else { AtomicWidth::U64 };
                (Message::Atomic { rkey, va, op: AtomicOp::Xor(dice.random()), width, id: name as u32 }, 0)
            }
            5 => (Message::Got { offset: if dice.random_ratio(3, 4) { 0 } else { va }, reply: name }, len),
            6 | 7 => (Message::Executed { reply: name, value: dice.random(), is_denied: dice.random() }, 0),
            _ => {
                let kind = *[
                    ActiveKind::OneWay,
                    ActiveKind::Request,
                    ActiveKind::Request,
                    ActiveKind::Reply,
                    ActiveKind::Unanswered,
                    ActiveKind::Long,
                ]
                .choose(dice)
                .expect("some");
                let is_answer = matches!(kind, ActiveKind::Reply | ActiveKind::Unanswered);
                let handler = match dice.random_range(0..4) {
                    _ if is_answer => name as u32,
                    0 => dice.random(),
                    _ => self.handler,
                };
                let arguments = [va, if dice.random_ratio(1, 4) { u64::MAX } else { 8 }, name];
                (Message::Active { kind, handler, token: rkey.0, arguments, count: dice.random_range(0..4) }, len)
            }
        }
    }

    /// What follows the header of a message about firehoses: mostly a request for buckets that there are, or an answer.
    pub(crate) fn firehoses(dice: &mut StdRng) -> Vec<u8> {
        let (kind, news, olds) = (dice.random_range(1..4_u8), dice.random_range(0..4_u16), dice.random_range(0..3_u16));
        let mut bytes = vec![kind, 1];
        bytes.extend(news.to_be_bytes());
        bytes.extend(if kind == 1 { olds } else { 0 }.to_be_bytes());
        bytes.extend([0; 2]);
        let id = if dice.random_ratio(3, 4) { dice.random_range(0..3) } else { dice.random::<u64>() };
        bytes.extend(id.to_be_bytes());
        for _ in 0..if kind == 1 { news + olds } else { 0 } {
            let first = if dice.random_ratio(1, 10) { dice.random() } else { dice.random_range(1..66_u64) };
            bytes.extend(first.to_be_bytes());
            bytes.extend(dice.random_range(1..4_u32).to_be_bytes());
        }
        if kind == 2 {
            bytes.resize(bytes.len() + 4 * usize::from(news), 7);
        }
        if dice.random_ratio(1, 10) {
            let at = dice.random_range(0..bytes.len());
            bytes[at] = dice.random();
        }
        bytes
    }

    /// The first vbuf of a series, mostly a full one.
    fn begin(&mut self, dice: &mut StdRng, room: usize, label: Label, mode: Mode) -> (Message, usize) {
        let (id, len) = (self.own_name(dice), room as u64 + length(dice));
        let first = if dice.random_ratio(1, 8) { dice.random_range(0..=room) } else { room };
        self.series = Some((id, first as u64, len));
        (Message::Eager { label, len, id, mode }, first)
    }

    /// More of a series, mostly as it should be.
    fn go_on(&mut self, dice: &mut StdRng, room: usize) -> (Message, usize) {
        let Some((id, arrived, len)) = self.series else { return (Message::Credit, 0) };
        let next = (len.saturating_sub(arrived) as usize).min(room);
        let next = if dice.random_ratio(1, 10) { dice.random_range(0..=room) } else { next };
        let offset = if dice.random_ratio(1, 20) { dice.random_range(0..=len) } else { arrived };
        self.series = (arrived + (next as u64) < len).then_some((id, arrived + next as u64, len));
        (Message::Fragment { offset, id }, next)
    }
}

fn length(dice: &mut StdRng) -> u64 {
    match dice.random_range(0..12) {
        0 => dice.random(),
        1 => dice.random_range(0..1 << 32),
        2 => 0,
        _ => dice.random_range(0..20_000),
    }
}
