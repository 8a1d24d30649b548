//! Datagram services found by RDMA-CM (SIDR), against rdma-core's `udaddy`.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use roci_driver::neighbour::Resolution;
use roci_driver::{AddressHandle, CmEvent, DatagramQp, Destination, PortSpace, SendWr, ServiceId};
use roci_protocol::ud::GRH_LEN;

use super::connected::expect;
use super::manager::{event, finished, start};
use crate::LabError;
use crate::lab::{Lab, V4, pattern};

/// The port that udaddy always uses, and the key of every queue pair in the UDP port space (`rdma_cma.h`).
const PORT: u16 = 7174;
const QKEY: u32 = 0x0123_4567;
const MESSAGES: usize = 5;
const SIZE: usize = 300;

/// A queue pair of ours with its receives posted, and the way to the guest.
fn prepare(lab: &mut Lab) -> Result<(DatagramQp, AddressHandle), LabError> {
    let qp = lab.engine.create_datagram_qp((0, V4.address), lab.cq, QKEY, 16)?;
    for wr_id in 0..MESSAGES as u64 {
        let buffer = lab.stale_buffer(SIZE + GRH_LEN)?;
        lab.engine.post_datagram_recv(qp, wr_id, buffer).map_err(|refused| refused.why)?;
    }
    Ok((qp, way_to_guest(lab)?))
}

/// The guest's address, once its station is known.
pub(super) fn way_to_guest(lab: &mut Lab) -> Result<AddressHandle, LabError> {
    let (ip, deadline) = (V4.theirs.parse()?, Instant::now() + Duration::from_secs(10));
    loop {
        match lab.engine.resolve(0, V4.address, ip) {
            Resolution::Known(mac) => return Ok(lab.engine.create_ah((0, V4.address), ip, mac)?),
            Resolution::Pending if Instant::now() < deadline => lab.idle(Duration::from_millis(1)),
            _ => return Err("the guest's station is unknown".into()),
        }
    }
}

/// Sends all messages; udaddy answers to the queue pair that the immediate data names.
fn send_all(lab: &mut Lab, qp: DatagramQp, handle: AddressHandle, to: Destination) -> Result<(), LabError> {
    for _ in 0..MESSAGES {
        let message = lab.buffer(&pattern(1, SIZE))?;
        let wr = SendWr::send(99, message).with_imm(qp.qpn().get()).unsignaled();
        lab.engine.post_datagram(qp, handle, to, wr).map_err(|refused| refused.why)?;
    }
    Ok(())
}

fn receive_all(lab: &mut Lab) -> Result<Destination, LabError> {
    let mut sender = None;
    for wr_id in 0..MESSAGES as u64 {
        let done = lab.wait_ok()?;
        expect("the receive and its length", (done.wr_id, done.len), (wr_id, SIZE + GRH_LEN))?;
        expect("the queue pair in the immediate data", done.imm, done.source_qpn.map(roci_protocol::Qpn::get))?;
        sender = done.source_qpn;
    }
    Ok(Destination { qpn: sender.ok_or("no sender")?, qkey: QKEY })
}

fn clean_up(lab: &mut Lab, qp: DatagramQp, handle: AddressHandle) {
    lab.engine.destroy_datagram_qp(qp);
    lab.engine.destroy_ah(handle);
}

pub(super) fn udaddy_client(lab: &mut Lab) -> Result<(), LabError> {
    start(lab, &format!("udaddy -b {} -c 1 -C {MESSAGES} -S {SIZE}", V4.theirs))?;
    let (qp, handle) = prepare(lab)?;
    let peer = SocketAddr::new(V4.theirs.parse()?, PORT);
    let asked = lab.engine.cm_find_service((0, V4.address), peer, &[])?;
    let to = match event(lab)? {
        CmEvent::ServiceResolved { id, qpn, qkey } if id == asked => Destination { qpn, qkey },
        other => return Err(format!("instead of a queue pair: {other:?}").into()),
    };
    expect("the key", to.qkey, QKEY)?;
    send_all(lab, qp, handle, to)?;
    receive_all(lab)?;
    clean_up(lab, qp, handle);
    finished(lab, &["data transfers complete", "return status 0", "rc=0"])
}

pub(super) fn udaddy_server(lab: &mut Lab) -> Result<(), LabError> {
    let (qp, handle) = prepare(lab)?;
    let service = ServiceId::of_port(PortSpace::Udp, PORT);
    lab.engine.cm_offer_service(service, qp.qpn(), QKEY)?;
    start(lab, &format!("udaddy -s {} -c 1 -C {MESSAGES} -S {SIZE}", V4.ours))?;
    let to = receive_all(lab)?;
    send_all(lab, qp, handle, to)?;
    lab.engine.cm_withdraw_service(service);
    clean_up(lab, qp, handle);
    finished(lab, &["data transfers complete", "return status 0", "rc=0"])
}
