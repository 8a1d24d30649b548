//! Who watches registered memory.

use std::ops::Range;
use std::sync::Arc;

use super::board::{Mark, WatchTable};
use super::monitor::{Monitor, MonitorError, SharedMonitor};

/// Who is to hear when memory is unmapped, moved or discarded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum MonitorChoice {
    /// The kernel reports by userfaultfd, where that is permitted; else nothing is cached.
    #[default]
    Auto,
    /// The kernel reports by userfaultfd, or it is an error.
    Userfaultfd,
    /// No monitor, and nothing is cached.
    None,
    /// No monitor, and all is cached: **wrong data is sent and received** once memory that was used is unmapped and its
    /// addresses serve again. For applications that never give memory back, and for tests.
    UnsafeNone,
}

/// A board, and who writes on it.
#[derive(Debug)]
pub(crate) struct Watch {
    board: Arc<WatchTable>,
    who: Who,
}

#[derive(Debug)]
enum Who {
    Monitor(SharedMonitor),
    /// With the reason.
    Unwatched(String),
    /// The application has promised that nothing happens; tests write themselves.
    Promised,
}

impl Watch {
    pub(super) fn new(board: Arc<WatchTable>, choice: MonitorChoice) -> Result<Self, MonitorError> {
        let who = match choice {
            MonitorChoice::None => Who::Unwatched("it is switched off".into()),
            MonitorChoice::UnsafeNone => Who::Promised,
            MonitorChoice::Userfaultfd => Who::Monitor(Monitor::shared()?),
            MonitorChoice::Auto => {
                Monitor::shared().map_or_else(|error| Who::Unwatched(error.to_string()), Who::Monitor)
            }
        };
        Ok(Self { board, who })
    }

    #[inline]
    pub(super) fn board(&self) -> &WatchTable {
        &self.board
    }

    /// Whether a registration may outlive its use.
    pub(super) fn may_cache(&self) -> bool {
        match &self.who {
            Who::Monitor(monitor) => !monitor.is_lost(),
            Who::Unwatched(_) => false,
            Who::Promised => true,
        }
    }

    /// From here on, what happens to `range` marks the result. `None` where that cannot be had.
    pub(super) fn begin(&self, range: &Range<usize>) -> Option<Mark> {
        match &self.who {
            Who::Monitor(monitor) => monitor.watch(range),
            Who::Unwatched(_) => None,
            Who::Promised => self.board.claim(range),
        }
    }

    /// Ends what `begin` began.
    pub(super) fn end(&self, mark: &Mark, range: &Range<usize>) {
        match &self.who {
            Who::Monitor(monitor) => monitor.unwatch(mark, range),
            Who::Unwatched(_) | Who::Promised => self.board.release(mark),
        }
    }

    /// Who it is, for people: the name, and why it is no better.
    pub(super) fn describe(&self) -> (&'static str, Option<&str>) {
        match &self.who {
            Who::Monitor(monitor) if monitor.is_lost() => ("none", Some("userfaultfd has failed")),
            Who::Monitor(_) => ("userfaultfd", None),
            Who::Unwatched(reason) => ("none", Some(reason)),
            Who::Promised => ("unsafe-none", None),
        }
    }
}
