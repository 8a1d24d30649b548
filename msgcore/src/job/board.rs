//! The launcher's side.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use super::LINE_LIMIT;

/// Values that one job may leave, and bytes of a key or value: a rank gone wild must not fill the launcher.
const VALUE_LIMIT: usize = 100_000;

/// A board that serves the ranks of one job until it is dropped.
#[derive(Clone)]
pub struct Board {
    shared: Arc<Shared>,
}

struct Shared {
    size: usize,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    values: BTreeMap<String, String>,
    /// Ranks in the present barrier, and barriers completed.
    waiting: usize,
    barriers: u64,
    /// Why a wait for others is in vain: a rank has gone, well or ill.
    departure: Option<String>,
    /// Why the job as a whole is in vain.
    failure: Option<String>,
}

impl Board {
    /// A board for `size` ranks.
    pub fn new(size: usize) -> Self {
        let shared = Shared { size, state: Mutex::default(), changed: Condvar::new() };
        Self { shared: Arc::new(shared) }
    }

    /// Serves ranks that connect to a socket at `path`.
    pub fn serve_unix(&self, path: &Path) -> io::Result<()> {
        let listener = UnixListener::bind(path)?;
        let shared = self.shared.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let writer = stream.try_clone();
                spawn_session(&shared, stream, writer);
            }
        });
        Ok(())
    }

    /// Serves ranks that connect to `listener`.
    ///
    /// Takes as many connections as there are ranks. Nobody else watches over these: when one ends, the job has
    /// failed, or is over.
    pub fn serve_tcp(&self, listener: TcpListener) {
        let board = self.clone();
        thread::spawn(move || {
            for stream in listener.incoming().take(board.shared.size).flatten() {
                let board = board.clone();
                thread::spawn(move || {
                    if let Ok(writer) = stream.try_clone() {
                        drop(session(&board.shared, stream, writer));
                    }
                    board.fail("a rank has gone");
                });
            }
        });
    }

    /// A rank has gone, its work done: who waits for it, or will, is told.
    pub fn depart(&self, reason: &str) {
        self.shared.lock().departure.get_or_insert_with(|| reason.replace('\n', " "));
        self.shared.changed.notify_all();
    }

    /// The job has failed: everybody is told.
    pub fn fail(&self, reason: &str) {
        self.shared.lock().failure.get_or_insert_with(|| reason.replace('\n', " "));
        self.depart(reason);
    }
}

fn spawn_session(
    shared: &Arc<Shared>,
    reader: impl Read + Send + 'static,
    writer: io::Result<impl Write + Send + 'static>,
) {
    let shared = shared.clone();
    // A session ends with its connection; an error on it is the rank's end, which the launcher sees by itself.
    if let Ok(writer) = writer {
        thread::spawn(move || drop(session(&shared, reader, writer)));
    }
}

fn session(shared: &Shared, reader: impl Read, mut writer: impl Write) -> io::Result<()> {
    let mut reader = BufReader::new(reader);
    loop {
        let mut line = String::new();
        if reader.by_ref().take(LINE_LIMIT).read_line(&mut line)? == 0 {
            return Ok(());
        }
        if !line.ends_with('\n') {
            return writeln!(writer, "error a request is a line of at most {LINE_LIMIT} bytes");
        }
        let answer = shared.answer(line.trim_end_matches('\n'));
        writeln!(writer, "{answer}")?;
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answer(&self, line: &str) -> String {
        let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
        let outcome = match (verb, rest.split_once(' ')) {
            ("put", Some((key, value))) => self.put(key, value),
            ("get", None) if !rest.is_empty() => self.get(rest),
            ("barrier", None) => self.barrier(),
            ("present", None) => self.lock().departure.clone().map_or(Ok(String::new()), Err),
            ("status", None) => self.lock().failure.clone().map_or(Ok(String::new()), Err),
            _ => Err(format!("'{verb}' is not a request")),
        };
        outcome.map_or_else(|reason| format!("error {reason}"), |value| format!("ok {value}"))
    }

    fn put(&self, key: &str, value: &str) -> Result<String, String> {
        let mut state = self.lock();
        if state.values.len() == VALUE_LIMIT {
            return Err("the board is full".into());
        }
        if state.values.contains_key(key) {
            return Err(format!("'{key}' was left before"));
        }
        state.values.insert(key.into(), value.into());
        self.changed.notify_all();
        Ok(String::new())
    }

    fn get(&self, key: &str) -> Result<String, String> {
        let mut state = self.lock();
        loop {
            if let Some(value) = state.values.get(key) {
                return Ok(value.clone());
            }
            if let Some(reason) = state.failure.as_ref().or(state.departure.as_ref()) {
                return Err(reason.clone());
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn barrier(&self) -> Result<String, String> {
        let mut state = self.lock();
        let mine = state.barriers;
        state.waiting += 1;
        if state.waiting == self.size {
            state.waiting = 0;
            state.barriers += 1;
            self.changed.notify_all();
        }
        loop {
            if state.barriers > mine {
                return Ok(String::new());
            }
            if let Some(reason) = state.failure.as_ref().or(state.departure.as_ref()) {
                let reason = reason.clone();
                state.waiting -= 1;
                return Err(reason);
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}
