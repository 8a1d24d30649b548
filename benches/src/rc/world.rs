//! The environment of a queue pair at its smallest: a wire, one region, the last completion.

use std::ops::Range;

use roci_protocol::rc::{AtomicOperation, Denied, Env, Payload, RcCompletion, SendOp, TxError};
use roci_protocol::wire::{HeaderWords, Headers};
use roci_protocol::{Access, Rkey};

use super::wire::Wire;

/// Bytes of a message.
pub(super) const LEN: usize = 64;
/// The key of the region.
pub(super) const KEY: Rkey = Rkey(7);

/// The environment of one queue pair of the pair.
pub(super) struct PairEnv<W> {
    pub(super) wire: W,
    /// What the peer may read and write.
    region: [u8; LEN],
    done: Option<RcCompletion<Vec<u8>>>,
}

impl<W> PairEnv<W> {
    pub(super) fn new(wire: W) -> Self {
        Self { wire, region: [0; LEN], done: None }
    }

    #[inline]
    pub(super) fn take_completion(&mut self) -> Option<RcCompletion<Vec<u8>>> {
        let done = self.done.take()?;
        assert!(done.status.is_success(), "nothing goes wrong here: {}", done.status);
        Some(done)
    }

    #[cfg(test)]
    pub(super) fn region(&self) -> &[u8] {
        &self.region
    }
}

impl<W: Wire> Env for PairEnv<W> {
    type Buffer = Vec<u8>;

    #[inline]
    fn transmit(&mut self, headers: &Headers, payload: Payload<'_, Vec<u8>>) -> Result<(), TxError> {
        let Self { wire, region, .. } = self;
        wire.put(headers, gathered(region, payload)?);
        Ok(())
    }

    #[inline]
    fn transmit_words(&mut self, headers: &HeaderWords, payload: Payload<'_, Vec<u8>>) -> Result<(), TxError> {
        let Self { wire, region, .. } = self;
        wire.put_words(headers, gathered(region, payload)?);
        Ok(())
    }

    #[inline]
    fn place(&mut self, buffer: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
        buffer[offset..offset + bytes.len()].copy_from_slice(bytes);
    }

    #[inline]
    fn authorize(&self, rkey: Rkey, va: u64, len: u64, _: Access) -> Result<(), Denied> {
        allowed(rkey, va, len as usize).map(|_| ())
    }

    #[inline]
    fn place_remote(&mut self, rkey: Rkey, va: u64, bytes: &[u8]) -> Result<(), Denied> {
        self.region[allowed(rkey, va, bytes.len())?].copy_from_slice(bytes);
        Ok(())
    }

    fn atomic(&mut self, _: Rkey, _: u64, _: AtomicOperation) -> Result<u64, Denied> {
        Err(Denied)
    }

    fn invalidate(&mut self, _: Rkey) -> Result<(), Denied> {
        Err(Denied)
    }

    fn execute_local(&mut self, _: SendOp) -> Result<(), Denied> {
        Err(Denied)
    }

    #[inline]
    fn complete(&mut self, completion: RcCompletion<Vec<u8>>) {
        self.done = Some(completion);
    }
}

#[inline]
fn gathered<'a>(region: &'a [u8], payload: Payload<'a, Vec<u8>>) -> Result<&'a [u8], TxError> {
    Ok(match payload {
        Payload::None => &[],
        Payload::Bytes(bytes) => bytes,
        Payload::Local { buffer, offset, len } => &buffer[offset..offset + len],
        Payload::Remote { rkey, va, len } => &region[allowed(rkey, va, len).map_err(|Denied| TxError::Denied)?],
    })
}

/// Where in the region these bytes are.
#[inline]
fn allowed(rkey: Rkey, va: u64, len: usize) -> Result<Range<usize>, Denied> {
    let start = va as usize;
    if rkey == KEY && start <= LEN && len <= LEN - start { Ok(start..start + len) } else { Err(Denied) }
}
