//! One-sided operations and active messages of eight bytes between two workers, over a wire that allocates nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use roci_msgcore::active::{ActiveMessage, ActiveMessages as _, HandlerContext, HandlerId};
use roci_msgcore::one_sided::{AtomicOp, OneSided as _, RemoteAddress};
use roci_msgcore::{Buffer, Request, Worker};

use crate::cq::wire::{ManualClock, WireEnd};
use crate::parts::PartTable;
use crate::tags::{ROUND_NS, connected_workers};

/// Bytes of an operation.
const LEN: usize = 8;
/// The handler of active messages.
const COUNT: &str = "count";

/// What `worker_instructions` counts: each from the call to its end at both ends.
pub const ONE_SIDED: &PartTable = &[
    ("put_8", || exchange(OneSidedPair::put)),
    ("put_8_stream", || exchange(OneSidedPair::put_many)),
    ("put_buffer_8", || exchange(OneSidedPair::put_buffer)),
    ("get_8", || exchange(OneSidedPair::get)),
    ("fadd_8", || exchange(OneSidedPair::fetch_add)),
    ("am_8", || exchange(OneSidedPair::active)),
];

/// Two connected workers, of which the second has a segment and a handler.
struct OneSidedPair {
    clock: ManualClock,
    near: Worker<WireEnd>,
    far: Worker<WireEnd>,
    theirs: RemoteAddress,
    buffer: Option<Buffer>,
    /// Handlers that have run.
    runs: Arc<AtomicU64>,
    sent: u64,
}

impl OneSidedPair {
    fn new() -> Self {
        let (clock, [near, mut far]) = connected_workers();
        let memory = far.buffer(64).expect("room");
        let theirs = far.expose(memory).expect("a key").key().at(8);
        let runs = Arc::new(AtomicU64::new(0));
        let ours = runs.clone();
        let count = move |_: &mut HandlerContext<'_>, message: ActiveMessage<'_>| {
            ours.fetch_add(message.arguments[0], Ordering::Relaxed);
        };
        far.register_handler(COUNT, Box::new(count)).expect("a name");
        let buffer = Some(near.buffer(LEN).expect("room"));
        Self { clock, near, far, theirs, buffer, runs, sent: 0 }
    }

    /// Until it is known to be in the peer's memory.
    #[inline]
    fn put(&mut self) {
        self.near.put_nbi(1, &[7; LEN], self.theirs).expect("accepted");
        while !self.near.is_flushed(1) {
            self.progress();
        }
    }

    #[inline]
    fn put_buffer(&mut self) {
        let buffer = self.buffer.take().expect("it came back");
        let put = self.near.put(1, buffer, self.theirs).expect("accepted");
        self.buffer = Some(self.end(put));
    }

    /// The next one begins before this one is acknowledged, as nothing waits for it.
    #[inline]
    fn put_many(&mut self) {
        self.near.put_nbi(1, &[7; LEN], self.theirs).expect("accepted");
        self.progress();
    }

    #[inline]
    fn get(&mut self) {
        let buffer = self.buffer.take().expect("it came back");
        let get = self.near.get(1, buffer, self.theirs).expect("accepted");
        self.buffer = Some(self.end(get));
    }

    #[inline]
    fn fetch_add(&mut self) {
        let add = self.near.atomic(1, AtomicOp::Add(1), self.theirs).expect("accepted");
        let buffer = self.end(add);
        self.near.give_back(buffer);
    }

    #[inline]
    fn active(&mut self) {
        self.sent += 1;
        self.near.send_active(1.into(), HandlerId::of(COUNT), &[1], &[]).expect("accepted");
        while self.runs.load(Ordering::Relaxed) < self.sent {
            self.progress();
        }
    }

    #[inline]
    fn end(&mut self, request: Request) -> Buffer {
        loop {
            self.progress();
            if let Some(done) = self.near.test(request) {
                return done.expect("it ends well").buffer;
            }
        }
    }

    #[inline]
    fn progress(&mut self) {
        self.far.progress();
        self.near.progress();
    }
}

fn exchange(turn: fn(&mut OneSidedPair)) -> Box<dyn FnMut()> {
    let mut pair = OneSidedPair::new();
    Box::new(move || {
        pair.clock.advance(ROUND_NS);
        turn(&mut pair);
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_comes_to_its_end() {
        for (_, start) in ONE_SIDED {
            let mut exchange = start();
            (0..1000).for_each(|_| exchange());
        }
    }
}
