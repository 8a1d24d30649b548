//! A QEMU machine, and the control line to the shell inside.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Signal, set_parent_process_death_signal};

use crate::LabError;

/// Emulation is slow, and slower beside others.
const PATIENCE: Duration = Duration::from_mins(5);

/// The configuration of a virtual machine. Its files in `directory` bear its name.
pub(crate) struct MachineConfig<'a> {
    pub(crate) name: &'a str,
    pub(crate) directory: &'a Path,
    pub(crate) qemu: &'a Path,
    pub(crate) kernel: &'a Path,
    pub(crate) initrd: &'a Path,
    pub(crate) memory_mib: u32,
    /// Words for the kernel.
    pub(crate) append: &'a str,
    /// Words for QEMU: what the machine has beside a control line.
    pub(crate) devices: Vec<String>,
}

impl MachineConfig<'_> {
    fn file(&self, suffix: &str) -> PathBuf {
        self.directory.join(format!("{}.{suffix}", self.name))
    }

    /// Starts the machine.
    pub(crate) fn start(&self) -> Result<Booting, LabError> {
        let control = self.file("control");
        let logs = [self.file("qemu.log"), self.file("serial.log")];
        let mut command = Command::new(self.qemu);
        command
            .args(["-accel", "tcg,thread=multi", "-machine", "q35", "-cpu", "max", "-smp", "1"])
            .args(["-m", &self.memory_mib.to_string(), "-nodefaults", "-no-reboot", "-display", "none"])
            .args(["-serial", &format!("file:{}", logs[1].display())])
            .arg("-kernel")
            .arg(self.kernel)
            .arg("-initrd")
            .arg(self.initrd)
            .args([
                "-append",
                &format!(
                    "console=ttyS0 panic=-1 quiet mitigations=off tsc=reliable no_timer_check net.ifnames=0 {}",
                    self.append
                ),
            ])
            .args(&self.devices)
            .args(["-device", "virtio-serial-pci"])
            .args(["-chardev", &format!("socket,id=control,path={},server=on,wait=off", control.display())])
            .args(["-device", "virtserialport,chardev=control,name=lab.ctl"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(&logs[0])?);
        let process = spawn_bound_to_us(&mut command)?;
        Ok(Booting { process: QemuProcess(process), control, logs })
    }
}

/// The machine ends when we do, however we end.
#[allow(unsafe_code)] // between fork and exec
fn spawn_bound_to_us(command: &mut Command) -> io::Result<Child> {
    // SAFETY: between fork and exec only async-signal-safe calls are allowed: this is one prctl, without allocation
    // or lock.
    unsafe {
        command.pre_exec(|| set_parent_process_death_signal(Some(Signal::KILL)).map_err(io::Error::from));
    }
    command.spawn()
}

/// The QEMU process; it ends when this value is dropped.
struct QemuProcess(Child);

