//! Progress: polls the engine, and acts on what has ended and what has come.

use roci_driver::link::Link;
use roci_driver::{Operation as WcOperation, WcStatus, WorkCompletion};
use roci_protocol::msg::{Header, Kind};

use crate::eager::VBUF;
use crate::endpoint::Endpoint;
use crate::matching::Remote;
use crate::request::{OpError, Operation, Request};
use crate::worker::{MAX_MESSAGE, Worker};
use crate::{Rank, Tag};

/// What became of a message.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Arrival {
    /// It cost no credit.
    Free,
    /// It is done with.
    Used,
    /// It takes memory until somebody asks for it.
    Kept,
}

impl<L: Link> Worker<L> {
    /// Does what can be done now, without waiting; returns whether anything happened.
    #[inline]
    pub fn progress(&mut self) -> bool {
        let frames = self.engine.poll();
        let mut happened = frames > 0;
        while let Some(done) = self.engine.poll_cq(self.cq) {
            happened = true;
            self.on_completion(done);
        }
        happened
    }

    fn on_completion(&mut self, done: WorkCompletion) {
        let Some(rank) = self.rank_of(&done) else { return };
        if !done.status.is_success() {
            self.on_failure(rank, done);
            return;
        }
        match done.operation {
            WcOperation::Recv => self.on_vbuf(rank, done),
            WcOperation::RecvRdmaWithImm => self.fail_peer(rank, protocol_error(rank, "an unasked RDMA WRITE".into())),
            WcOperation::Send => {
                self.vbufs.push(done.buffer);
                self.on_send_slot(rank);
            }
            WcOperation::Read => {
                self.on_fetched(Request::from_wire(done.wr_id), done.buffer);
                self.on_send_slot(rank);
            }
            // The core posts nothing else.
            _ => self.on_send_slot(rank),
        }
    }

    /// The peer of a completion's queue pair: receives are named after it.
    fn rank_of(&self, done: &WorkCompletion) -> Option<Rank> {
        let named = done.wr_id as usize;
        let is_peer = |rank: &Rank| self.endpoints[*rank].as_ref().is_some_and(|peer| peer.qp == done.qp);
        let by_name = matches!(done.operation, WcOperation::Recv).then_some(named).filter(is_peer);
        by_name.or_else(|| (0..self.size).find(is_peer))
    }

    fn on_send_slot(&mut self, rank: Rank) {
        let Some(endpoint) = self.endpoints[rank].as_mut() else { return };
        endpoint.in_flight -= 1;
        self.go_on(rank);
        // Buffers are shared: whoever found none may go on now, not only the peer whose message it was.
        if std::mem::take(&mut self.vbufs_are_exhausted) {
            (0..self.size).for_each(|rank| self.go_on(rank));
        }
    }

    /// Sends what waits for a peer, and the credits that it is owed.
    fn go_on(&mut self, rank: Rank) {
        if self.endpoints[rank].as_ref().is_some_and(Endpoint::has_work) {
            self.send_outgoing(rank);
        }
        self.return_credits(rank);
    }

    /// A message arrived: its buffer is posted again before anything is answered.
    fn on_vbuf(&mut self, rank: Rank, done: WorkCompletion) {
        if self.endpoints[rank].as_ref().is_none_or(|endpoint| endpoint.failure.is_some()) {
            return; // It came before its sender's end, and is told after it.
        }
        let WorkCompletion { qp, wr_id, len, buffer, .. } = done;
        let verdict = match Header::parse(&buffer[..len]) {
            Ok((header, payload)) => self.on_message(rank, &header, payload),
            Err(bad) => Err(bad.to_string()),
        };
        let reposted = self.engine.post_recv(qp, wr_id, buffer);
        match (verdict, reposted) {
            (Err(what), _) => self.fail_peer(rank, protocol_error(rank, what)),
            // A queue pair that refuses has failed, and its completions say so.
            (Ok(arrival), Ok(())) => self.on_reposted(rank, arrival),
            (Ok(_), Err(_)) => {}
        }
    }

