//! One endpoint of a progress thread, and the rings of its handle: takes commands, and reports what has ended.

use std::collections::VecDeque;
use std::sync::Arc;

use roci_driver::link::Link;

use super::rings::{Answer, Command, EndpointRequest, LastWish, OperationEnd, Question, RecvMulti, Rings};
use super::{one_sided_calls, stream_calls};
use crate::backoff::Idle;
use crate::core::completion::MultiReceiveFailed;
use crate::core::refused::{CallError, Refused};
use crate::core::segment::AwaitedNumber;
use crate::endpoint::parked::ReportRoom;
use crate::services::tag::matching::Pattern;
use crate::worker::Worker;
use crate::worker::closing::PendingClose;
use crate::worker::flush::PendingFlush;
use crate::worker::others::EndpointId;
use crate::{Done, OpError, Request};

/// Commands between two looks at the wire.
const BATCH: usize = 64;

/// An endpoint, and its handle. Whatever becomes of the thread, the handle learns of the end when this is dropped.
pub(super) struct Seat {
    pub(super) id: EndpointId,
    over: Over,
    /// Operations that the worker did not accept; they are reported first.
    refused: VecDeque<(Request, OpError)>,
    /// What the application waits for inside a call.
    awaited: Option<AwaitedAnswer>,
}

/// Says that the thread is over when it is dropped, in a panic too. It outlives the worker.
pub(super) struct Over(Arc<Rings>);

/// What is answered once it is there.
enum AwaitedAnswer {
    /// A message, only to look.
    Look(Pattern),
    /// A message, to claim it.
    Claim(Pattern),
    /// Another number in a segment.
    Change(AwaitedNumber),
    /// All that was sent is in its peers' memory.
    Flush(PendingFlush),
    /// The endpoint is closed, and the thread goes on for others.
    Close(PendingClose),
    /// The handle was dropped: what was sent is in its peers' memory.
    Linger(PendingFlush),
    /// Nothing: the endpoint ends at once.
    Abort,
}

/// What a handle wants that is not its endpoint's own business.
pub(super) enum Order {
    /// Another endpoint, with a handle of its own.
    Open(EndpointRequest),
    /// The endpoint's end.
    End(LastWish),
    /// The endpoint's end: the handle was dropped.
    Linger,
}

impl Over {
    pub(super) fn new(rings: Arc<Rings>) -> Self {
        Self(rings)
    }
}

impl Drop for Over {
    fn drop(&mut self) {
        self.0.finish();
    }
}

impl Seat {
    /// An endpoint whose requests the application names.
    pub(super) fn new<L: Link>(id: EndpointId, over: Over, worker: &mut Worker<L>) -> Self {
        worker.endpoint.services.tag.requests.serve_another_thread();
        Self { id, over, refused: VecDeque::new(), awaited: None }
    }

    pub(super) fn rings(&self) -> &Rings {
        &self.over.0
    }

    /// Whether the handle wants something, or waits for something.
    pub(super) fn is_waited_for(&self) -> bool {
        self.awaited.is_some() || !self.refused.is_empty() || self.rings().has_orders()
    }

    /// What the handle can be notified of. One that takes nothing does not cost the others of its thread more.
    pub(super) fn room(&self) -> ReportRoom {
        let rings = self.rings();
        ReportRoom { for_ended: !rings.completions.is_full(), for_events: !rings.events.is_full() }
    }

    /// Whether the endpoint is about to be removed.
    pub(super) fn is_leaving(&self) -> bool {
        matches!(self.awaited, Some(AwaitedAnswer::Close(_) | AwaitedAnswer::Linger(_) | AwaitedAnswer::Abort))
    }

    /// Closes the endpoint by and by.
    pub(super) fn begin_closing<L: Link>(&mut self, worker: &mut Worker<L>) {
        self.awaited = Some(AwaitedAnswer::Close(worker.begin_closing()));
    }

    /// Ends the endpoint at once, and says what it gave up.
    pub(super) fn abort<L: Link>(&mut self, worker: &mut Worker<L>) {
        self.say(Answer::Abort(worker.give_up()));
        self.awaited = Some(AwaitedAnswer::Abort);
    }

    /// Lingers for the endpoint, whose handle was dropped.
    pub(super) fn begin_lingering<L: Link>(&mut self, worker: &mut Worker<L>) {
        let linger = worker.linger().unwrap_or_default();
        self.awaited = Some(AwaitedAnswer::Linger(worker.begin_flush(None, linger)));
    }

    /// Whether nothing of a closed endpoint is under way any more. The handle has its answer then.
    pub(super) fn has_left<L: Link>(&mut self, worker: &mut Worker<L>) -> bool {
        match &mut self.awaited {
            Some(AwaitedAnswer::Close(close)) => match worker.poll_closing(close) {
                Some(outcome) => {
                    self.say(Answer::Close(outcome));
                    true
                }
                None => false,
            },
            Some(AwaitedAnswer::Linger(flush)) => worker.poll_flush(flush).is_some(),
            Some(AwaitedAnswer::Abort) => true,
            _ => false,
        }
    }

