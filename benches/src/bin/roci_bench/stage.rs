//! Where cells run: programs, processors, network namespaces.

use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};

use crate::command::{CommandLine, Lines, Side};
use crate::failure::CellFailure;
use crate::reading::Topology;

/// The addresses of the two namespaces' interfaces.
const VETH: [&str; 2] = ["10.77.0.1", "10.77.0.2"];
/// The interfaces' name, in both.
const INTERFACE: &str = "veth";

/// What the cells of a run need: programs, processors and network namespaces.
#[derive(Debug)]
pub(crate) struct RunSetup {
    /// The `roci` command.
    pub(crate) roci: PathBuf,
    /// This program, which also has the loops of its own.
    pub(crate) this: PathBuf,
    /// Programs that were built for a run.
    pub(crate) built: PathBuf,
    /// What stands in for ssh between the namespaces.
    pub(crate) agent: PathBuf,
    /// What measures between guests, or why nothing can.
    pub(crate) lab: Result<PathBuf, String>,
    /// The two namespaces that lose nothing, or why there are none. Those of other places have the place's name behind theirs.
    pub(crate) namespaces: Result<[String; 2], String>,
    /// Why in none of them packets are lost, where that is so.
    pub(crate) no_loss: Option<String>,
    /// A processor for each side.
    pub(crate) cpus: [usize; 2],
}

impl RunSetup {
    /// Where the client finds the server.
    pub(crate) fn server_address(place: Topology) -> &'static str {
        if place.is_between_namespaces() { VETH[1] } else { "127.0.0.1" }
    }

    /// Both ends' addresses.
    pub(crate) fn addresses(place: Topology) -> [&'static str; 2] {
        if place.is_between_namespaces() { VETH } else { ["127.0.0.1"; 2] }
    }

    /// The network interface of both ends.
    pub(crate) fn interface(place: Topology) -> &'static str {
        if place.is_between_namespaces() { INTERFACE } else { "lo" }
    }

    /// The two namespaces of a place, or why there are none.
    pub(crate) fn namespaces_of(&self, place: Topology) -> Result<[String; 2], CellFailure> {
        debug_assert!(place.is_between_namespaces(), "{place:?} has none");
        match (&self.namespaces, &self.no_loss) {
            (Err(why), _) => Err(CellFailure::NoNamespaces(why.clone())),
            (_, Some(why)) if place.is_lossy() => Err(CellFailure::NoNamespaces(why.clone())),
            (Ok(names), _) if place == Topology::Veth => Ok(names.clone()),
            (Ok(names), _) => Ok(names.each_ref().map(|name| format!("{name}-{}", place.name()))),
        }
    }

    /// The processors as a list.
    pub(crate) fn cpu_list(&self) -> String {
        format!("{},{}", self.cpus[0], self.cpus[1])
    }

    /// The whole command of a line: in its namespace, on its processor.
    pub(crate) fn dress(&self, place: Topology, line: &CommandLine) -> Result<Vec<String>, CellFailure> {
        let mut words = Vec::new();
        let end = usize::from(line.side == Side::Server);
        if place.is_between_namespaces() {
            let namespaces = self.namespaces_of(place)?;
            words.extend(["ip", "netns", "exec", &namespaces[end]].map(str::to_owned));
        }
        if line.side != Side::Both {
            words.extend(["taskset".to_owned(), "-c".to_owned(), self.cpus[end].to_string()]);
        }
        words.extend(line.words.iter().cloned());
        Ok(words)
    }

    /// What a reader types to do the same.
    pub(crate) fn show(&self, place: Topology, lines: &Lines) -> String {
        let show = |line: &CommandLine| {
            let words = self.dress(place, line).unwrap_or_else(|_| line.words.clone());
            let environment =
                line.environment.iter().map(|(name, value)| without_folders(&format!("{name}={}", quoted(value))));
            // A path of this machine says less than a program's name.
            let words = words.iter().map(|word| quoted(base_name(word)));
            environment.chain(words).collect::<Vec<_>>().join(" ")
        };
        match &lines.server {
            Some(server) => format!("{} & {}", show(server), show(&lines.client)),
            None => show(&lines.client),
        }
    }
}

/// The last part of an absolute path.
fn base_name(word: &str) -> &str {
    if word.starts_with('/') { word.rsplit('/').next().unwrap_or(word) } else { word }
}

