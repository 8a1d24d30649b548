//! Ports between two processes of one host, beside the one to the network: memif, which any user may open.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use roci_driver::PortConfig;
use roci_driver::link::closed::ClosedLink;
use roci_driver::link::dpdk::{Attachment, Device, DpdkLink, PendingLink, PortError};
use roci_driver::link::faulty::Faulty;
use roci_driver::link::live::{AnyLink, LinkDevice};
use roci_driver::link::pcap::PcapTee;
use roci_driver::neighbour::Interface;
use roci_protocol::sim::Faults;
use roci_protocol::wire::MacAddr;
use tempfile::TempDir;

use super::live_link::LiveLink;
use crate::config::{Config, LocalDevice, Origin};
use crate::endpoint::address::EndpointAddress;
use crate::endpoint::locality::{LocalMeans, LocalPortError, LocalPorts, MeetingPoint, PendingPort, ends};

/// Bits of the addresses at both ends that are the same.
const PREFIX: u8 = 30;

/// Opens memif ports.
struct MemifPorts {
    config: Config,
    /// Where directories for sockets are made.
    place: PathBuf,
    /// Seeds the faults of the next port.
    count: u64,
}

/// A memif port whose peer has not come yet.
struct PendingMemif {
    link: PendingLink,
    config: Config,
    is_server: bool,
    seed: u64,
    /// What its socket is in, at the server; removed once the two have met.
    _directory: Option<TempDir>,
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
    let ports = MemifPorts { config: config.clone(), place, count: 0 };
    match LocalMeans::new(own, Box::new(ports), config.local_ports) {
        Ok(means) => Some(means),
        Err(error) => {
            tracing::warn!("peers of this host are reached over {device}: no socket for {own}: {error}");
            None
        }
    }
}

impl MemifPorts {
    fn begin(
        &mut self,
        socket: &Path,
        directory: Option<TempDir>,
    ) -> Result<Box<dyn PendingPort<LiveLink>>, LocalPortError> {
        let is_server = directory.is_some();
        let attachment = Attachment::pair(Device::Memif, socket, is_server, mac_of(is_server).0);
        let link = DpdkLink::begin(&attachment).map_err(refusal)?;
        self.count += 1;
        let (config, seed) = (self.config.clone(), self.count);
        Ok(Box::new(PendingMemif { link, config, is_server, seed, _directory: directory }))
    }
}

impl LocalPorts<LiveLink> for MemifPorts {
    fn serve(&mut self) -> Result<(Box<dyn PendingPort<LiveLink>>, MeetingPoint), LocalPortError> {
        let directory = tempfile::Builder::new().prefix("roci-").tempdir_in(&self.place).map_err(|error| {
            LocalPortError(format!("no directory for a socket in {}: {error}", self.place.display()))
        })?;
        let path = directory.path().join("memif");
        let port = self.begin(&path, Some(directory))?;
        let file = path.symlink_metadata().map_err(|error| LocalPortError(format!("{}: {error}", path.display())))?;
        Ok((port, MeetingPoint { path, file: (file.dev(), file.ino()) }))
    }

    fn join(&mut self, point: &MeetingPoint) -> Result<Box<dyn PendingPort<LiveLink>>, LocalPortError> {
        self.begin(&point.path, None)
    }

    fn closed(&self) -> LiveLink {
        dress(AnyLink::Closed(ClosedLink::default()), None, 0)
    }
}

impl PendingPort<LiveLink> for PendingMemif {
    fn is_up(&mut self) -> Result<bool, LocalPortError> {
        self.link.is_up().map_err(refusal)
    }

    fn finish(self: Box<Self>) -> Result<(LiveLink, PortConfig), LocalPortError> {
        let Self { link, config, is_server, seed, .. } = *self;
        let mut link = link.finish().map_err(refusal)?;
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

fn refusal(error: PortError) -> LocalPortError {
    LocalPortError(error.to_string())
}
