//! How the two sides tell each other their addresses, and that they are ready.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use roci_protocol::wire::cm::{gid_of, ip_of};
use roci_protocol::{Psn, Qpn};

use super::{ITERATIONS, Program, Role, SIZE};
use crate::LabError;
use crate::guest::PINGPONG_PORT;
use crate::lab::{Lab, V4};
use crate::scenarios::manager::{start, until};

/// `0000:000000:000000:` and 32 digits of GID, with the zero that ends the string.
const HELLO_LEN: usize = 52;
const PATIENCE: Duration = Duration::from_secs(30);

/// The address of a queue pair.
pub(super) struct QpAddress {
    pub(super) ip: IpAddr,
    pub(super) qpn: Qpn,
    pub(super) psn: Psn,
}

impl QpAddress {
    /// One of our queue pairs.
    pub(super) fn ours(qpn: Qpn, psn: Psn) -> Result<Self, LabError> {
        Ok(Self { ip: V4.ours.parse()?, qpn, psn })
    }

    fn written(&self) -> String {
        let gid: String = gid_of(self.ip).octets().iter().map(|byte| format!("{byte:02x}")).collect();
        format!("0000:{:06x}:{:06x}:{gid}\0", self.qpn.get(), self.psn.get())
    }

    fn read(hello: &[u8]) -> Result<Self, LabError> {
        let text = std::str::from_utf8(&hello[..HELLO_LEN - 1])?;
        let fields: Vec<_> = text.split(':').collect();
        let [_, qpn, psn, gid] = fields[..] else { return Err(format!("not a pingpong's address: {text}").into()) };
        Ok(Self {
            ip: ip_of(Ipv6Addr::from(u128::from_str_radix(gid, 16)?)),
            qpn: Qpn::new(u32::from_str_radix(qpn, 16)?),
            psn: Psn::new(u32::from_str_radix(psn, 16)?),
        })
    }
}

/// A conversation that has come to where the guest's addresses are known.
pub(super) struct Exchange {
    stream: TcpStream,
    role: Role,
    /// What we tell.
    hello: Vec<u8>,
}

impl Exchange {
    /// Starts the guest's program, and learns where its queue pairs are.
    pub(super) fn begin(
        lab: &mut Lab,
        program: &Program,
        role: Role,
        ours: &[QpAddress],
    ) -> Result<(Self, Vec<QpAddress>), LabError> {
        let mut hello = ours.iter().map(QpAddress::written).collect::<String>().into_bytes();
        let nowhere = QpAddress::ours(Qpn::new(0), Psn::new(0))?.written();
        hello.extend(nowhere.as_bytes().repeat(program.addresses - ours.len()));
        let mut stream = match role {
            Role::Client => call(lab, program)?,
            Role::Server => answer(lab, program)?,
        };
        if role == Role::Client {
            stream.write_all(&hello)?;
        }
        let mut theirs = vec![0; hello.len()];
        read_exact(lab, &mut stream, &mut theirs)?;
        let places =
            theirs.chunks(HELLO_LEN).take(program.queue_pairs).map(QpAddress::read).collect::<Result<_, _>>()?;
        Ok((Self { stream, role, hello }, places))
    }

    /// Our queue pairs are connected, and their receives are posted: the guest may begin.
    pub(super) fn end(mut self, lab: &mut Lab) -> Result<(), LabError> {
        match self.role {
            Role::Client => Ok(self.stream.write_all(b"done\0")?),
            Role::Server => {
                self.stream.write_all(&self.hello)?;
                read_exact(lab, &mut self.stream, &mut [0; 5])
            }
        }
    }
}

/// The guest's program is the server; we connect once it listens.
fn call(lab: &mut Lab, program: &Program) -> Result<TcpStream, LabError> {
    start(lab, &command(program))?;
    lab.run(&until(&format!("grep -q ':{PINGPONG_PORT:04X} .*:0000 0A ' /proc/net/tcp /proc/net/tcp6")))?;
    Ok(TcpStream::connect((Ipv4Addr::LOCALHOST, lab.guest.pingpong_port))?)
}

/// The guest's program is the client, and connects to us.
fn answer(lab: &mut Lab, program: &Program) -> Result<TcpStream, LabError> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    listener.set_nonblocking(true)?;
    // The management network's host, as the guest sees it.
    start(lab, &format!("{} -p {} 10.0.2.2", command(program), listener.local_addr()?.port()))?;
    let (stream, _) = wait_for(lab, || listener.accept())?;
    Ok(stream)
}

fn command(&Program { name, words, .. }: &Program) -> String {
    format!("{name} -d rxe0 -g 1 -n {ITERATIONS} -s {SIZE} -c {words}")
}

/// Reads exactly this much, while the engine goes on.
fn read_exact(lab: &mut Lab, stream: &mut TcpStream, bytes: &mut [u8]) -> Result<(), LabError> {
    stream.set_nonblocking(true)?;
    let mut filled = 0;
    while filled < bytes.len() {
        match wait_for(lab, || stream.read(&mut bytes[filled..]))? {
            0 => return Err("the guest's pingpong hung up".into()),
            read => filled += read,
        }
    }
    Ok(stream.set_nonblocking(false)?)
}

/// Tries what would block until it does not, while the engine goes on.
fn wait_for<T>(lab: &mut Lab, mut action: impl FnMut() -> io::Result<T>) -> Result<T, LabError> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match action() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && Instant::now() < deadline => {
                lab.engine.poll();
            }
            result => return Ok(result?),
        }
    }
}
