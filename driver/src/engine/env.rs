//! The environment of one queue pair: its link, the memory of its domain, its completion queue.

use roci_protocol::rc::{Completion, Denied, Env, Payload, TxError};
use roci_protocol::wire::{Flow, Headers};
use roci_protocol::{Access, Rkey};

use crate::cq::Queue;
use crate::link::{Full, Link};
use crate::mem::{Buffer, KeyTable, PdId};
use crate::qp::QueuePair;

pub(super) struct Scene<'a, L> {
    pub(super) link: &'a mut L,
    pub(super) flow: &'a mut Flow,
    pub(super) keys: &'a mut KeyTable,
    pub(super) cq: &'a mut Queue,
    pub(super) qp: QueuePair,
    pub(super) pd: PdId,
}

impl<L: Link> Env for Scene<'_, L> {
    type Buffer = Buffer;

    #[inline]
    fn transmit(&mut self, headers: &Headers, payload: Payload<'_, Buffer>) -> Result<(), TxError> {
        let payload = match payload {
            Payload::None => &[][..],
            Payload::Local { buffer, offset, len } => &buffer[offset..offset + len],
            Payload::Remote { rkey, va, len } => {
                let read = self.keys.slice(self.pd, rkey, va, len as u64, Access::REMOTE_READ);
                read.map_err(|Denied| TxError::Denied)?
            }
        };
        let len = self.flow.frame_len(headers, payload.len());
        let flow = &mut *self.flow;
        let sent = self.link.transmit(len, |frame| {
            flow.emit(frame, headers, payload.len(), |bytes| bytes.copy_from_slice(payload));
        });
        sent.map_err(|Full| TxError::Busy)
    }

    #[inline]
    fn place(&mut self, buffer: &mut Buffer, offset: usize, bytes: &[u8]) {
        buffer[offset..offset + bytes.len()].copy_from_slice(bytes);
    }

    #[inline]
    fn authorize(&self, rkey: Rkey, va: u64, len: u64, access: Access) -> Result<(), Denied> {
        self.keys.slice(self.pd, rkey, va, len, access).map(|_| ())
    }

    #[inline]
    fn place_remote(&mut self, rkey: Rkey, va: u64, bytes: &[u8]) -> Result<(), Denied> {
        let len = bytes.len() as u64;
        self.keys.slice_mut(self.pd, rkey, va, len, Access::REMOTE_WRITE)?.copy_from_slice(bytes);
        Ok(())
    }

    #[inline]
    fn complete(&mut self, completion: Completion<Buffer>) {
        self.cq.push(self.qp, completion);
    }
}
