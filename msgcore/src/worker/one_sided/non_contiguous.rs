//! Put and get of bytes that do not lie one behind the other: in blocks with a stride, or in pieces anywhere (the strided and indexed
//! forms of GASNet's VIS and of OpenSHMEM).

use super::{AccessRegion, OneSided, RemoteAddress};
use crate::core::peer_id::PeerId;
use crate::core::refused::CallError;

/// Strided and indexed forms of one-sided operations.
pub trait NonContiguous: OneSided + Sized {
    /// Writes bytes to a peer's memory in blocks of `block` bytes, whose beginnings there are `stride` apart, as
    /// [`OneSided::put_nbi`]. The last block may be shorter.
    ///
    /// # Errors
    /// As there; blocks before the one that it concerns are written.
    ///
    /// # Panics
    /// A block has no bytes.
    fn put_strided(
        &mut self,
        to: impl Into<PeerId>,
        bytes: &[u8],
        at: RemoteAddress,
        block: usize,
        stride: usize,
    ) -> Result<(), CallError> {
        let to = to.into();
        let mut blocks = bytes.chunks(block).enumerate();
        blocks.try_for_each(|(index, bytes)| self.put_copy(to, bytes, at.plus(index.saturating_mul(stride))))
    }

    /// Reads blocks of `block` bytes of a peer's memory, whose beginnings there are `stride` apart, one behind the other into `into`.
    /// All are under way together.
    ///
    /// # Errors
    /// As for [`OneSided::get_blocking`].
    ///
    /// # Panics
    /// A block has no bytes.
    fn get_strided(
        &mut self,
        from: impl Into<PeerId>,
        into: &mut [u8],
        at: RemoteAddress,
        block: usize,
        stride: usize,
    ) -> Result<(), CallError> {
        let from = from.into();
        let places = into.chunks_mut(block).enumerate();
        let pieces = places.map(|(index, piece)| (piece, at.plus(index.saturating_mul(stride)))).collect();
        self.get_indexed(from, pieces)
    }

    /// Writes pieces to places of a peer's memory, as [`OneSided::put_nbi`].
    ///
    /// # Errors
    /// As there; pieces before the one that it concerns are written.
    fn put_indexed(&mut self, to: impl Into<PeerId>, pieces: &[(&[u8], RemoteAddress)]) -> Result<(), CallError> {
        let to = to.into();
        pieces.iter().try_for_each(|&(bytes, at)| self.put_copy(to, bytes, at))
    }

    /// Reads pieces of a peer's memory. All are under way together.
    ///
    /// # Errors
    /// As for [`OneSided::get_blocking`].
    fn get_indexed(
        &mut self,
        from: impl Into<PeerId>,
        pieces: Vec<(&mut [u8], RemoteAddress)>,
    ) -> Result<(), CallError> {
        let (from, mut region, mut targets) = (from.into(), AccessRegion::default(), Vec::new());
        for (piece, at) in pieces {
            let memory = self.memory_for_one_sided(piece.len());
            let begun = memory.and_then(|buffer| Ok(region.get(self, from, buffer, at)?));
            if let Err(why) = begun {
                region.leave(self);
                return Err(why);
            }
            targets.push(piece);
        }
        for (target, done) in targets.into_iter().zip(region.wait(self)?) {
            target.copy_from_slice(&done.buffer);
        }
        Ok(())
    }
}

impl<W: OneSided> NonContiguous for W {}
