//! Progress: completions are taken and acted upon; memory that the application gave back is noticed.

use roci_driver::link::Link;

use super::Endpoint;
use super::expected::Expected;
use super::sending::go_on;
use crate::core::Core;
use crate::services::Services;

/// Calls between two looks around, for connections and memory: a look may be a system call.
const PERIOD: u32 = 256;
/// Calls between them once all peers are connected, or gone: only a peer that has lost its mind asks then.
const IDLE_PERIOD: u32 = 1 << 14;

impl<L: Link> Endpoint<L> {
    /// Does what can be done now, without waiting; returns whether anything happened.
    #[inline]
    pub(crate) fn progress(&mut self) -> bool {
        let Self { core, services, peers, .. } = self;
        core.post_packets(peers);
        let Core { engine, send_pools, ready, stats, .. } = core;
        let Services { tag, rma, .. } = services;
        let mut expected = Expected { peers, send_pools, tag, rma, ready, stats };
        let mut happened = engine.poll_into(&mut expected) > 0;
        if ready.are_to_go_on() {
            self.go_on_with_all();
        }
        if self.core.engine.has_completions(self.core.cq) {
            happened |= self.on_completions();
        }
        if self.services.am.local_len() > 0 {
            happened |= self.run_local_handlers();
        }
        if !self.services.tag.copies.is_empty() {
            happened |= self.copy_from_process();
        }
        if happened {
            let Core { engine, receives, stats, .. } = &mut self.core;
            receives.pace.note_poll(stats.rx_unexpected, engine);
        }
        self.core.ring_doorbell(&mut self.peers);
        happened
    }

    /// Copies a part of a message from the memory of its sender, a process of this host. The end of a peer has ended the receive, too.
    #[inline(never)]
    fn copy_from_process(&mut self) -> bool {
        if self.is_forked() {
            return false;
        }
        let Self { core, services, peers, .. } = self;
        let Some(copy) = services.tag.copies.next() else { return false };
        if let Some(peer) = peers.live_mut(copy.from()) {
            services.tag.copy_part(core, peer, copy);
            go_on(core, services, peer);
        }
        self.settle();
        true
    }

    /// Peers whose messages were taken, and those whose sends have ended, while the engine polled go on.
    #[inline(never)]
    fn go_on_with_all(&mut self) {
        while let Some(id) = self.core.ready.next_to_go_on() {
            self.after_sends(id);
        }
        self.settle();
    }

    /// Most polls find nothing: they are kept free of what this needs, down to the registers to be saved.
    /// What had ended before a fork is the parent's to see.
    #[inline(never)]
    pub(super) fn on_completions(&mut self) -> bool {
        if self.is_forked() {
            return false;
        }
        let mut run = None;
        while let Some(done) = self.core.engine.poll_cq(self.core.cq) {
            run = self.on_completion(run, done);
        }
        self.after_run(run);
        self.settle();
        true
    }

    /// Whether it may be time for [`Endpoint::look_around`], which is seldom: but each time for an application that calls seldom. To be
    /// asked once for each call of the application that makes progress.
    #[inline]
    pub(crate) fn may_look_around(&mut self) -> bool {
        self.calls = self.calls.wrapping_add(1);
        // Periods are powers of two, so this takes no division.
        self.calls & (PERIOD - 1) == 0 || self.wireup.is_urgent() || self.core.engine.take_late()
    }

    /// How often it was asked, in a number that begins again at 0.
    pub(crate) fn calls(&self) -> u32 {
        self.calls
    }

    /// Looks for memory that the application has given back, which nothing announces. Returns whether it is time to look for
    /// connections and peers, too.
    pub(crate) fn look_around(&mut self) -> bool {
        if self.is_forked() {
            return false;
        }
        if self.services.tag.claims.is_any_dropped() {
            self.discard_dropped();
        }
        if self.core.ready.are_stalled() {
            self.core.note_credits_back(&mut self.peers);
        }
        let lacks_memory = self.core.receives.are_missing()
            || self.core.ready.starved() > 0
            || self.core.unexpected_budget.is_withholding();
        let is_awaited = self.wireup.is_urgent() || self.leaving.are_any_departed();
        let is_idle = self.peers.are_all_known() && !lacks_memory && !is_awaited;
        if is_idle && self.calls & (IDLE_PERIOD - 1) != 0 {
            return false;
        }
        self.look_for_memory();
        true
    }

    fn look_for_memory(&mut self) {
        self.retire_departed();
        self.release_retired();
        if self.core.receives.are_missing() {
            self.core.replace_missing(&mut self.peers);
        }
        // The arena is asked only where it matters: that takes its lock.
        if self.core.unexpected_budget.is_withholding() && self.core.unexpected_budget.has_room(self.core.free_bytes())
        {
            self.core.release_withheld(&mut self.peers);
        }
        self.wake_all_starved();
    }
}
