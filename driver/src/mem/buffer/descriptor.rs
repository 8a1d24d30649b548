//! What a buffer is, in a place of its own: the buffer itself is a pointer, because it moves from queue to queue with every
//! message. A struct of 40 bytes that was moved so was copied right after it had been written, and the processor waits there
//! for the stores: a seventh of the time of a SEND of 64 bytes.
//!
//! Places that buffers have left are kept for the next ones of the same thread, so that making one for each message
//! takes none from the allocator.

use std::cell::RefCell;
use std::mem::MaybeUninit;
use std::ptr::{NonNull, drop_in_place};

use crate::mem::owner::Owner;

/// Places that a thread keeps.
const SPARE_PLACES: usize = 64;

thread_local! {
    #[expect(clippy::vec_box, reason = "the boxes are what is kept")]
    static SPARE: RefCell<Vec<Box<MaybeUninit<BufferDescriptor>>>> = const { RefCell::new(Vec::new()) };
}

/// Where a descriptor lies.
pub(super) type Place = Box<BufferDescriptor>;

/// A buffer's room, the view within it, and whose it is.
pub(super) struct BufferDescriptor {
    /// Where the room begins ...
    pub(super) room_at: NonNull<u8>,
    /// ... and how long it is; 0 where a piece was cut off whole.
    pub(super) room: usize,
    /// How long the view is. It never leaves the room.
    pub(super) len: usize,
    /// Where the view begins in the room: at its begin, or behind what was skipped.
    pub(super) start: u32,
    /// Memory that the application adopts in one call has one number; an arena's is 0.
    pub(super) adoption: u32,
    pub(super) owner: Owner,
}

impl BufferDescriptor {
    /// Finds a place for it.
    #[expect(clippy::unnecessary_box_returns, reason = "a buffer is such a pointer")]
    #[inline]
    pub(super) fn placed(self) -> Place {
        match SPARE.try_with(|spare| spare.borrow_mut().pop()) {
            Ok(Some(place)) => Box::write(place, self),
            _ => Box::new(self),
        }
    }

    /// Gives its room back, and keeps the place.
    #[inline]
    pub(super) fn give_back(place: Place) {
        let place = Box::into_raw(place);
        // SAFETY: it came out of a box, whose content is dropped once, here.
        unsafe { drop_in_place(place) };
        // SAFETY: the memory is the box's; nothing says any more that it has a content.
        let place = unsafe { Box::from_raw(place.cast::<MaybeUninit<Self>>()) };
        // A thread that ends keeps none any more.
        let _ = SPARE.try_with(|spare| {
            let mut spare = spare.borrow_mut();
            if spare.len() < SPARE_PLACES {
                spare.push(place);
            }
        });
    }
}

impl Drop for BufferDescriptor {
    #[inline]
    fn drop(&mut self) {
        if let Some(arena) = self.owner.as_arena() {
            arena.give_back(self.room_at.addr().get() - arena.base().addr(), self.room);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mem::Arena;

    fn spare_places() -> usize {
        SPARE.with(|spare| spare.borrow().len())
    }

    #[test]
    fn places_are_used_again_by_the_same_thread_and_kept_up_to_a_limit() {
        let ends = std::thread::spawn(|| {
            let arena = Arena::new(1 << 20).expect("memory");
            let many: Vec<_> = (0..2 * SPARE_PLACES).map(|_| arena.buffer(64).expect("room")).collect();
            assert_eq!(spare_places(), 0);
            drop(many);
            assert_eq!(spare_places(), SPARE_PLACES);
            let again: Vec<_> = (0..3).map(|_| arena.buffer(64).expect("room")).collect();
            assert_eq!(spare_places(), SPARE_PLACES - 3);
            assert!(again.iter().all(|buffer| buffer.len() == 64 && buffer.capacity() == 64));
            drop(again);
            assert_eq!((spare_places(), arena.free_bytes()), (SPARE_PLACES, 1 << 20));
        });
        ends.join().expect("what was given back is whole");
    }

    #[test]
    fn a_list_gives_its_pieces_back_with_their_places() {
        let ends = std::thread::spawn(|| {
            let arena = Arena::new(1 << 16).expect("memory");
            let pieces = (0..4).map(|_| arena.buffer(64).expect("room")).collect();
            drop(crate::mem::Buffer::list(pieces).expect("four pieces"));
            assert_eq!((spare_places(), arena.free_bytes()), (5, 1 << 16));
        });
        ends.join().expect("what was given back is whole");
    }
}
