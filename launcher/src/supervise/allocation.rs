//! The hosts that Slurm has given to this process: a job that names none is on those.

use std::process::Command;

use super::hosts::is_this_host;
use crate::node_list::{nodes, numbers};

/// What starts a command on a node of the allocation: a step of one task that shares the node with all other steps, and is bound to no part of it.
const SLURM_SHELL: &str =
    "srun --quiet --overlap --nodes=1 --ntasks=1 --ntasks-per-node=1 --cpu-bind=none --mpi=none --nodelist=%h sh -c";
/// What options of the allocation's would make of that step.
const OPTIONS: [&str; 5] =
    ["SLURM_CPUS_PER_TASK", "SRUN_CPUS_PER_TASK", "SLURM_DISTRIBUTION", "SLURM_HOSTFILE", "SLURM_NTASKS_PER_NODE"];
/// The first number of steps that are no `srun` of the user's: the batch script, and the shell of `salloc`.
const FIRST_SPECIAL_STEP: u32 = 0xffff_fff0;

/// Nodes of a batch system's.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Allocation {
    /// Each as often as it has tasks.
    hosts: Vec<String>,
}

impl Allocation {
    /// The allocation of Slurm's that this process is in. A task of a step is not one who starts others on all of its nodes.
    pub fn of_this_process() -> Option<Self> {
        Self::from_variables(|name| std::env::var(name).ok())
    }

    fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Option<Self> {
        variable("SLURM_JOB_ID")?;
        let step = variable("SLURM_STEP_ID").and_then(|step| step.parse().ok());
        if step.is_some_and(|step: u32| step < FIRST_SPECIAL_STEP) {
            return None;
        }
        let nodes = nodes(&variable("SLURM_JOB_NODELIST")?);
        let counts = variable("SLURM_TASKS_PER_NODE").and_then(|list| numbers(&list));
        let counts = counts.filter(|counts| counts.len() == nodes.len()).unwrap_or_else(|| vec![1; nodes.len()]);
        let hosts = nodes.into_iter().zip(counts).flat_map(|(node, count)| std::iter::repeat_n(node, count));
        Some(Self { hosts: hosts.take(crate::MAX_RANKS).collect() }).filter(|found| !found.hosts.is_empty())
    }

    /// Hosts for a job that names none; empty where they are this one alone.
    pub fn hosts(&self) -> Vec<String> {
        if self.hosts.iter().all(|host| is_this_host(host)) { Vec::new() } else { self.hosts.clone() }
    }

    /// What reaches all these hosts, where each is a node of the allocation.
    pub fn remote_shell(&self, hosts: &[String]) -> Option<&'static str> {
        let is_ours = |host: &String| is_this_host(host) || self.hosts.contains(host);
        hosts.iter().all(is_ours).then_some(SLURM_SHELL)
    }
}

/// Takes from the environment of a remote shell what would mislead it, or the command that it starts.
pub(super) fn clean(shell: &mut Command) {
    // It is of the shell that this process was started from.
    shell.env_remove("SSH_CONNECTION");
    if shell.get_program() == "srun" {
        for name in OPTIONS {
            shell.env_remove(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nodes_of_an_allocation_are_those_of_its_jobs_each_as_often_as_it_has_tasks() {
        let hosts = |variables: &[(&str, &str)]| {
            let value =
                |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).into());
            Allocation::from_variables(value).map(|found| found.hosts().join(" "))
        };
        let (job, nodes) = (("SLURM_JOB_ID", "7"), ("SLURM_JOB_NODELIST", "node[1-2]"));
        let tasks = ("SLURM_TASKS_PER_NODE", "2,1");
        assert_eq!(hosts(&[job, nodes]).as_deref(), Some("node1 node2"));
        assert_eq!(hosts(&[job, nodes, tasks]).as_deref(), Some("node1 node1 node2"));
        assert_eq!(
            hosts(&[job, nodes, ("SLURM_TASKS_PER_NODE", "2(x3)")]).as_deref(),
            Some("node1 node2"),
            "of others"
        );
        assert_eq!(hosts(&[job, nodes, ("SLURM_STEP_ID", "4294967290")]).as_deref(), Some("node1 node2"), "salloc's");
        assert_eq!(hosts(&[job, nodes, ("SLURM_STEP_ID", "0")]), None, "a task");
        assert_eq!(hosts(&[job]), None);
        assert_eq!(hosts(&[nodes]), None);
        assert_eq!(hosts(&[job, ("SLURM_JOB_NODELIST", "localhost")]).as_deref(), Some(""), "this host alone");
    }

    #[test]
    fn nodes_of_the_allocation_are_reached_by_srun_and_no_others() {
        let found = Allocation { hosts: vec!["node1".into(), "node2".into()] };
        let shell = |hosts: &[&str]| found.remote_shell(&hosts.iter().map(ToString::to_string).collect::<Vec<_>>());
        assert!(shell(&["node2", "localhost"]).is_some_and(|shell| shell.starts_with("srun ")));
        assert_eq!(shell(&["node2", "node3"]), None);
    }
}
