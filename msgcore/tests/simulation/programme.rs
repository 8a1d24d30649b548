//! What the applications do: they send, receive one message or many, look, claim and cancel, as dice have it.

use rand::Rng;
use rand::rngs::StdRng;
use roci_msgcore::{
    Buffer, CallError, ClaimedMessage, Completion, Context, Done, Envelope, OpError, Pattern, Rank, Refused, Request,
    SendOptions, Source, Tag, TagMatch, Truncated,
};

use crate::oracle::{Key, Violation, ensure, mix};
use crate::run::Run;
use crate::{one_sided, streams};

/// Of the first context messages may be long, so that receives with wildcards have no buffer; those of the
/// others fit into this.
const SHORT: usize = 20_000;
const CONTEXTS: u32 = 3;
pub(crate) const TAGS: u64 = 4;
/// Messages of a flood.
const FLOOD: usize = 250;
/// Bytes in messages from one rank that have not ended.
const BUDGET: usize = 12 << 20;
/// Operations of one rank that have not ended.
const OPERATIONS: usize = 400;

/// An operation under way.
struct Pending {
    request: Request,
    number: u64,
    what: What,
}

enum What {
    Send {
        message: usize,
        len: usize,
    },
    Receive {
        place: u64,
        pattern: Pattern,
        is_in_place: bool,
    },
    /// A multi-receive, and how many bytes of its buffer have not come back.
    Multi {
        place: u64,
        pattern: Pattern,
        out: usize,
    },
}

/// An application.
pub(crate) struct Station {
    rank: Rank,
    pending: Vec<Pending>,
    claims: Vec<(ClaimedMessage, u64, Context)>,
    bytes: usize,
    /// Operations begun, which name their completions.
    begun: u64,
}

impl Station {
    pub(crate) fn new(rank: Rank) -> Self {
        Self { rank, pending: Vec::new(), claims: Vec::new(), bytes: 0, begun: 0 }
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.pending.is_empty() && self.claims.is_empty()
    }

    /// Does something.
    pub(crate) fn act(&mut self, run: &mut Run) -> Result<(), Violation> {
        if self.pending.len() > OPERATIONS {
            return Ok(());
        }
        if run.plan.is_selective && run.dice.random_ratio(1, 100) {
            return (0..FLOOD).try_for_each(|_| self.send(run));
        }
        if run.plan.is_streaming && run.dice.random_ratio(1, 4) {
            streams::put(run, self.rank)?;
            let from = run.dice.random_range(0..run.world.workers.len());
            return streams::get(run, self.rank, from);
        }
        if run.plan.is_one_sided && run.dice.random_ratio(1, 3) {
            return (0..burst(&mut run.dice)).try_for_each(|_| one_sided::act(run, self.rank));
        }
        match run.dice.random_range(0..100) {
            0..45 => {
                for _ in 0..burst(&mut run.dice) {
                    self.send(run)?;
                }
            }
            45..48 if self.uses_queue() => self.receive_many(run)?,
            45..80 => {
                for _ in 0..burst(&mut run.dice) {
                    self.receive(run)?;
                }
            }
            80..86 => self.claim(run),
            86..90 => self.receive_claimed(run)?,
            _ => self.cancel(run),
        }
        Ok(())
    }

