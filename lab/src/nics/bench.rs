//! Two guests, each with a NIC of one kind behind an IOMMU, on one wire; and jobs of two ranks, one in each.

use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use roci_launcher::{Board, Token};

use super::models::{Model, UserspaceDriver};
use crate::LabError;
use crate::machine::{CommandResult, ConsoleLine, MachineConfig, QemuMachine};

/// Memory of a guest, and of that in huge pages of 2 MiB.
const MEMORY_MIB: u32 = 1024;
const HUGE_PAGES: u32 = 128;
/// Where the management NIC is.
pub(crate) const MANAGEMENT_AT: &str = "0000:00:11.0";
/// The stations of the two management NICs, which are on wires of their own, and the address that QEMU gives there.
const MANAGEMENT: &str = "02:00:00:00:01:00";
const MANAGEMENT_IP: &str = "10.0.2.15/24";
/// This host, as guests see it.
const HOST: &str = "10.0.2.2";
/// Settings that keep a job's ranks small in memory, because the guests are small.
const SETTINGS: &str = "ROCI_ARENA_SIZE=64MiB ROCI_CPUS=1";

/// The files of the bench.
pub(crate) struct BenchFiles<'a> {
    pub(crate) qemu: &'a Path,
    pub(crate) kernel: &'a Path,
    pub(crate) initrd: &'a Path,
    pub(crate) directory: &'a Path,
}

/// The guests.
pub(crate) struct Bench {
    pub(crate) model: Model,
    guests: [QemuMachine; 2],
    monitors: [PathBuf; 2],
    /// The heads of all frames at the first guest's end of the wire, where somebody is to look at them.
    capture: PathBuf,
}

/// What guests are there for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// To show what is right: frames are kept, and the kernel's own drivers use the IOMMU too.
    Checks,
    /// To be measured: nothing that takes time is done beside, the kernel's own drivers use memory as it is, and devices
    /// do not wait for processors.
    Measuring,
}

impl Bench {
    /// Boots both guests, with the NICs as the kernel finds them.
    pub(crate) fn start(model: Model, place: &BenchFiles<'_>, purpose: Purpose) -> Result<Self, LabError> {
        let sockets = [0, 1].map(|end| place.directory.join(format!("wire{end}")));
        let monitors = [0, 1].map(|end| place.directory.join(format!("monitor{end}")));
        let capture = place.directory.join("wire.pcap");
        let boot = |end: usize| {
            // Before the devices that it translates for.
            let mut devices = match model.binding {
                UserspaceDriver::Vfio => words(&["-device", "intel-iommu,intremap=on,aw-bits=48"]),
                UserspaceDriver::Uio => Vec::new(),
            };
            devices.extend(wire(&sockets[end], &sockets[1 - end]));
            if end == 0 && purpose == Purpose::Checks {
                let dump = format!("filter-dump,id=dump,netdev=data,file={},maxlen=64", capture.display());
                devices.extend(["-object".to_owned(), dump]);
            }
            devices.extend(model.devices(&Self::mac(end)));
            devices.extend(words(&["-netdev", "user,id=management,ipv6=off", "-device"]));
            devices.push(format!("virtio-net-pci,netdev=management,mac={MANAGEMENT},addr=0x11"));
            devices.extend(["-qmp".to_owned(), format!("unix:{},server=on,wait=off", monitors[end].display())]);
            // The kernel's own check of its timer wants ticks sooner than an emulator beside others gives them.
            let pass = if purpose == Purpose::Measuring { " iommu=pt" } else { "" };
            let append = format!("intel_iommu=on{pass} hugepagesz=2M hugepages={HUGE_PAGES} no_timer_check");
            let BenchFiles { qemu, kernel, initrd, directory } = *place;
            let name = &format!("guest{end}");
            MachineConfig { name, directory, qemu, kernel, initrd, memory_mib: MEMORY_MIB, append: &append, devices }
                .start()
        };
        let [first, second] = [boot(0)?, boot(1)?];
        let guests = [first.ready(&mut a_moment)?, second.ready(&mut a_moment)?];
        if purpose == Purpose::Measuring {
            guests.iter().try_for_each(QemuMachine::put_devices_first)?;
        }
        let mut bench = Self { model, guests, monitors, capture };
        for end in [0, 1] {
            bench.run(end, &format!("modprobe {}", model.module))?;
            bench.run(end, &management())?;
        }
        Ok(bench)
    }

    /// The station of a guest's NIC.
    pub(crate) fn mac(end: usize) -> String {
        format!("02:00:00:00:00:1{end}")
    }

    /// Runs a shell command in a guest and returns what it printed, or fails with it.
    pub(crate) fn run(&mut self, end: usize, command: &str) -> Result<String, LabError> {
        self.guests[end].run(command, &mut a_moment).map_err(|error| format!("guest {end}: {error}").into())
    }

    /// Runs a command in a guest that must fail, and returns what it said.
    pub(crate) fn refused(&mut self, end: usize, command: &str) -> Result<String, LabError> {
        let guest = &mut self.guests[end];
        guest.begin(command, &mut a_moment)?;
        let CommandResult { code, output } = guest.end(Duration::from_mins(1), &mut a_moment)?;
        if code == "0" { Err(format!("'{command}' went well: {output}").into()) } else { Ok(output) }
    }

    /// Runs a command of ours as a job of two ranks, one in each guest, with more settings in front. Meanwhile `during`
    /// happens. Returns how each ended.
    pub(crate) fn job(
        &mut self,
        command: &str,
        settings: &str,
        patience: Duration,
        during: impl FnOnce(&Self) -> Result<(), LabError>,
    ) -> Result<[CommandResult; 2], LabError> {
        let _board = self.begin_job(&format!("roci {command}"), settings, 1)?;
        let outcome = during(self);
        let [first, second] = &mut self.guests;
        let ended = [first.end(patience, &mut a_moment)?, second.end(patience, &mut a_moment)?];
        outcome.map(|()| ended)
    }