impl Drop for QemuProcess {
    fn drop(&mut self) {
        // It may have ended already; there is nothing to lose inside.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A machine that boots.
pub(crate) struct Booting {
    process: QemuProcess,
    control: PathBuf,
    logs: [PathBuf; 2],
}

impl Booting {
    /// Waits for the machine, while `meanwhile` runs again and again.
    pub(crate) fn ready(mut self, meanwhile: &mut impl FnMut()) -> Result<QemuMachine, LabError> {
        let deadline = Instant::now() + PATIENCE;
        let control = loop {
            if let Some(status) = self.process.0.try_wait()? {
                let words = self.logs.each_ref().map(|log| last_line(log));
                return Err(format!("qemu ended early: {status}: {}", words.join("; ")).into());
            }
            if Instant::now() > deadline {
                return Err("the guest did not boot".into());
            }
            meanwhile();
            if let Ok(stream) = UnixStream::connect(&self.control) {
                break stream;
            }
        };
        control.set_nonblocking(true)?;
        let mut control = ConsoleLine::new(control);
        while control.line(deadline, meanwhile)? != "@@READY" {}
        Ok(QemuMachine { process: self.process, control, logs: self.logs })
    }
}

/// The last that QEMU, or the guest's kernel, has to say.
fn last_line(log: &Path) -> String {
    let text = std::fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default().trim().to_owned()
}

/// A running virtual machine; it ends when this value is dropped.
pub(crate) struct QemuMachine {
    process: QemuProcess,
    control: ConsoleLine<UnixStream>,
    logs: [PathBuf; 2],
}

/// The result of a command in a guest.
pub(crate) struct CommandResult {
    pub(crate) code: String,
    /// What it printed, on either stream.
    pub(crate) output: String,
}

impl QemuMachine {
    /// Lets what emulates the devices run on this host as soon as it has work, before any guest's processor: the hardware
    /// that it stands for does not wait until a processor rests.
    ///
    /// # Errors
    /// Those of `chrt`, which wants `CAP_SYS_NICE`.
    pub(crate) fn put_devices_first(&self) -> Result<(), LabError> {
        // Of this id's threads, only the one that bears it: QEMU's main loop. Those of processors have their own.
        let mut chrt = Command::new("chrt");
        chrt.args(["--fifo", "--pid", "1", &self.process.0.id().to_string()]);
        let ended = chrt.output().map_err(|error| format!("chrt: {error}"))?;
        if ended.status.success() {
            return Ok(());
        }
        let why = String::from_utf8_lossy(&ended.stderr);
        Err(format!("a device cannot go before processors, which needs CAP_SYS_NICE: {}", why.trim()).into())
    }

    /// Runs a shell command inside and returns what it printed, or fails with it.
    pub(crate) fn run(&mut self, command: &str, meanwhile: &mut impl FnMut()) -> Result<String, LabError> {
        self.begin(command, meanwhile)?;
        let ended = self.end(PATIENCE, meanwhile).map_err(|error| format!("'{command}': {error}"))?;
        if ended.code == "0" {
            Ok(ended.output)
        } else {
            Err(format!("'{command}' ended with {}: {}", ended.code, ended.output).into())
        }
    }

    /// Starts a shell command inside: one at a time.
    pub(crate) fn begin(&mut self, command: &str, meanwhile: &mut impl FnMut()) -> Result<(), LabError> {
        self.control.send(command, meanwhile)
    }

    /// Waits for the end of what was begun.
    pub(crate) fn end(&mut self, patience: Duration, meanwhile: &mut impl FnMut()) -> Result<CommandResult, LabError> {
        let deadline = Instant::now() + patience;
        let mut output = String::new();
        loop {
            let line = self.control.line(deadline, meanwhile).map_err(|error| self.explain(error))?;
            match line.strip_prefix("@@RC ") {
                Some(code) => return Ok(CommandResult { code: code.to_owned(), output }),
                None => output = output + &line + "\n",
            }
        }
    }

    /// QEMU's last words, where it is QEMU that has ended.
    fn explain(&mut self, error: LabError) -> LabError {
        match self.process.0.try_wait() {
            Ok(Some(status)) => {
                let words = self.logs.each_ref().map(|log| last_line(log));
                format!("{error}: qemu ended: {status}: {}", words.join("; ")).into()
            }
            _ => error,
        }
    }
}

/// Reads and writes lines over a stream that never blocks.
pub(crate) struct ConsoleLine<S> {
    stream: S,
    pending: Vec<u8>,
}

impl<S: Read + Write> ConsoleLine<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self { stream, pending: Vec::new() }
    }

    pub(crate) fn send(&mut self, line: &str, meanwhile: &mut impl FnMut()) -> Result<(), LabError> {
        let bytes = format!("{line}\n").into_bytes();
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            match self.stream.write(rest) {
                Ok(sent) => rest = &rest[sent..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => meanwhile(),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// The next line.
    pub(crate) fn line(&mut self, deadline: Instant, meanwhile: &mut impl FnMut()) -> Result<String, LabError> {
        loop {
            if let Some(end) = self.pending.iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = self.pending.drain(..=end).collect();
                return Ok(String::from_utf8_lossy(&line[..end]).trim_end_matches('\r').to_owned());
            }
            if Instant::now() > deadline {
                return Err(format!("no answer in time; so far '{}'", String::from_utf8_lossy(&self.pending)).into());
            }
            meanwhile();
            let mut chunk = [0; 4096];
            match self.stream.read(&mut chunk) {
                Ok(0) => return Err("the guest hung up".into()),
                Ok(read) => self.pending.extend_from_slice(&chunk[..read]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// The next line, in the usual time.
    pub(crate) fn answer(&mut self, meanwhile: &mut impl FnMut()) -> Result<String, LabError> {
        self.line(Instant::now() + PATIENCE, meanwhile)
    }
}
