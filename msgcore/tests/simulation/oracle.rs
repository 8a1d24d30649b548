//! The oracle: it knows every message and every receive, and what must hold between them.
//!
//! Which message a receive with wildcards meets depends on time, so it predicts nothing. It verifies: every message is
//! received once, whole, unless its send was cancelled, and then never; and of one sender, context and tag, a receive
//! that was posted earlier meets a message that was sent earlier. Of messages from and to a rank that has died some may be
//! missing; those that came keep to the same rules.

use std::collections::BTreeMap;
use std::fmt;

use roci_msgcore::{Context, Rank, Tag};

/// Bytes in which a payload says which message it is.
const NAME: usize = 8;

/// What decides which messages may not overtake each other: sender, receiver, context, tag.
pub(crate) type Key = (Rank, Rank, Context, Tag);

#[derive(Debug)]
struct Sent {
    key: Key,
    len: usize,
    is_received: bool,
    is_cancelled: bool,
    has_ended: bool,
}

/// What a receive got.
#[derive(Debug)]
enum Got {
    /// This message.
    Named(usize),
    /// One that is too short to say which.
    Short(Vec<u8>),
    /// One of this length, which did not fit.
    Truncated(usize),
}

impl Got {
    fn name(&self) -> Option<usize> {
        if let Self::Named(name) = self { Some(*name) } else { None }
    }
}

#[derive(Default, Debug)]
pub(crate) struct Oracle {
    seed: u64,
    sent: Vec<Sent>,
    /// By key, what was received, with the places of the receives in the order of posting: several at that of a multi-receive.
    received: BTreeMap<Key, Vec<(u64, Got)>>,
    posted: u64,
    dead: Option<Rank>,
}

impl Oracle {
    pub(crate) fn new(seed: u64) -> Self {
        Self { seed, ..Self::default() }
    }

    /// A rank has died.
    pub(crate) fn bury(&mut self, rank: Rank) {
        self.dead = Some(rank);
    }

    pub(crate) fn dead(&self) -> Option<Rank> {
        self.dead
    }

    pub(crate) fn is_alive(&self, rank: Rank) -> bool {
        self.dead != Some(rank)
    }

    /// Whether both ends are there to keep what a message promises.
    fn binds(&self, &(from, to, ..): &Key) -> bool {
        self.is_alive(from) && self.is_alive(to)
    }

    /// A message is to be sent: its number.
    pub(crate) fn send(&mut self, key: Key, len: usize) -> usize {
        self.sent.push(Sent { key, len, is_received: false, is_cancelled: false, has_ended: false });
        self.sent.len() - 1
    }

    /// The message that was announced last was refused.
    pub(crate) fn forget_last(&mut self) {
        self.sent.pop();
    }

    /// Bytes of a message.
    pub(crate) fn fill(&self, message: usize, bytes: &mut [u8]) {
        for (word, chunk) in (0u64..).zip(bytes.chunks_mut(NAME)) {
            let value = if word == 0 { message as u64 } else { mix(self.seed ^ (message as u64) << 32 ^ word) };
            // What is too short for a name is as random as the rest.
            let value = if chunk.len() < NAME { mix(value ^ self.seed ^ message as u64) } else { value };
            chunk.copy_from_slice(&value.to_le_bytes()[..chunk.len()]);
        }
    }

    /// A send is over.
    pub(crate) fn end_send(&mut self, message: usize, is_cancelled: bool) -> Result<(), Violation> {
        let sent = &mut self.sent[message];
        ensure(!std::mem::replace(&mut sent.has_ended, true), || format!("send {message} ended twice"))?;
        ensure(!(is_cancelled && sent.is_received), || format!("message {message} was received, and then cancelled"))?;
        sent.is_cancelled = is_cancelled;
        Ok(())
    }

    /// A send has failed, which only one to the dead may.
    pub(crate) fn fail_send(&mut self, message: usize) -> Result<(), Violation> {
        let key = self.sent[message].key;
        ensure(!self.binds(&key), || format!("message {message} failed between two that live"))?;
        self.end_send(message, false)
    }

    /// A receive is posted: its place in the order.
    pub(crate) fn post(&mut self) -> u64 {
        self.posted += 1;
        self.posted
    }

    /// A receive met a message under this key.
    pub(crate) fn receive(&mut self, place: u64, key: Key, bytes: &[u8]) -> Result<(), Violation> {
        let got = match bytes.first_chunk::<NAME>() {
            Some(name) => Got::Named(self.check_named(u64::from_le_bytes(*name) as usize, key, bytes)?),
            None => Got::Short(bytes.to_vec()),
        };
        self.note(place, key, got);
        Ok(())
    }

    /// A receive met a message of `len` bytes that did not fit.
    pub(crate) fn truncate(&mut self, place: u64, key: Key, len: usize) {
        self.note(place, key, Got::Truncated(len));
    }

    fn note(&mut self, place: u64, key: Key, got: Got) {
        self.received.entry(key).or_default().push((place, got));
    }

    fn check_named(&mut self, message: usize, key: Key, bytes: &[u8]) -> Result<usize, Violation> {
        let sent = self.sent.get(message).ok_or_else(|| format!("message {message} was never sent"))?;
        let is_it = sent.key == key && sent.len == bytes.len();
        ensure(is_it, || format!("{sent:?} came under {key:?} with {} bytes", bytes.len()))?;
        ensure(!sent.is_received, || format!("message {message} was received twice: {sent:?}"))?;
        ensure(!sent.is_cancelled, || format!("message {message} was cancelled, and then received: {sent:?}"))?;
        self.check_bytes(message, bytes)?;
        self.sent[message].is_received = true;
        Ok(message)
    }