    fn on_reposted(&mut self, rank: Rank, arrival: Arrival) {
        let withhold = self.is_withholding && arrival == Arrival::Kept;
        let Some(endpoint) = self.endpoints[rank].as_mut() else { return };
        if arrival != Arrival::Free && !endpoint.credits.reposted(withhold) {
            self.fail_peer(rank, protocol_error(rank, "it sent more messages than it had credits for".into()));
            return;
        }
        self.go_on(rank);
    }

    /// Acts on a message; returns what it was, or what is wrong with it.
    fn on_message(&mut self, rank: Rank, header: &Header, payload: &[u8]) -> Result<Arrival, String> {
        let Some(endpoint) = self.endpoints[rank].as_mut() else { return Ok(Arrival::Free) };
        if !endpoint.credits.receive(header.credits) {
            return Err(format!("it gave back {} credits too many", header.credits));
        }
        let tag = Tag::new(header.tag);
        let unexpected = self.stats.rx_unexpected;
        match header.kind {
            Kind::Eager => self.on_eager(rank, tag, payload),
            Kind::ReadyToSend if header.len > MAX_MESSAGE => {
                return Err(format!("it announced a message of {} bytes", header.len));
            }
            Kind::ReadyToSend => {
                let remote = Remote { rkey: header.rkey, len: header.len, id: header.id };
                self.on_ready_to_send(rank, tag, remote);
            }
            Kind::Finished => {
                self.on_finished(rank, header.id)?;
                self.retry_after_key();
            }
            Kind::Credit => {}
        }
        Ok(match header.kind {
            Kind::Credit => Arrival::Free,
            _ if self.stats.rx_unexpected != unexpected => Arrival::Kept,
            _ => Arrival::Used,
        })
    }

    /// A key is free again: messages that waited for one may go.
    fn retry_after_key(&mut self) {
        if std::mem::take(&mut self.keys_are_exhausted) {
            (0..self.size).for_each(|rank| self.send_outgoing(rank));
        }
    }

    /// Unexpected messages take less memory: credits that were kept back are given.
    pub(crate) fn release_withheld(&mut self) {
        if !self.is_withholding || self.matching.unexpected_bytes() > self.unexpected_limit / 2 {
            return;
        }
        self.is_withholding = false;
        for rank in 0..self.size {
            if let Some(endpoint) = self.endpoints[rank].as_mut() {
                endpoint.credits.release_withheld();
            }
            self.return_credits(rank);
        }
    }

    fn on_failure(&mut self, rank: Rank, done: WorkCompletion) {
        if matches!(done.operation, WcOperation::Send) && done.wr_id == VBUF {
            self.vbufs.push(done.buffer);
        }
        if !matches!(done.operation, WcOperation::Recv | WcOperation::RecvRdmaWithImm)
            && let Some(endpoint) = self.endpoints[rank].as_mut()
        {
            endpoint.in_flight -= 1;
        }
        self.fail_peer(rank, OpError::PeerGone { rank, status: done.status });
        if std::mem::take(&mut self.vbufs_are_exhausted) {
            (0..self.size).for_each(|rank| self.go_on(rank));
        }
    }

    /// A peer is gone: whatever needs it ends with `error`.
    pub(crate) fn fail_peer(&mut self, rank: Rank, error: OpError) {
        let Some(endpoint) = self.endpoints[rank].as_mut().filter(|endpoint| endpoint.failure.is_none()) else {
            return;
        };
        let qp = endpoint.qp;
        endpoint.failure = Some(error.clone());
        endpoint.outgoing.clear();
        endpoint.finished.clear();
        endpoint.fetches.clear();
        self.stats.peers_gone += 1;
        self.engine.fail_qp(qp, WcStatus::WrFlushErr);
        for request in self.requests.depending_on(rank) {
            if let Some(Operation::Exposed { region, .. }) = self.requests.end(request, Err(error.clone())) {
                self.engine.deregister(region);
            }
        }
        self.retry_after_key();
        let orphans = self.matching.forget(rank);
        self.release_withheld();
        for request in orphans {
            self.requests.end(request, Err(error.clone()));
        }
        if self.endpoints.iter().flatten().all(|endpoint| endpoint.failure.is_some()) {
            for request in self.matching.take_all_posted() {
                self.requests.end(request, Err(OpError::NobodyLeft));
            }
        }
    }
}

fn protocol_error(rank: Rank, what: String) -> OpError {
    OpError::PeerProtocol { rank, what }
}
