//! From a job to open ports.
//!
//! Each pair of ranks has a port of its own where the device joins two processes (the lower rank is its server),
//! and all share one port where the device is a network.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::time::Duration;

use roci_driver::link::Link;
use roci_driver::link::dpdk::{Attachment, Device, DpdkLink, PortError};
use roci_driver::link::faulty::Faulty;
use roci_driver::link::live::{AnyLink, LinkDevice};
use roci_driver::link::pcap::PcapTee;
use roci_driver::link::udp::{UdpAddress, UdpLink, station};
use roci_driver::neighbour::Interface;
use roci_driver::{Address, Arena, Engine, PdId, PortConfig, QpParams};
use roci_protocol::Access;
use roci_protocol::wire::MacAddr;
use roci_protocol::wire::udp::ROCE_PORT;

use super::local_means::{check_socket_path, local_means};
use super::wireup_error::WireupError;
use crate::Rank;
use crate::config::{Config, ConnectMethod};
use crate::core::lane::SEND_QUEUE;
use crate::endpoint::address::EndpointAddress;
use crate::endpoint::wireup::NoWireup;
use roci_launcher::Reminder;
use roci_launcher::{JOB, Job, JobError, LocalMail, Mail};

pub use super::live_link::LiveLink;
pub use crate::endpoint::locality::{LocalMeans, LocalPortError, LocalPorts, MeetingPoint, PendingPort};

/// Receives that a queue pair of a fabric holds.
const RECEIVES: usize = 64;

/// A rank's engine with its ports open: what queue pairs are made on.
pub struct Ports<L: Link = LiveLink> {
    /// This rank.
    pub rank: Rank,
    /// How many ranks there are.
    pub size: usize,
    /// The poll loop.
    pub engine: Engine<L>,
    /// The domain of all queue pairs.
    pub pd: PdId,
    /// All peers are behind the first port. Otherwise each has its own, in the order of ranks.
    pub is_shared: bool,
    /// The address of each rank; of a worker alone its own.
    pub addresses: Vec<EndpointAddress>,
    /// Its peers are no ranks.
    pub is_alone: bool,
    /// What it takes to have ports to peers of this host beside the first.
    pub local: Option<LocalMeans<L>>,
    /// The job.
    pub job: Option<Job>,
    /// How ranks reach each other before they are connected, where there is no job.
    pub mail: Option<Box<dyn Mail>>,
}

impl Ports {
    /// Opens the ports of this rank of `job`; waits for the peers' ends where a port joins two processes.
    pub fn open(config: &Config, mut job: Job) -> Result<Self, WireupError> {
        config.check()?;
        let config = &config.clone().for_job(&job);
        let (rank, size) = (job.rank(), job.size());
        let peers: Vec<Rank> = (0..size).filter(|&peer| peer != rank).collect();
        let seat = seat(config, &job);
        let device = config.device_of(seat)?;
        let mut engine = Engine::on(Arena::with(config.arena(Some(&device)))?)?;
        let is_shared = !device.is_point_to_point();
        check_method(config, &device)?;
        let place = if is_shared { seat } else { rank };
        if job.generation() > 1 {
            // Ports have the names that they had: those of before are closed once all ranks are here.
            job.barrier()?;
        }
        if !peers.is_empty() {
            let links = open_links(config, &mut job, &device, &peers)?;
            for (index, link) in links.into_iter().enumerate() {
                // Ranks that share no directory may be on hosts of their own.
                let is_recorder = index == 0 && (rank == 0 || job.directory().is_none());
                let host = host(config, &link, place, !is_shared);
                engine.add_port_with(dress(config, link, rank, index, is_recorder)?, host)?;
            }
        }
        let pd = engine.alloc_pd();
        let mut local = None;
        let hosts = if peers.is_empty() {
            vec![RankHost::at(ip_of(config, rank))]
        } else {
            let station = engine.link(0).mac();
            let own = RankHost { incarnation: rand::random(), ..RankHost::of(engine.ip(0), station) };
            // Who learns of the address finds the socket.
            local = local_means(config, &device, &own.address(config.service, rank), job.directory());
            hosts(&mut job, own, &mut engine)?
        };
        let addresses = addresses_of(config.service, &hosts);
        Ok(Self { rank, size, engine, pd, is_shared, addresses, is_alone: false, local, job: Some(job), mail: None })
    }
}