    /// A job of several ranks in each guest, each at a queue of the NIC; returns what both printed.
    pub(crate) fn job_of_workers(
        &mut self,
        workers: usize,
        command: &str,
        settings: &str,
        patience: Duration,
    ) -> Result<[String; 2], LabError> {
        let program = format!("roci {command}");
        let _board = self.begin_job(&program, &format!("ROCI_QUEUES={workers} {settings}"), workers)?;
        let [first, second] = &mut self.guests;
        let ended = [first.end(patience, &mut a_moment)?, second.end(patience, &mut a_moment)?];
        let second = ended[1].output.clone();
        judge(command, ended).map(|first| [first, second])
    }

    /// Starts a program in both guests, as so many ranks each; the job goes on while the board is kept.
    fn begin_job(&mut self, program: &str, settings: &str, workers: usize) -> Result<Board, LabError> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let port = listener.local_addr()?.port();
        let size = 2 * workers;
        let token = Token::random();
        let board = Board::new(size, token.clone());
        board.serve_tcp(listener)?;
        let device = self.model.address();
        for (end, guest) in self.guests.iter_mut().enumerate() {
            let rank = end * workers;
            let place = format!("ROCI_JOB=tcp:{HOST}:{port} ROCI_RANK={rank} ROCI_SIZE={size}");
            let line = format!(
                "{place} ROCI_TOKEN={} ROCI_WORKERS={workers} {SETTINGS} ROCI_DEVICE=pci:{device} {settings} {program}",
                token.as_str()
            );
            guest.begin(&line, &mut a_moment)?;
        }
        Ok(board)
    }

    /// A job of two ranks that must end well; returns what rank 0 printed.
    pub(crate) fn good_job(&mut self, command: &str, settings: &str, patience: Duration) -> Result<String, LabError> {
        let ended = self.job(command, settings, patience, |_| Ok(()))?;
        judge(command, ended)
    }

    /// The same with a program of its own.
    pub(crate) fn good_program(
        &mut self,
        program: &str,
        settings: &str,
        patience: Duration,
    ) -> Result<String, LabError> {
        let _board = self.begin_job(program, settings, 1)?;
        let [first, second] = &mut self.guests;
        let ended = [first.end(patience, &mut a_moment)?, second.end(patience, &mut a_moment)?];
        judge(program, ended)
    }

    /// Waits until this many more bytes of frames' heads have crossed the wire: a job is at work then.
    pub(crate) fn wait_for_traffic(&self, bytes: u64) -> Result<(), LabError> {
        let seen = || std::fs::metadata(&self.capture).map(|file| file.len());
        let (enough, deadline) = (seen()? + bytes, Instant::now() + Duration::from_mins(1));
        while seen()? < enough {
            if Instant::now() > deadline {
                return Err("the job does not use the wire".into());
            }
            a_moment();
        }
        Ok(())
    }

    /// Pulls the cable of a guest's NIC, or puts it back.
    pub(crate) fn set_link(&self, end: usize, up: bool) -> Result<(), LabError> {
        let stream = UnixStream::connect(&self.monitors[end])?;
        stream.set_nonblocking(true)?;
        let mut line = ConsoleLine::new(stream);
        line.answer(&mut a_moment)?; // the greeting
        for command in [
            r#"{"execute": "qmp_capabilities"}"#.to_owned(),
            format!(r#"{{"execute": "set_link", "arguments": {{"name": "data", "up": {up}}}}}"#),
        ] {
            line.send(&command, &mut a_moment)?;
            let answer = line.answer(&mut a_moment)?;
            if !answer.contains("\"return\"") {
                return Err(format!("QEMU's answer to {command}: {answer}").into());
            }
        }
        Ok(())
    }
}

/// What rank 0 printed, where both ranks ended well.
pub(crate) fn judge(command: &str, ended: [CommandResult; 2]) -> Result<String, LabError> {
    for (rank, CommandResult { code, output }) in ended.iter().enumerate() {
        if code != "0" {
            return Err(format!("'{command}': rank {rank} ended with {code}: {}", output.trim()).into());
        }
    }
    let [CommandResult { output, .. }, _] = ended;
    Ok(output)
}

/// Lets time pass in which guests run.
pub(crate) fn pause(time: Duration) {
    let end = Instant::now() + time;
    while Instant::now() < end {
        a_moment();
    }
}

fn a_moment() {
    std::thread::sleep(Duration::from_millis(2));
}

/// A wire to the other guest: a datagram is a frame.
fn wire(ours: &Path, theirs: &Path) -> [String; 2] {
    let (ours, theirs) = (ours.display(), theirs.display());
    let ends = format!("local.type=unix,local.path={ours},remote.type=unix,remote.path={theirs}");
    ["-netdev".to_owned(), format!("dgram,id=data,{ends}")]
}

/// A command that brings up the management NIC, whatever the kernel calls it, as the way to everywhere.
pub(crate) fn management() -> String {
    let find = format!("for i in /sys/class/net/*; do [ \"$(cat $i/address)\" != {MANAGEMENT} ] || m=${{i##*/}}; done");
    format!(
        "{find}; ip link set $m up && ip address replace {MANAGEMENT_IP} dev $m && ip route replace default via {HOST}"
    )
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

/// Whether this QEMU emulates the device.
pub(crate) fn knows(qemu: &Path, model: Model) -> io::Result<bool> {
    let asked = std::process::Command::new(qemu).args(["-device", &format!("{},help", model.device)]).output()?;
    Ok(asked.status.success())
}
