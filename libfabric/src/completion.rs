//! How operations end: the core's outcomes as entries of completion queues.

use std::ffi::c_int;
use std::ptr::null_mut;

use roci_msgcore::{Completion, Done, Envelope, OpError};

use crate::abi::flags::{FI_ATOMIC, FI_MULTI_RECV, FI_READ, FI_RECV, FI_REMOTE_CQ_DATA, FI_RMA, FI_SEND, FI_WRITE};
use crate::abi::queues::{fi_cq_err_entry, fi_cq_tagged_entry};
use crate::abi::{FI_ADDR_NOTAVAIL, fi_addr_t};
use crate::endpoint::{Bindings, BoundQueue, EnabledEndpoint, PendingOperation};
use crate::errors::number_of;
use crate::queue::{CqEntry, CqFailure};

/// Completions that one call takes, so that one endpoint does not keep a reader from the others.
const BATCH: usize = 64;

/// What an operation that has ended well has brought.
#[derive(Clone, Copy)]
pub(crate) struct CompletedMessage {
    len: usize,
    tag: u64,
    data: Option<u64>,
    source: fi_addr_t,
}

impl CompletedMessage {
    /// A send.
    pub(crate) const fn sent() -> Self {
        Self { len: 0, tag: 0, data: None, source: FI_ADDR_NOTAVAIL }
    }

    /// A message was found.
    pub(crate) const fn found(envelope: &Envelope, source: fi_addr_t) -> Self {
        Self { len: envelope.len, tag: envelope.tag.get(), data: envelope.data, source }
    }

    fn received(done: &Done, source: fi_addr_t) -> Self {
        Self { len: done.len, tag: done.tag.get(), data: done.data, source }
    }
}

impl EnabledEndpoint {
    /// Takes what has ended, or lets the worker make progress; returns whether anything has ended.
    pub(crate) fn progress(&mut self) -> bool {
        if self.is_full() {
            // What has ended waits in the worker, and peers go on.
            return self.worker.progress();
        }
        let mut ended = 0;
        while ended < BATCH
            && !self.is_full()
            && let Some(completion) = self.next_completion(ended == 0)
        {
            self.complete(completion);
            ended += 1;
        }
        self.carry_remote_data() || ended > 0
    }

    /// The next completion. Progress is made for the first one alone: looking at the network is a system call where that is a socket.
    fn next_completion(&mut self, is_first: bool) -> Option<Completion> {
        if is_first { self.worker.poll_completion() } else { self.worker.next_completion() }
    }

    /// A queue whose entries are not read takes no more. What has ended waits in the worker.
    fn is_full(&self) -> bool {
        let Bindings { transmit, receive, .. } = &self.bindings;
        [transmit, receive].into_iter().flatten().any(|binding| binding.queue.is_full())
    }

    pub(crate) fn complete(&mut self, Completion { context: number, outcome, is_last }: Completion) {
        let number = number as usize;
        let operation = self.operations[number];
        if operation.flags & FI_RMA != 0 {
            return self.complete_part(number, &outcome);
        } else if operation.flags & FI_ATOMIC != 0 {
            return self.complete_atomic(number, &outcome);
        }
        if is_last {
            self.operations.remove(number);
        }
        // A failure that gives the buffer of a multi-receive back says so.
        let released = if operation.is_multi && is_last { FI_MULTI_RECV } else { 0 };
        let failed = PendingOperation { flags: operation.flags | released, ..operation };
        match outcome {
            Ok(done) if done.is_cancelled => self.fail(&failed, libc::ECANCELED),
            Ok(_) if operation.is_multi && is_last => self.give_back(&operation),
            Ok(done) if operation.flags & FI_RECV != 0 => {
                let source = self.number_of(done.peer);
                let start = if operation.is_multi { done.buffer.as_ptr() } else { operation.buffer.cast::<u8>() };
                self.end(
                    &PendingOperation { buffer: start.cast_mut().cast(), ..operation },
                    CompletedMessage::received(&done, source),
                );
            }
            Ok(_) => self.end(&operation, CompletedMessage::sent()),
            Err(error) => self.fail_by(&failed, &error),
        }
    }

    /// An operation has ended well.
    pub(crate) fn end(&self, operation: &PendingOperation, ended: CompletedMessage) {
        self.count(operation.flags, true);
        if let Some(binding) = self.binding(operation).filter(|_| operation.wants_entry) {
            let flags = operation.flags | if ended.data.is_some() { FI_REMOTE_CQ_DATA } else { 0 };
            let entry = fi_cq_tagged_entry {
                op_context: operation.context,
                flags,
                len: ended.len,
                buf: operation.buffer,
                data: ended.data.unwrap_or(0),
                tag: ended.tag,
            };
            binding.queue.push(CqEntry { entry, source: ended.source });
        }
    }

    /// A buffer of a multi-receive is the application's again: no message comes with this entry.
    fn give_back(&self, operation: &PendingOperation) {
        let Some(binding) = self.binding(operation) else { return };
        let entry = fi_cq_tagged_entry {
            op_context: operation.context,
            flags: FI_MULTI_RECV,
            len: 0,
            buf: operation.buffer,
            data: 0,
            tag: 0,
        };
        binding.queue.push(CqEntry { entry, source: FI_ADDR_NOTAVAIL });
    }

    /// An operation has failed.
    pub(crate) fn fail(&self, operation: &PendingOperation, number: c_int) {
        self.report(operation, failure_of(operation, number));
    }

    fn fail_by(&mut self, operation: &PendingOperation, error: &OpError) {
        let mut failure = failure_of(operation, number_of(error));
        if let OpError::Truncated(it) = error {
            // Nothing of it was copied; the lengths are those of fi_cq(3) all the same.
            (failure.len, failure.olen) = (it.room, it.envelope.len - it.room);
            (failure.tag, failure.data) = (it.envelope.tag.get(), it.envelope.data.unwrap_or(0));
            failure.flags |= if it.envelope.data.is_some() { FI_REMOTE_CQ_DATA } else { 0 };
        }
        self.report(operation, failure);
    }

    /// A failure is always reported, whether a completion was wanted or not.
    fn report(&self, operation: &PendingOperation, failure: fi_cq_err_entry) {
        self.count(operation.flags, false);
        if let Some(binding) = self.binding(operation) {
            binding.queue.fail(CqFailure(failure));
        }
    }

    /// The queue that an operation's completion goes to.
    fn binding(&self, operation: &PendingOperation) -> Option<&BoundQueue> {
        let Bindings { transmit, receive, .. } = &self.bindings;
        if operation.flags & FI_RECV != 0 { receive.as_ref() } else { transmit.as_ref() }
    }

    fn count(&self, flags: u64, is_good: bool) {
        for (counter, counts) in &self.bindings.counters {
            if counts & flags & (FI_SEND | FI_RECV | FI_READ | FI_WRITE) != 0 {
                counter.note(is_good);
            }
        }
    }
}

/// The entry of an operation that has failed.
fn failure_of(operation: &PendingOperation, number: c_int) -> fi_cq_err_entry {
    fi_cq_err_entry {
        op_context: operation.context,
        flags: operation.flags,
        len: 0,
        buf: operation.buffer,
        data: 0,
        tag: 0,
        olen: 0,
        err: number,
        prov_errno: number,
        err_data: null_mut(),
        err_data_size: 0,
    }
}
