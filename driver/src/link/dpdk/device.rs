//! The names of devices, and the EAL arguments that create them.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use thiserror::Error;

use super::error::PortError;
use super::limits::RingSize;
use super::pci::{self, Addressing, BindingError, ParsePciError, PciAddress};
use crate::link::MAX_QUEUES;

/// The longest frame of the shared-memory devices. memif corrupts frames of several descriptors when its
/// ring is full, so a descriptor's buffer must hold any frame: this is also its `bsize`.
pub const JUMBO_FRAME: usize = 9216;
/// The longest packet that every Ethernet carries (IEEE 802.3), and the header before it.
const STANDARD_MTU: u16 = 1500;
/// Where the kernel shows its interfaces.
pub(super) const INTERFACES: &str = "/sys/class/net";
const ETHERNET: usize = 14;

/// A device as people name it: `memif`, `vhost`, `af_packet:IFACE`, `pci:ADDRESS`, or an EAL line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Device {
    /// Shared memory between two processes of one host, over a UNIX socket; needs no privilege.
    Memif,
    /// vhost-user and virtio-user between two processes of one host; needs no privilege. virtio-user writes to a peer that
    /// has died: SIGPIPE must be ignored, as Rust programs do by default.
    Vhost,
    /// A kernel interface through a packet socket; needs `CAP_NET_RAW` and `CAP_NET_ADMIN`.
    AfPacket(String),
    /// A NIC bound to vfio-pci or uio, by PCI address.
    Pci(PciAddress),
    /// Any EAL arguments; the first port that they create is used.
    Eal(String),
}

/// Why a device name was not understood.
#[derive(Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ParseDeviceError {
    /// No such kind.
    #[error(
        "unknown device '{0}': known are memif, vhost, udp, udp:ADDRESS, af_packet:IFACE, pci:ADDRESS, or --eal \"ARGUMENTS\""
    )]
    Unknown(String),
    /// The kind needs a name behind a colon.
    #[error("device '{0}' needs a name: {0}:{1}")]
    NeedsName(&'static str, &'static str),
    /// The name is no PCI address.
    #[error("device pci: {0}")]
    Pci(#[from] ParsePciError),
}

impl FromStr for Device {
    type Err = ParseDeviceError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (kind, name) = text.split_once(':').map_or((text, None), |(kind, name)| (kind, Some(name)));
        let name = name.filter(|name| !name.is_empty());
        match (kind, name) {
            ("memif", None) => Ok(Self::Memif),
            ("vhost", None) => Ok(Self::Vhost),
            ("af_packet", Some(name)) => Ok(Self::AfPacket(name.into())),
            ("af_packet", None) => Err(ParseDeviceError::NeedsName("af_packet", "IFACE")),
            ("pci", Some(name)) => Ok(Self::Pci(name.parse()?)),
            ("pci", None) => Err(ParseDeviceError::NeedsName("pci", "ADDRESS")),
            _ => Err(ParseDeviceError::Unknown(text.into())),
        }
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memif => f.write_str("memif"),
            Self::Vhost => f.write_str("vhost"),
            Self::AfPacket(name) => write!(f, "af_packet:{name}"),
            Self::Pci(address) => write!(f, "pci:{address}"),
            Self::Eal(line) => write!(f, "eal:{line}"),
        }
    }
}

impl Device {
    /// Whether each pair of processes has a port of its own, which no third process shares.
    pub const fn is_point_to_point(&self) -> bool {
        matches!(self, Self::Memif | Self::Vhost)
    }

    /// How it reaches memory, and whether the kernel has left it to user space: `None` where no device does, or where the EAL line
    /// says so itself.
    pub(super) fn addressing(&self) -> Result<Option<Addressing>, BindingError> {
        match *self {
            Self::Pci(address) => pci::check(Path::new(pci::SYSFS), Path::new(pci::VFIO), address).map(Some),
            _ => Ok(None),
        }
    }
}

/// One port to be created: a device and this process's place on it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Attachment {
    device: Device,
    socket: PathBuf,
    is_server: bool,
    mac: [u8; 6],
    /// What was asked for.
    mtu: Option<u16>,
    queues: u16,
}

impl Attachment {
    /// One end of a point-to-point device; `socket` is where the two meet, and the server makes it.
    pub fn pair(device: Device, socket: &Path, is_server: bool, mac: [u8; 6]) -> Self {
        debug_assert!(device.is_point_to_point());
        Self { device, socket: socket.to_owned(), is_server, mac, mtu: None, queues: 1 }
    }

