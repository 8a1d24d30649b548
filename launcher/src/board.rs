//! The launcher's side.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::acceptor::Acceptor;
use crate::job_state::{JobState, reason_of_leaving};
use crate::outbox::Outbox;
use crate::refusal::RequestRefusal;
use crate::stream::{JobStream, Listener};
use crate::{LINE_LIMIT, Rank, Token};

/// A rank may be two programs, one after the other: so long the second one's hello waits for the first one's end to
/// be noticed.
const HELLO_GRACE: Duration = Duration::from_secs(1);
/// How long the end of a session waits for the launcher to say why.
const REASON_GRACE: Duration = Duration::from_millis(250);

/// A board that serves the ranks of one job until it is dropped.
#[derive(Clone)]
pub struct Board {
    shared: Arc<SharedBoard>,
    token: Token,
    /// Sessions keep what they share, and not this.
    is_served: Arc<()>,
}

pub(super) struct SharedBoard {
    size: usize,
    state: Mutex<JobState>,
    changed: Condvar,
}

impl Board {
    /// A board for `size` ranks that know `token`.
    pub fn new(size: usize, token: Token) -> Self {
        let shared = SharedBoard { size, state: Mutex::new(JobState::new(size)), changed: Condvar::new() };
        Self { shared: Arc::new(shared), token, is_served: Arc::default() }
    }

    /// Serves ranks that connect to a socket at `path`, if they are this user's.
    ///
    /// # Errors
    /// When there can be no socket or no thread.
    pub fn serve_unix(&self, path: &Path) -> io::Result<()> {
        // The end of a session may be the rank's, which the launcher sees by itself.
        self.serve(Listener::Unix(UnixListener::bind(path)?), false)
    }

    /// Serves ranks that connect to `listener`.
    ///
    /// No launcher supervises these processes: when the session of one ends, that rank has failed, or the job is over.
    ///
    /// # Errors
    /// When there can be no thread.
    pub fn serve_tcp(&self, listener: TcpListener) -> io::Result<()> {
        self.serve(Listener::Tcp(listener), true)
    }

    /// Serves ranks that connect to `listener`, whose processes a launcher supervises.
    pub(crate) fn serve_supervised(&self, listener: TcpListener) -> io::Result<()> {
        self.serve(Listener::Tcp(listener), false)
    }

    fn serve(&self, listener: Listener, fails_ranks: bool) -> io::Result<()> {
        let (board, token, is_served) = (self.shared.clone(), self.token.clone(), Arc::downgrade(&self.is_served));
        Acceptor { listener, board, token, is_served, fails_ranks }.start()
    }

    /// Waits until `rank` has hung up, at most `at_most`; returns whether it has. It may receive the last notices later than
    /// the others, and cannot receive them once this process has ended.
    ///
    /// # Panics
    /// When there is no such rank.
    pub fn outlast(&self, rank: Rank, at_most: Duration) -> bool {
        let is_there = |state: &mut JobState| state.mailboxes.is_taken(rank);
        self.shared.outlast(at_most, is_there)
    }

    /// Waits until `rank` has left this generation of the job, or come again in a later one; returns whether it has before the
    /// deadline.
    ///
    /// # Panics
    /// When there is no such rank.
    pub(crate) fn outlast_generation(&self, rank: Rank, generation: u64, deadline: Instant) -> bool {
        let is_there = |state: &mut JobState| state.mailboxes.is_taken(rank) && state.comings[rank] == generation;
        let at_most = deadline.saturating_duration_since(Instant::now());
        self.shared.outlast(at_most, is_there)
    }

    /// Waits until every rank has come and none is in the job, so long at most; returns whether that is so.
    pub fn outlast_all(&self, at_most: Duration) -> bool {
        let goes_on = |state: &mut JobState| {
            (0..self.shared.size).any(|rank| state.comings[rank] == 0 || state.mailboxes.is_taken(rank))
        };
        self.shared.outlast(at_most, goes_on)
    }

    /// Where a rank has come from, once it has: an address, or `this host`.
    ///
    /// # Panics
    /// When there is no such rank.
    pub fn origin(&self, rank: Rank) -> Option<String> {
        self.shared.lock().origins[rank].clone()
    }