    fn check_bytes(&self, message: usize, bytes: &[u8]) -> Result<(), Violation> {
        let mut expected = vec![0; bytes.len()];
        self.fill(message, &mut expected);
        ensure(expected == bytes, || format!("the bytes of message {message} differ: {:?}", self.sent[message]))
    }

    /// Whether every send is over, and every message received that was not cancelled.
    pub(crate) fn is_complete(&self) -> bool {
        let (sent, received, cancelled) = self.counts();
        received + cancelled == sent && self.sent.iter().all(|sent| sent.has_ended || !self.is_alive(sent.key.0))
    }

    /// Whether every message under this tag was received, if it was not cancelled.
    pub(crate) fn is_complete_under(&self, tag: Tag) -> bool {
        let (sent, received, cancelled) = self.counts_where(|key| key.3 == tag);
        received + cancelled == sent
    }

    /// Messages that were sent, received and cancelled between those that live.
    fn counts(&self) -> (usize, usize, usize) {
        self.counts_where(|_| true)
    }

    fn counts_where(&self, is_it: impl Fn(&Key) -> bool) -> (usize, usize, usize) {
        let counts = |key: &Key| self.binds(key) && is_it(key);
        let sent = || self.sent.iter().filter(|sent| counts(&sent.key));
        let received = self.received.iter().filter(|(key, _)| counts(key)).map(|(_, got)| got.len()).sum();
        (sent().count(), received, sent().filter(|sent| sent.is_cancelled).count())
    }

    /// What is missing, for a failure's message.
    pub(crate) fn missing(&self) -> String {
        let unended: Vec<_> = self.sent.iter().enumerate().filter(|(_, sent)| !sent.has_ended).take(5).collect();
        let (sent, received, cancelled) = self.counts();
        let is_lost = |sent: &Sent| !sent.is_received && !sent.is_cancelled && sent.len >= NAME;
        let lost: Vec<_> = self.sent.iter().enumerate().filter(|(_, sent)| is_lost(sent)).take(5).collect();
        format!("{sent} sent, {received} received, {cancelled} cancelled; unended {unended:?}; not received {lost:?}")
    }

    /// Verifies the order of all that was received.
    pub(crate) fn check_order(&mut self) -> Result<(), Violation> {
        for receives in self.received.values_mut() {
            receives.sort_by_key(|(place, got)| (*place, got.name()));
        }
        let mut sent: BTreeMap<Key, Vec<usize>> = BTreeMap::new();
        for (message, record) in self.sent.iter().enumerate().filter(|(_, record)| !record.is_cancelled) {
            sent.entry(record.key).or_default().push(message);
        }
        for (key, receives) in &self.received {
            let messages = sent.remove(key).unwrap_or_default();
            if !self.binds(key) {
                Self::check_rising(receives)?;
                continue;
            }
            let (got, expected) = (receives.len(), messages.len());
            ensure(got == expected, || format!("{expected} messages under {key:?}, {got} received"))?;
            let mut messages = messages.into_iter();
            for of_one in receives.chunk_by(|(one, _), (other, _)| one == other) {
                let met = messages.by_ref().take(of_one.len());
                self.check_places(of_one.iter().map(|(_, got)| got).collect(), met)?;
            }
        }
        sent.retain(|key, _| self.binds(key));
        ensure(sent.is_empty(), || format!("never received: {:?}", sent.keys()))
    }

    /// Of the messages that came none had overtaken another.
    fn check_rising(receives: &[(u64, Got)]) -> Result<(), Violation> {
        let names: Vec<_> = receives.iter().filter_map(|(_, got)| got.name()).collect();
        ensure(names.is_sorted(), || format!("they came in the order {names:?}"))
    }

    /// One receive took these messages, of which any may have arrived first. What was too long fits any message of its length,
    /// so it comes last.
    fn check_places(&self, mut got: Vec<&Got>, messages: impl Iterator<Item = usize>) -> Result<(), Violation> {
        got.sort_by_key(|got| matches!(got, Got::Truncated(_)));
        for message in messages {
            let Some(at) = got.iter().position(|got| self.check_place(got, message).is_ok()) else {
                return got.iter().try_for_each(|got| self.check_place(got, message));
            };
            got.remove(at);
        }
        Ok(())
    }

    fn check_place(&self, got: &Got, message: usize) -> Result<(), Violation> {
        let len = self.sent[message].len;
        match got {
            Got::Named(name) => ensure(*name == message, || format!("message {name} came in the place of {message}")),
            Got::Short(bytes) if bytes.len() == len => self.check_bytes(message, bytes),
            Got::Truncated(sent) if *sent == len => Ok(()),
            other => Err(format!("{other:?} came in the place of {message}, {:?}", self.sent[message]).into()),
        }
    }
}

/// What a run has shown that must never be.
#[derive(Debug)]
pub(crate) struct Violation(String);

impl From<String> for Violation {
    fn from(what: String) -> Self {
        Self(what)
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

pub(crate) fn ensure(holds: bool, what: impl FnOnce() -> String) -> Result<(), Violation> {
    if holds { Ok(()) } else { Err(what().into()) }
}

/// Splitmix64.
pub(crate) fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ value >> 31
}