    /// A port on a device that many share.
    pub fn shared(device: Device) -> Self {
        debug_assert!(!device.is_point_to_point());
        let socket = PathBuf::new();
        Self { device, socket, is_server: true, mac: [0; 6], mtu: None, queues: 1 }
    }

    /// Packets, Ethernet aside, may have up to `mtu` bytes, which every switch on the way must carry; a device that carries
    /// less is not opened. Without this they have 1500, or what a kernel's interface carries where that is less. memif and
    /// vhost carry frames of [`JUMBO_FRAME`] bytes whatever is asked for.
    #[must_use]
    pub fn with_mtu(self, mtu: u16) -> Self {
        Self { mtu: Some(mtu), ..self }
    }

    /// The port gets so many queues, 1 to [`MAX_QUEUES`], each for an engine of this process: one call of
    /// [`DpdkLink::open_all`](super::DpdkLink::open_all) for each. With one, which is what it has without this, it
    /// belongs to one engine.
    ///
    /// # Panics
    /// When the number is out of range, or the device is point-to-point, which has a port for each engine.
    #[must_use]
    pub fn with_queues(self, queues: u16) -> Self {
        assert!((1..=MAX_QUEUES).contains(&queues) && (queues == 1 || !self.device.is_point_to_point()));
        Self { queues, ..self }
    }

    /// How to create the port with this index, which is unique in the process.
    pub(super) fn creation(&self, index: usize) -> Creation {
        let socket = self.socket.display();
        let mac = roci_protocol::wire::MacAddr(self.mac);
        let vdev = |name, options| Creation::Virtual { name, options };
        match &self.device {
            Device::Memif => {
                let socket = socket.to_string();
                let (role, socket) =
                    if self.is_server { ("server", socket) } else { ("client", other_spelling(&socket)) };
                let ends = format!("role={role},socket={socket},socket-abstract=no");
                vdev(
                    format!("net_memif{index}"),
                    format!("{ends},bsize={JUMBO_FRAME},rsize={},mac={mac}", self.ring().log2()),
                )
            }
            Device::Vhost if self.is_server => vdev(format!("net_vhost{index}"), format!("iface={socket},queues=1")),
            Device::Vhost => {
                let options = format!("path={socket},queues=1,queue_size=512,mac={mac}");
                vdev(format!("net_virtio_user{index}"), options)
            }
            Device::AfPacket(name) => {
                let queues = if self.queues > 1 { format!(",qpairs={}", self.queues) } else { String::new() };
                vdev(format!("net_af_packet{index}"), format!("iface={name},qdisc_bypass=1{queues}"))
            }
            Device::Pci(address) => {
                let address = address.to_string();
                Creation::AtStart { name: Some(address.clone()), words: vec!["-a".to_owned(), address] }
            }
            Device::Eal(line) => {
                Creation::AtStart { name: None, words: line.split_whitespace().map(str::to_owned).collect() }
            }
        }
    }

    /// What its rings hold. vhost's have the size that its options say.
    pub(super) fn ring(&self) -> RingSize {
        if self.device == Device::Memif { RingSize::MEMORY } else { RingSize::DEVICE }
    }

    pub(super) fn is_server(&self) -> bool {
        self.is_server
    }

    /// Where the two ends of a point-to-point device meet.
    pub(super) fn socket(&self) -> &Path {
        &self.socket
    }

    /// The socket that DPDK listens at, and goes on to when the port is closed.
    pub(super) fn lasting_socket(&self) -> Option<&Path> {
        (self.device == Device::Memif && self.is_server).then_some(self.socket.as_path())
    }

    /// A memif server turns clients away until its port is started.
    pub(super) fn is_turned_away_early(&self) -> bool {
        self.device == Device::Memif && !self.is_server
    }

    /// Whether an end that has failed to meet its peer is asked again: memif's client asks, and vhost's only once.
    pub(super) fn tries_again(&self) -> bool {
        self.device == Device::Memif
    }

    /// Descriptors that its port takes once it has met its peer: sockets, rings in memory, and an event for each ring and end.
    pub(super) fn descriptors(&self) -> usize {
        match (&self.device, self.is_server) {
            (Device::Memif, true) => 5,
            (Device::Memif, false) => 4,
            (Device::Vhost, true) => 7,
            (Device::Vhost, false) => 5,
            (Device::AfPacket(_), _) => usize::from(self.queues),
            // Their drivers say by themselves what they lack.
            (Device::Pci(_) | Device::Eal(_), _) => 0,
        }
    }