    /// How many ranks have not come yet.
    pub fn missing(&self) -> usize {
        self.shared.lock().comings.iter().filter(|&&count| count == 0).count()
    }

    /// Closes the board where no rank is in the job; returns whether it is closed. A rank that comes later is refused.
    pub(crate) fn close(&self) -> bool {
        let mut state = self.shared.lock();
        state.is_closed |= (0..self.shared.size).all(|rank| !state.mailboxes.is_taken(rank));
        state.is_closed
    }

    /// Reports that `rank` has gone, its work done. The ranks that wait for it, now or later, receive `reason`.
    pub fn depart(&self, rank: Rank, reason: &str) {
        self.shared.lose("gone", rank, reason);
        self.shared.end(reason, |state| &mut state.departure);
    }

    /// Reports that `rank` has failed. The ranks that wait for it, now or later, receive `reason`; the others go on.
    pub fn fail_rank(&self, rank: Rank, reason: &str) {
        self.shared.fail_rank(rank, reason);
    }

    /// Asks every rank to say what it waits for.
    pub fn ask_for_reports(&self) {
        self.shared.lock().mailboxes.tell_all("report");
    }

    /// Reports that the job as a whole has failed. All ranks that wait, now or later, receive `reason`.
    pub fn fail(&self, reason: &str) {
        self.shared.end(reason, |state| &mut state.failure);
    }
}

/// Serves a connection that has begun to speak, on a thread of its own.
pub(super) fn start_session(
    shared: Arc<SharedBoard>,
    mut stream: JobStream,
    from: String,
    said: Vec<u8>,
    fails_ranks: bool,
) {
    let started = prepare(&mut stream).and_then(|writer| {
        let session = move || {
            let guest = session(&shared, from, said.chain(stream), writer);
            match guest.rank {
                Some(rank) if fails_ranks => shared.fail_rank(rank, &reason_of_leaving(rank)),
                Some(rank) => shared.leave_behind(rank, guest.generation),
                None => {}
            }
        };
        thread::Builder::new().name("roci-session".into()).spawn(session)
    });
    if let Err(error) = started {
        tracing::error!("the launcher cannot serve a rank: {error}");
    }
}

/// Returns the end of a connection that answers are written to. If there can be none, sends the peer the reason.
fn prepare(stream: &mut JobStream) -> io::Result<JobStream> {
    stream.set_nonblocking(false)?;
    stream.tune()?;
    let writer = stream.try_clone();
    writer.inspect_err(|error| drop(writeln!(stream, "error the launcher has no room for it: {error}")))
}

/// Serves one connection until it ends; returns who it was. An error is its end.
fn session(shared: &SharedBoard, from: String, reader: impl Read, writer: JobStream) -> RankSession {
    let mut guest = RankSession { outbox: Arc::default(), from, rank: None, generation: 0 };
    let outbox = guest.outbox.clone();
    let write = move || outbox.write_to(&writer, |has_room| writer.end_in_silence(has_room));
    match thread::Builder::new().name("roci-outbox".into()).spawn(write) {
        Ok(_) => drop(serve_requests(shared, &mut guest, reader)),
        Err(error) => tracing::error!("the launcher cannot answer a rank: {error}"),
    }
    shared.leave(&guest);
    guest
}

/// The session of one connection, and the rank at its other end.
struct RankSession {
    outbox: Arc<Outbox>,
    from: String,
    /// The rank that it said it is.
    rank: Option<Rank>,
    /// How often that rank has come, this time included.
    generation: u64,
}

fn serve_requests(shared: &SharedBoard, guest: &mut RankSession, reader: impl Read) -> io::Result<()> {
    let mut reader = BufReader::new(reader);
    while guest.outbox.wait_for_room() {
        let mut line = String::new();
        if reader.by_ref().take(LINE_LIMIT).read_line(&mut line)? == 0 {
            break;
        }
        if !line.ends_with('\n') {
            guest.outbox.answer(format!("error a request is a line of at most {LINE_LIMIT} bytes"));
            break;
        }
        guest.outbox.note_request();
        shared.serve(guest, line.trim_end_matches('\n'));
        // Its first request was a hello, which was refused.
        if guest.rank.is_none() {
            break;
        }
    }
    Ok(())
}

