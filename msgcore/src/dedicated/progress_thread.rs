//! The progress thread, the engine's side: lets the endpoints of a domain make progress, and serves the handle of each.

use std::sync::Arc;
use std::time::Duration;

use roci_driver::link::Link;
use rustix::thread::{CpuSet, sched_setaffinity};

use super::facts::WorkerFacts;
use super::rings::{Answer, EndpointRequest, LastWish, Rings};
use super::seat::{Order, Over, Seat};
use crate::backoff::{Backoff, BackoffLimits, Idle};
use crate::worker::Worker;
use crate::worker::domain::Domain;
use crate::{OpError, WireupError};

/// Lets this thread run on one processor. After the ports are open: threads that DPDK starts inherit where they run.
pub(super) fn pin(cpu: Option<usize>) -> Result<(), WireupError> {
    let Some(cpu) = cpu else { return Ok(()) };
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set).map_err(|errno| WireupError::Thread { cpu: Some(cpu), source: errno.into() })
}

/// Serves until the last handle lets go, or the job is over.
pub(super) fn run<L: Link>(domain: Domain<L>, limits: BackoffLimits, over: Over) -> Result<(), OpError> {
    let mut progress_loop = ProgressLoop::new(domain, over);
    let mut backoff = Backoff::new(limits);
    loop {
        match progress_loop.turn() {
            TurnResult::End(ending) => {
                progress_loop.end(ending);
                return Ok(());
            }
            TurnResult::Busy => backoff.reset(),
            TurnResult::Idle => {
                let idle = backoff.idle_by(|at_most| progress_loop.sleep(at_most));
                progress_loop.look_after(idle)?;
            }
        }
    }
}

/// What a turn of the engine came to.
pub(super) enum TurnResult {
    /// Nothing happened.
    Idle,
    /// Something did.
    Busy,
    /// The last endpoint is to end.
    End(ThreadEnd),
}

/// How the last endpoint is to end.
pub(super) enum ThreadEnd {
    /// As its handle wishes.
    Wished(LastWish),
    /// The handle is gone, or has its answer.
    Silent,
}

/// What the thread runs, turn by turn: endpoints that serve the commands of their handles. The handles learn last that it is over.
pub(super) struct ProgressLoop<L: Link> {
    domain: Domain<L>,
    seats: Vec<Seat>,
}

impl<L: Link> ProgressLoop<L> {
    /// A domain with one endpoint.
    pub(super) fn new(mut domain: Domain<L>, over: Over) -> Self {
        let id = domain.at_hand();
        let seats = vec![Seat::new(id, over, domain.take(id))];
        Self { domain, seats }
    }

    /// The worker of the endpoint that was used last.
    pub(super) fn worker(&self) -> &Worker<L> {
        self.domain.worker()
    }

    /// Carries out commands, makes progress and reports, once.
    pub(super) fn turn(&mut self) -> TurnResult {
        let mut happened = false;
        for at in 0..self.seats.len() {
            let (has_obeyed, order) = self.obey(at);
            happened |= has_obeyed;
            if let Some(order) = order
                && let Some(ending) = self.follow(at, order)
            {
                return TurnResult::End(ending);
            }
        }
        happened |= self.domain.progress();
        let mut at = 0;
        while at < self.seats.len() {
            match self.report(at) {
                SeatNews::Left if self.seats.len() == 1 => return TurnResult::End(ThreadEnd::Silent),
                SeatNews::Left => self.remove(at),
                SeatNews::Some => {
                    happened = true;
                    at += 1;
                }
                SeatNews::None => at += 1,
            }
        }
        if happened { TurnResult::Busy } else { TurnResult::Idle }
    }

    /// Sleeps until a handle wants something, but not for long.
    fn sleep(&self, at_most: Duration) {
        let seats = &self.seats;
        let has_orders = |seat: &Seat| !seat.is_leaving() && seat.rings().has_orders();
        seats[0].rings().engine_wakeup.sleep(at_most, || seats.iter().any(has_orders));
    }

    /// Nothing has happened for a while: applications may wait for what will never come.
    ///
    /// # Errors
    /// The job is over.
    pub(super) fn look_after(&mut self, idle: Idle) -> Result<(), OpError> {
        let Self { domain, seats } = self;
        seats.iter_mut().try_for_each(|seat| seat.look_after(domain.take(seat.id), idle))
    }

    /// Carries out some commands of a handle.
    fn obey(&mut self, at: usize) -> (bool, Option<Order>) {
        let Self { domain, seats } = self;
        let seat = &mut seats[at];
        if seat.is_leaving() || !seat.rings().has_orders() {
            return (false, None);
        }
        let is_released = seat.rings().is_released();
        let (has_obeyed, order) = seat.obey(domain.take(seat.id));
        // What the handle has wished before it went is done.
        let is_over = is_released && !has_obeyed;
        (true, if is_over { Some(Order::Linger) } else { order })
    }

