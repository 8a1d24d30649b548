//! The progress thread, the engine's side: takes commands, lets the worker make progress, and reports what has ended.

use std::collections::VecDeque;
use std::sync::Arc;

use roci_driver::link::Link;
use rustix::thread::{CpuSet, sched_setaffinity};

use super::rings::{Answer, Command, LastWish, OperationEnd, Question, RecvMulti, Rings};
use super::{one_sided_calls, stream_calls};
use crate::backoff::{Backoff, BackoffLimits, Idle};
use crate::core::completion::MultiReceiveFailed;
use crate::core::refused::{CallError, Refused};
use crate::core::segment::AwaitedNumber;
use crate::services::tag::matching::Pattern;
use crate::worker::Worker;
use crate::{Done, OpError, Request, WireupError};

/// Commands between two looks at the wire.
const BATCH: usize = 64;

/// Says that the thread is over when it is dropped, in a panic too. It outlives the worker.
pub(super) struct Over(Arc<Rings>);

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

/// Lets this thread run on one processor. After the ports are open: threads that DPDK starts inherit where they run.
pub(super) fn pin(cpu: Option<usize>) -> Result<(), WireupError> {
    let Some(cpu) = cpu else { return Ok(()) };
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set).map_err(|errno| WireupError::Thread { cpu: Some(cpu), source: errno.into() })
}

/// Serves until the handle lets go, or the job is over.
pub(super) fn run<L: Link>(worker: Worker<L>, limits: BackoffLimits, over: &Over) -> Result<(), OpError> {
    let rings = &over.0;
    let mut progress_loop = ProgressLoop::new(worker, rings.clone());
    let mut backoff = Backoff::new(limits);
    while !rings.is_released() {
        match progress_loop.turn() {
            TurnResult::End(last_wish) => {
                progress_loop.end(last_wish);
                return Ok(());
            }
            TurnResult::Busy => backoff.reset(),
            TurnResult::Idle => {
                let idle = backoff.idle_by(|at_most| rings.engine_wakeup.sleep(at_most, || rings.has_orders()));
                progress_loop.look_after(idle)?;
            }
        }
    }
    Ok(())
}

/// What a turn of the engine came to.
pub(super) enum TurnResult {
    /// Nothing happened.
    Idle,
    /// Something did.
    Busy,
    /// The application wants the worker to end.
    End(LastWish),
}

/// What the thread runs, turn by turn: a worker that serves commands.
pub(super) struct ProgressLoop<L: Link> {
    pub(super) worker: Worker<L>,
    rings: Arc<Rings>,
    /// Operations that the worker did not accept; they are reported first.
    refused: VecDeque<(Request, OpError)>,
    /// What the application waits for inside a call.
    awaited: Option<AwaitedAnswer>,
}

/// What is answered once it is there.
#[derive(Clone, Copy)]
enum AwaitedAnswer {
    /// A message, only to look.
    Look(Pattern),
    /// A message, to claim it.
    Claim(Pattern),
    /// Another number in a segment.
    Change(AwaitedNumber),
}

impl<L: Link> ProgressLoop<L> {
    /// A worker whose requests the application names.
    pub(super) fn new(mut worker: Worker<L>, rings: Arc<Rings>) -> Self {
        worker.endpoint.services.tag.requests.serve_another_thread();
        Self { worker, rings, refused: VecDeque::new(), awaited: None }
    }

    /// Carries out commands, makes progress and reports, once.
    pub(super) fn turn(&mut self) -> TurnResult {
        let (mut happened, last_wish) = self.obey();
        if let Some(last_wish) = last_wish {
            return TurnResult::End(last_wish);
        }
        happened |= self.worker.progress();
        happened |= self.look();
        happened |= self.report();
        if let Some(seconds) = self.rings.take_report_wish() {
            tracing::warn!("rank {} has waited {seconds} s for its engine", self.worker.rank());
            self.worker.report_all();
        }
        if happened { TurnResult::Busy } else { TurnResult::Idle }
    }

    /// Nothing has happened for a while: the application may wait for what will never come.
    ///
    /// # Errors
    /// The job is over.
    pub(super) fn look_after(&mut self, idle: Idle) -> Result<(), OpError> {
        let tag = &self.worker.endpoint.services.tag;
        if self.awaited.is_none() && tag.requests.is_empty() && tag.claims.len() == 0 {
            return Ok(());
        }
        self.worker.look_after(idle)?;
        if idle == Idle::Doubt {
            // Which receive the application waits for is not known here.
            self.worker.end_wildcards(|_, _| true);
        }
        Ok(())
    }

    /// Carries out some commands; returns whether there was any, and the one that ends the worker.
    fn obey(&mut self) -> (bool, Option<LastWish>) {
        for count in 0..BATCH {
            match self.rings.commands.pop() {
                None => return (count > 0, None),
                Some(Command::End(last_wish)) => return (true, Some(last_wish)),
                Some(command) => self.carry_out(command),
            }
        }
        (true, None)
    }