/// Opens a link to each of these ranks, or one to all, and waits for theirs.
fn open_links(
    config: &Config,
    job: &mut Job,
    device: &LinkDevice,
    peers: &[Rank],
) -> Result<Vec<AnyLink>, WireupError> {
    let device = match device {
        LinkDevice::Udp(address) => return Ok(vec![open_socket(config, *address, Some(job))?]),
        LinkDevice::Dpdk(device) => device,
    };
    let attachments = attachments(config, device, job, peers)?;
    let patience = Duration::from_secs(config.connect_timeout_s);
    let (rank, mut reminder) = (job.rank(), Reminder::start());
    let links = DpdkLink::open_all(&attachments, patience, &mut || {
        if let Some(waited) = reminder.due() {
            let (waited, absent) = (waited.as_secs(), job.absent().unwrap_or_default());
            tracing::warn!("rank {rank} has waited {waited} s for its peers to open their ends of {device}{absent}");
        }
        job.check_all_present().is_err()
    });
    if matches!(links, Err(PortError::Hopeless(_))) {
        job.check_all_present()?;
    }
    Ok(links?.into_iter().map(AnyLink::from).collect())
}

/// Opens a socket at the address that the device or the knob names. Without one, processes that are known to be on one host
/// meet on its loopback interface, and others use the address by which their launcher is reached, or that leads to other
/// hosts.
fn open_socket(config: &Config, address: UdpAddress, job: Option<&Job>) -> Result<AnyLink, WireupError> {
    if let Some(vlan) = config.vlan {
        return Err(WireupError::VlanOverSocket { device: LinkDevice::Udp(address), vlan });
    }
    let ip = address.ip.or(config.ip).or_else(|| job.and_then(Job::local_ip));
    let address = UdpAddress { ip, ..address };
    let mtu = config.wanted_port_mtu();
    let is_one_host = job.is_some_and(|job| job.directory().is_some());
    let link = if is_one_host && ip.is_none() { UdpLink::open_on_loopback(mtu) } else { UdpLink::open(address, mtu) };
    Ok(link?.into())
}

/// The rank that this one's device and address are named after: where workers of a process share a port, the first.
fn seat(config: &Config, job: &Job) -> Rank {
    if config.queues > 1 { job.first() } else { job.rank() }
}

/// Of several engines on a port one alone receives management datagrams; sockets are each engine's own.
fn check_method(config: &Config, device: &LinkDevice) -> Result<(), WireupError> {
    let is_shared = device.dpdk().is_some_and(|device| !device.is_point_to_point());
    if is_shared && config.queues > 1 && config.connect_method == ConnectMethod::RdmaCm {
        return Err(NoWireup::SharedPort.into());
    }
    Ok(())
}

/// The host of a rank.
#[derive(Clone, Copy, Debug)]
pub(super) struct RankHost {
    ip: IpAddr,
    udp_port: u16,
    incarnation: u64,
}

impl RankHost {
    /// A rank whose frames go to RoCEv2's own port, and that has no incarnation.
    pub(super) const fn at(ip: IpAddr) -> Self {
        Self { ip, udp_port: ROCE_PORT, incarnation: 0 }
    }

    /// The same, whose frames go to a station.
    pub(super) fn of(ip: IpAddr, station: MacAddr) -> Self {
        Self { udp_port: station::udp_port_of(station), ..Self::at(ip) }
    }

    /// The address of this rank there: each listens at a service of its own.
    fn address(self, service: u16, rank: Rank) -> EndpointAddress {
        let Self { ip, udp_port, incarnation } = self;
        EndpointAddress { ip, udp_port, service: service.wrapping_add(rank as u16), incarnation }
    }
}

/// Returns the host of each rank on a network, as the ranks published them. Ranks of one process may share a
/// station, whose frames go from queue to queue; others would not hear each other. A socket is a station at its own address.
///
/// A peer whose port has to ask again for its link needs this end's links to be looked after, or it never comes to publish its own.
fn hosts(job: &mut Job, own: RankHost, engine: &mut Engine<LiveLink>) -> Result<Vec<RankHost>, WireupError> {
    let station = engine.link(0).mac();
    let (rank, size, process) = (job.rank(), job.size(), job.first());
    let RankHost { ip: ours, incarnation, .. } = own;
    job.put(&format!("host/{rank}"), &format!("{ours} {station} {process} {incarnation}"))?;
    let host = |peer| {
        let text = job.get_beside(&format!("host/{peer}"), || engine.maintain_links())?;
        let (ip, mac, first, incarnation) = parse_host(&text).ok_or(WireupError::Host(peer, text))?;
        let udp_port = station::port_of(mac);
        if mac == station && first != process && (udp_port.is_none() || ip == ours) {
            return Err(WireupError::SameStation { rank, peer, station });
        }
        Ok(RankHost { ip, udp_port: udp_port.unwrap_or(ROCE_PORT), incarnation })
    };
    (0..size).map(host).collect()
}

