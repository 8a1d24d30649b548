//! The engine's thread: takes commands, lets the worker make progress, and reports what has ended.

use std::collections::VecDeque;
use std::sync::Arc;

use roci_driver::link::Link;
use rustix::thread::{CpuSet, sched_setaffinity};

use super::names::Names;
use super::rings::{Answer, Command, Completion, LastWish, Question, Rings};
use super::tickets::Ticket;
use crate::backoff::{Backoff, Idle, Limits};
use crate::core::refused::CallError;
use crate::worker::Worker;
use crate::{OpError, Request, WireupError};

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
pub(super) fn run<L: Link>(mut worker: Worker<L>, limits: Limits, over: &Over) -> Result<(), OpError> {
    worker.endpoint.services.tag.requests.watch();
    let mut service = Service { worker, rings: &over.0, names: Names::default(), refused: VecDeque::new() };
    let mut backoff = Backoff::new(limits);
    while !over.0.is_released() {
        let (mut happened, last_wish) = service.obey();
        if let Some(last_wish) = last_wish {
            service.end(last_wish);
            return Ok(());
        }
        happened |= service.worker.progress();
        happened |= service.report();
        if let Some(seconds) = over.0.take_report_wish() {
            tracing::warn!("rank {} has waited {seconds} s for its engine", service.worker.rank());
            service.worker.report_all();
        }
        if happened {
            backoff.reset();
            continue;
        }
        let idle = backoff.idle_by(|at_most| over.0.engine_bell.sleep(at_most, || over.0.has_orders()));
        if !service.names.is_empty() {
            // Somebody may wait for what will never come.
            service.worker.look_after(idle)?;
            if idle == Idle::Doubt {
                service.worker.end_wildcards();
            }
        }
    }
    Ok(())
}

struct Service<'a, L: Link> {
    worker: Worker<L>,
    rings: &'a Rings,
    names: Names,
    /// Operations that the worker did not accept; they are reported first.
    refused: VecDeque<(Ticket, OpError)>,
}

impl<L: Link> Service<'_, L> {
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
            Command::Send { ticket, to, tag, payload, options } => {
                let begun = worker.send_with(to, tag, payload, options);
                self.begin(ticket, begun.map_err(CallError::from));
            }
            Command::Recv { ticket, pattern, buffer } => {
                let begun = match buffer {
                    Some(buffer) => worker.recv_with(pattern, buffer).map_err(CallError::from),
                    None => worker.recv_lent(pattern),
                };
                self.begin(ticket, begun);
            }
            Command::RecvMessage { ticket, message, buffer } => {
                let begun = worker.recv_message(message, buffer).map_err(CallError::from);
                self.begin(ticket, begun);
            }
            Command::Cancel(ticket) => {
                if let Some(request) = self.names.request_of(ticket) {
                    worker.cancel(request);
                }
            }
            Command::GiveBack(buffer) => worker.give_back(buffer),
            Command::Ask(question) => self.answer(question),
            Command::End(_) => unreachable!("it is the loop's"),
        }
    }

    #[inline]
    fn begin(&mut self, ticket: Ticket, begun: Result<Request, CallError>) {
        match begun {
            Ok(request) => self.names.bind(ticket, request),
            Err(CallError::Peer(error)) => self.refused.push_back((ticket, error)),
            Err(error) => self.refused.push_back((ticket, OpError::Refused(error.to_string()))),
        }
    }

    fn answer(&mut self, question: Question) {
        let worker = &mut self.worker;
        let answer = match question {
            Question::Probe(pattern) => Answer::Probe(worker.probe(pattern)),
            Question::Claim(pattern) => Answer::Claim(worker.claim(pattern)),
            Question::Adopt(memory) => Answer::Adopt(worker.adopt(memory)),
            Question::RegistrationStats => Answer::RegistrationStats(Box::new(worker.registration_stats())),
            Question::Connect(rank) => Answer::Connect(worker.connect(rank)),
            Question::IsConnected(rank) => Answer::IsConnected(worker.is_connected(rank)),
            Question::Stats => Answer::Stats(Box::new(worker.stats())),
            Question::EngineStats => Answer::EngineStats(Box::new(worker.engine_stats())),
            // Nobody gives commands meanwhile: the handle waits for this one.
            Question::Barrier => Answer::Barrier(worker.barrier()),
            #[cfg(test)]
            Question::Panic => panic!("as was asked for"),
        };
        say(self.rings, answer);
    }

    /// Ends the worker: waits for the others first, or does not.
    fn end(self, last_wish: LastWish) {
        let answer = match last_wish {
            LastWish::Close => Answer::Close(self.worker.close()),
            LastWish::Abort => Answer::Abort(self.worker.abort()),
        };
        say(self.rings, answer);
    }

    /// Reports what has ended, as far as there is room, and what has happened; returns whether there was any.
    fn report(&mut self) -> bool {
        let mut is_any = false;
        while !self.rings.completions.is_full() {
            let Some(completion) = self.next_completion() else { break };
            let pushed = self.rings.completions.push(completion);
            debug_assert!(pushed.is_ok(), "nobody else fills it");
            is_any = true;
        }
        if is_any {
            self.rings.handle_bell.ring();
        }
        while !self.rings.events.is_full() {
            let Some(event) = self.worker.poll_event() else { break };
            let pushed = self.rings.events.push(event);
            debug_assert!(pushed.is_ok(), "nobody else fills it");
        }
        is_any
    }

    #[inline]
    fn next_completion(&mut self) -> Option<Completion> {
        if let Some((ticket, error)) = self.refused.pop_front() {
            return Some((ticket, Err(error)));
        }
        while let Some(request) = self.worker.endpoint.services.tag.requests.next_ended() {
            // One that is being taken back ends again.
            if let Some(ticket) = self.names.ticket_of(request)
                && let Some(outcome) = self.worker.test(request)
            {
                self.names.release(ticket, request);
                return Some((ticket, outcome));
            }
        }
        None
    }
}

fn say(rings: &Rings, answer: Answer) {
    let pushed = rings.answers.push(answer);
    debug_assert!(pushed.is_ok(), "one question at a time");
    rings.handle_bell.ring();
}
