//! What joins two processes of one host beside the port to the network: memif, which any user may open, and the mark by which the
//! kernel's copies know this process.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use roci_driver::link::closed::ClosedLink;
use roci_driver::link::dpdk::{Attachment, Device, DpdkLink, PendingLink};
use roci_driver::link::faulty::Faulty;
use roci_driver::link::live::{AnyLink, LinkDevice};
use roci_driver::link::pcap::PcapTee;
use roci_driver::neighbour::Interface;
use roci_driver::{MemoryMark, PortConfig};
use roci_launcher::SocketDirectory;
use roci_protocol::sim::Faults;
use roci_protocol::wire::MacAddr;

use super::live_link::LiveLink;
use super::wireup_error::WireupError;
use crate::config::{Config, LocalDevice, Origin};
use crate::endpoint::address::EndpointAddress;
use crate::endpoint::locality::{LocalMeans, LocalPortError, LocalPorts, MeetingPoint, PendingPort, ends};

/// Bits of the addresses at both ends that are the same.
const PREFIX: u8 = 30;
/// A word in the names of directories for sockets.
const WORD_OF_DIRECTORIES: &str = "local";
/// A UNIX socket's path must be shorter than this.
const SOCKET_PATH_LIMIT: usize = 108;

/// Opens memif ports.
struct MemifPorts {
    config: Config,
    /// Where the directory for sockets is made.
    place: PathBuf,
    /// That directory. Sockets stay as long as DPDK listens at them: a port whose peer has gone serves the next one.
    directory: Option<SocketDirectory>,
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

/// Returns what it takes to have ports to peers of this host beside `device`, and to read their memory; `None` where they are as all others.
/// A capture is to have all packets, and is of one port: so there are no others unless they are asked for. Nor is anything to pass beside
/// faults. Sockets are made in the job's directory, where it has one, which its launcher removes whatever happens to its ranks; else among
/// temporary files.
pub(super) fn local_means(
    config: &Config,
    device: &LinkDevice,
    own: &EndpointAddress,
    directory: Option<&Path>,
) -> Option<LocalMeans<LiveLink>> {
    let is_asked_for = config.origin("local") != Origin::Default;
    let is_on = config.local != LocalDevice::Off && (config.pcap.is_none() || is_asked_for);
    let has_ports = is_on && config.local_ports > 0 && !device.is_point_to_point();
    let has_mark = is_on && config.cma && config.faults.is_none();
    if !has_ports && !has_mark {
        return None;
    }
    let mut means = match LocalMeans::new(own) {
        Ok(means) => means,
        Err(error) => {
            tracing::warn!("peers of this host are reached over {device}: no socket for {own}: {error}");
            return None;
        }
    };
    if has_ports {
        let place = directory.map_or_else(std::env::temp_dir, Path::to_path_buf);
        let place = std::path::absolute(&place).unwrap_or(place);
        let ports = MemifPorts { config: config.clone(), place, directory: None, count: 0 };
        means = means.with_ports(Box::new(ports), config.local_ports);
    }
    Some(if has_mark { means.with_mark(MemoryMark::new(rand::random())) } else { means })
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
            let made = SocketDirectory::within(&self.place, WORD_OF_DIRECTORIES);
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

#[cfg(test)]
mod tests {
    use std::fs::{self, File};

    use super::*;

    /// Processes of another container that shares the place have numbers that none has here.
    #[test]
    fn a_directory_for_sockets_stays_as_long_as_its_process_lives_whatever_its_number() {
        let place = tempfile::tempdir().expect("a directory");
        let others =
            ["4194305-lives", "4194305-was-killed"].map(|name| place.path().join(format!("roci-local-{name}")));
        let locks = others.each_ref().map(|other| {
            fs::create_dir(other).expect("room on the disk");
            let lock = File::create(other.join("lock")).expect("room on the disk");
            lock.lock().expect("it is new");
            lock
        });
        let [_living, killed] = locks;
        drop(killed);
        let place = place.path().to_path_buf();
        let mut ports = MemifPorts { config: Config::default(), place, directory: None, count: 0 };
        let own = ports.directory().expect("room on the disk").to_path_buf();
        assert_eq!(others.map(|other| other.exists()), [true, false]);
        assert!(own.exists());
        drop(ports);
        assert!(!own.exists());
    }
}
