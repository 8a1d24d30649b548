//! The guest: a QEMU machine with Linux's RoCEv2 stack, its control line, and its verbs.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Signal, set_parent_process_death_signal};

use crate::Failure;

/// The port that `verbs_peer` listens on inside.
const PEER_PORT: u16 = 7471;
/// The port that `ibv_rc_pingpong` listens on inside.
const PINGPONG_PORT: u16 = 18515;
/// Emulation is slow, and slower beside others.
const PATIENCE: Duration = Duration::from_mins(1);
/// The guest's station on the wire under test.
pub(crate) const MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];

/// A running guest; it ends with this value.
pub(crate) struct Guest {
    process: Child,
    control: Line<UnixStream>,
    /// Where the guest's ports are on this host.
    peer_port: u16,
    pub(crate) pingpong_port: u16,
}

/// How to start a guest: files in `directory`, kernel and initial disk in `image`.
pub(crate) struct Plan {
    pub(crate) directory: PathBuf,
    pub(crate) image: PathBuf,
}

impl Plan {
    /// Where the data NIC meets our port.
    pub(crate) fn data_socket(&self) -> PathBuf {
        self.directory.join("data.sock")
    }

    /// Starts the machine; our port must be listening on [`Plan::data_socket`].
    pub(crate) fn start(&self) -> Result<Starting, Failure> {
        let [peer_port, pingpong_port] = free_ports()?;
        let control = self.directory.join("control.sock");
        let file = |name: &str| self.image.join(name).display().to_string();
        let forwards = format!(
            "hostfwd=tcp:127.0.0.1:{peer_port}-:{PEER_PORT},hostfwd=tcp:127.0.0.1:{pingpong_port}-:{PINGPONG_PORT}"
        );
        let offloads = "csum=off,gso=off,guest_csum=off,guest_tso4=off,guest_tso6=off,guest_ecn=off,guest_ufo=off,\
                        host_tso4=off,host_tso6=off,host_ecn=off,host_ufo=off,mrg_rxbuf=on,vectors=0";
        // vectors=0: with MSI-X, QEMU 7.2 without KVM dereferences a null pointer when the vhost-user NIC starts.
        let mac = roci_protocol::wire::MacAddr(MAC);
        let serial = self.directory.join("serial.log");
        let mut command = Command::new("qemu-system-x86_64");
        command
            .args(["-accel", "tcg,thread=multi", "-machine", "q35", "-cpu", "max"])
            .args(["-m", "512", "-smp", "1", "-nodefaults", "-no-reboot", "-display", "none"])
            .args(["-serial", &format!("file:{}", serial.display())])
            .args(["-kernel", &file("vmlinuz"), "-initrd", &file("initrd.gz")])
            .args(["-append", "console=ttyS0 panic=-1 quiet mitigations=off tsc=reliable net.ifnames=0"])
            .args(["-device", "virtio-serial-pci"])
            .args(["-chardev", &format!("socket,id=control,path={},server=on,wait=off", control.display())])
            .args(["-device", "virtserialport,chardev=control,name=lab.ctl"])
            .args(["-object", "memory-backend-memfd,id=memory,size=512M,share=on", "-numa", "node,memdev=memory"])
            .args(["-chardev", &format!("socket,id=data,path={}", self.data_socket().display())])
            .args(["-netdev", "vhost-user,id=data,chardev=data,queues=1"])
            .args(["-device", &format!("virtio-net-pci,netdev=data,mac={mac},{offloads}")])
            .args(["-netdev", &format!("user,id=management,{forwards}")])
            .args(["-device", "virtio-net-pci,netdev=management"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(self.directory.join("qemu.log"))?);
        let process = spawn_bound_to_us(&mut command)?;
        Ok(Starting { process, control, peer_port, pingpong_port })
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

/// A machine that boots.
pub(crate) struct Starting {
    process: Child,
    control: PathBuf,
    peer_port: u16,
    pingpong_port: u16,
}

impl Starting {
    /// Waits for the machine, while `meanwhile` runs again and again.
    pub(crate) fn ready(mut self, mut meanwhile: impl FnMut()) -> Result<Guest, Failure> {
        let deadline = Instant::now() + PATIENCE;
        let control = loop {
            if let Some(status) = self.process.try_wait()? {
                return Err(format!("qemu ended early: {status} (see qemu.log)").into());
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
        let mut control = Line::new(control);
        while control.line(deadline, &mut meanwhile)? != "@@READY" {}
        let Self { process, peer_port, pingpong_port, .. } = self;
        Ok(Guest { process, control, peer_port, pingpong_port })
    }
}

impl Guest {
    /// Runs a shell command inside and returns what it printed, or fails with it.
    pub(crate) fn run(&mut self, command: &str, meanwhile: &mut impl FnMut()) -> Result<String, Failure> {
        self.control.send(command, meanwhile)?;
        let deadline = Instant::now() + PATIENCE;
        let mut output = String::new();
        loop {
            let line = self.control.line(deadline, meanwhile).map_err(|error| format!("'{command}': {error}"))?;
            match line.strip_prefix("@@RC ") {
                Some("0") => return Ok(output),
                Some(code) => return Err(format!("'{command}' ended with {code}: {output}").into()),
                None => output = output + &line + "\n",
            }
        }
    }

    /// A new session with the guest's verbs.
    pub(crate) fn verbs(&self) -> Result<Line<TcpStream>, Failure> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.peer_port))?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        Ok(Line::new(stream))
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        // It may have ended already; there is nothing to lose inside.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Lines over a stream that never blocks.
pub(crate) struct Line<S> {
    stream: S,
    pending: Vec<u8>,
}

impl<S: Read + Write> Line<S> {
    fn new(stream: S) -> Self {
        Self { stream, pending: Vec::new() }
    }

    pub(crate) fn send(&mut self, line: &str, meanwhile: &mut impl FnMut()) -> Result<(), Failure> {
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
    pub(crate) fn line(&mut self, deadline: Instant, meanwhile: &mut impl FnMut()) -> Result<String, Failure> {
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
    pub(crate) fn answer(&mut self, meanwhile: &mut impl FnMut()) -> Result<String, Failure> {
        self.line(Instant::now() + PATIENCE, meanwhile)
    }
}

/// Ports that were free a moment ago.
fn free_ports() -> io::Result<[u16; 2]> {
    let listeners = [0, 1].map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)));
    let port = |listener: &io::Result<TcpListener>| match listener {
        Ok(listener) => Ok(listener.local_addr()?.port()),
        Err(error) => Err(io::Error::new(error.kind(), error.to_string())),
    };
    Ok([port(&listeners[0])?, port(&listeners[1])?])
}

/// Whether the guest has been built.
pub(crate) fn is_built(image: &Path) -> bool {
    ["vmlinuz", "initrd.gz"].iter().all(|file| image.join(file).exists())
}
