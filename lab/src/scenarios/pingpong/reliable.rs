//! `ibv_rc_pingpong`, and `ibv_srq_pingpong`, whose queue pairs share their receives.

use roci_driver::{Address, Dialect, Mtu, QueuePair, SendWr, UnconnectedQp, WorkCompletion};
use roci_protocol::wire::MacAddr;

use super::exchange::{Exchange, QpAddress};
use super::{PingPongQps, Program, RECEIVE, Role, SEND, SIZE, bounce, finish, message};
use crate::LabError;
use crate::guest;
use crate::lab::{GuestPair, Lab, V4};
use crate::scenarios::manager::params;

pub(super) fn play(lab: &mut Lab, program: &Program, role: Role) -> Result<(), LabError> {
    let near = (0..program.queue_pairs)
        .map(|_| Ok(lab.engine.create_qp_at(0, V4.address, lab.pd, lab.cq)?))
        .collect::<Result<Vec<_>, LabError>>()?;
    let ours = near.iter().map(|qp| QpAddress::ours(qp.qpn(), qp.starting_psn())).collect::<Result<Vec<_>, _>>()?;
    let (exchange, theirs) = Exchange::begin(lab, program, role, &ours)?;
    let table =
        RcQueuePairs(near.into_iter().zip(theirs).map(|(qp, peer)| connect(lab, qp, &peer)).collect::<Result<_, _>>()?);
    table.queue_pairs().try_for_each(|qp| table.post_receive(lab, qp))?;
    exchange.end(lab)?;
    bounce(lab, &table, &message(program, role), role)?;
    finish(lab)?;
    table.queue_pairs().for_each(|qp| lab.engine.destroy_qp(qp));
    Ok(())
}

fn connect(lab: &mut Lab, qp: UnconnectedQp, peer: &QpAddress) -> Result<QueuePair, LabError> {
    let address = Address {
        mac: MacAddr(guest::MAC),
        ip: peer.ip,
        qpn: peer.qpn,
        psn: peer.psn,
        mtu: Mtu::Mtu1024,
        max_rd_atomic: 1,
        dialect: Dialect::Verbs,
        icrc: true,
    };
    lab.record_opening(&qp, V4, &address)?;
    Ok(lab.engine.connect(qp, &address, &params())?)
}

/// The queue pairs of reliable connections.
struct RcQueuePairs(Vec<QueuePair>);

impl PingPongQps for RcQueuePairs {
    fn queue_pairs(&self) -> impl Iterator<Item = QueuePair> {
        self.0.iter().copied()
    }

    fn post_receive(&self, lab: &mut Lab, qp: QueuePair) -> Result<(), LabError> {
        lab.post_recv(GuestPair { qp, theirs: 0 }, RECEIVE, SIZE)
    }

    fn send(&self, lab: &mut Lab, qp: QueuePair, message: &[u8]) -> Result<(), LabError> {
        let message = lab.buffer(message)?;
        lab.post(GuestPair { qp, theirs: 0 }, SendWr::send(SEND, message))
    }

    fn message<'a>(&self, done: &'a WorkCompletion) -> &'a [u8] {
        &done.buffer[..done.len]
    }
}