    /// Nothing has happened for a while: the application may wait for what will never come.
    ///
    /// # Errors
    /// The job is over.
    pub(super) fn look_after<L: Link>(&mut self, worker: &mut Worker<L>, idle: Idle) -> Result<(), OpError> {
        let tag = &worker.endpoint.services.tag;
        if self.awaited.is_none() && tag.requests.is_empty() && tag.claims.len() == 0 {
            return Ok(());
        }
        worker.look_after(idle)?;
        if idle == Idle::Doubt {
            // Which receive the application waits for is not known here.
            worker.end_wildcards(|_, _| true);
        }
        Ok(())
    }

    /// Carries out some commands; returns whether there was any, and the one that is not the endpoint's own business.
    pub(super) fn obey<L: Link>(&mut self, worker: &mut Worker<L>) -> (bool, Option<Order>) {
        for count in 0..BATCH {
            match self.rings().commands.pop() {
                None => return (count > 0, None),
                Some(Command::End(last_wish)) => return (true, Some(Order::End(last_wish))),
                Some(Command::Ask(Question::OpenEndpoint(request))) => return (true, Some(Order::Open(request))),
                Some(command) => self.carry_out(worker, command),
            }
        }
        (true, None)
    }

    fn carry_out<L: Link>(&mut self, worker: &mut Worker<L>, command: Command) {
        match command {
            Command::Send { request, to, tag, payload, options } => {
                let begun = worker.begin_send(request, (to, tag), payload, options);
                self.note_refused(request, begun.map_err(CallError::from));
            }
            Command::Recv { request, pattern, buffer } => {
                let begun = worker.endpoint.recv(request, pattern, buffer);
                self.note_refused(request, begun.map_err(CallError::from));
            }
            Command::RecvMulti(multi) => {
                let RecvMulti { request, pattern, buffer, least } = *multi;
                if let Err(Refused { why, given }) = worker.endpoint.recv_multi(request, pattern, (buffer, least), None)
                {
                    let failed = MultiReceiveFailed { why: as_outcome(why), rest: Some(given) };
                    self.refused.push_back((request, OpError::MultiReceive(Box::new(failed))));
                }
            }
            Command::RecvMessage { request, message, buffer } => {
                let begun = worker.endpoint.recv_message(request, message, buffer);
                self.note_refused(request, begun.map_err(CallError::from));
            }
            Command::Cancel { request, left } => cancel(worker, request, left),
            Command::Discard(message) => worker.discard(message),
            Command::OneSided { request, to, call } => {
                let begun = worker.begin_one_sided_as(request, to, call);
                self.note_refused(request, begun.map_err(CallError::from));
            }
            Command::RequestActive { request, to, active, payload } => {
                let begun = worker.request_active_as(request, to, *active, &payload);
                self.note_refused(request, begun);
            }
            Command::GiveBack(buffer) => worker.give_back(buffer),
            Command::Ask(question) => self.answer(worker, question),
            Command::End(_) => unreachable!("it is the loop's"),
        }
    }

    #[inline]
    fn note_refused(&mut self, request: Request, begun: Result<(), CallError>) {
        if let Err(error) = begun {
            self.refused.push_back((request, as_outcome(error)));
        }
    }

    /// Looks for what the application waits for; returns whether it was there, or can never be.
    pub(super) fn look<L: Link>(&mut self, worker: &mut Worker<L>) -> bool {
        let Some(awaited) = &mut self.awaited else { return false };
        let answer = match awaited {
            &mut AwaitedAnswer::Look(pattern) => {
                worker.look_for(pattern, |worker| worker.endpoint.peek(&pattern)).transpose().map(Answer::WaitProbe)
            }
            &mut AwaitedAnswer::Claim(pattern) => {
                worker.look_for(pattern, |worker| worker.endpoint.claim(&pattern)).transpose().map(Answer::WaitClaim)
            }
            AwaitedAnswer::Change(number) => worker.look_for_change(number).transpose().map(Answer::WaitChange),
            AwaitedAnswer::Flush(flush) => worker.poll_flush(flush).map(Answer::Flush),
            AwaitedAnswer::Close(_) | AwaitedAnswer::Linger(_) | AwaitedAnswer::Abort => None,
        };
        let Some(answer) = answer else { return false };
        self.awaited = None;
        worker.endpoint.note_waits_for(None);
        self.say(answer);
        true
    }

