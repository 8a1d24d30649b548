//! Datagram queue pairs and the addresses that they send to.

use std::collections::VecDeque;
use std::net::IpAddr;

use roci_protocol::Qpn;
use roci_protocol::rc::{Operation, RcCompletion, RecvRequest, SendOp, SendRequest, WcStatus};
use roci_protocol::ud::{self, Destination, GRH_LEN};
use roci_protocol::wire::{Flow, Frame, Ip, MacAddr};

use super::address_handles::{AddressHandle, AddressHandleError};
use super::connection::{largest_mtu, source_port};
use super::post_error::check_kind;
use super::{Engine, PostError};
use crate::Refused;
use crate::event::Event;
use crate::handles::{CompletionQueue, QueuePair};
use crate::link::{Full, Link};
use crate::mem::Buffer;
use crate::qp::ConnectError;
use crate::wr::SendWr;

/// An unreliable datagram queue pair of an engine.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct DatagramQp(QueuePair);

impl DatagramQp {
    /// The number that peers know it by.
    pub const fn qpn(self) -> Qpn {
        self.0.qpn()
    }

    /// What its completions name.
    pub const fn queue_pair(self) -> QueuePair {
        self.0
    }
}

/// A datagram queue pair with all that it works on.
pub(super) struct Datagrams {
    pub(super) ud: ud::UdQueuePair<Buffer>,
    pub(super) port: usize,
    pub(super) ip: IpAddr,
    pub(super) vlan: Option<u16>,
    cq: CompletionQueue,
    depth: usize,
    /// Datagrams that the link held up.
    sends: VecDeque<(AddressHandle, Destination, SendRequest<Buffer>)>,
}

impl<L: Link> Engine<L> {
    /// A datagram queue pair on the address of a port with index `address`; it takes what comes with `qkey`, and holds
    /// `depth` work requests in each direction.
    pub fn create_datagram_qp(
        &mut self,
        (port, address): (usize, usize),
        cq: CompletionQueue,
        qkey: u32,
        depth: usize,
    ) -> Result<DatagramQp, ConnectError> {
        let mtu = largest_mtu(self.ports[port].link.max_frame())?.min(roci_protocol::Mtu::Mtu4096);
        let (qp, psn) = self.qps.reserve(self.ports[port].link.share()).ok_or(ConnectError::NoQueuePair)?;
        let (ip, vlan) = (self.ports[port].interfaces[address].ip, self.ports[port].interfaces[address].vlan);
        let ud = ud::UdQueuePair::new(qkey, mtu, psn, depth).in_partition(self.ports[port].pkey);
        self.datagrams.insert(qp.0, Datagrams { ud, port, ip, vlan, cq, depth, sends: VecDeque::new() });
        Ok(DatagramQp(qp))
    }

    /// Flushes a datagram queue pair and forgets it.
    pub fn destroy_datagram_qp(&mut self, qp: DatagramQp) {
        let Some(mut gone) = self.datagrams.remove(&qp.qpn()) else { return };
        self.qps.vacate(qp.0);
        self.stats.datagrams.add(gone.ud.stats());
        let cq = gone.cq;
        for receive in gone.ud.flush().collect::<Vec<_>>() {
            self.complete_datagram(qp.0, cq, None, received(receive, WcStatus::WrFlushErr, 0, None, true));
        }
        for (_, _, request) in gone.sends {
            self.complete_datagram(qp.0, cq, None, sent(request, WcStatus::WrFlushErr));
        }
    }

    /// The address of a host, from the address of a port with index `address`, through the station `mac`: see
    /// [`Engine::resolve`].
    pub fn create_ah(
        &mut self,
        (port, address): (usize, usize),
        ip: IpAddr,
        mac: MacAddr,
    ) -> Result<AddressHandle, AddressHandleError> {
        let interface = self.ports[port].interfaces[address];
        let between = Ip::between(interface.ip, ip).ok_or(AddressHandleError::IpVersion(interface.ip, ip))?;
        let link = &self.ports[port].link;
        let source_port = source_port(link, 1, 1);
        let flow = Flow::new(link.mac(), mac, interface.vlan, between, source_port);
        self.address_handles.insert(port, flow)
    }

    /// Forgets an address; datagrams that still wait for the link to take them are lost, as datagrams may be.
    pub fn destroy_ah(&mut self, handle: AddressHandle) {
        self.address_handles.remove(handle);
    }

    /// Posts a receive: its first [`GRH_LEN`] bytes take the sender's IP header, the message follows.
    pub fn post_datagram_recv(
        &mut self,
        qp: DatagramQp,
        wr_id: u64,
        buffer: Buffer,
    ) -> Result<(), Refused<Buffer, PostError>> {
        let refuse = |why, given| Err(Refused { why, given });
        if self.is_forked() {
            return refuse(PostError::Forked, buffer);
        }
        if let Err(kind) = buffer.check_filled() {
            return refuse(kind.into(), buffer);
        }
        let Some(datagrams) = self.datagrams.get_mut(&qp.qpn()) else { return refuse(PostError::NoQueuePair, buffer) };
        let cq = &mut self.cqs[datagrams.cq.0];
        if !cq.reserve() {
            return refuse(PostError::CompletionQueueFull, buffer);
        }
        let len = u32::try_from(buffer.len()).unwrap_or(u32::MAX);
        if let Err(request) = datagrams.ud.post_recv(RecvRequest { wr_id, buffer, len }) {
            cq.release();
            return refuse(roci_protocol::rc::RcPostError::QueueFull.into(), request.buffer);
        }
        Ok(())
    }