/// A rank's address, its station, the first rank of its process, and its incarnation.
fn parse_host(text: &str) -> Option<(IpAddr, MacAddr, Rank, u64)> {
    let mut words = text.split(' ');
    let host = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    Some((host.0, host.1, words.next()?.parse().ok()?, words.next()?.parse().ok()?))
}

impl<L: Link> Ports<L> {
    /// An engine whose first port is on a network, for peers that are no ranks. The incarnation must be no other endpoint's that was
    /// or will be at the same place.
    pub fn alone(mut engine: Engine<L>, config: &Config, incarnation: u64) -> Self {
        let pd = engine.alloc_pd();
        let udp_port = station::udp_port_of(engine.link(0).mac());
        let addresses = vec![EndpointAddress { ip: engine.ip(0), udp_port, service: config.service, incarnation }];
        let (is_shared, is_alone, local) = (true, true, None);
        Self { rank: 0, size: 1, engine, pd, is_shared, addresses, is_alone, local, job: None, mail: None }
    }

    /// Ranks without a job, one for each engine, whose first ports are on one network: for tests and simulations.
    pub fn group(engines: Vec<Engine<L>>, hosts: &[IpAddr]) -> Vec<Self> {
        let size = engines.len();
        assert_eq!(size, hosts.len(), "an address for each engine");
        let ranks = engines.into_iter().zip(LocalMail::group(size)).enumerate();
        let port = |(rank, (mut engine, mail)): (Rank, (Engine<L>, LocalMail))| {
            let pd = engine.alloc_pd();
            let mail: Option<Box<dyn Mail>> = Some(Box::new(mail));
            let hosts: Vec<_> = hosts.iter().copied().map(RankHost::at).collect();
            let addresses = addresses_of(Config::default().service, &hosts);
            let (is_shared, is_alone, local) = (true, false, None);
            Self { rank, size, engine, pd, is_shared, addresses, is_alone, local, job: None, mail }
        };
        ranks.map(port).collect()
    }
}

/// Returns the host of a queue pair.
pub(super) fn host_of(address: &Address) -> RankHost {
    RankHost::of(address.ip, address.mac)
}

/// Returns where ranks are, by their hosts: each listens at a service of its own.
pub(super) fn addresses_of(service: u16, hosts: &[RankHost]) -> Vec<EndpointAddress> {
    hosts.iter().enumerate().map(|(rank, host)| host.address(service, rank)).collect()
}

/// The job that this process was started in.
pub fn join(config: &Config) -> Result<Job, JobError> {
    Job::from_environment(Duration::from_secs(config.connect_timeout_s))
}

/// The job of several ranks that this process was started in; `None` where it was not.
pub fn join_if_started(config: &Config) -> Result<Option<Job>, JobError> {
    match join(config) {
        Ok(job) if job.size() == 1 => Ok(None),
        Ok(job) => Ok(Some(job)),
        Err(JobError::NotInJob(_)) if std::env::var_os(JOB).is_none() => Ok(None),
        Err(error) => Err(error),
    }
}

/// An engine with a port of its own on a network, for peers that are no ranks.
pub fn open_alone(config: &Config) -> Result<Engine<LiveLink>, WireupError> {
    config.check()?;
    let device = config.device_of(0)?;
    if device.is_point_to_point() {
        return Err(WireupError::NeedsOneHost(device));
    }
    let mut engine = Engine::on(Arena::with(config.arena(Some(&device)))?)?;
    let link = open_shared(config, &device, 1)?;
    let host = host(config, &link, 0, false);
    engine.add_port_with(dress(config, link, 0, 0, true)?, host)?;
    Ok(engine)
}

/// Opens a link that all peers are behind, on a port with so many queues where it is a port.
pub fn open_shared(config: &Config, device: &LinkDevice, queues: u16) -> Result<AnyLink, WireupError> {
    let device = match device {
        LinkDevice::Udp(address) => return open_socket(config, *address, None),
        LinkDevice::Dpdk(device) => device,
    };
    let attachment = attachment_of(config, device).with_queues(queues);
    let links = DpdkLink::open_all(&[attachment], Duration::from_secs(config.connect_timeout_s), &mut || false)?;
    Ok(links.into_iter().next().expect("a link for each attachment").into())
}

