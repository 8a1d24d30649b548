//! A job that somebody else's launcher started: `mpiexec` (Hydra), `srun` (Slurm), `mpirun` (Open MPI, PRRTE).
//!
//! Such a launcher gives ranks and little more. So rank 0 serves the job's board to all, in its own process, over TCP; the
//! manager carries the board's addresses and the token to the other ranks. Slurm without a plugin (`srun --mpi=none`)
//! carries nothing: there the board is a socket in the node's directory of temporary files, or, on several nodes, at a
//! port that follows from the job's number, with a token that the user must give.
//!
//! A process joins once, however many [`Job`](crate::Job)s it makes of that, one after the other.

mod board_address;
mod slurm;

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use roci_pmi::ProcessManager;

pub(crate) use board_address::BoardAddress;
use board_address::NoBoardAddress;
pub use board_address::own_addresses;
use slurm::SlurmStep;

use crate::supervise::SocketDirectory;
use crate::{Board, JobError, MAX_RANKS, Rank, Reminder, Token};

/// How long the board may take to see that rank 0's own session has ended.
const OWN_END: Duration = Duration::from_secs(1);

/// This process's part in a job whose launcher serves no board.
pub(crate) struct ManagedJob {
    pub(crate) rank: Rank,
    pub(crate) size: usize,
    /// Where the board is, in the order in which to try.
    pub(crate) places: Vec<String>,
    /// It need not be there yet.
    pub(crate) may_come: bool,
    pub(crate) token: Token,
    /// Rank 0 serves it ...
    pub(crate) board: Option<Board>,
    /// ... where it is a socket, in this directory.
    pub(crate) directory: Mutex<Option<SocketDirectory>>,
}

/// The job that this process has joined.
static JOINED: Mutex<Option<Arc<ManagedJob>>> = Mutex::new(None);

/// Joins the job that a manager has started this process in; `None` where none has.
pub(crate) fn join(timeout: Duration) -> Result<Option<Arc<ManagedJob>>, JobError> {
    let mut joined = JOINED.lock().unwrap_or_else(PoisonError::into_inner);
    if joined.is_none() {
        *joined = enrol(timeout)?.map(Arc::new);
    }
    Ok(joined.clone())
}

fn enrol(timeout: Duration) -> Result<Option<ManagedJob>, JobError> {
    if let Some(manager) = ProcessManager::of_this_process()? {
        return ManagedJob::over(manager, timeout).map(Some);
    }
    SlurmStep::of_this_process()?.map(SlurmStep::enrol).transpose()
}

impl ManagedJob {
    fn over(manager: ProcessManager, timeout: Duration) -> Result<Self, JobError> {
        let (rank, size) = (manager.rank(), manager.size());
        check_size(size)?;
        let mut board = None;
        let mut text = None;
        if rank == 0 {
            let listener = listen(0).map_err(JobError::NoBoard)?;
            let port = listener.local_addr().map_err(JobError::NoBoard)?.port();
            let token = Token::random();
            text = Some(BoardAddress::of_this_host(port, token.clone()).to_string());
            board = Some(serve(size, token, listener)?);
        }
        let text = publish(manager, text, timeout)?;
        let announced: BoardAddress = text.parse().map_err(|NoBoardAddress| JobError::BoardAddress(text))?;
        let places = announced.addresses_here().iter().map(|address| format!("tcp:{address}")).collect();
        let (token, may_come, directory) = (announced.into_token(), false, Mutex::default());
        Ok(Self { rank, size, places, may_come, token, board, directory })
    }

    /// Whether the board may be where a place says: no other user can have put a socket into a directory that is this user's alone.
    pub(crate) fn may_be_at(place: &str) -> bool {
        place.starts_with("tcp:") || Path::new(place).parent().is_some_and(is_private)
    }

    /// Ends this process's part in a generation of the job. Rank 0 waits for the others first: they would lose the board
    /// otherwise. It says who is missed.
    pub(crate) fn leave(&self, generation: u64, timeout: Duration) {
        let Some(board) = &self.board else { return };
        let (deadline, mut reminder) = (Instant::now() + timeout, Reminder::start());
        for rank in 1..self.size {
            while !board.outlast_generation(rank, generation, deadline.min(reminder.next())) {
                if Instant::now() >= deadline {
                    return;
                }
                if let Some(waited) = reminder.due() {
                    let waited = waited.as_secs();
                    tracing::warn!("rank 0 serves the job, and has waited {waited} s for rank {rank} to leave it");
                }
            }
        }
        let mut directory = self.directory.lock().unwrap_or_else(PoisonError::into_inner);
        if directory.is_none() {
            return;
        }
        // Its own session has ended, too, which the board sees a moment later.
        board.outlast_generation(0, generation, Instant::now() + OWN_END);
        if board.close() {
            // The next job of this process gets a board of its own.
            *directory = None;
            *JOINED.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
    }
}

pub(crate) fn check_size(size: usize) -> Result<(), JobError> {
    if (1..=MAX_RANKS).contains(&size) { Ok(()) } else { Err(JobError::Size(size)) }
}

/// Listens at a port of every address of this host's; the kernel chooses port 0.
pub(crate) fn listen(port: u16) -> io::Result<TcpListener> {
    let everywhere: [IpAddr; 2] = [Ipv6Addr::UNSPECIFIED.into(), Ipv4Addr::UNSPECIFIED.into()];
    let everywhere = everywhere.map(|ip| SocketAddr::from((ip, port)));
    TcpListener::bind(&everywhere[..])
}

pub(crate) fn serve(size: usize, token: Token, listener: TcpListener) -> Result<Board, JobError> {
    let board = Board::new(size, token);
    board.serve_tcp(listener).map_err(JobError::NoBoard)?;
    Ok(board)
}

/// Talks to the manager on a thread of its own: it answers when all ranks have come, and this wait has an end and is
/// reported as others are.
fn publish(manager: ProcessManager, text: Option<String>, timeout: Duration) -> Result<String, JobError> {
    let rank = manager.rank();
    let (sender, outcome) = channel();
    let ask = move || drop(sender.send(manager.publish(text.as_deref())));
    thread::Builder::new().name("roci-pmi".into()).spawn(ask).map_err(JobError::NoBoard)?;
    let (deadline, mut reminder) = (Instant::now() + timeout, Reminder::start());
    loop {
        let next = deadline.min(reminder.next()).saturating_duration_since(Instant::now());
        match outcome.recv_timeout(next) {
            Ok(text) => return Ok(text?),
            Err(RecvTimeoutError::Disconnected) => return Err(JobError::Gone),
            Err(RecvTimeoutError::Timeout) if Instant::now() >= deadline => {
                return Err(JobError::Timeout(timeout.as_secs()));
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
        if let Some(waited) = reminder.due() {
            let waited = waited.as_secs();
            tracing::warn!("rank {rank} has waited {waited} s for all ranks to come to the process manager");
        }
    }
}

/// Whether a directory is this user's, and others may not enter it.
pub fn is_private(directory: &Path) -> bool {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    const OTHERS_RIGHTS: u32 = 6;
    std::fs::symlink_metadata(directory).is_ok_and(|found| {
        found.is_dir()
            && found.uid() == rustix::process::geteuid().as_raw()
            && found.permissions().mode().trailing_zeros() >= OTHERS_RIGHTS
    })
}
