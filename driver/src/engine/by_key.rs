//! This end's own memory under the keys that peers have: what somebody does here in a peer's stead, with the peer's rights.

use std::ops::Range;

use roci_protocol::rc::Denied;
use roci_protocol::{Access, Rkey};

use super::Engine;
use crate::link::Link;
use crate::mem::{Asker, Buffer, Number, PdId};

impl<L: Link> Engine<L> {
    /// Copies out what peers may read under a key, from address `va` on, into a part of a buffer.
    ///
    /// # Errors
    /// A READ would be denied.
    pub fn read_by_key(
        &self,
        pd: PdId,
        (rkey, va): (Rkey, u64),
        (into, part): (&mut Buffer, Range<usize>),
    ) -> Result<(), Denied> {
        let (buffer, range) = self.memory.keys.find(by(pd), rkey, va, part.len() as u64, Access::REMOTE_READ)?;
        into.copy_from(part.start, buffer, range);
        Ok(())
    }

    /// The same, into bytes.
    ///
    /// # Errors
    /// As there.
    pub fn read_bytes_by_key(&self, pd: PdId, (rkey, va): (Rkey, u64), into: &mut [u8]) -> Result<(), Denied> {
        let (buffer, range) = self.memory.keys.find(by(pd), rkey, va, into.len() as u64, Access::REMOTE_READ)?;
        buffer.copy_out(range.start, into);
        Ok(())
    }

    /// Whether peers may read so many bytes under a key, from address `va` on.
    ///
    /// # Errors
    /// They may not.
    pub fn check_read_by_key(&self, pd: PdId, (rkey, va): (Rkey, u64), len: u64) -> Result<(), Denied> {
        self.memory.keys.authorize(by(pd), rkey, va, len, Access::REMOTE_READ)
    }

    /// Whether peers may write so many bytes under a key, from address `va` on.
    ///
    /// # Errors
    /// They may not.
    pub fn check_write_by_key(&self, pd: PdId, (rkey, va): (Rkey, u64), len: u64) -> Result<(), Denied> {
        self.memory.keys.authorize(by(pd), rkey, va, len, Access::REMOTE_WRITE)
    }

    /// Copies bytes to where peers may write under a key, from address `va` on.
    ///
    /// # Errors
    /// A WRITE would be denied, or the process is a forked child, whose parent has the memory.
    pub fn write_by_key(&mut self, pd: PdId, (rkey, va): (Rkey, u64), from: &[u8]) -> Result<(), Denied> {
        let (buffer, range) = self.writable(pd, (rkey, va), from.len(), Access::REMOTE_WRITE)?;
        buffer.copy_in(range.start, from);
        Ok(())
    }

    /// The same, out of a buffer.
    ///
    /// # Errors
    /// As there.
    pub fn write_buffer_by_key(&mut self, pd: PdId, (rkey, va): (Rkey, u64), from: &Buffer) -> Result<(), Denied> {
        let (buffer, range) = self.writable(pd, (rkey, va), from.len(), Access::REMOTE_WRITE)?;
        buffer.copy_from(range.start, from, 0..from.len());
        Ok(())
    }

    /// Replaces the number at `va` under a key, in this host's byte order, by what `change` makes of it, and returns what it was:
    /// one step for all that come by RDMA atomics or by this, and for the application where it uses atomic instructions.
    ///
    /// # Errors
    /// An RDMA atomic would be denied, `va` is no multiple of the number's length, or the process is a forked child.
    pub fn update_by_key<N: Number>(
        &mut self,
        pd: PdId,
        (rkey, va): (Rkey, u64),
        change: impl Fn(N) -> N,
    ) -> Result<N, Denied> {
        if !va.is_multiple_of(size_of::<N>() as u64) {
            return Err(Denied);
        }
        let (buffer, range) = self.writable(pd, (rkey, va), size_of::<N>(), Access::REMOTE_ATOMIC)?;
        buffer.update(range.start, change).ok_or(Denied)
    }

    fn writable(
        &mut self,
        pd: PdId,
        (rkey, va): (Rkey, u64),
        len: usize,
        access: Access,
    ) -> Result<(&mut Buffer, Range<usize>), Denied> {
        if self.is_forked() {
            return Err(Denied);
        }
        self.memory.keys.find_mut(by(pd), rkey, va, len as u64, access)
    }
}

/// Who asks: no queue pair, so windows are closed to it.
fn by(pd: PdId) -> Asker {
    Asker { pd, qpn: None }
}
