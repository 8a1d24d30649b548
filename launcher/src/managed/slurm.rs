//! Slurm without a plugin for process managers, `srun --mpi=none`: variables say who this process is, and nothing is carried
//! from one to the other.

use std::sync::Mutex;

use rustix::process::geteuid;

use super::{ManagedJob, check_size, listen, serve};
use crate::environment::{number, number_if_set, variable};
use crate::node_list::nodes;
use crate::supervise::SocketDirectory;
use crate::{Board, JobError, Rank, TOKEN, Token};

/// The first of the ports that boards on several nodes use, and how many there are: below those that kernels hand out.
const FIRST_PORT: u32 = 20_000;
const PORTS: u32 = 10_000;

/// This process's part in a step of a Slurm job.
pub(crate) struct SlurmStep {
    rank: Rank,
    size: usize,
    job: u32,
    step: u32,
    /// Those on which task 0 may be: the first one, unless the user has said where each task goes.
    nodes: Vec<String>,
    is_on_one_node: bool,
}

impl SlurmStep {
    /// The step that `srun` has started this process in. The variables of a batch script alone do not make one.
    pub(crate) fn of_this_process() -> Result<Option<Self>, JobError> {
        let (Some(rank), Some(size)) = (number_if_set("SLURM_PROCID")?, number_if_set("SLURM_STEP_NUM_TASKS")?) else {
            return Ok(None);
        };
        let given = |name| {
            let number = number(name)?;
            let problem = "is not a whole number";
            u32::try_from(number).map_err(|_| JobError::Variable { name, value: number.to_string(), problem })
        };
        let (job, step) = (given("SLURM_JOB_ID")?, given("SLURM_STEP_ID")?);
        let mut nodes = nodes(&variable("SLURM_STEP_NODELIST")?);
        let is_on_one_node = nodes.len() < 2;
        let is_arbitrary = std::env::var("SLURM_DISTRIBUTION").is_ok_and(|found| found.starts_with("arbitrary"));
        nodes.truncate(if is_arbitrary { nodes.len() } else { 1 });
        check_size(size)?;
        if rank >= size {
            return Err(JobError::Variable {
                name: "SLURM_PROCID",
                value: rank.to_string(),
                problem: "is no task of the step",
            });
        }
        Ok(Some(Self { rank, size, job, step, nodes, is_on_one_node }))
    }

    pub(crate) fn enrol(self) -> Result<ManagedJob, JobError> {
        if self.is_on_one_node { self.on_one_node() } else { self.on_several_nodes() }
    }

    /// The board is a socket in a directory of this user's, whom the kernel vouches for: no token is needed.
    fn on_one_node(self) -> Result<ManagedJob, JobError> {
        let (rank, size) = (self.rank, self.size);
        let name = format!("roci-slurm-{}-{}.{}", geteuid().as_raw(), self.job, self.step);
        let socket = SocketDirectory::path_of(&name).join("job");
        let (mut board, mut directory) = (None, None);
        if rank == 0 {
            directory = Some(SocketDirectory::named(&name).map_err(JobError::NoBoard)?);
            let serving = Board::new(size, Token::default());
            serving.serve_unix(&socket).map_err(JobError::NoBoard)?;
            board = Some(serving);
        }
        let places = vec![socket.display().to_string()];
        let (token, may_come, directory) = (Token::default(), true, Mutex::new(directory));
        Ok(ManagedJob { rank, size, places, may_come, token, board, directory })
    }

    /// The board is at the node of task 0.
    fn on_several_nodes(self) -> Result<ManagedJob, JobError> {
        let (rank, size) = (self.rank, self.size);
        let token = Token::from_environment()?;
        if token.as_str().is_empty() {
            return Err(JobError::NoToken(TOKEN));
        }
        let port = self.port();
        let board =
            if rank == 0 { Some(serve(size, token.clone(), listen(port).map_err(JobError::NoBoard)?)?) } else { None };
        let places = self.nodes.iter().map(|node| format!("tcp:{node}:{port}")).collect();
        let (may_come, directory) = (true, Mutex::default());
        Ok(ManagedJob { rank, size, places, may_come, token, board, directory })
    }

    /// A port that the steps of jobs do not share often; where they do, the second finds it taken, and says so.
    fn port(&self) -> u16 {
        let mixed = self.job.wrapping_mul(0x9e37_79b1).wrapping_add(self.step.wrapping_mul(0x85eb_ca6b));
        (FIRST_PORT + mixed % PORTS) as u16
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_of_one_job_and_jobs_in_a_row_use_ports_of_their_own() {
        let port =
            |job, step| SlurmStep { rank: 0, size: 2, job, step, nodes: Vec::new(), is_on_one_node: false }.port();
        let ports: std::collections::BTreeSet<_> =
            (0..8).flat_map(|job| (0..8).map(move |step| port(1000 + job, step))).collect();
        assert!(ports.len() > 60 && ports.iter().all(|port| (20_000..30_000).contains(port)), "{}", ports.len());
    }
}