impl SharedBoard {
    fn lock(&self) -> MutexGuard<'_, JobState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until something is no longer so, at most so long; returns whether it is not.
    fn outlast(&self, at_most: Duration, is_so: impl FnMut(&mut JobState) -> bool) -> bool {
        let waited = self.changed.wait_timeout_while(self.lock(), at_most, is_so);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    /// Answers a request, but for a barrier, which is answered when all are there.
    fn serve(&self, guest: &mut RankSession, line: &str) {
        let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
        if verb == "mail" {
            let outcome = self.lock().mailboxes.post(guest.rank, rest);
            let answer = outcome.map_or_else(|reason| format!("unmailed {reason}"), |()| "mailed".into());
            return guest.outbox.answer(answer);
        }
        if (verb, rest, guest.rank.is_some()) == ("absent", "", true) {
            return guest.outbox.answer(self.absent());
        }
        self.wait_while_in_barrier(guest);
        let outcome = match (verb, rest.split_once(' ')) {
            ("hello", None) => self.hello(guest, rest),
            ("put", Some((key, value))) => self.put(guest.generation, key, value),
            ("get", None) if !rest.is_empty() => self.get(guest.generation, rest),
            ("look", None) if !rest.is_empty() => Ok(self.look(guest.generation, rest)),
            ("barrier", None) => return self.enter_barrier(guest),
            ("present", None) => RequestRefusal::where_in_vain(self.lock().reason_to_give_up(guest.generation)),
            ("status", None) => RequestRefusal::where_in_vain(self.lock().failure.clone()),
            _ => Err(RequestRefusal::Unknown(verb.into())),
        };
        guest.outbox.answer(outcome.map_or_else(|reason| format!("error {reason}"), |value| format!("ok {value}")));
    }

    fn hello(&self, guest: &mut RankSession, word: &str) -> Result<String, RequestRefusal> {
        if guest.rank.is_some() {
            return Err(RequestRefusal::SecondHello);
        }
        let state = self.lock();
        let rank = state.mailboxes.rank(word)?;
        let is_taken = |state: &mut JobState| state.mailboxes.is_taken(rank);
        let waited = self.changed.wait_timeout_while(state, HELLO_GRACE, is_taken);
        let (mut state, wait) = waited.unwrap_or_else(PoisonError::into_inner);
        if wait.timed_out() {
            return Err(RequestRefusal::Taken(rank));
        }
        if state.is_closed {
            return Err(RequestRefusal::Closed);
        }
        state.mailboxes.claim(rank, &guest.outbox);
        guest.rank = Some(rank);
        state.origins[rank] = Some(guest.from.clone());
        guest.generation = state.come(rank);
        let others = state.gone.iter().filter(|&(&gone, _)| gone != rank);
        others.for_each(|(_, line)| guest.outbox.tell(line.clone()));
        Ok(format!("{} {}", guest.generation, self.size))
    }

    fn put(&self, generation: u64, key: &str, value: &str) -> Result<String, RequestRefusal> {
        self.lock().values.put(generation, key, value)?;
        self.changed.notify_all();
        Ok(String::new())
    }

    fn get(&self, generation: u64, key: &str) -> Result<String, RequestRefusal> {
        let mut state = self.lock();
        loop {
            if let Some(value) = state.values.get(generation, key) {
                return Ok(value.to_owned());
            }
            if let Some(reason) = state.reason_to_give_up(generation) {
                return Err(RequestRefusal::InVain(reason));
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// What was left, behind a sign that something was.
    fn look(&self, generation: u64, key: &str) -> String {
        self.lock().values.get(generation, key).map_or_else(String::new, |value| format!("={value}"))
    }

    fn absent(&self) -> String {
        let state = self.lock();
        let list = |is_it: &dyn Fn(Rank) -> bool| {
            (0..self.size).filter(|&rank| is_it(rank)).map(|rank| rank.to_string()).collect::<Vec<_>>().join(",")
        };
        let is_here = |rank| state.mailboxes.is_taken(rank);
        let is_waiting = |rank| state.in_barriers().any(|outbox| state.mailboxes.is_of(rank, outbox));
        let is_late = |rank| !state.barriers.is_empty() && is_here(rank) && !is_waiting(rank);
        format!("absent {};{}", list(&is_late), list(&|rank| !is_here(rank)))
    }

    fn enter_barrier(&self, guest: &RankSession) {
        let mut state = self.lock();
        let barrier = state.barriers.entry(guest.generation).or_default();
        barrier.push(guest.outbox.clone());
        // A rank that has gone does not count in the barrier. Its session may not have noticed the end yet: this session,
        // too, may be reading what the rank wrote before it ended.
        barrier.retain(|outbox| !outbox.is_closed());
        if barrier.len() == self.size {
            self.end_barrier(&mut state, guest.generation, "ok ");
        } else {
            self.end_vain_barriers(&mut state);
        }
    }

    fn end_vain_barriers(&self, state: &mut JobState) {
        for generation in state.barriers.keys().copied().collect::<Vec<_>>() {
            if let Some(reason) = state.reason_to_give_up(generation) {
                self.end_barrier(state, generation, &format!("error {reason}"));
            }
        }
    }

    fn end_barrier(&self, state: &mut JobState, generation: u64, answer: &str) {
        let waiting = state.barriers.remove(&generation).into_iter().flatten();
        waiting.for_each(|outbox| outbox.answer(answer.into()));
        self.changed.notify_all();
    }

    /// Answers keep the order of requests: what is asked behind a barrier is answered behind it.
    fn wait_while_in_barrier(&self, guest: &RankSession) {
        let is_waiting = |state: &mut JobState| state.in_barriers().any(|outbox| Arc::ptr_eq(outbox, &guest.outbox));
        drop(self.changed.wait_while(self.lock(), is_waiting));
    }

    fn fail_rank(&self, rank: Rank, reason: &str) {
        self.lose("failed", rank, reason);
        self.end(reason, |state| &mut state.illness);
    }

    /// Notifies all ranks, once, that a rank has gone.
    fn lose(&self, how: &str, rank: Rank, reason: &str) {
        let mut state = self.lock();
        if !state.gone.contains_key(&rank) {
            let line = format!("{how} {rank} {}", reason.replace('\n', " "));
            state.mailboxes.tell_all(&line);
            state.gone.insert(rank, line);
        }
    }

    /// Keeps the first reason of its kind, and answers the ranks that wait in vain.
    fn end(&self, reason: &str, kind: fn(&mut JobState) -> &mut Option<String>) {
        let mut state = self.lock();
        kind(&mut state).get_or_insert_with(|| reason.replace('\n', " "));
        self.end_vain_barriers(&mut state);
        self.changed.notify_all();
    }

    /// Removes a session that has ended from its barrier. Its rank may come again.
    fn leave(&self, guest: &RankSession) {
        let mut state = self.lock();
        for barrier in state.barriers.values_mut() {
            barrier.retain(|outbox| !Arc::ptr_eq(outbox, &guest.outbox));
        }
        state.barriers.retain(|_, barrier| !barrier.is_empty());
        guest.outbox.close();
        self.changed.notify_all();
    }

    /// The rank of a session that has ended does not return to its generation. The other ranks of that are informed, unless
    /// the launcher reports the end of the process, which it does not see where a shell lives on.
    fn leave_behind(&self, rank: Rank, generation: u64) {
        let is_unknown = |state: &mut JobState| !state.gone.contains_key(&rank);
        let waited = self.changed.wait_timeout_while(self.lock(), REASON_GRACE, is_unknown);
        let (mut state, waited) = waited.unwrap_or_else(PoisonError::into_inner);
        if !waited.timed_out() {
            return;
        }
        state.left[rank] = state.left[rank].max(generation);
        let is_of_its_generation = |other: Rank| state.comings[other] == generation;
        state.mailboxes.tell_some(&format!("gone {rank} {}", reason_of_leaving(rank)), is_of_its_generation);
        self.end_vain_barriers(&mut state);
        self.changed.notify_all();
    }
}
