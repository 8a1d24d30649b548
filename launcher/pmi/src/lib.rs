//! Clients of process managers: PMI-1, as Hydra's `mpiexec` and Slurm's `srun --mpi=pmi2` speak it, and PMIx, as Open MPI's
//! `mpirun` and PRRTE do.
//!
//! A job needs one thing of its manager beside ranks: a text that rank 0 publishes, and that all read. So that is the whole
//! interface: [`ProcessManager::of_this_process`], then [`ProcessManager::publish`], once in a process. After that the
//! manager is dismissed: it goes on watching its processes, and a process may end as it likes.

#![deny(unsafe_code)]

mod error;
mod inherited;
mod pmi1;
mod pmix;

pub use error::PmiError;

/// The key that rank 0 publishes.
const KEY: &str = "roci-job";

/// The manager that has started this process, which has not been asked for anything yet.
#[derive(Debug)]
pub struct ProcessManager {
    protocol: ManagerProtocol,
    rank: usize,
    size: usize,
}

#[derive(Debug)]
enum ManagerProtocol {
    Pmi1(pmi1::Pmi1Client),
    Pmix(Box<pmix::PmixClient>),
}

impl ProcessManager {
    /// Returns the manager that has started this process, if one has.
    ///
    /// PMI-1 is recognized by `PMI_FD`, and PMIx by `PMIX_NAMESPACE`. Where both are there the first is the nearer one:
    /// Hydra's `mpiexec` in an allocation of another manager's hands its environment on.
    ///
    /// # Errors
    /// A variable makes no sense, the descriptor is not open, or PMIx's library is missing or refuses.
    pub fn of_this_process() -> Result<Option<Self>, PmiError> {
        if let Some(client) = pmi1::Pmi1Client::from_environment()? {
            let (rank, size) = (client.rank, client.size);
            return Ok(Some(Self { protocol: ManagerProtocol::Pmi1(client), rank, size }));
        }
        let Some((client, rank, size)) = pmix::PmixClient::from_environment()? else { return Ok(None) };
        Ok(Some(Self { protocol: ManagerProtocol::Pmix(Box::new(client)), rank, size }))
    }

    /// This process's number, from 0.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// How many processes there are.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Publishes `text`, which rank 0 gives, and returns it in all ranks. Waits for all of them, and takes leave of the
    /// manager. The text has printable ASCII only, and no blank.
    ///
    /// # Errors
    /// The manager refuses a request, says something else, or hangs up; or the text is longer than it takes.
    ///
    /// # Panics
    /// Where another rank gives a text, rank 0 does not, or the text has other characters.
    pub fn publish(self, text: Option<&str>) -> Result<String, PmiError> {
        assert_eq!(text.is_some(), self.rank == 0, "rank 0 publishes");
        assert!(text.is_none_or(|text| text.bytes().all(|byte| byte.is_ascii_graphic())), "printable, without a blank");
        match self.protocol {
            ManagerProtocol::Pmi1(client) => client.publish(text),
            ManagerProtocol::Pmix(client) => client.publish(text),
        }
    }
}

/// Returns an environment variable that is a whole number; `None` where it is not set.
fn number(name: &'static str) -> Result<Option<usize>, PmiError> {
    let Some(value) = std::env::var_os(name) else { return Ok(None) };
    let value = value.to_string_lossy().into_owned();
    value.parse().map(Some).map_err(|_| PmiError::Variable { name, value })
}