    fn carry_out(&mut self, command: Command) {
        let worker = &mut self.worker;
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
            Command::Cancel { request, left } => self.cancel(request, left),
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
            Command::Ask(question) => self.answer(question),
            Command::End(_) => unreachable!("it is the loop's"),
        }
    }

    #[inline]
    fn note_refused(&mut self, request: Request, begun: Result<(), CallError>) {
        if let Err(error) = begun {
            self.refused.push_back((request, as_outcome(error)));
        }
    }

    /// Takes an operation back. Where the end of an eager send was reported the application has given it back, and hears of its
    /// end once more.
    fn cancel(&mut self, request: Request, left: Option<Done>) {
        let Some(done) = left else { return self.worker.cancel(request) };
        self.worker.endpoint.services.tag.requests.reopen_eager(request, done);
        self.worker.cancel(request);
        let requests = &mut self.worker.endpoint.services.tag.requests;
        // Where it is too late that is its end.
        requests.take_left(request);
        requests.settle(request);
    }

    /// Looks for what the application waits for; returns whether it was there, or can never be.
    fn look(&mut self) -> bool {
        let Some(awaited) = self.awaited else { return false };
        let worker = &mut self.worker;
        let answer = match awaited {
            AwaitedAnswer::Look(pattern) => {
                worker.look_for(pattern, |worker| worker.endpoint.peek(&pattern)).transpose().map(Answer::WaitProbe)
            }
            AwaitedAnswer::Claim(pattern) => {
                worker.look_for(pattern, |worker| worker.endpoint.claim(&pattern)).transpose().map(Answer::WaitClaim)
            }
            AwaitedAnswer::Change(number) => worker.look_for_change(&number).transpose().map(Answer::WaitChange),
        };
        let Some(answer) = answer else { return false };
        self.awaited = None;
        worker.endpoint.note_waits_for(None);
        say(&self.rings, answer);
        true
    }

    fn answer(&mut self, question: Question) {
        let worker = &mut self.worker;
        let answer = match question {
            // Answered when there is one.
            Question::WaitProbe(pattern) => return self.awaited = Some(AwaitedAnswer::Look(pattern)),
            Question::WaitClaim(pattern) => return self.awaited = Some(AwaitedAnswer::Claim(pattern)),
            Question::WaitChange(number) => {
                worker.endpoint.note_waits_for(Some(number.source));
                return self.awaited = Some(AwaitedAnswer::Change(number));
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
            // No command comes meanwhile: the handle waits for this one.
            Question::Barrier => Answer::Barrier(worker.barrier()),
            Question::Flush((to, timeout)) => Answer::Flush(worker.flush(to, timeout)),
            Question::Stream(call) => Answer::Stream(stream_calls::carry_out(worker, call)),
            Question::OneSided(call) => Answer::OneSided(one_sided_calls::carry_out(worker, call)),
            #[cfg(test)]
            Question::Panic => panic!("as was asked for"),
        };
        say(&self.rings, answer);
    }

    /// Ends the worker: waits for the others first, or does not.
    pub(super) fn end(self, last_wish: LastWish) {
        let answer = match last_wish {
            LastWish::Close => Answer::Close(self.worker.close()),
            LastWish::Abort => Answer::Abort(self.worker.abort()),
        };
        say(&self.rings, answer);
    }

    /// Reports what has ended, as far as there is room, and what has happened; returns whether there was any.
    fn report(&mut self) -> bool {
        let mut is_any = false;
        while !self.rings.completions.is_full() {
            let Some(completion) = self.next_completion() else { break };
            let pushed = self.rings.completions.push(completion);
            debug_assert!(pushed.is_ok(), "no other thread fills it");
            is_any = true;
        }
        if is_any {
            self.rings.handle_wakeup.wake();
        }
        while !self.rings.events.is_full() {
            let Some(event) = self.worker.poll_event() else { break };
            let pushed = self.rings.events.push(event);
            debug_assert!(pushed.is_ok(), "no other thread fills it");
            self.rings.note_event();
        }
        is_any
    }

    #[inline]
    fn next_completion(&mut self) -> Option<OperationEnd> {
        if let Some((request, error)) = self.refused.pop_front() {
            return Some(OperationEnd { request, outcome: Err(error), has_left: false, is_part: false });
        }
        let requests = &mut self.worker.endpoint.services.tag.requests;
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
}

fn say(rings: &Rings, answer: Answer) {
    let pushed = rings.answers.push(answer);
    debug_assert!(pushed.is_ok(), "one question at a time");
    // Who asks waits inside the call.
    rings.handle_wakeup.wake_parked();
}

/// Why a call was refused, as the end of the request that the application has for it.
fn as_outcome(why: CallError) -> OpError {
    match why {
        CallError::Peer(error) => error,
        why => OpError::Refused(why.to_string()),
    }
}
