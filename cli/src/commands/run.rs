//! `roci run`: starts the ranks of a job, here and on other hosts, passes signals on, and returns the worst of their statuses.

use std::process::ExitCode;
use std::time::Duration;

use roci_driver::link::dpdk::room_for_descriptors;
use roci_driver::link::live::LinkDevice;
use roci_driver::link::udp::UdpLink;
use roci_launcher::{Allocation, JobSpec, MAX_RANKS, OutputMode, REMOTE_SHELL, parse_hosts, read_hostfile};
use roci_msgcore::config::{KNOBS, Origin};
use roci_msgcore::{Config, WireupError};

use crate::failure::{Failure, FailureContext};
use crate::first_process;
use crate::options::{HostOptions, OutputOptions, RunOptions, TerminalOptions};
use crate::output;

/// Ports of a process that DPDK has (`RTE_MAX_ETHPORTS`).
const MOST_PORTS: usize = 32;

pub(crate) fn run(options: &RunOptions) -> Result<ExitCode, Failure> {
    let mut config = Config::load(options.paramfile.as_deref())?;
    for (name, value) in options.device.knobs() {
        config.set(name, &value, Origin::Code)?;
    }
    let (size, workers) = (options.ranks as usize, options.processes.workers as usize);
    if !size.is_multiple_of(workers) {
        return Err(Failure::new(format!(
            "--workers {workers}: {size} ranks do not fill processes of {workers} each: let -n be a multiple"
        )));
    }
    let (hosts, remote_shell) = hosts(&options.hosts)?;
    let job = JobSpec {
        workers,
        wrapper: wrapper(&options.terminal, !hosts.is_empty())?,
        environment: changed_knobs(&config).into_iter().chain(given_variables(&options.environment)?).collect(),
        output: output_mode(options)?,
        pin: options.processes.pin,
        exit_timeout: Duration::from_secs(options.exit_timeout),
        hosts,
        remote_shell,
        directory: options.directory.clone(),
        ..JobSpec::new(size, options.program.clone())
    };
    check_program(&job, options.show)?;
    let names_its_device = |word: &String| ["--device", "--eal"].iter().any(|option| word.starts_with(option));
    if !options.program.iter().any(names_its_device) {
        check_ports(config, &job)?;
    }
    if options.show {
        job.show()?.iter().try_for_each(output::line)?;
        return Ok(ExitCode::SUCCESS);
    }
    launch(&job)
}

/// Each rank would say that it cannot start, or that the job has the wrong size: it is said once. On other hosts there may be other programs.
fn check_program(job: &JobSpec, is_only_shown: bool) -> Result<(), Failure> {
    if let [name, command, ..] = &job.program[..]
        && name == "roci"
        && ["perf", "exchange"].contains(&command.as_str())
        && job.size != 2
    {
        return Err(Failure::new(format!("'roci {command}' is for 2 ranks: -n 2")));
    }
    let Some(name) = job.program.first().filter(|name| *name != "roci") else { return Ok(()) };
    if name.starts_with('-') {
        return Err(Failure::new(format!("{name} is no option of 'roci run', and no program begins with a hyphen")));
    }
    let has_own_path = job.environment.iter().any(|(variable, _)| variable == "PATH");
    if is_only_shown || has_own_path || !job.hosts.is_empty() {
        return Ok(());
    }
    let is_there = if name.contains('/') {
        let directory = job.directory.clone().unwrap_or_default();
        directory.join(name).exists()
    } else {
        std::env::var_os("PATH")
            .is_some_and(|path| std::env::split_paths(&path).any(|folder| folder.join(name).exists()))
    };
    let place = if name.contains('/') { "there is no such file" } else { "no folder of PATH has it" };
    if is_there { Ok(()) } else { Err(Failure::new(format!("cannot start {name}: {place}"))) }
}

/// The job's hosts, and what starts commands on them.
fn hosts(options: &HostOptions) -> Result<(Vec<String>, String), Failure> {
    let allocation = Allocation::of_this_process();
    let hosts = match (&options.hosts, &options.hostfile) {
        (Some(list), _) => parse_hosts(list)?,
        (None, Some(path)) => read_hostfile(path)?,
        (None, None) => allocation.as_ref().map(Allocation::hosts).unwrap_or_default(),
    };
    let usual = || allocation.as_ref().and_then(|found| found.remote_shell(&hosts)).unwrap_or(REMOTE_SHELL).into();
    let shell = options.remote_shell.clone().unwrap_or_else(usual);
    Ok((hosts, shell))
}

