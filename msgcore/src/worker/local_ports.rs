//! Ports between two processes of one host, beside the one to the network: memif, which any user may open.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use roci_driver::PortConfig;
use roci_driver::link::closed::ClosedLink;
use roci_driver::link::dpdk::{Attachment, Device, DpdkLink, PendingLink};
use roci_driver::link::faulty::Faulty;
use roci_driver::link::live::{AnyLink, LinkDevice};
use roci_driver::link::pcap::PcapTee;
use roci_driver::neighbour::Interface;
use roci_launcher::JobDirectory;
use roci_protocol::sim::Faults;
use roci_protocol::wire::MacAddr;

use super::live_link::LiveLink;
use super::wireup_error::WireupError;
use crate::config::{Config, LocalDevice, Origin};
use crate::endpoint::address::EndpointAddress;
use crate::endpoint::locality::{LocalMeans, LocalPortError, LocalPorts, MeetingPoint, PendingPort, ends};

/// Bits of the addresses at both ends that are the same.
const PREFIX: u8 = 30;
/// A UNIX socket's path must be shorter than this.
const SOCKET_PATH_LIMIT: usize = 108;

/// Opens memif ports.
struct MemifPorts {
    config: Config,
    /// Where the directory for sockets is made.
    place: PathBuf,
    /// That directory. Sockets stay as long as DPDK listens at them: a port whose peer has gone serves the next one.
    directory: Option<JobDirectory>,
    /// Seeds the faults of the next port, and names its socket.
    count: u64,
}

/// A memif port whose peer has not come yet.
struct PendingMemif {
    link: PendingLink,
    config: Config,
    is_server: bool,
    seed: u64,
}

/// Returns what it takes to have ports to peers of this host beside `device`; `None` where they are reached over it as all others are. A capture
/// is to have all packets, and is of one port: so there are no others unless they are asked for. Sockets are made in the job's directory,
/// where it has one, which its launcher removes whatever happens to its ranks; else among temporary files.
pub(super) fn local_ports(
    config: &Config,
    device: &LinkDevice,
    own: &EndpointAddress,
    directory: Option<&Path>,
) -> Option<LocalMeans<LiveLink>> {
    let is_asked_for = config.origin("local") != Origin::Default;
    let is_off = config.local == LocalDevice::Off || config.local_ports == 0;
    if is_off || device.is_point_to_point() || (config.pcap.is_some() && !is_asked_for) {
        return None;
    }
    let place = directory.map_or_else(std::env::temp_dir, Path::to_path_buf);
    let place = std::path::absolute(&place).unwrap_or(place);
    let ports = MemifPorts { config: config.clone(), place, directory: None, count: 0 };
    match LocalMeans::new(own, Box::new(ports), config.local_ports) {
        Ok(means) => Some(means),
        Err(error) => {
            tracing::warn!("peers of this host are reached over {device}: no socket for {own}: {error}");
            None
        }
    }
}

impl MemifPorts {
    fn begin(&mut self, socket: &Path, is_server: bool) -> Result<PendingMemif, LocalPortError> {
        let socket = check_socket_path(socket.to_path_buf()).map_err(|error| LocalPortError(error.to_string()))?;
        let attachment = Attachment::pair(Device::Memif, &socket, is_server, mac_of(is_server).0);
        let link = DpdkLink::begin(&attachment).map_err(|error| LocalPortError(error.to_string()))?;
        self.count += 1;
        Ok(PendingMemif { link, config: self.config.clone(), is_server, seed: self.count })
    }

    /// The directory for sockets, which this user alone may enter.
    fn directory(&mut self) -> Result<&Path, LocalPortError> {
        if self.directory.is_none() {
            let made = JobDirectory::beside_others(&self.place, &format!("local-{}-", std::process::id()));
            self.directory = Some(made.map_err(|error| {
                LocalPortError(format!("no directory for a socket in {}: {error}", self.place.display()))
            })?);
        }
        Ok(self.directory.as_ref().expect("it was made").path())
    }
}

/// Returns the path of a socket that DPDK can be asked for.
pub(super) fn check_socket_path(path: PathBuf) -> Result<PathBuf, WireupError> {
    let text = path.display().to_string();
    if text.contains([',', '=', '[', ']']) {
        return Err(WireupError::SocketSign(text));
    }
    if text.len() < SOCKET_PATH_LIMIT { Ok(path) } else { Err(WireupError::SocketPath(text)) }
}

impl LocalPorts<LiveLink> for MemifPorts {
    fn serve(&mut self) -> Result<(Box<dyn PendingPort<LiveLink>>, MeetingPoint), LocalPortError> {
        let name = self.count.to_string();
        let socket = self.directory()?.join(name);
        let port = self.begin(&socket, true)?;
        let path = port.link.socket().to_path_buf();
        let file = path.symlink_metadata().map_err(|error| LocalPortError(format!("{}: {error}", path.display())))?;
        Ok((Box::new(port), MeetingPoint { path, file: (file.dev(), file.ino()) }))
    }

    fn join(&mut self, point: &MeetingPoint) -> Result<Box<dyn PendingPort<LiveLink>>, LocalPortError> {
        Ok(Box::new(self.begin(&point.path, false)?))
    }

    fn closed(&self) -> LiveLink {
        dress(AnyLink::Closed(ClosedLink::default()), None, 0)
    }
}

impl PendingPort<LiveLink> for PendingMemif {
    fn is_up(&mut self) -> bool {
        self.link.is_up()
    }

    fn finish(self: Box<Self>) -> Result<(LiveLink, PortConfig), LocalPortError> {
        let Self { link, config, is_server, seed } = *self;
        let mut link = link.finish().map_err(|error| LocalPortError(error.to_string()))?;
        link.zero_copy_from(config.zcopy_threshold);
        let (ours, theirs) = ends(is_server);
        let host = PortConfig {
            interfaces: vec![Interface { ip: ours, prefix: PREFIX, vlan: None }],
            neighbours: vec![(theirs, mac_of(!is_server))],
            pkey: config.pkey,
            is_point_to_point: true,
            ..PortConfig::default()
        };
        Ok((dress(link.into(), config.faults, seed), host))
    }
}

fn dress(link: AnyLink, faults: Option<Faults>, seed: u64) -> LiveLink {
    Faulty::new(PcapTee::new(link, None).expect("no file is opened"), faults, seed)
}

/// The station of an end.
const fn mac_of(is_server: bool) -> MacAddr {
    MacAddr([0x02, b'r', b'o', b'c', 0xff, is_server as u8])
}
