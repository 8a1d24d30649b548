//! MPICH and Open MPI over TCP, and Open MPI over libfabric, our provider's among others: a ping-pong and a stream, as any MPI program writes them.

use serde_json::Value;

use super::rows::readings;
use super::{Need, Tool};
use crate::command::{CommandLine, Lines, Side};
use crate::failure::NoReadings;
use crate::reading::{Reading, Topology};
use crate::stage::{RunSetup, word};

/// Which MPI.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Which {
    Mpich,
    OpenMpi,
    /// Open MPI over libfabric's reliable datagrams: what else there is without TCP, hardware or privilege.
    OpenMpiRxd,
    /// Open MPI over our provider for libfabric, which chooses memif within a host.
    OpenMpiRoci,
}

/// One `mpiexec` of two ranks.
pub(crate) struct Mpi {
    pub(crate) which: Which,
    pub(crate) sizes: &'static str,
    /// For each size and test.
    pub(crate) millis: u32,
}

/// The series of Open MPI over our provider.
pub(crate) const OURS: &str = "Open MPI, roci";

/// Open MPI's words for libfabric.
const OVER_LIBFABRIC: [&str; 9] = ["--mca", "pml", "cm", "--mca", "mtl", "ofi", "--mca", "btl", "self"];

/// Open MPI's words for two ranks that place themselves.
const RANKS: [&str; 4] = ["--allow-run-as-root", "--oversubscribe", "--bind-to", "none"];

impl Mpi {
    const fn series(&self) -> &'static str {
        match self.which {
            Which::Mpich => "MPICH, TCP",
            Which::OpenMpi => "Open MPI, TCP",
            Which::OpenMpiRxd => "Open MPI, udp;ofi_rxd",
            Which::OpenMpiRoci => OURS,
        }
    }

    const fn suffix(&self) -> &'static str {
        match self.which {
            Which::Mpich => "mpich",
            _ => "openmpi",
        }
    }

    fn program(&self, stage: &RunSetup) -> String {
        word(&stage.built.join(format!("pingpong.{}", self.suffix())))
    }

    /// Words that choose what carries its messages: sockets, and nothing that is quicker within a host, unless it is ours.
    fn carrier(&self, place: Topology) -> Vec<&'static str> {
        match self.which {
            Which::Mpich => vec!["-bind-to", "none"],
            Which::OpenMpi => {
                let interfaces = ["--mca", "btl_tcp_if_include", RunSetup::interface(place)];
                let protocols = ["--mca", "pml", "ob1", "--mca", "btl", "tcp,self"];
                [&RANKS[..], &protocols, &interfaces].concat()
            }
            Which::OpenMpiRxd => {
                [&RANKS[..], &OVER_LIBFABRIC, &["--mca", "mtl_ofi_provider_include", "udp;ofi_rxd"]].concat()
            }
            Which::OpenMpiRoci => {
                let provider = ["--mca", "mtl_ofi_provider_include", "roci", "-x", "FI_PROVIDER_PATH"];
                [&RANKS[..], &OVER_LIBFABRIC, &provider].concat()
            }
        }
    }

    /// How a rank is started in the other namespace.
    fn hosts(&self, stage: &RunSetup, place: Topology) -> Vec<String> {
        if !place.is_between_namespaces() {
            return Vec::new();
        }
        let [ours, theirs] = RunSetup::addresses(place);
        let agent = word(&stage.agent);
        match self.which {
            Which::Mpich => {
                ["-launcher", "ssh", "-launcher-exec", &agent, "-hosts", &format!("{ours},{theirs}"), "-ppn", "1"]
                    .map(Into::into)
                    .into()
            }
            _ => {
                let hosts = format!("{ours}:1,{theirs}:1");
                let interface = RunSetup::interface(place);
                ["--mca", "plm_rsh_agent", &agent, "--host", &hosts, "--mca", "oob_tcp_if_include", interface]
                    .map(Into::into)
                    .into()
            }
        }
    }
}

impl Tool for Mpi {
    fn needs(&self, stage: &RunSetup) -> Vec<Need> {
        let packages = match self.which {
            Which::Mpich => "mpich libmpich-dev",
            _ => "openmpi-bin libopenmpi-dev",
        };
        let remedy = format!("apt-get install {packages}, then scripts/bench builds it");
        let mpiexec = format!("mpiexec.{}", self.suffix());
        let mut needs = vec![Need::package(&mpiexec, packages), Need { program: self.program(stage).into(), remedy }];
        if self.which == Which::OpenMpiRoci {
            let remedy = "cargo build --release --package roci-libfabric".to_owned();
            needs.push(Need { program: stage.roci.with_file_name("libroci_fi.so"), remedy });
        }
        needs
    }

    fn lines(&self, stage: &RunSetup, place: Topology, _port: &str) -> Lines {
        let mut words = vec![format!("mpiexec.{}", self.suffix())];
        words.extend(self.carrier(place).into_iter().map(str::to_owned));
        words.extend(self.hosts(stage, place));
        let (cpus, millis) = (stage.cpu_list(), self.millis.to_string());
        words.extend(["-n", "2", &self.program(stage), &cpus, &millis, self.sizes].map(Into::into));
        let mut line = CommandLine::new(Side::Both, words);
        if place.is_between_namespaces()
            && let Ok([_, theirs]) = stage.namespaces_of(place)
        {
            line = line.with("BENCH_NETNS", &theirs);
        }
        if self.which == Which::OpenMpiRoci {
            line = line.with("FI_PROVIDER_PATH", &word(stage.roci.parent().unwrap_or(&stage.built)));
        }
        // Without it, ranks of a host meet in shared memory.
        if self.which == Which::Mpich {
            line = line.with("MPIR_CVAR_NOLOCAL", "1").with("UCX_TLS", "tcp,self").with("FI_PROVIDER", "tcp");
            line = line.with("UCX_NET_DEVICES", RunSetup::interface(place));
        }
        Lines::alone(line)
    }

    fn parse(&self, stdout: &str) -> Result<Vec<Reading>, NoReadings> {
        readings(stdout, |_: &Value| self.series().to_owned())
    }
}