/// Parameters of every queue pair between two ranks.
pub fn queue_pair_params(config: &Config) -> QpParams {
    QpParams {
        mtu: config.mtu(),
        sq_depth: SEND_QUEUE,
        rq_depth: RECEIVES,
        window: config.window,
        access: Access::REMOTE_READ.and(Access::REMOTE_WRITE).and(Access::REMOTE_ATOMIC),
        ack_timeout_ns: config.ack_timeout_us * 1000,
        ack_timeout_max_ns: config.ack_timeout_max_us * 1000,
        retry_limit: config.retry_limit,
        dialect: config.dialect,
        icrc: config.icrc,
        congestion: config.congestion,
        link_rate: config.link_rate,
        traffic_class: config.dscp << 2,
        cnp_traffic_class: config.cnp_dscp << 2,
        priority: config.pcp,
        // Credits are counted per message here, where the meaning of a message is known.
        end_to_end_credits: false,
        ..QpParams::default()
    }
}

/// This rank's host on a port: where it is a socket, at the address that it has.
fn host(config: &Config, link: &AnyLink, rank: Rank, is_point_to_point: bool) -> PortConfig {
    let ip = match link {
        AnyLink::Udp(link) => link.own().ip(),
        AnyLink::Dpdk(_) | AnyLink::Closed(_) => ip_of(config, rank),
    };
    let prefix = config.prefix.unwrap_or(if ip.is_ipv4() { 24 } else { 64 });
    let (gateway_v4, gateway_v6) = match config.gateway {
        Some(IpAddr::V4(gateway)) => (Some(gateway), None),
        Some(IpAddr::V6(gateway)) => (None, Some(gateway)),
        None => (None, None),
    };
    let interfaces = vec![Interface { ip, prefix, vlan: config.vlan }];
    let (neighbours, pkey) = (config.neighbours.clone(), config.pkey);
    PortConfig { interfaces, neighbours, gateway_v4, gateway_v6, pkey, is_point_to_point }
}

/// A port on a network device, with the packets that were asked for, where any were: else a device that carries less than usual is taken as it is.
fn attachment_of(config: &Config, device: &Device) -> Attachment {
    let attachment = Attachment::shared(device.clone());
    match config.wanted_port_mtu() {
        Some(mtu) => attachment.with_mtu(mtu),
        None => attachment,
    }
}

fn attachments(config: &Config, device: &Device, job: &Job, peers: &[Rank]) -> Result<Vec<Attachment>, WireupError> {
    if !device.is_point_to_point() {
        return Ok(vec![attachment_of(config, device).with_queues(config.queues)]);
    }
    let directory = job.directory().ok_or_else(|| WireupError::NeedsOneHost(device.clone().into()))?;
    let rank = job.rank();
    let end = |&peer: &Rank| {
        let (server, client) = (rank.min(peer), rank.max(peer));
        let socket = directory.join(format!("{server}-{client}"));
        check_socket_path(socket).map(|socket| Attachment::pair(device.clone(), &socket, rank == server, mac_of(rank)))
    };
    peers.iter().map(end).collect()
}

fn dress(
    config: &Config,
    mut link: AnyLink,
    rank: Rank,
    index: usize,
    is_recorder: bool,
) -> Result<LiveLink, WireupError> {
    if let AnyLink::Dpdk(link) = &mut link {
        link.zero_copy_from(config.zcopy_threshold);
    }
    // One file cannot be written by several of a host: without %r it is rank 0's, which sees both directions.
    let is_ours = |path: &&PathBuf| is_recorder || (index == 0 && path.display().to_string().contains("%r"));
    let path = config.pcap.as_ref().filter(is_ours);
    let path = path.map(|path| path.display().to_string().replace("%r", &rank.to_string()));
    let tee = PcapTee::new(link, path.as_deref().map(str::as_ref));
    let tee = tee.map_err(|source| WireupError::Pcap { path: path.unwrap_or_default(), source })?;
    Ok(Faulty::new(tee, config.faults, (rank * 1000 + index) as u64))
}

/// A locally administered address that says which rank it is.
fn mac_of(rank: Rank) -> [u8; 6] {
    let [high, low] = (rank as u16).to_be_bytes();
    [0x02, b'r', b'o', b'c', high, low]
}

fn ip_of(config: &Config, rank: Rank) -> IpAddr {
    config.ip.unwrap_or_else(|| default_ip(rank))
}

fn default_ip(rank: Rank) -> IpAddr {
    let [high, low] = (rank as u16 + 1).to_be_bytes();
    Ipv4Addr::new(10, 200, high, low).into()
}
