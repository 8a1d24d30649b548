//! The job: which rank this is, how many there are, a board where they leave their addresses, and their mail; and the
//! supervision of its ranks on this machine.
//!
//! A launcher hosts the [`Board`]; each rank is a [`Job`] that talks to it over a UNIX or TCP socket, one line
//! per request. The board answers a look-up once the value is there, a barrier once all ranks are, and either
//! with the reason as soon as a rank that is needed has gone.
//!
//! # The protocol
//! | request | answer |
//! |---|---|
//! | `hello RANK TOKEN` | `ok`: mail for this rank comes here; `error REASON` where it is no rank, or is another's |
//! | `put KEY VALUE` | `ok`, or `error REASON`; values are left for ranks of the same generation |
//! | `get KEY` | `ok VALUE`, once it is there, or `error REASON` |
//! | `look KEY` | `ok =VALUE`, or `ok` where it is not there yet |
//! | `barrier` | `ok`, once all ranks are there, or `error REASON` |
//! | `present`, `status` | `ok` while all are there, or while the job as a whole goes on, or `error REASON` |
//! | `mail TO TEXT` | `mailed`, or `unmailed REASON` |
//! | `absent` | `absent RANKS;RANKS`, with commas: in the job but not in the barrier that some have entered; not in the job |
//!
//! The first request is the hello. Who does not say it within five seconds, without the job's token, or as another user at
//! a UNIX socket, is hung up on. An empty token is left out.
//!
//! Besides answers, a session receives unasked `mail FROM TEXT`, and of every other rank whose
//! process has ended `gone RANK REASON`, or `failed RANK REASON` where it ended ill; `gone RANK REASON` too where the session
//! of a rank of its generation has ended, though its process, or a shell before it, may live; and `report`, where somebody
//! wants to know what it waits for. Answers come in the order of their requests, but for those to mail and to `absent`, which do not
//! wait for a barrier: a rank that waits for the others there must still be able to write to them. That is why they have
//! words of their own.

#![forbid(unsafe_code)]

mod absent;
mod acceptor;
mod board;
mod client;
mod dialogue;
mod environment;
mod error;
mod inbox;
mod job_state;
mod local;
mod mailboxes;
mod managed;
mod node_list;
mod outbox;
mod refusal;
mod reminder;
mod sentence;
mod signal;
mod stream;
mod supervise;
#[cfg(test)]
mod tests;
mod token;
mod values;

pub use absent::Absent;
pub use board::Board;
pub use client::Job;
pub use error::JobError;
pub use inbox::Departure;
pub use local::LocalMail;
pub use managed::{is_private, own_addresses};
pub use reminder::Reminder;
pub use supervise::{
    Allocation, EXIT_TIMEOUT, JobSpec, LaunchError, OutputMode, REMOTE_SHELL, RankError, SocketDirectory, allowed_cpus,
    become_rank, launch, parse_hosts, read_hostfile, serve_launcher,
};
pub use token::Token;

/// A process's number in its job, from 0.
pub type Rank = usize;

/// Environment variables that a launcher sets for each rank: its number, its job and its CPUs. They are no knobs.
pub const VARIABLES: [&str; 6] = [RANK, SIZE, JOB, TOKEN, CPUS, WORKERS];
/// This rank's number, from 0.
pub const RANK: &str = "ROCI_RANK";
/// How many ranks there are.
pub const SIZE: &str = "ROCI_SIZE";
/// How many ranks this process is, each of a thread, from [`RANK`] on; one without it.
pub const WORKERS: &str = "ROCI_WORKERS";
/// How many processors the ranks of this host share; a rank that is pinned to one cannot see that.
pub const CPUS: &str = "ROCI_CPUS";
/// Where the board is: a socket's path, or `HOST:PORT` behind `tcp:`.
pub const JOB: &str = "ROCI_JOB";
/// The job's token, which a rank says to the board.
pub const TOKEN: &str = "ROCI_TOKEN";

/// The longest text of one mail, in bytes.
pub const MAIL_TEXT_LIMIT: usize = 3 << 10;
/// Mails that wait at one place: at the board for a rank that has not come, there again for a rank that does not
/// read, and in the rank for a caller that does not poll. Every other rank may have asked once and answered once.
pub const MAIL_LIMIT: usize = 2 * MAX_RANKS;

/// Ranks of one job at most.
pub const MAX_RANKS: usize = 1024;
/// The longest line that either side takes.
const LINE_LIMIT: u64 = 4096;

/// How ranks reach each other before they are connected.
///
/// Mails of one sender to one receiver arrive in order, and each of them once.
pub trait Mail: Send {
    /// Sends `text`, which has no newline and at most [`MAIL_TEXT_LIMIT`] bytes, to rank `to`.
    ///
    /// Success says that it waits for the receiver, not that it was read: a rank that dies leaves its mail unread.
    fn send(&mut self, to: Rank, text: &str) -> Result<(), JobError>;

    /// The next mail that has come and its sender, without waiting.
    fn poll(&mut self) -> Result<Option<(Rank, String)>, JobError>;
}