/// The variables of `-x`: `NAME=VALUE`, or `NAME` with its value here.
fn given_variables(given: &[String]) -> Result<Vec<(String, String)>, Failure> {
    let variable = |word: &String| match word.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        Some(_) => Err(Failure::new(format!("-x {word}: a variable has a name"))),
        None => match std::env::var(word) {
            Ok(value) => Ok((word.clone(), value)),
            Err(_) => Err(Failure::new(format!("-x {word}: {word} is not set here: give it a value, -x {word}=VALUE"))),
        },
    };
    given.iter().map(variable).collect()
}

fn output_mode(options: &RunOptions) -> Result<OutputMode, Failure> {
    let OutputOptions { prefix, output: file } = &options.output;
    let processes = options.ranks / options.processes.workers;
    match file {
        Some(name) if processes > 1 && !name.contains("%r") => {
            Err(Failure::new(format!("--output {name}: {processes} ranks need a file each: put %r into its name")))
        }
        _ => Ok(OutputMode { prefix: *prefix, file: file.clone() }),
    }
}

/// Runs a command in a window of tmux's.
const IN_TMUX: &str = include_str!("../../tools/in-tmux");

/// What `--debug` runs, where nothing else is named.
const DEBUGGER: &str = "gdb --args";

/// What runs the program in a terminal, in a debugger, or in both.
fn wrapper(options: &TerminalOptions, has_hosts: bool) -> Result<Vec<String>, Failure> {
    if !options.xterm && !options.debug {
        return Ok(Vec::new());
    }
    let is_set = |name| std::env::var_os(name).is_some();
    let is_in_tmux = is_set("TMUX") && !options.xterm;
    if is_in_tmux && has_hosts {
        let why = "-debug opens windows of this host's tmux, which ranks on other hosts do not reach";
        return Err(Failure::new(format!("{why}: add -xterm, and let the remote shell forward X (ssh -X)")));
    }
    let mut words: Vec<String> = if is_in_tmux {
        ["bash", "-c", IN_TMUX, "in-tmux", "rank %r"].map(str::to_owned).into()
    } else if is_set("DISPLAY") {
        ["xterm", "-T", "rank %r", "-e"].map(str::to_owned).into()
    } else {
        let option = if options.debug { "-debug" } else { "-xterm" };
        let remedy = if options.debug { ": run it inside tmux, or set DISPLAY" } else { "" };
        let what = "opens a terminal for each rank, and DISPLAY is not set";
        return Err(Failure::new(format!("{option} {what}{remedy}")));
    };
    if options.debug {
        let debugger = options.debugger.as_deref().unwrap_or(DEBUGGER);
        words.extend(debugger.split_whitespace().map(str::to_owned));
    }
    Ok(words)
}

/// Over a device that joins two processes of a host a rank has a port to every other one, and DPDK has so many for a process.
fn check_ports(config: Config, job: &JobSpec) -> Result<(), Failure> {
    let is_on_several_hosts = job.is_on_several_hosts();
    let config = if is_on_several_hosts { config.for_several_hosts() } else { config };
    let (device, size) = (config.device_of(0)?, job.size);
    if !device.is_point_to_point() {
        // Another program may enter a network namespace first, which has the device.
        let is_here = job.hosts.is_empty() && job.program.first().is_some_and(|name| name == "roci");
        return if is_here && size > 1 { check_devices(&config, job) } else { Ok(()) };
    }
    if is_on_several_hosts {
        return Err(WireupError::NeedsOneHost(device).into());
    }
    if size > MOST_PORTS {
        return Err(Failure::new(format!(
            "{size} ranks over {device}: each has a port to every other, and DPDK has {MOST_PORTS}: --device udp takes up to {MAX_RANKS}"
        )));
    }
    Ok(())
}

/// Each rank would say that this host lacks its device: it is said once.
fn check_devices(config: &Config, job: &JobSpec) -> Result<(), Failure> {
    let ranks = if config.device.contains("%r") { job.size } else { 1 };
    for rank in (0..ranks).step_by(job.workers) {
        match config.device_of(rank)? {
            LinkDevice::Udp(address) => match address.ip.or(config.ip) {
                Some(ip) => UdpLink::check_address(ip).map_err(WireupError::from),
                None => Ok(()),
            },
            LinkDevice::Dpdk(device) => device.check_present().map_err(WireupError::from),
        }?;
    }
    Ok(())
}

/// Runs a job to its end.
pub(crate) fn launch(job: &JobSpec) -> Result<ExitCode, Failure> {
    first_process::leave_signals();
    room_for_descriptors(job.descriptors()).context(format!("for a job of {} ranks", job.size))?;
    Ok(roci_launcher::launch(job, |line| output::complain(line))?)
}

/// The knobs that differ from their defaults, as environment variables.
pub(crate) fn changed_knobs(config: &Config) -> Vec<(String, String)> {
    let changed = KNOBS.iter().filter(|knob| config.origin(knob.name) != Origin::Default);
    changed.map(|knob| (knob.environment_name(), knob.value(config))).collect()
}