    fn send(&mut self, run: &mut Run) -> Result<(), Violation> {
        let (dice, size) = (&mut run.dice, run.world.workers.len());
        let to = dice.random_range(0..size);
        let context = Context::new(dice.random_range(0..CONTEXTS));
        let tag = Tag::new(dice.random_range(0..TAGS));
        let most = if context.get() == 0 { usize::MAX } else { SHORT };
        let len = run.plan.len(dice, most);
        if self.bytes + len > BUDGET {
            return Ok(());
        }
        let message = run.oracle.send((self.rank, to, context, tag), len);
        let options =
            data_of(tag, len).into_iter().fold(SendOptions::default().within(context), SendOptions::with_data);
        let outcome = match run.dice.random_range(0..10) {
            0..6 => self.post(run, message, to, tag, len, options),
            6 | 7 => self.post(run, message, to, tag, len, options.synchronous()),
            8 => self.post(run, message, to, tag, len, options.ready()),
            _ => {
                let mut bytes = vec![0; len];
                run.oracle.fill(message, &mut bytes);
                let worker = &mut run.world.workers[self.rank];
                let sent = worker
                    .send_buffered(run.names.of(self.rank, to), tag, &bytes, options)
                    .map(|request| worker.detach(request));
                sent.map(|()| run.oracle.end_send(message, false)).map(|ended| ended.expect("it ends once"))
            }
        };
        match outcome {
            Err(CallError::TooMany(_) | CallError::BufferFull { .. }) => {
                run.oracle.forget_last();
                Ok(())
            }
            Err(CallError::Peer(error)) if is_of_the_dead(run, self.rank, &error) => {
                run.oracle.forget_last();
                Ok(())
            }
            other => Ok(other.map_err(|error| format!("rank {} may not send to {to}: {error}", self.rank))?),
        }
    }

    fn post(
        &mut self,
        run: &mut Run,
        message: usize,
        to: Rank,
        tag: Tag,
        len: usize,
        options: SendOptions,
    ) -> Result<(), CallError> {
        let mut bytes = vec![0; len];
        run.oracle.fill(message, &mut bytes);
        let mut payload = self.buffer(run, len)?;
        payload.copy_in(0, &bytes);
        let worker = &mut run.world.workers[self.rank];
        let request = worker.send_with(run.names.of(self.rank, to), tag, payload, options)?;
        self.bytes += len;
        self.begin(run, request, What::Send { message, len });
        Ok(())
    }

    fn receive(&mut self, run: &mut Run) -> Result<(), Violation> {
        let pattern = any_pattern(run, self.rank);
        let (dice, context) = (&mut run.dice, pattern.context);
        let room = match dice.random_range(0..4) {
            0 => Some(run.plan.len(dice, usize::MAX)),
            1 | 2 if context.get() > 0 => Some(SHORT),
            _ => None,
        };
        self.post_receive(run, pattern, room)
    }

    /// Posts a receive of many messages, whose completions the queue has.
    fn receive_many(&mut self, run: &mut Run) -> Result<(), Violation> {
        let pattern = any_pattern(run, self.rank);
        let (room, least) = (run.dice.random_range(0..2 * SHORT), run.dice.random_range(0..SHORT / 8));
        let place = run.oracle.post();
        let worker = &mut run.world.workers[self.rank];
        let buffer = worker.buffer(room).map_err(|error| error.to_string())?;
        let out = buffer.capacity();
        match worker.recv_multi(pattern, buffer, least, self.begun + 1) {
            Ok(request) => {
                self.begun += 1;
                self.pending.push(Pending { request, number: self.begun, what: What::Multi { place, pattern, out } });
                Ok(())
            }
            Err(Refused { why: CallError::Peer(error), .. }) if is_of_the_dead(run, self.rank, &error) => Ok(()),
            Err(refused) => Err(format!("rank {} may not receive many: {refused}", self.rank).into()),
        }
    }

    fn post_receive(&mut self, run: &mut Run, pattern: Pattern, room: Option<usize>) -> Result<(), Violation> {
        let place = run.oracle.post();
        let buffer = room.map(|room| self.buffer(run, room));
        let worker = &mut run.world.workers[self.rank];
        let request = match buffer {
            Some(buffer) => buffer.and_then(|buffer| Ok(worker.recv_with(pattern, buffer)?)),
            None => worker.recv_in_place(pattern),
        };
        let request = match request {
            Err(CallError::Peer(error)) if is_of_the_dead(run, self.rank, &error) => return Ok(()),
            other => other.map_err(|error| format!("rank {} may not receive: {error}", self.rank))?,
        };
        self.begin(run, request, What::Receive { place, pattern, is_in_place: room.is_none() });
        Ok(())
    }

    /// Memory of this length; of every eighth operation it is a list of pieces.
    fn buffer(&self, run: &mut Run, len: usize) -> Result<Buffer, CallError> {
        let worker = &mut run.world.workers[self.rank];
        if self.begun % 8 != 7 {
            return Ok(worker.buffer(len)?);
        }
        let cut = len / 3;
        let pieces = [cut, 0, len - cut].map(|len| worker.buffer(len)).into_iter().collect::<Result<_, _>>()?;
        Ok(Buffer::list(pieces).expect("few"))
    }