    /// Sends a datagram, made by [`SendWr::send`], to a queue pair at `handle`. It completes when the link has it: no
    /// acknowledgement says whether it arrived.
    pub fn post_datagram(
        &mut self,
        qp: DatagramQp,
        handle: AddressHandle,
        to: Destination,
        wr: SendWr,
    ) -> Result<(), Refused<SendWr, PostError>> {
        let refuse = |why, given| Err(Refused { why, given });
        if self.is_forked() {
            return refuse(PostError::Forked, wr);
        }
        if let Err(kind) = check_kind(&wr) {
            return refuse(kind.into(), wr);
        }
        let Some(datagrams) = self.datagrams.get_mut(&qp.qpn()) else { return refuse(PostError::NoQueuePair, wr) };
        let longest = datagrams.ud.max_message();
        let is_send = matches!(wr.0.op, SendOp::Send { .. });
        if wr.0.len as usize > longest || !is_send {
            return refuse(PostError::DatagramTooLong(if is_send { longest } else { 0 }), wr);
        }
        if self.address_handles.path_of(handle).is_none() {
            return refuse(PostError::NoAddressHandle, wr);
        }
        if datagrams.sends.len() == datagrams.depth {
            return refuse(roci_protocol::rc::RcPostError::QueueFull.into(), wr);
        }
        if !self.cqs[datagrams.cq.0].reserve() {
            return refuse(PostError::CompletionQueueFull, wr);
        }
        datagrams.sends.push_back((handle, to, wr.0));
        self.pump_datagrams(qp.0);
        Ok(())
    }

    /// Sends what waits on any datagram queue pair.
    pub(super) fn look_after_datagrams(&mut self) {
        let waiting = self.datagrams.iter().filter(|(_, datagrams)| !datagrams.sends.is_empty());
        for qpn in waiting.map(|(&qpn, _)| qpn).collect::<Vec<_>>() {
            self.pump_datagrams(QueuePair(qpn));
        }
    }

    fn pump_datagrams(&mut self, qp: QueuePair) {
        while let Some(datagrams) = self.datagrams.get_mut(&qp.0) {
            let Some((handle, to, request)) = datagrams.sends.front() else { return };
            if let Some(path) = self.address_handles.path_of(*handle) {
                let SendOp::Send { imm } = request.op else { return };
                let headers = datagrams.ud.headers(qp.0, *to, imm, request.solicited);
                let (payload, len) = (&request.buffer, request.len as usize);
                let link = &mut self.ports[path.port].link;
                let flow = &mut path.flow;
                let sent = link.transmit(flow.frame_len(&headers, len), |frame| {
                    flow.emit(frame, &headers, len, |bytes| payload.copy_out(0, bytes));
                });
                link.flush();
                if let Err(Full) = sent {
                    return;
                }
                datagrams.ud.sent();
            }
            let Some((_, _, request)) = datagrams.sends.pop_front() else { return };
            let cq = datagrams.cq;
            self.complete_datagram(qp, cq, None, sent(request, WcStatus::Success));
        }
    }

    /// A packet for a datagram queue pair, which exists and has the packet's destination address.
    pub(super) fn on_datagram(&mut self, qpn: Qpn, frame: &Frame<'_>) {
        let Some(datagrams) = self.datagrams.get_mut(&qpn) else { return };
        let packet = &frame.packet;
        let Ok(mut receive) = datagrams.ud.accept(packet) else { return };
        let cq = datagrams.cq;
        let header = &frame.datagram[..frame.ip.wire_len()];
        receive.buffer.copy_in(0, &[0; GRH_LEN][header.len()..]);
        receive.buffer.copy_in(GRH_LEN - header.len(), header);
        receive.buffer.copy_in(GRH_LEN, packet.payload);
        let source = packet.headers.ext.deth.map(|deth| deth.source_qpn);
        let imm = packet.headers.ext.imm.map(|imm| imm.0);
        let len = (GRH_LEN + packet.payload.len()) as u32;
        let done = received(receive, WcStatus::Success, len, imm, packet.headers.bth.solicited);
        self.complete_datagram(QueuePair(qpn), cq, source, done);
    }

    fn complete_datagram(
        &mut self,
        qp: QueuePair,
        cq: CompletionQueue,
        source: Option<Qpn>,
        done: RcCompletion<Buffer>,
    ) {
        let queue = &mut self.cqs[cq.0];
        if queue.push(qp, source, done) && self.events.push(Event::Completion(cq)) {
            queue.disarm();
        }
    }
}

fn sent(request: SendRequest<Buffer>, status: WcStatus) -> RcCompletion<Buffer> {
    let SendRequest { wr_id, op, buffer, len, signaled, .. } = request;
    let (operation, solicited) = (op.operation(), !status.is_success());
    RcCompletion { wr_id, status, operation, len, imm: None, invalidated: None, solicited, signaled, buffer }
}

fn received(
    receive: RecvRequest<Buffer>,
    status: WcStatus,
    len: u32,
    imm: Option<u32>,
    solicited: bool,
) -> RcCompletion<Buffer> {
    let RecvRequest { wr_id, buffer, .. } = receive;
    let operation = Operation::Recv;
    RcCompletion { wr_id, status, operation, len, imm, invalidated: None, solicited, signaled: true, buffer }
}
