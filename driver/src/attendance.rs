//! When the engine looks at a queue pair: at times that its machine asks for, and in turns.

use arrayvec::ArrayVec;
use roci_protocol::Nanos;
use roci_protocol::rc::Quantum;

/// When the engine looks at a queue pair: at times, and in turns while it is listed.
#[derive(Debug)]
pub(crate) struct Attendance {
    /// When the engine's wheel looks at it.
    times: WakeTimes,
    /// It is in the engine's list of queue pairs to look after.
    is_listed: bool,
    /// It is in the engine's list of acknowledgements that wait.
    is_deferred: bool,
    /// What it may send in a turn.
    turn: Quantum,
    /// Bytes by which its last turn was exceeded; none where it is not listed.
    deficit: isize,
}

impl Attendance {
    pub(crate) const fn new(turn: Quantum) -> Self {
        Self { times: WakeTimes::new(), is_listed: false, is_deferred: false, turn, deficit: 0 }
    }

    /// What it may send in a turn.
    #[inline]
    pub(crate) const fn turn(&self) -> Quantum {
        self.turn
    }

    #[inline]
    pub(crate) const fn is_listed(&self) -> bool {
        self.is_listed
    }

    /// Notes that it is listed; `false` where it was.
    #[inline]
    pub(crate) fn list(&mut self) -> bool {
        !std::mem::replace(&mut self.is_listed, true)
    }

    /// It is done, and what its last turn has left or exceeded is forgotten.
    pub(crate) fn unlist(&mut self) {
        (self.is_listed, self.deficit) = (false, 0);
    }

    #[inline]
    pub(crate) const fn is_deferred(&self) -> bool {
        self.is_deferred
    }

    /// Notes that its acknowledgement waits; `false` where it did.
    #[inline]
    pub(crate) fn defer(&mut self) -> bool {
        !std::mem::replace(&mut self.is_deferred, true)
    }

    /// Its acknowledgement waits no longer.
    pub(crate) fn undefer(&mut self) {
        self.is_deferred = false;
    }

    pub(crate) const fn deficit(&self) -> isize {
        self.deficit
    }

    /// Ends a turn, which was exceeded by so many bytes.
    pub(crate) fn end_turn(&mut self, deficit: isize) {
        self.deficit = deficit;
    }

    /// Whether `deadline` is to be added to the wheel; it is noted.
    #[inline]
    pub(crate) fn needs(&mut self, deadline: Nanos) -> bool {
        self.times.needs(deadline)
    }

    /// A time has come; `false` where it is forgotten.
    pub(crate) fn forget(&mut self, at: Nanos) -> bool {
        self.times.forget(at)
    }

    /// Whether the engine looks at it no later than at `deadline`.
    pub(crate) fn is_awaited_by(&self, deadline: Nanos) -> bool {
        self.is_listed || self.times.has_by(deadline)
    }
}

/// The times at which a wheel looks at a queue pair; a few, because old ones are not taken back.
#[derive(Debug)]
struct WakeTimes {
    times: ArrayVec<Nanos, 4>,
    /// The first of them; [`Nanos::MAX`] where there is none.
    first: Nanos,
}

impl WakeTimes {
    const fn new() -> Self {
        Self { times: ArrayVec::new_const(), first: Nanos::MAX }
    }

    /// Whether `deadline` is to be added to the wheel, because all others come later; it is noted.
    #[inline]
    fn needs(&mut self, deadline: Nanos) -> bool {
        let is_first = deadline < self.first;
        if is_first {
            self.add(deadline);
        }
        is_first
    }

    fn add(&mut self, first: Nanos) {
        if self.times.is_full() {
            // The latest is forgotten; it finds nothing when its time comes.
            let latest = self.times.iter().copied().max();
            self.times.retain(|at| Some(*at) != latest);
        }
        self.times.push(first);
        self.first = first;
    }

    /// Whether one of them comes no later than `deadline`.
    fn has_by(&self, deadline: Nanos) -> bool {
        self.times.iter().any(|&at| at <= deadline)
    }

    /// A time has come; `false` where it is forgotten.
    fn forget(&mut self, at: Nanos) -> bool {
        let before = self.times.len();
        self.times.retain(|armed| *armed != at);
        self.first = self.times.iter().copied().min().unwrap_or(Nanos::MAX);
        self.times.len() < before
    }
}