    /// Claims a message, where one has come.
    fn claim(&mut self, run: &mut Run) {
        let context = Context::new(run.dice.random_range(0..CONTEXTS));
        let pattern = Pattern::new(Source::Any, TagMatch::Any).within(context);
        let worker = &mut run.world.workers[self.rank];
        let seen = worker.probe(pattern);
        if let Some(message) = worker.claim(pattern) {
            // Between the two calls a dedicated worker's engine takes a turn, in which a sender may take its message back.
            let is_seen = worker.is_dedicated() || Some(message.envelope()) == seen;
            assert!(is_seen, "a claim takes what a probe shows");
            self.claims.push((message, run.oracle.post(), context));
        }
    }

    fn receive_claimed(&mut self, run: &mut Run) -> Result<(), Violation> {
        if self.claims.is_empty() {
            return Ok(());
        }
        let (message, place, context) = self.claims.swap_remove(run.dice.random_range(0..self.claims.len()));
        let envelope = message.envelope();
        let is_short = run.dice.random_ratio(1, 8);
        let room = if is_short { envelope.len / 2 } else { envelope.len };
        let worker = &mut run.world.workers[self.rank];
        let request = worker.buffer(room).map_err(CallError::from).and_then(|b| Ok(worker.recv_message(message, b)?));
        let request = match request {
            Err(CallError::Peer(error)) if is_of_the_dead(run, self.rank, &error) => return Ok(()),
            other => other.map_err(|error| format!("rank {} may not receive: {error}", self.rank))?,
        };
        let pattern = Pattern::new(envelope.source, envelope.tag).within(context);
        self.begin(run, request, What::Receive { place, pattern, is_in_place: false });
        Ok(())
    }

    fn cancel(&mut self, run: &mut Run) {
        if !self.pending.is_empty() {
            let pending = &self.pending[run.dice.random_range(0..self.pending.len())];
            run.world.workers[self.rank].cancel(pending.request);
        }
    }

    /// An operation is under way. Every second rank has its outcome in the completion queue.
    fn begin(&mut self, run: &mut Run, request: Request, what: What) {
        self.begun += 1;
        if self.uses_queue() {
            run.world.workers[self.rank].queue_completion(request, self.begun).expect("it is there");
        }
        self.pending.push(Pending { request, number: self.begun, what });
    }

    fn uses_queue(&self) -> bool {
        self.rank % 2 == 1
    }

    /// Takes the completions, some of them now.
    fn look_at_queue(&mut self, run: &mut Run) -> Result<(), Violation> {
        while run.dice.random_ratio(2, 3)
            && let Some(Completion { context, outcome, is_last }) = run.world.workers[self.rank].poll_completion()
        {
            let at = self.pending.iter().position(|pending| pending.number == context);
            let at = at.ok_or_else(|| format!("rank {}: {context} completed twice", self.rank))?;
            if is_last {
                let pending = self.pending.remove(at);
                self.end(run, pending.what, outcome)?;
            } else if let What::Multi { place, pattern, out } = &mut self.pending[at].what {
                take_part(run, (self.rank, *place), pattern, out, outcome)?;
            } else {
                return Err(format!("rank {}: {context} is one of many", self.rank).into());
            }
        }
        Ok(())
    }

    /// Takes what has ended; some of it stays for later, so that it can still be cancelled.
    pub(crate) fn look(&mut self, run: &mut Run) -> Result<(), Violation> {
        one_sided::look(run, self.rank)?;
        if self.uses_queue() {
            return self.look_at_queue(run);
        }
        let mut at = 0;
        while at < self.pending.len() {
            let outcome = if run.dice.random_ratio(1, 3) {
                None
            } else {
                run.world.workers[self.rank].test(self.pending[at].request)
            };
            match outcome {
                Some(outcome) => {
                    let pending = self.pending.remove(at);
                    self.end(run, pending.what, outcome)?;
                }
                None => at += 1,
            }
        }
        Ok(())
    }

