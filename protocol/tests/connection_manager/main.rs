//! The communication manager against captures of Linux, against itself over a bad network, and against nonsense.

mod arbitrary;
mod golden;
mod simulation;

use std::net::{IpAddr, Ipv4Addr};

use roci_protocol::cm::{CmConfig, ConnectionEvent, ConnectionManager, Offer};
use roci_protocol::wire::cm::{PortSpace, ServiceId};
use roci_protocol::{Mtu, Psn, Qpn};

type Way = (IpAddr, IpAddr);
type Manager = ConnectionManager<Way>;

/// rping's port.
const SERVICE: ServiceId = ServiceId::of_port(PortSpace::Tcp, 7174);

/// From one captured host to the other.
fn there() -> Way {
    (Ipv4Addr::new(10, 77, 0, 1).into(), Ipv4Addr::new(10, 77, 0, 2).into())
}

/// And the way back.
fn back() -> Way {
    let (here, there) = there();
    (there, here)
}

fn manager(ca_guid: u64, seed: u64) -> Manager {
    ConnectionManager::new(CmConfig::new(ca_guid, seed))
}

fn offer(qpn: u32) -> Offer {
    Offer {
        qpn: Qpn::new(qpn),
        starting_psn: Psn::new(0x12_3456),
        responder_resources: 1,
        initiator_depth: 1,
        retry_count: 7,
        rnr_retry_count: 7,
        srq: false,
        end_to_end_credits: false,
        mtu: Mtu::Mtu4096,
        ack_timeout: 19,
        flow_label: 0x1_f4c5,
        traffic_class: 0,
        hop_limit: 64,
    }
}

fn events(manager: &mut Manager) -> Vec<ConnectionEvent> {
    std::iter::from_fn(|| manager.poll_event()).collect()
}
