//! What the stack logs while a test runs something.

use std::fmt::{Debug, Write as _};
use std::sync::{Arc, Mutex};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Runs something and returns what this thread has logged meanwhile, a line `LEVEL message` for each event.
///
/// # Panics
/// Where `run` does.
pub fn logged(run: impl FnOnce()) -> Vec<String> {
    let lines = Arc::<Mutex<Vec<String>>>::default();
    tracing::subscriber::with_default(Collector(Arc::clone(&lines)), run);
    let mut lines = lines.lock().expect("no event panics");
    std::mem::take(&mut *lines)
}

/// Takes all events, and no spans: there are none.
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
