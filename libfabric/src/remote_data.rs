//! Data that goes with a write (`FI_REMOTE_CQ_DATA`): an active message behind the bytes, which becomes an entry of the peer's queue.

use std::collections::VecDeque;
use std::sync::Arc;

use crossbeam::queue::SegQueue;
use hashbrown::HashMap;
use roci_msgcore::active::{ActiveMessages as _, HandlerId};
use roci_msgcore::{CallError, PeerId, Worker};

use crate::abi::flags::{FI_REMOTE_CQ_DATA, FI_REMOTE_WRITE, FI_RMA};
use crate::abi::queues::fi_cq_tagged_entry;
use crate::completion::CompletedMessage;
use crate::endpoint::EnabledEndpoint;
use crate::object::Errno;
use crate::queue::CqEntry;

/// The handler's name, which all endpoints know.
const HANDLER: &str = "libfabric remote data";

/// What a peer gets with a write.
#[derive(Clone, Copy)]
pub(crate) struct RemoteDatum {
    pub(crate) data: u64,
    /// Bytes that were written.
    pub(crate) len: u64,
}

/// Data on its way, in both directions.
pub(crate) struct RemoteData {
    handler: HandlerId,
    /// Of writes that have not ended, by the number of the operation.
    expected: HashMap<usize, (PeerId, RemoteDatum)>,
    /// Writes whose bytes are there, and whose data has not left.
    due: VecDeque<usize>,
    /// What has come, and is no entry yet.
    arrived: Arc<SegQueue<(PeerId, RemoteDatum)>>,
}

impl RemoteData {
    /// Has a worker take what comes.
    ///
    /// # Errors
    /// It takes no more handlers.
    pub(crate) fn open(worker: &mut Worker) -> Result<Self, CallError> {
        let arrived = Arc::new(SegQueue::new());
        let here = arrived.clone();
        let handler = worker.register_handler(
            HANDLER,
            Box::new(move |_, message| {
                // Endpoints of this kind send two arguments.
                if let &[data, len] = message.arguments {
                    here.push((message.source, RemoteDatum { data, len }));
                }
            }),
        )?;
        Ok(Self { handler, expected: HashMap::new(), due: VecDeque::new(), arrived })
    }

    /// Data is to follow an operation.
    pub(crate) fn expect(&mut self, number: usize, peer: PeerId, datum: RemoteDatum) {
        self.expected.insert(number, (peer, datum));
    }

    /// The bytes of an operation are there. Returns whether data follows them.
    pub(crate) fn is_due(&mut self, number: usize) -> bool {
        let is_expected = self.expected.contains_key(&number);
        if is_expected {
            self.due.push_back(number);
        }
        is_expected
    }

    /// Whether data is to follow any operation.
    pub(crate) fn is_expected(&self) -> bool {
        !self.expected.is_empty()
    }

    /// An operation has failed.
    pub(crate) fn forget(&mut self, number: usize) {
        self.expected.remove(&number);
    }
}

impl EnabledEndpoint {
    /// Sends what is due, and makes entries of what has come; returns whether anything came.
    #[inline]
    pub(crate) fn carry_remote_data(&mut self) -> bool {
        if !self.remote_data.due.is_empty() {
            self.send_remote_data();
        }
        !self.remote_data.arrived.is_empty() && self.take_remote_data()
    }

    /// Sends data behind writes whose bytes are there. For a peer with too much to take already it waits, and for no other.
    pub(crate) fn send_remote_data(&mut self) {
        for _ in 0..self.remote_data.due.len() {
            let Some(number) = self.remote_data.due.pop_front() else { return };
            let Some(&(peer, RemoteDatum { data, len })) = self.remote_data.expected.get(&number) else { continue };
            let sent = self.worker.send_active(peer, self.remote_data.handler, &[data, len], &[]);
            match sent.map_err(Errno::from) {
                Err(Errno(libc::EAGAIN)) => self.remote_data.due.push_back(number),
                outcome => {
                    self.remote_data.forget(number);
                    let operation = self.operations.remove(number);
                    match outcome {
                        Ok(()) => self.end(&operation, CompletedMessage::sent()),
                        Err(Errno(why)) => self.fail(&operation, why),
                    }
                }
            }
        }
    }

    #[cold]
    fn take_remote_data(&mut self) -> bool {
        while let Some((peer, RemoteDatum { data, len })) = self.remote_data.arrived.pop() {
            let source = self.number_of(peer);
            let Some(binding) = &self.bindings.receive else { continue };
            let entry = fi_cq_tagged_entry {
                op_context: std::ptr::null_mut(),
                flags: FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA,
                len: len as usize,
                buf: std::ptr::null_mut(),
                data,
                tag: 0,
            };
            binding.queue.push(CqEntry { entry, source });
        }
        true
    }
}
