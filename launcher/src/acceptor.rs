//! Who connects to the board: a stranger until it has said `hello` with the job's token.
//!
//! One thread waits for all strangers. It reads one line of each at most, gives up on each after a few seconds, and starts a
//! session only for who has the token. So strangers cost neither threads nor a rank's place. Where there are too many the
//! oldest one goes: a rank says hello as soon as it is connected.

use std::io::{ErrorKind, Read, Write};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::board::{SharedBoard, start_session};
use crate::stream::{JobStream, Listener};
use crate::{LINE_LIMIT, MAX_RANKS, Token};

/// How long a stranger may take until its hello is there.
const HELLO_DEADLINE: Duration = Duration::from_secs(5);
/// Strangers at a time: all ranks of the largest job may connect at once.
const MOST_STRANGERS: usize = MAX_RANKS;
/// How long the acceptor accepts no connection after the process has run out of descriptors or memory.
const PAUSE: Duration = Duration::from_millis(100);
/// How long that may go on before the board is closed: who has not come by then gets an end instead of no answer.
const SHORTAGE: Duration = Duration::from_secs(3);
/// How long the thread may outlive its board.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// Accepts connections to a board until that is dropped.
pub(super) struct Acceptor {
    pub(super) listener: Listener,
    pub(super) board: Arc<SharedBoard>,
    pub(super) token: Token,
    /// There as long as the board is.
    pub(super) is_served: Weak<()>,
    /// Whether the end of a session is the only sign that its rank has ended: the session then fails the rank.
    pub(super) fails_ranks: bool,
}

/// A connection that has not said hello.
struct Stranger {
    stream: JobStream,
    from: String,
    until: Instant,
    /// What it has said so far.
    said: Vec<u8>,
}

impl Acceptor {
    /// Serves on a thread of its own.
    pub(super) fn start(self) -> std::io::Result<()> {
        self.listener.set_nonblocking()?;
        let started = thread::Builder::new().name("roci-accept".into()).spawn(move || self.run());
        started.map(drop).map_err(|error| std::io::Error::new(error.kind(), format!("cannot start a thread: {error}")))
    }

    fn run(self) {
        let mut strangers = Vec::new();
        let mut paused_until = None;
        let mut shortage: Option<Instant> = None;
        while self.is_served.strong_count() > 0 {
            let (has_new, has_said) = self.wait(&strangers, paused_until);
            let now = Instant::now();
            let attend = |(stranger, has_said): (Stranger, bool)| match has_said {
                true => self.listen_to(stranger),
                false if stranger.until <= now => stranger.forget("it said nothing in time"),
                false => Some(stranger),
            };
            strangers = strangers.into_iter().zip(has_said).filter_map(attend).collect();
            paused_until = paused_until.filter(|&until| now < until);
            // Who connects now is the next board's, if there is one at this listener.
            if !has_new || self.is_served.strong_count() == 0 {
                continue;
            }
            let Err(error) = self.accept(&mut strangers) else {
                shortage = None;
                continue;
            };
            if shortage.is_none() {
                tracing::warn!("the launcher cannot accept a connection: {error}");
            }
            if shortage.get_or_insert(now).elapsed() > SHORTAGE {
                // The listener goes, and with it the connections that wait there.
                return tracing::error!("the launcher accepts no connections any more: {error}");
            }
            paused_until = Some(now + PAUSE);
        }
    }

    /// Waits for something to do: whether somebody connects, and which strangers have said something.
    fn wait(&self, strangers: &[Stranger], paused_until: Option<Instant>) -> (bool, Vec<bool>) {
        let interest = if paused_until.is_some() { PollFlags::empty() } else { PollFlags::IN };
        let mut fds = vec![PollFd::new(&self.listener, interest)];
        fds.extend(strangers.iter().map(|stranger| PollFd::new(&stranger.stream, PollFlags::IN)));
        let soonest = strangers.iter().map(|stranger| stranger.until).chain(paused_until).min();
        let longest = soonest.map_or(LONGEST_WAIT, |at| at.saturating_duration_since(Instant::now()).min(LONGEST_WAIT));
        let timeout = Timespec::try_from(longest).expect("a second at most");
        if let Err(error) = poll(&mut fds, Some(&timeout)) {
            if error != Errno::INTR {
                thread::sleep(PAUSE);
            }
            return (false, vec![false; strangers.len()]);
        }
        let mut ready = fds.iter().map(|fd| !fd.revents().is_empty());
        (ready.next().unwrap_or(false), ready.collect())
    }

    /// Accepts who has connected. An error where there is no room for more in this process, and no stranger whose place could
    /// be had.
    fn accept(&self, strangers: &mut Vec<Stranger>) -> std::io::Result<()> {
        for _ in 0..MOST_STRANGERS {
            match self.listener.accept() {
                Ok((stream, from)) => {
                    let until = Instant::now() + HELLO_DEADLINE;
                    let stranger = Stranger { stream, from, until, said: Vec::new() };
                    if strangers.len() == MOST_STRANGERS {
                        strangers.remove(0).forget("too many others have connected");
                    }
                    if stranger.stream.is_of_this_user() {
                        strangers.push(stranger);
                    } else {
                        stranger.refuse("the job is another user's");
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionAborted) => {}
                Err(error) => {
                    let oldest = strangers.len().div_ceil(2);
                    for stranger in strangers.drain(..oldest) {
                        stranger.refuse(&format!("the launcher has no room for it: {error}"));
                    }
                    return if oldest > 0 { Ok(()) } else { Err(error) };
                }
            }
        }
        Ok(())
    }

    /// Reads what a stranger has said. Who has said hello is one no longer.
    fn listen_to(&self, mut stranger: Stranger) -> Option<Stranger> {
        let mut bytes = [0; LINE_LIMIT as usize];
        match stranger.stream.read(&mut bytes) {
            Ok(0) => return stranger.forget("it hung up"),
            Ok(count) => stranger.said.extend(&bytes[..count]),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                return Some(stranger);
            }
            Err(error) => return stranger.forget(&error.to_string()),
        }
        let Some(end) = stranger.said.iter().position(|&byte| byte == b'\n') else {
            let is_short = stranger.said.len() < LINE_LIMIT as usize;
            return if is_short { Some(stranger) } else { stranger.refuse("it does not say hello") };
        };
        match self.greeted_rank(&stranger.said[..end]) {
            Ok(rank) => {
                let said = [format!("hello {rank}").as_bytes(), &stranger.said[end..]].concat();
                start_session(self.board.clone(), stranger.stream, stranger.from, said, self.fails_ranks);
                None
            }
            Err(reason) => stranger.refuse(reason),
        }
    }

    /// The rank in a line `hello RANK TOKEN`; without the token where that is empty.
    fn greeted_rank<'a>(&self, line: &'a [u8]) -> Result<&'a str, &'static str> {
        let words = std::str::from_utf8(line).ok().and_then(|line| line.strip_prefix("hello "));
        let (rank, token) =
            words.map(|words| words.split_once(' ').unwrap_or((words, ""))).ok_or("it does not say hello")?;
        if self.token.is(token) { Ok(rank) } else { Err("it does not have the job's token") }
    }
}

impl Stranger {
    /// Hangs up, and says why here.
    fn forget(self, reason: &str) -> Option<Self> {
        tracing::info!("a connection from {} was closed: {reason}", self.from);
        None
    }

    /// Hangs up, and says why here and there.
    fn refuse(mut self, reason: &str) -> Option<Self> {
        // Who does not read need not know.
        let _ = self.stream.write(format!("error {reason}\n").as_bytes());
        self.forget(reason)
    }
}