    /// The socket that must exist before DPDK starts.
    pub(super) fn socket_to_find(&self) -> Option<&Path> {
        (self.device == Device::Vhost && !self.is_server).then_some(self.socket.as_path())
    }

    pub(super) fn device(&self) -> &Device {
        &self.device
    }

    /// The MAC address that was asked for; the vhost server's port has none of its own.
    pub(super) fn mac(&self) -> Option<[u8; 6]> {
        (self.mac != [0; 6]).then_some(self.mac)
    }

    /// The longest frame that may be sent. What a kernel's interface carries is looked up below `interfaces`.
    pub(super) fn max_frame(&self, interfaces: &Path) -> Result<usize, PortError> {
        let limit = match &self.device {
            Device::Memif | Device::Vhost => return Ok(JUMBO_FRAME),
            Device::Pci(_) => u16::MAX,
            // DPDK's driver takes longer ones too, but its ring's frames end not far above.
            Device::AfPacket(name) => mtu_of(interfaces, name).unwrap_or(STANDARD_MTU).min(STANDARD_MTU),
            Device::Eal(_) => STANDARD_MTU,
        };
        match self.mtu {
            Some(mtu) if mtu > limit => Err(PortError::Mtu { device: self.device.to_string(), mtu, max: limit }),
            mtu => Ok(usize::from(mtu.unwrap_or(STANDARD_MTU).min(limit)) + ETHERNET),
        }
    }

    /// What its driver does with a payload that is not in a packet buffer.
    pub(super) fn external(&self) -> External {
        match self.device {
            Device::Memif | Device::AfPacket(_) => External::Copied,
            Device::Vhost if self.is_server => External::Copied,
            Device::Pci(_) => External::Mapped,
            Device::Vhost => External::Never("virtio-user does not send from memory that DPDK did not allocate"),
            Device::Eal(_) => External::Never("the driver that an EAL line selects is unknown"),
        }
    }

    /// Whether frames are handed over by a word in memory that both ends share. Others ask a kernel for each burst, or
    /// write a device's register, which is dear where it is a hypervisor's.
    pub(super) fn is_ring_in_memory(&self) -> bool {
        matches!(self.device, Device::Memif | Device::Vhost)
    }

    /// How many engines share the port.
    pub(super) fn queues(&self) -> u16 {
        self.queues
    }

    /// The longest packet of a NIC.
    pub(super) fn mtu(&self) -> u16 {
        self.mtu.unwrap_or(STANDARD_MTU)
    }

    /// memif's rings are unmapped by another thread when the peer dies.
    pub(super) fn needs_gate(&self) -> bool {
        self.device == Device::Memif
    }

    /// Whether the port comes without memory that a device could reach, so that no hugepage is needed.
    pub(super) fn is_virtual(&self) -> bool {
        !matches!(self.device, Device::Pci(_) | Device::Eal(_))
    }
}

/// The longest packet of a kernel's interface; `None` where there is none of that name.
fn mtu_of(interfaces: &Path, name: &str) -> Option<u16> {
    let text = std::fs::read_to_string(interfaces.join(name).join("mtu")).ok()?;
    // lo has 65536.
    Some(text.trim().parse::<u32>().ok()?.try_into().unwrap_or(u16::MAX))
}

/// What a driver does with a segment of external memory. None says so in its capabilities: this is what was measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum External {
    /// The processor copies it into the ring: any address does.
    Copied,
    /// The device reads it: it must know the memory.
    Mapped,
    /// Such frames are lost, or it has not been tried.
    Never(&'static str),
}

/// The way in which DPDK creates a port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Creation {
    /// A virtual device, which can be added while DPDK runs.
    Virtual { name: String, options: String },
    /// Words of the line that DPDK starts with, and the port's name where it is known.
    AtStart { name: Option<String>, words: Vec<String> },
}

impl Creation {
    /// The name under which DPDK will know the port.
    pub(super) fn name(&self) -> Option<&str> {
        match self {
            Self::Virtual { name, .. } => Some(name),
            Self::AtStart { name, .. } => name.as_deref(),
        }
    }

    /// EAL arguments.
    pub(super) fn words(&self) -> Vec<String> {
        match self {
            Self::Virtual { name, options } => vec!["--vdev".to_owned(), format!("{name},{options}")],
            Self::AtStart { words, .. } => words.clone(),
        }
    }
}

