//! The guest of the interop suite: Linux's RoCEv2 stack on a NIC that meets our port, and its verbs.

use std::io;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};

use crate::LabError;
use crate::machine::{self, Booting, ConsoleLine, QemuMachine};

/// The port that `verbs_peer` listens on inside.
const PEER_PORT: u16 = 7471;
/// The port that the `ibv_*_pingpong` programs listen on inside.
pub(crate) const PINGPONG_PORT: u16 = 18515;
/// The guest's station on the wire under test.
pub(crate) const MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];

/// A running guest; it ends with this value.
pub(crate) struct Guest {
    machine: QemuMachine,
    /// Where the guest's ports are on this host.
    peer_port: u16,
    pub(crate) pingpong_port: u16,
}

/// The files of a guest: its own are in `directory`, the kernel and the initial disk in `image`.
pub(crate) struct GuestConfig {
    pub(crate) directory: PathBuf,
    pub(crate) image: PathBuf,
    /// Where its data NIC is.
    pub(crate) wire: GuestWire,
}

/// What joins the guest's data NIC and our port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum GuestWire {
    /// Our port is vhost-user, at [`GuestConfig::data_socket`].
    Vhost,
    /// This interface of the kernel's: our port is a UDP socket at its address.
    Tap(String),
}

impl GuestConfig {
    /// Where the data NIC meets our port.
    pub(crate) fn data_socket(&self) -> PathBuf {
        self.directory.join("data.sock")
    }

    /// Starts the machine; our port must be listening on [`GuestConfig::data_socket`].
    pub(crate) fn start(&self) -> Result<Starting, LabError> {
        let [peer_port, pingpong_port] = free_ports()?;
        let booting = machine::MachineConfig {
            name: "guest",
            directory: &self.directory,
            qemu: Path::new("qemu-system-x86_64"),
            kernel: &self.image.join("vmlinuz"),
            initrd: &self.image.join("initrd.gz"),
            memory_mib: 512,
            append: "",
            devices: self.devices(peer_port, pingpong_port),
        };
        Ok(Starting { booting: booting.start()?, peer_port, pingpong_port })
    }

    fn devices(&self, peer_port: u16, pingpong_port: u16) -> Vec<String> {
        let forwards = format!(
            "hostfwd=tcp:127.0.0.1:{peer_port}-:{PEER_PORT},hostfwd=tcp:127.0.0.1:{pingpong_port}-:{PINGPONG_PORT}"
        );
        let offloads = "csum=off,gso=off,guest_csum=off,guest_tso4=off,guest_tso6=off,guest_ecn=off,guest_ufo=off,\
                        host_tso4=off,host_tso6=off,host_ecn=off,host_ufo=off,mrg_rxbuf=on,vectors=0";
        // vectors=0: with MSI-X, QEMU 7.2 without KVM dereferences a null pointer when the vhost-user NIC starts.
        let mac = roci_protocol::wire::MacAddr(MAC);
        let wire: Vec<_> = match &self.wire {
            GuestWire::Vhost => vec![
                ["-object", "memory-backend-memfd,id=memory,size=512M,share=on"].map(str::to_owned),
                ["-numa", "node,memdev=memory"].map(str::to_owned),
                ["-chardev".to_owned(), format!("socket,id=data,path={}", self.data_socket().display())],
                ["-netdev", "vhost-user,id=data,chardev=data,queues=1"].map(str::to_owned),
            ],
            GuestWire::Tap(interface) => {
                let tap = format!("tap,id=data,ifname={interface},script=no,downscript=no,vhost=off");
                vec![["-netdev".to_owned(), tap]]
            }
        };
        let words = [
            ["-device".to_owned(), format!("virtio-net-pci,netdev=data,mac={mac},{offloads}")],
            ["-netdev".to_owned(), format!("user,id=management,{forwards}")],
            ["-device", "virtio-net-pci,netdev=management"].map(str::to_owned),
        ];
        wire.into_iter().chain(words).flatten().collect()
    }
}

/// A machine that boots.
pub(crate) struct Starting {
    booting: Booting,
    peer_port: u16,
    pingpong_port: u16,
}

impl Starting {
    /// Waits for the machine, while `meanwhile` runs again and again.
    pub(crate) fn ready(self, mut meanwhile: impl FnMut()) -> Result<Guest, LabError> {
        let Self { booting, peer_port, pingpong_port } = self;
        Ok(Guest { machine: booting.ready(&mut meanwhile)?, peer_port, pingpong_port })
    }
}

impl Guest {
    /// Runs a shell command inside and returns what it printed, or fails with it.
    pub(crate) fn run(&mut self, command: &str, meanwhile: &mut impl FnMut()) -> Result<String, LabError> {
        self.machine.run(command, meanwhile)
    }

    /// A new session with the guest's verbs.
    pub(crate) fn verbs(&self) -> Result<ConsoleLine<TcpStream>, LabError> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.peer_port))?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        Ok(ConsoleLine::new(stream))
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
