//! What all ranks of a job do together, beside the barrier: small things that a program needs before it can talk, such as the keys
//! of everybody's segments.
//!
//! Each rank makes the same calls in the same order. They are tagged messages, within a context of their own
//! ([`Context::COLLECTIVE`]), so they wait for all ranks and go on with progress as receives do. They suit bytes that fit a
//! message or a few; an MPI library has better ones for long data.

use super::Messaging;
use crate::core::refused::CallError;
use crate::one_sided::SegmentKey;
use crate::services::tag::matching::Pattern;
use crate::services::tag::send::SendOptions;
use crate::{Context, Rank, Tag};

/// Calls that all ranks make together.
pub trait Collectives: Messaging {
    /// Gives each rank the bytes of all, in the order of ranks. They may differ in length.
    ///
    /// It takes as many rounds as the number of ranks has bits (Bruck), and as many peers.
    ///
    /// # Errors
    /// A rank is gone, or makes another call, or there is no memory.
    fn all_gather(&mut self, bytes: &[u8]) -> Result<Vec<Vec<u8>>, CallError> {
        let (rank, size) = (self.rank(), self.size());
        // What this rank and those behind it have, as far as it is known.
        let mut known = vec![bytes.to_vec()];
        let mut distance = 1;
        while distance < size {
            let count = distance.min(size - distance);
            let (to, from) = ((rank + size - distance) % size, (rank + distance) % size);
            let theirs = unpack(&exchange(self, (to, from), Tag::new(distance as u64), &pack(&known[..count]))?);
            if theirs.len() != count {
                return Err(CallError::Collective);
            }
            known.extend(theirs);
            distance *= 2;
        }
        known.rotate_right(rank);
        Ok(known)
    }

    /// Gives each rank the bytes of rank `root`, which the others call with none.
    ///
    /// # Errors
    /// A rank is gone, or there is no memory.
    ///
    /// # Panics
    /// There is no such rank.
    fn broadcast(&mut self, root: Rank, bytes: &[u8]) -> Result<Vec<u8>, CallError> {
        let (rank, size) = (self.rank(), self.size());
        assert!(root < size, "rank {root} is not in this job of {size}");
        // By their distance from the root: each gets it from where its lowest bit is not set, and gives it to those below that bit.
        let distance = (rank + size - root) % size;
        let lowest = if distance == 0 { size.next_power_of_two() } else { 1 << distance.trailing_zeros() };
        let bytes =
            if distance == 0 { bytes.to_vec() } else { receive(self, (root + distance - lowest) % size, BROADCAST)? };
        let mut bit = lowest / 2;
        while bit > 0 {
            if distance + bit < size {
                send(self, (root + distance + bit) % size, BROADCAST, &bytes)?;
            }
            bit /= 2;
        }
        Ok(bytes)
    }

    /// Gives each rank the keys to the segments that all have exposed, or to what they offer, in the order of ranks.
    ///
    /// # Errors
    /// A rank is gone, or makes another call, or there is no memory.
    fn gather_keys(&mut self, memory: impl Into<SegmentKey>) -> Result<Vec<SegmentKey>, CallError> {
        let keys = self.all_gather(&memory.into().to_bytes())?;
        keys.iter().map(|key| SegmentKey::from_bytes(key).ok_or(CallError::Collective)).collect()
    }
}

impl<W: Messaging + ?Sized> Collectives for W {}

/// The tag of broadcasts: no distance comes near it.
const BROADCAST: Tag = Tag::new(1 << 63);
/// Bytes of a length.
const LENGTH: usize = size_of::<u32>();

fn exchange<W: Messaging + ?Sized>(
    worker: &mut W,
    (to, from): (Rank, Rank),
    tag: Tag,
    bytes: &[u8],
) -> Result<Vec<u8>, CallError> {
    let mut payload = worker.buffer(bytes.len())?;
    payload.copy_from_slice(bytes);
    let send = worker.send_with(to.into(), tag, payload, SendOptions::default().within(Context::COLLECTIVE))?;
    let theirs = receive(worker, from, tag);
    // Whatever became of the receive the send ends.
    let sent = worker.wait_or_leave(send);
    worker.give_back(sent?.buffer);
    theirs
}

fn send<W: Messaging + ?Sized>(worker: &mut W, to: Rank, tag: Tag, bytes: &[u8]) -> Result<(), CallError> {
    let mut payload = worker.buffer(bytes.len())?;
    payload.copy_from_slice(bytes);
    let send = worker.send_with(to.into(), tag, payload, SendOptions::default().within(Context::COLLECTIVE))?;
    let sent = worker.wait_or_leave(send)?;
    worker.give_back(sent.buffer);
    Ok(())
}

fn receive<W: Messaging + ?Sized>(worker: &mut W, from: Rank, tag: Tag) -> Result<Vec<u8>, CallError> {
    let receive = worker.recv_in_place(Pattern::new(from, tag).within(Context::COLLECTIVE))?;
    let message = worker.wait_or_leave(receive)?;
    let bytes = message.buffer[..message.len].to_vec();
    worker.give_back(message.buffer);
    Ok(bytes)
}

/// Returns texts of bytes, each behind its length.
fn pack(texts: &[Vec<u8>]) -> Vec<u8> {
    texts.iter().flat_map(|text| [&(text.len() as u32).to_le_bytes()[..], text].concat()).collect()
}

/// Returns what was packed, as far as it is whole.
fn unpack(mut bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut texts = Vec::new();
    while let Some((length, rest)) = bytes.split_at_checked(LENGTH) {
        let len = u32::from_le_bytes(length.try_into().unwrap_or_default()) as usize;
        let Some((text, rest)) = rest.split_at_checked(len) else { break };
        texts.push(text.to_vec());
        bytes = rest;
    }
    texts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_packed_is_unpacked_and_what_is_cut_is_left_out() {
        let texts = vec![b"one".to_vec(), Vec::new(), vec![7; 300]];
        let packed = pack(&texts);
        assert_eq!(unpack(&packed), texts);
        assert_eq!(unpack(&packed[..packed.len() - 1]), texts[..2]);
        assert!(unpack(&packed[..3]).is_empty());
    }
}
