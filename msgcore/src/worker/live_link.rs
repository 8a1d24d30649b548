//! The link of a worker that runs.

use roci_driver::link::faulty::Faulty;
use roci_driver::link::live::AnyLink;
use roci_driver::link::pcap::PcapTee;

/// The link of a live worker: a port of DPDK's or a UDP socket, that can inject faults and write a capture.
pub type LiveLink = Faulty<PcapTee<AnyLink>>;
