//! Progress: polls the engine, and acts on what has ended and what has come.

use roci_driver::link::Link;
use roci_driver::{Operation as WcOperation, WorkCompletion};

use crate::Rank;
use crate::core::peer::SEND_QUEUE;
use crate::core::receives::ANYBODY;
use crate::core::rx::protocol_error;
use crate::core::tx::place_of;
use crate::services::tag::request::{OpError, Request};
use crate::worker::Worker;

/// Calls between two looks whether somebody asks for a connection: a look may be a system call.
const PERIOD: u32 = 256;
/// Calls between them once all peers are connected, or gone: only one that has lost its mind asks then.
const IDLE_PERIOD: u32 = 1 << 14;

impl<L: Link> Worker<L> {
    /// Does what can be done now, without waiting; returns whether anything happened.
    #[inline]
    pub fn progress(&mut self) -> bool {
        let mut happened = self.engine.poll() > 0;
        if self.engine.has_completions(self.cq) {
            happened |= self.on_completions();
        }
        self.calls = self.calls.wrapping_add(1);
        // Periods are powers of two, so this takes no division.
        if self.calls & (PERIOD - 1) == 0 || self.wireup.is_urgent() {
            happened |= self.look_around(!happened);
        }
        happened
    }

    /// Most polls find nothing: they are kept free of what this needs, down to the registers to be saved.
    /// What had ended before a fork is the parent's to see.
    #[inline(never)]
    fn on_completions(&mut self) -> bool {
        if self.engine.is_forked() {
            return false;
        }
        while let Some(done) = self.engine.poll_cq(self.cq) {
            self.on_completion(done);
        }
        true
    }

    /// What need not be looked at in every call; returns whether anything happened.
    #[inline(never)]
    fn look_around(&mut self, is_quiet: bool) -> bool {
        if self.engine.is_forked() {
            return false;
        }
        let lacks_memory = self.receives_are_missing || self.vbufs_are_exhausted || self.is_withholding;
        let is_idle = self.peers_known == self.size - 1 && !lacks_memory && !self.wireup.is_urgent();
        if is_idle && self.calls & (IDLE_PERIOD - 1) != 0 {
            return false;
        }
        self.look_for_memory();
        self.look_at_peers(is_quiet)
    }

    /// Whether somebody asks for a connection, says that one is over, has gone, or has been silent for long.
    pub(crate) fn look_at_peers(&mut self, is_quiet: bool) -> bool {
        self.keep_alive();
        self.report_if_asked();
        let happened = self.tend_wireup();
        self.part_from_departed(is_quiet);
        self.end_with_launcher();
        happened
    }

    /// The application may have given memory back to the arena, of which nobody tells.
    fn look_for_memory(&mut self) {
        if self.receives_are_missing {
            self.replace_missing();
        }
        if self.is_withholding && self.free_bytes() >= 2 * self.memory_floor {
            self.release_withheld();
        }
        self.wake_the_starved();
    }

    #[inline]
    fn on_completion(&mut self, done: WorkCompletion) {
        let Some((rank, lane)) = self.place(&done) else { return self.drop_stray(done) };
        if !done.status.is_success() {
            return self.on_failure(rank, lane, done);
        }
        match done.operation {
            WcOperation::Recv => self.on_vbuf(rank, lane, done),
            WcOperation::RecvRdmaWithImm => {
                self.give_receive_vbuf(lane, done.buffer);
                self.fail_peer(rank, protocol_error(rank, "an unasked RDMA WRITE".into()));
            }
            WcOperation::Send => {
                self.send_pools[lane].give(done.buffer);
                self.on_greeting_sent(rank);
                self.on_send_slot(rank, lane);
            }
            WcOperation::Read => {
                self.note_transferred(rank, done.buffer.len());
                self.on_read(Request::from_wire(done.wr_id), done.buffer);
                self.on_send_slot(rank, lane);
            }
            WcOperation::Write => {
                self.note_transferred(rank, done.buffer.len());
                self.on_write_done(Request::from_wire(done.wr_id), done.buffer);
                self.on_send_slot(rank, lane);
            }
            // The core posts nothing else.
            _ => self.on_send_slot(rank, lane),
        }
    }

    fn note_transferred(&mut self, rank: Rank, len: usize) {
        if let Some(endpoint) = self.endpoint(rank) {
            endpoint.note_transferred(len);
        }
    }

    /// The peer and lane of a completion: vbufs are named after them, but for those that anybody may fill.
    #[inline]
    fn place(&self, done: &WorkCompletion) -> Option<(Rank, usize)> {
        if matches!(done.operation, WcOperation::Recv | WcOperation::Send | WcOperation::RecvRdmaWithImm) {
            let (lane, rank) = place_of(done.wr_id);
            if rank != ANYBODY {
                return Some((rank, lane));
            }
        }
        self.places.get(&done.qp).copied()
    }

    /// The end of a work request of a queue pair that is nobody's any more.
    fn drop_stray(&mut self, done: WorkCompletion) {
        if matches!(done.operation, WcOperation::Recv) {
            let (lane, _) = place_of(done.wr_id);
            self.give_receive_vbuf(lane, done.buffer);
        }
    }

    fn on_failure(&mut self, rank: Rank, lane: usize, done: WorkCompletion) {
        match done.operation {
            WcOperation::Recv | WcOperation::RecvRdmaWithImm => {
                self.note_receive_used(rank, lane);
                self.give_receive_vbuf(lane, done.buffer);
            }
            operation => {
                if matches!(operation, WcOperation::Send) {
                    self.send_pools[lane].give(done.buffer);
                }
                if let Some(endpoint) = self.endpoints[rank].as_deref_mut() {
                    debug_assert!((1..=SEND_QUEUE).contains(&endpoint.lanes[lane].in_flight));
                    endpoint.lanes[lane].in_flight -= 1;
                }
            }
        }
        if self.endpoint(rank).is_some_and(|endpoint| endpoint.stage.is_under_way()) {
            // The peer may have said why there is no connection.
            self.tend_wireup();
        }
        self.fail_peer(rank, OpError::PeerGone { rank, status: done.status });
        self.wake_the_starved();
    }
}
