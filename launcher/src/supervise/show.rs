//! The shell lines that start a job by hand.

use std::path::Path;

use super::agent::{forwarded_environment, working_directory};
use super::remote::{quoted, remote_command};
use super::{JobSpec, LaunchError, SocketDirectory};
use crate::managed::own_addresses;
use crate::{JOB, RANK, Rank, SIZE, TOKEN, Token, WORKERS};

/// The first of the ports from which one is taken, and how many there are: below those that kernels hand out.
const FIRST_PORT: u16 = 20_000;
const PORTS: u16 = 10_000;

impl JobSpec {
    /// Returns shell lines that start this job by hand: what serves its board first, then a line for each process. On several hosts
    /// they share a token, a new one each time.
    ///
    /// # Errors
    /// There is no working directory, or no remote shell.
    pub fn show(&self) -> Result<Vec<String>, LaunchError> {
        let ranks = self.size;
        let mut place =
            SocketDirectory::path_of(&format!("roci-by-hand-{}", std::process::id())).join("job").display().to_string();
        let mut lines = Vec::new();
        if self.is_on_several_hosts() {
            let port = FIRST_PORT + rand::random_range(0..PORTS);
            let address = own_addresses(port).first().map_or_else(|| format!("127.0.0.1:{port}"), ToString::to_string);
            place = format!("tcp:{address}");
            lines.push(format!("export {TOKEN}={}", Token::random().as_str()));
        }
        lines.push(format!("roci board -n {ranks} --listen {} &", quoted(place.trim_start_matches("tcp:"))));
        let directory = working_directory(self.directory.as_deref())?;
        for share in self.shares() {
            for &rank in &share.firsts {
                let line = self.line(rank, &place, self.directory.as_ref().map(|_| directory.as_path()));
                lines.push(match &share.name {
                    None => line,
                    Some(host) => self.remote_line(host, rank, &place, &directory)?,
                });
            }
        }
        Ok(lines)
    }

    /// A line for a process of this host.
    fn line(&self, rank: Rank, place: &str, directory: Option<&Path>) -> String {
        let enter =
            directory.map_or_else(String::new, |path| format!("cd {} && ", quoted(&path.display().to_string())));
        let variables = [(JOB, place.to_owned()), (RANK, rank.to_string()), (SIZE, self.size.to_string())];
        let workers = (self.workers > 1).then(|| (WORKERS, self.workers.to_string()));
        let own = variables.into_iter().chain(workers).map(|(name, value)| (name.to_owned(), value));
        let all = own.chain(self.environment.iter().cloned());
        let words = all.map(|(name, value)| format!("{name}={}", quoted(&value)));
        let program = self.wrapper_of(rank).chain(self.program.iter().cloned()).map(|word| quoted(&word));
        format!("{enter}{}", words.chain(program).collect::<Vec<_>>().join(" "))
    }

    /// A line for a process of another host. Of the environment that `roci run` would forward it has what is not the shell's own there.
    fn remote_line(&self, host: &str, rank: Rank, place: &str, directory: &Path) -> Result<String, LaunchError> {
        let command = remote_command(&self.remote_shell, host)?;
        let words = std::iter::once(command.get_program()).chain(command.get_args());
        let shell = words.map(|word| quoted(&word.to_string_lossy())).collect::<Vec<_>>().join(" ");
        let mut job = self.clone();
        let paths =
            forwarded_environment().into_iter().filter(|(name, _)| matches!(name.as_str(), "PATH" | "LD_LIBRARY_PATH"));
        job.environment.splice(0..0, paths);
        // The token goes through standard input: a command line is anybody's to read.
        let line = quoted(&format!("read -r {TOKEN}; export {TOKEN}; {}", job.line(rank, place, Some(directory))));
        Ok(format!("printf '%s\\n' \"${TOKEN}\" | {shell} {line}"))
    }
}