/// The same path in other words. memif's driver keeps one entry for each path, and the first port with that path
/// decides whether the entry listens: a server that finds a client's entry, when both are in one process, would never
/// listen.
fn other_spelling(socket: &str) -> String {
    /// Bytes of a UNIX socket's path, without the NUL.
    const PATH_MAX: usize = 107;
    match socket.rsplit_once('/') {
        Some((directory, name)) if socket.len() < PATH_MAX => format!("{directory}//{name}"),
        _ => socket.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_understood_or_refused_with_the_remedy() {
        for name in ["memif", "vhost", "af_packet:veth0", "pci:0000:00:04.0"] {
            assert_eq!(name.parse::<Device>().expect(name).to_string(), name);
        }
        assert!("tcp".parse::<Device>().expect_err("no such device").to_string().starts_with("unknown device 'tcp'"));
        assert!("memif:x".parse::<Device>().is_err());
        let error = "af_packet:".parse::<Device>().expect_err("no name").to_string();
        assert_eq!(error, "device 'af_packet' needs a name: af_packet:IFACE");
        assert_eq!(
            "pci:04.0".parse::<Device>().expect_err("half a name").to_string(),
            "device pci: '04.0' is no PCI address such as 0000:00:04.0 or 00:04.0"
        );
        let short = "pci:00:04.0".parse::<Device>().expect("the domain may be left out");
        assert_eq!(short.to_string(), "pci:0000:00:04.0");
    }

    #[test]
    fn a_memif_descriptor_always_holds_a_whole_frame() {
        let end = Attachment::pair(Device::Memif, Path::new("/run/x"), true, [2, 0, 0, 0, 0, 1]);
        let words = end.creation(0).words();
        let longest = end.max_frame(Path::new(INTERFACES)).expect("it has one limit");
        assert!(words[1].contains(&format!("bsize={longest}")), "{words:?}");
    }

    #[test]
    fn frames_are_as_long_as_an_interface_carries_and_more_is_refused_by_the_knobs_name() {
        let interfaces = tempfile::tempdir().expect("a directory");
        for (name, mtu) in [("short", "1000\n"), ("usual", "1500\n"), ("jumbo", "9000\n"), ("lo", "65536\n")] {
            std::fs::create_dir(interfaces.path().join(name)).expect("a directory");
            std::fs::write(interfaces.path().join(name).join("mtu"), mtu).expect("a file");
        }
        let frame = |name: &str, mtu: Option<u16>| {
            let port = Attachment::shared(Device::AfPacket(name.into()));
            mtu.map_or(port.clone(), |mtu| port.with_mtu(mtu)).max_frame(interfaces.path())
        };
        let of = |name, mtu| frame(name, mtu).expect("it is carried");
        for (name, wanted) in [("short", 1014), ("usual", 1514), ("jumbo", 1514), ("lo", 1514), ("absent", 1514)] {
            assert_eq!(of(name, None), wanted, "{name}");
        }
        assert_eq!((of("short", Some(1000)), of("usual", Some(600)), of("jumbo", Some(1500))), (1014, 614, 1514));
        for (name, mtu, most) in [("short", 1001, 1000), ("usual", 1501, 1500), ("jumbo", 4200, 1500)] {
            let error = frame(name, Some(mtu)).expect_err("too long").to_string();
            let wanted = format!("carries packets of {most} bytes at most, and {mtu} are wanted (ROCI_PORT_MTU)");
            assert!(error.starts_with(&format!("device af_packet:{name}: ")) && error.contains(&wanted), "{error}");
        }
        let line = Attachment::shared(Device::Eal("--vdev net_ring0".into()));
        assert!(line.with_mtu(1501).max_frame(interfaces.path()).is_err());
    }

    #[test]
    fn the_ends_of_a_memif_name_one_socket_in_two_ways() {
        let words = |is_server| {
            let end = Attachment::pair(Device::Memif, Path::new("/run/x/s"), is_server, [2, 0, 0, 0, 0, 1]);
            end.creation(3).words()[1].clone()
        };
        assert!(words(true).starts_with("net_memif3,role=server,socket=/run/x/s,"), "{}", words(true));
        assert!(words(false).starts_with("net_memif3,role=client,socket=/run/x//s,"), "{}", words(false));
        let longest = format!("/{}", "x".repeat(106));
        assert_eq!(other_spelling(&longest), longest);
    }
}
