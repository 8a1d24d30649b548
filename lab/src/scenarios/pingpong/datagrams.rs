//! `ibv_ud_pingpong`.

use roci_driver::{AddressHandle, DatagramQp, Destination, QueuePair, SendWr, WorkCompletion};
use roci_protocol::Psn;
use roci_protocol::ud::GRH_LEN;

use super::exchange::{Exchange, QpAddress};
use super::{PingPongQps, Program, RECEIVE, Role, SEND, SIZE, bounce, finish, message};
use crate::LabError;
use crate::lab::{Lab, V4};
use crate::scenarios::services::way_to_guest;

/// The key of the program's queue pair.
const QKEY: u32 = 0x1111_1111;

pub(super) fn play(lab: &mut Lab, program: &Program, role: Role) -> Result<(), LabError> {
    let qp = lab.engine.create_datagram_qp((0, V4.address), lab.cq, QKEY, 16)?;
    let handle = way_to_guest(lab)?;
    let (exchange, theirs) = Exchange::begin(lab, program, role, &[QpAddress::ours(qp.qpn(), Psn::new(0))?])?;
    let peer = theirs.first().ok_or("the guest sent no address")?;
    let table = UdPair { qp, handle, to: Destination { qpn: peer.qpn, qkey: QKEY } };
    table.queue_pairs().try_for_each(|qp| table.post_receive(lab, qp))?;
    exchange.end(lab)?;
    bounce(lab, &table, &message(program, role), role)?;
    finish(lab)?;
    lab.engine.destroy_datagram_qp(qp);
    lab.engine.destroy_ah(handle);
    Ok(())
}

/// A datagram queue pair, and the address of the guest's.
struct UdPair {
    qp: DatagramQp,
    handle: AddressHandle,
    to: Destination,
}

impl PingPongQps for UdPair {
    fn queue_pairs(&self) -> impl Iterator<Item = QueuePair> {
        std::iter::once(self.qp.queue_pair())
    }

    fn post_receive(&self, lab: &mut Lab, _: QueuePair) -> Result<(), LabError> {
        let buffer = lab.stale_buffer(SIZE + GRH_LEN)?;
        lab.engine.post_datagram_recv(self.qp, RECEIVE, buffer).map_err(|refused| refused.why.into())
    }

    fn send(&self, lab: &mut Lab, _: QueuePair, message: &[u8]) -> Result<(), LabError> {
        let wr = SendWr::send(SEND, lab.buffer(message)?);
        lab.engine.post_datagram(self.qp, self.handle, self.to, wr).map_err(|refused| refused.why.into())
    }

    fn message<'a>(&self, done: &'a WorkCompletion) -> &'a [u8] {
        done.buffer.get(GRH_LEN..done.len).unwrap_or_default()
    }
}
