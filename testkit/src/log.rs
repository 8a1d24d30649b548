//! What the stack logs while a test runs something.

use std::fmt::{Debug, Write as _};
use std::sync::{Arc, Mutex, OnceLock};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Dispatch, Event, Metadata, Subscriber};

/// Runs something and returns what this thread has logged meanwhile, a line `LEVEL message` for each event.
///
/// # Panics
/// Where `run` does.
pub fn logged(run: impl FnOnce()) -> Vec<String> {
    SECOND.get_or_init(|| Dispatch::new(Collector::default()));
    let collector = Collector::default();
    let lines = Arc::clone(&collector.0);
    tracing::subscriber::with_default(collector, run);
    let mut lines = lines.lock().expect("no event panics");
    std::mem::take(&mut *lines)
}

/// A subscriber that gets no events. While there is just one in the process, `tracing` asks the thread that comes to a line of code
/// first whether anybody wants its events, and remembers the answer for all: a thread of another test would say no.
static SECOND: OnceLock<Dispatch> = OnceLock::new();

/// Takes all events, and no spans: there are none.
#[derive(Default)]
struct Collector(Arc<Mutex<Vec<String>>>);

impl Subscriber for Collector {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(event.metadata().level().to_string());
        event.record(&mut line);
        self.0.lock().expect("no event panics").push(line.0);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, _: &Field, value: &dyn Debug) {
        let _ = write!(self.0, " {value:?}");
    }
}

#[cfg(test)]
mod tests {
    use super::logged;

    #[test]
    fn a_line_that_another_thread_comes_to_first_is_logged_too() {
        let log = || tracing::debug!("once");
        let lines = logged(|| {
            std::thread::spawn(log).join().expect("it logs nothing");
            log();
        });
        assert_eq!(lines, ["DEBUG once"]);
    }
}