    /// Does what is not an endpoint's own business. Returns how the thread is to end, if it is.
    fn follow(&mut self, at: usize, order: Order) -> Option<ThreadEnd> {
        let is_last = self.seats.len() == 1;
        let Self { domain, seats } = self;
        let seat = &mut seats[at];
        match order {
            Order::Open(request) => self.open(at, request),
            Order::End(last_wish) if is_last => return Some(ThreadEnd::Wished(last_wish)),
            Order::Linger if is_last => return Some(ThreadEnd::Silent),
            Order::End(LastWish::Close) => seat.begin_closing(domain.take(seat.id)),
            Order::Linger => seat.begin_lingering(domain.take(seat.id)),
            Order::End(LastWish::Abort) => seat.abort(domain.take(seat.id)),
        }
        None
    }

    /// Opens another endpoint for a handle.
    fn open(&mut self, at: usize, EndpointRequest { wait_fd, limits }: EndpointRequest) {
        let Self { domain, seats } = self;
        let opened = domain.open_endpoint().map(|id| {
            let rings = Arc::new(Rings::beside(seats[at].rings(), wait_fd));
            let worker = domain.take(id);
            let facts = WorkerFacts::of(worker, limits);
            seats.push(Seat::new(id, Over::new(rings.clone()), worker));
            Box::new((facts, rings))
        });
        seats[at].say(Answer::OpenEndpoint(opened));
    }

    /// Reports what has ended at an endpoint, and looks whether it has left.
    fn report(&mut self, at: usize) -> SeatNews {
        let Self { domain, seats } = self;
        let seat = &mut seats[at];
        let report_wish = seat.rings().take_report_wish();
        if report_wish.is_none() && !seat.is_waited_for() && !domain.has_reports(seat.id, seat.room()) {
            return SeatNews::None;
        }
        let worker = domain.take(seat.id);
        if seat.is_leaving() {
            return if seat.has_left(worker) { SeatNews::Left } else { SeatNews::None };
        }
        let is_any = seat.look(worker) | seat.report(worker);
        if let Some(seconds) = report_wish {
            tracing::warn!("rank {} has waited {seconds} s for its engine", worker.rank());
            worker.report_all();
        }
        if is_any { SeatNews::Some } else { SeatNews::None }
    }

    /// An endpoint has left. Its handle learns that once its ports are closed.
    fn remove(&mut self, at: usize) {
        let seat = self.seats.remove(at);
        self.domain.remove(seat.id).expect("there are others");
    }

    /// Ends the last endpoint: waits for the others first, or does not.
    pub(super) fn end(self, ending: ThreadEnd) {
        let Self { domain, seats } = self;
        let answer = match ending {
            ThreadEnd::Wished(LastWish::Close) => Answer::Close(domain.close()),
            ThreadEnd::Wished(LastWish::Abort) => Answer::Abort(domain.abort()),
            ThreadEnd::Silent => return drop((domain, seats)),
        };
        seats[0].say(answer);
    }
}

/// What there was to report of an endpoint.
enum SeatNews {
    None,
    Some,
    /// It has ended.
    Left,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Origin;
    use crate::sync::EventFd;
    use crate::worker::others::EndpointId;
    use crate::{Config, EndpointAddress};

    /// Events that an application does not take, and their ring holds.
    const UNTAKEN: u16 = 70;
    const HELD: usize = 64;

    fn config() -> Config {
        let mut config = Config::default();
        let shared = ("receive_queues", "S,1KiB,64");
        for (name, value) in [("device", "udp:127.0.0.1"), ("arena_size", "64MiB"), ("peers", "128"), shared] {
            config.set(name, value, Origin::Code).expect("in range");
        }
        config
    }

    /// A thread's domain of two endpoints, whose handles take nothing.
    fn two_endpoints() -> (ProgressLoop<impl Link>, [EndpointId; 2]) {
        let config = config();
        let worker = Worker::open_alone(&config).expect("the loopback interface is up");
        let limits = BackoffLimits::new(&config, 1, 1);
        let mut progress = ProgressLoop::new(Domain::around(worker, &config), Over::new(Arc::new(Rings::new())));
        progress.open(0, EndpointRequest { wait_fd: Arc::new(EventFd::new().expect("a descriptor")), limits });
        let ids = [0, 1].map(|at| progress.seats[at].id);
        (progress, ids)
    }

    #[test]
    fn a_handle_that_takes_no_events_does_not_cost_its_neighbours_their_short_way() {
        let (mut progress, [first, second]) = two_endpoints();
        let worker = progress.domain.take(second);
        for service in 1..=UNTAKEN {
            let stranger = EndpointAddress { service, ..worker.address() };
            let peer = worker.insert(stranger).expect("there is room");
            worker.endpoint.lose_peer(peer, OpError::PeerRemoved { peer });
        }
        progress.turn();
        assert_eq!(progress.seats[1].rings().events.len(), HELD);
        // The first endpoint stays at hand.
        progress.domain.take(first);
        for _ in 0..3 {
            progress.turn();
            assert_eq!(progress.domain.at_hand(), first);
        }
        // Nothing is lost.
        let take = || {
            let event = progress.seats[1].rings().events.pop();
            progress.turn();
            event
        };
        assert_eq!(std::iter::from_fn(take).count(), usize::from(UNTAKEN));
    }
}