    /// Receives what comes under one tag, and nothing else: whatever waits meanwhile, it must come.
    pub(crate) fn receive_only(&mut self, run: &mut Run, tag: Tag) -> Result<(), Violation> {
        while !self.claims.is_empty() {
            self.receive_claimed(run)?;
        }
        self.look(run)?;
        for context in (0..CONTEXTS).map(Context::new) {
            let pattern = Pattern::new(Source::Any, tag).within(context);
            let is_it =
                |pending: &Pending| matches!(pending.what, What::Receive { pattern: its, .. } if its == pattern);
            if !self.pending.iter().any(is_it) {
                self.post_receive(run, pattern, None)?;
            }
        }
        Ok(())
    }

    /// Receives whatever comes.
    pub(crate) fn drain(&mut self, run: &mut Run) -> Result<(), Violation> {
        while !self.claims.is_empty() {
            self.receive_claimed(run)?;
        }
        if run.plan.is_streaming {
            (0..run.world.workers.len()).try_for_each(|from| streams::get(run, self.rank, from))?;
        }
        for context in 0..CONTEXTS {
            let pattern = Pattern::new(Source::Any, TagMatch::Any).within(Context::new(context));
            if run.world.workers[self.rank].probe(pattern).is_some() {
                self.post_receive(run, pattern, None)?;
            }
        }
        self.look(run)
    }

    /// Takes the receives back that no message is left for.
    pub(crate) fn cancel_all(&mut self, run: &mut Run) -> Result<(), Violation> {
        for pending in &self.pending {
            run.world.workers[self.rank].cancel(pending.request);
        }
        self.look(run)
    }

    fn end(&mut self, run: &mut Run, what: What, outcome: Result<Done, OpError>) -> Result<(), Violation> {
        let rank = self.rank;
        let brief = outcome.as_ref().map_or(0, |done| done.len as u64 ^ u64::from(done.is_cancelled) << 40);
        run.note(rank, mix(brief));
        match (what, outcome) {
            (What::Send { message, len }, Ok(done)) => {
                self.bytes -= len;
                let is_back = done.is_cancelled || done.buffer.len() == len;
                ensure(is_back, || format!("send {message} of {len} bytes gave back {}", done.buffer.len()))?;
                run.oracle.end_send(message, done.is_cancelled)
            }
            (What::Receive { .. }, Ok(done)) if done.is_cancelled => Ok(()),
            (What::Receive { place, pattern, is_in_place }, Ok(done)) => {
                take_message(run, (rank, place), &pattern, &done)?;
                if is_in_place && run.dice.random_ratio(2, 3) {
                    run.world.workers[rank].give_back(done.buffer);
                }
                Ok(())
            }
            (What::Receive { place, pattern, .. }, Err(OpError::Truncated(truncated))) => {
                take_truncated(run, (rank, place), &pattern, &truncated)?;
                let is_back = truncated.buffer.is_some_and(|buffer| buffer.len() == truncated.room);
                ensure(is_back, || format!("{pattern:?} did not get its buffer back"))
            }
            (What::Multi { out, pattern, .. }, outcome) => {
                let rest = match outcome {
                    Ok(done) => Some(done.buffer),
                    Err(OpError::MultiReceive(failed)) if is_of_the_dead(run, rank, &failed.why) => failed.rest,
                    Err(error) => return Err(format!("rank {rank}, a receive of many: {error}").into()),
                };
                let left = rest.as_ref().map(Buffer::capacity);
                // A message of the dead takes its piece with it.
                let is_all = left == Some(out) || left < Some(out) && run.oracle.dead().is_some();
                ensure(is_all, || format!("{pattern:?} came back with {left:?} of {out} bytes"))
            }
            (What::Send { message, len }, Err(error)) if is_of_the_dead(run, self.rank, &error) => {
                self.bytes -= len;
                run.oracle.fail_send(message)
            }
            (What::Receive { .. }, Err(error)) if is_of_the_dead(run, self.rank, &error) => Ok(()),
            (What::Send { message, .. }, Err(error)) => Err(format!("rank {rank}, message {message}: {error}").into()),
            (What::Receive { .. }, Err(error)) => Err(format!("rank {rank}, a receive: {error}").into()),
        }
    }
}