    fn answer<L: Link>(&mut self, worker: &mut Worker<L>, question: Question) {
        let answer = match question {
            // Answered when there is one.
            Question::WaitProbe(pattern) => return self.awaited = Some(AwaitedAnswer::Look(pattern)),
            Question::WaitClaim(pattern) => return self.awaited = Some(AwaitedAnswer::Claim(pattern)),
            Question::WaitChange(number) => {
                worker.endpoint.note_waits_for(Some(number.source));
                return self.awaited = Some(AwaitedAnswer::Change(number));
            }
            Question::Flush((to, timeout)) => {
                return self.awaited = Some(AwaitedAnswer::Flush(worker.begin_flush(to, timeout)));
            }
            Question::Probe(pattern) => Answer::Probe(worker.probe(pattern)),
            Question::Claim(pattern) => Answer::Claim(worker.claim(pattern)),
            Question::Adopt(memory) => Answer::Adopt(worker.adopt(memory)),
            Question::RegistrationStats => Answer::RegistrationStats(Box::new(worker.registration_stats())),
            Question::Connect(rank) => Answer::Connect(worker.connect(rank)),
            Question::Insert(address) => Answer::Insert(worker.insert(address)),
            Question::Remove(peer) => Answer::Remove(worker.remove(peer)),
            Question::AddressOf(peer) => Answer::AddressOf(worker.address_of(peer)),
            Question::NextExchange => Answer::NextExchange(worker.next_exchange()),
            Question::DeliverExchange(text) => Answer::DeliverExchange(worker.deliver_exchange(&text)),
            Question::IsConnected(rank) => Answer::IsConnected(worker.is_connected(rank)),
            Question::Stats => Answer::Stats(Box::new(worker.stats())),
            Question::InjectedFaults => Answer::InjectedFaults(worker.injected_faults()),
            Question::EngineStats => Answer::EngineStats(Box::new(worker.engine_stats())),
            // No command comes meanwhile: the handle waits for this one, and a rank has the thread alone.
            Question::Barrier => Answer::Barrier(worker.barrier()),
            Question::OpenEndpoint(_) => unreachable!("it is the loop's"),
            Question::Stream(call) => Answer::Stream(stream_calls::carry_out(worker, call)),
            Question::OneSided(call) => Answer::OneSided(one_sided_calls::carry_out(worker, call)),
            #[cfg(test)]
            Question::Panic => panic!("as was asked for"),
        };
        self.say(answer);
    }

    /// Reports what has ended, as far as there is room, and what has happened; returns whether there was any.
    pub(super) fn report<L: Link>(&mut self, worker: &mut Worker<L>) -> bool {
        let mut is_any = false;
        while !self.rings().completions.is_full() {
            let Some(completion) = self.next_completion(worker) else { break };
            let pushed = self.rings().completions.push(completion);
            debug_assert!(pushed.is_ok(), "no other thread fills it");
            is_any = true;
        }
        if is_any {
            self.rings().handle_wakeup.wake();
        }
        while !self.rings().events.is_full() {
            let Some(event) = worker.poll_event() else { break };
            let pushed = self.rings().events.push(event);
            debug_assert!(pushed.is_ok(), "no other thread fills it");
            self.rings().note_event();
        }
        is_any
    }

    #[inline]
    fn next_completion<L: Link>(&mut self, worker: &mut Worker<L>) -> Option<OperationEnd> {
        if let Some((request, error)) = self.refused.pop_front() {
            return Some(OperationEnd { request, outcome: Err(error), has_left: false, is_part: false });
        }
        let requests = &mut worker.endpoint.services.tag.requests;
        while let Some(request) = requests.next_ended() {
            if request == Request::PART {
                let (request, outcome) = requests.next_part()?;
                return Some(OperationEnd { request, outcome, has_left: false, is_part: true });
            }
            let has_left = requests.has_left(request);
            // One that is being taken back ends again, and one that was reported is there no longer.
            if requests.get(request).is_some()
                && let Some(outcome) = requests.close(request)
            {
                return Some(OperationEnd { request, outcome, has_left, is_part: false });
            }
        }
        None
    }

    /// Answers the question of the handle, which waits inside the call.
    pub(super) fn say(&self, answer: Answer) {
        let pushed = self.rings().answers.push(answer);
        debug_assert!(pushed.is_ok(), "one question at a time");
        self.rings().handle_wakeup.wake_parked();
    }
}

/// Takes an operation back. Where the end of an eager send was reported the application has given it back, and hears of its
/// end once more.
fn cancel<L: Link>(worker: &mut Worker<L>, request: Request, left: Option<Done>) {
    let Some(done) = left else { return worker.cancel(request) };
    worker.endpoint.services.tag.requests.reopen_eager(request, done);
    worker.cancel(request);
    let requests = &mut worker.endpoint.services.tag.requests;
    // Where it is too late that is its end.
    requests.take_left(request);
    requests.settle(request);
}

/// Why a call was refused, as the end of the request that the application has for it.
fn as_outcome(why: CallError) -> OpError {
    match why {
        CallError::Peer(error) => error,
        why => OpError::Refused(why.to_string()),
    }
}