/// A line whose variables name no folder of this machine: of an absolute path the last two parts are left.
pub(crate) fn without_folders(line: &str) -> String {
    let is_variable = |name: &str| name.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_');
    let shorten = |word: &str| match word.split_once("=/") {
        Some((name, path)) if is_variable(name) => {
            let from = path.rmatch_indices('/').nth(1).map_or(0, |(at, _)| at + 1);
            format!("{name}={}", &path[from..])
        }
        _ => word.to_owned(),
    };
    line.split(' ').map(shorten).collect::<Vec<_>>().join(" ")
}

fn quoted(word: &str) -> String {
    if word.contains([';', ' ', '%', '*']) { format!("'{word}'") } else { word.to_owned() }
}

/// A program's place in PATH.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    if program.starts_with('/') {
        return Some(PathBuf::from(program)).filter(|path| path.exists());
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|path| path.is_file())
}

/// A port that was free a moment ago on this host; the namespaces are ours, and use the same.
pub(crate) fn free_port() -> Result<u16, CellFailure> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| listener.local_addr());
    listener.map(|address| address.port()).map_err(CellFailure::NoPort)
}

/// A path as a word of a command.
pub(crate) fn word(path: &Path) -> String {
    path.display().to_string()
}

#[cfg(test)]
impl RunSetup {
    /// For tests: programs that may not be there, no lab, no namespaces.
    pub(crate) fn bare() -> Self {
        Self {
            roci: "/opt/roci".into(),
            this: "/opt/roci_bench".into(),
            built: "/opt".into(),
            agent: "/opt/agent".into(),
            lab: Err("no lab".into()),
            namespaces: Err("needs root".into()),
            no_loss: None,
            cpus: [0, 0],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stage(namespaces: Result<[String; 2], String>) -> RunSetup {
        RunSetup { namespaces, cpus: [2, 5], ..RunSetup::bare() }
    }

    #[test]
    fn each_side_runs_on_its_processor_and_in_its_namespace() {
        let lines = Lines::pair(
            CommandLine::new(Side::Server, ["/opt/peer", "-p", "PORT"]).with("TLS", "tcp;self"),
            CommandLine::new(Side::Client, ["/opt/peer", "10.77.0.2"]),
        );
        let stage = stage(Ok(["a".into(), "b".into()]));
        assert_eq!(
            stage.show(Topology::Veth, &lines),
            "TLS='tcp;self' ip netns exec b taskset -c 5 peer -p PORT & ip netns exec a taskset -c 2 peer 10.77.0.2"
        );
        let both = Lines::alone(CommandLine::new(Side::Both, ["/opt/roci", "perf"]));
        assert_eq!(stage.show(Topology::Host, &both), "roci perf");
        assert_eq!(stage.dress(Topology::Host, &both.client).expect("no namespace needed"), ["/opt/roci", "perf"]);
    }

    #[test]
    fn variables_name_no_folder_of_this_machine() {
        let line = "NS=b FI_PROVIDER_PATH=/home/one/tree/target/release mpiexec --dir=/opt/some/where";
        assert_eq!(without_folders(line), "NS=b FI_PROVIDER_PATH=target/release mpiexec --dir=/opt/some/where");
        assert_eq!(without_folders("A=/opt B=/opt/lib"), "A=opt B=opt/lib");
    }

    #[test]
    fn a_place_between_namespaces_has_two_of_its_own_and_none_where_nothing_can_be_lost() {
        let of = |stage: &RunSetup, place| {
            stage.namespaces_of(place).map_or_else(|failure| failure.to_string(), |names| names.join(" "))
        };
        let whole = stage(Ok(["a".into(), "b".into()]));
        assert_eq!(of(&whole, Topology::Veth), "a b");
        assert_eq!(of(&whole, Topology::Loss01), "a-loss-0.1 b-loss-0.1");
        let lossless = RunSetup { no_loss: Some("no iptables".into()), ..whole };
        assert_eq!(of(&lossless, Topology::Jumbo), "a-jumbo b-jumbo");
        assert_eq!(of(&lossless, Topology::Loss1), "no iptables");
    }

    #[test]
    fn without_namespaces_nothing_runs_in_them() {
        let stage = stage(Err("needs root".into()));
        let line = CommandLine::new(Side::Client, ["x"]);
        assert_eq!(stage.dress(Topology::Veth, &line).expect_err("no namespaces").to_string(), "needs root");
        assert!(stage.dress(Topology::Host, &line).is_ok());
    }

    #[test]
    fn programs_are_found_in_the_path_and_only_there() {
        assert!(find("sh").is_some_and(|path| path.is_absolute()));
        assert_eq!(find("no-such-program-anywhere"), None);
        assert_eq!(find("/no/such/program"), None);
    }
}