/// A message has come, to a receive at this place.
fn take_message(run: &mut Run, (rank, place): (Rank, u64), pattern: &Pattern, done: &Done) -> Result<(), Violation> {
    let key = (run.names.whom(rank, done.peer), rank, pattern.context, done.tag);
    ensure(takes(run, pattern, &key), || format!("{pattern:?} took {key:?}"))?;
    let data = data_of(done.tag, done.len);
    ensure(done.data == data, || format!("{:?} came with {key:?}, and not {data:?}", done.data))?;
    let mut bytes = vec![0; done.len];
    done.buffer.copy_out(0, &mut bytes);
    run.oracle.receive(place, key, &bytes)
}

/// A message has come that was too long, to a receive at this place.
fn take_truncated(
    run: &mut Run,
    (rank, place): (Rank, u64),
    pattern: &Pattern,
    truncated: &Truncated,
) -> Result<(), Violation> {
    let Envelope { source, tag, len, .. } = truncated.envelope;
    let key = (run.names.whom(rank, source), rank, truncated.context, tag);
    ensure(takes(run, pattern, &key), || format!("{pattern:?} met {key:?}"))?;
    ensure(len > truncated.room, || format!("{pattern:?} had room for {key:?}"))?;
    run.oracle.truncate(place, key, len);
    Ok(())
}

/// One of the messages of a multi-receive is there, whose buffer is smaller by as much.
fn take_part(
    run: &mut Run,
    of: (Rank, u64),
    pattern: &Pattern,
    out: &mut usize,
    outcome: Result<Done, OpError>,
) -> Result<(), Violation> {
    run.note(of.0, mix(outcome.as_ref().map_or(1, |done| done.len as u64)));
    match outcome {
        Ok(done) => {
            *out -= done.buffer.capacity();
            take_message(run, of, pattern, &done)
        }
        Err(OpError::Truncated(truncated)) => take_truncated(run, of, pattern, &truncated),
        Err(error) if is_of_the_dead(run, of.0, &error) => Ok(()),
        Err(error) => Err(format!("rank {}, one of many: {error}", of.0).into()),
    }
}

/// Of any messages, as dice have it.
fn any_pattern(run: &mut Run, who: Rank) -> Pattern {
    let (dice, size) = (&mut run.dice, run.world.workers.len());
    let context = Context::new(dice.random_range(0..CONTEXTS));
    let from = if dice.random_ratio(1, 3) { None } else { Some(dice.random_range(0..size)) };
    let source = from.map_or(Source::Any, |from| run.names.of(who, from).into());
    let tag = Tag::new(dice.random_range(0..TAGS));
    let tag = match dice.random_range(0..6) {
        0 | 1 => TagMatch::Any,
        2 => TagMatch::Masked { tag, ignore: dice.random_range(0..TAGS) },
        _ => tag.into(),
    };
    Pattern::new(source, tag).within(context)
}

/// The data that goes with messages of this length under this tag, if any does.
fn data_of(tag: Tag, len: usize) -> Option<u64> {
    (!len.is_multiple_of(3)).then(|| mix(tag.get() << 32 | len as u64))
}

/// Whether an operation of `who` ended because its peer is dead.
pub(crate) fn is_of_the_dead(run: &Run, who: Rank, error: &OpError) -> bool {
    let (OpError::PeerGone { peer, .. } | OpError::NotConnected { peer, .. }) = error else { return false };
    !run.oracle.is_alive(run.names.whom(who, *peer))
}

fn burst(dice: &mut StdRng) -> usize {
    if dice.random_ratio(1, 8) { dice.random_range(1..40) } else { 1 }
}

fn takes(run: &Run, pattern: &Pattern, &(from, to, context, tag): &Key) -> bool {
    (pattern.source == Source::Any || pattern.source == Source::from(run.names.of(to, from)))
        && match pattern.tag {
            TagMatch::Any => true,
            TagMatch::Exact(its) => its == tag,
            TagMatch::Masked { tag: its, ignore } => its.get() | ignore == tag.get() | ignore,
        }
        && pattern.context == context
}
