//! Whose a buffer's room is, in one word: buffers move from queue to queue with every message, and each word of theirs is
//! seen in its latency.

use std::mem::ManuallyDrop;
use std::num::NonZero;
use std::ptr::NonNull;
use std::sync::Arc;

use static_assertions::{assert_impl_all, const_assert, const_assert_eq};

use super::buffer::Pieces;
use super::{Arena, CachedRegion, MemoryKind};

/// What keeps a room: an arena; the region that registers memory of the application's, if any does; or a list of pieces.
///
/// The word is what `Arc::into_raw` gave, so a share of its own, or `Box::into_raw` for a list. The lowest three bits say which of
/// these it is, and what kind of memory of the application's; where that has no region, these bits are all of it.
pub(super) struct Owner(NonNull<()>);

/// The bit of what is not an arena's.
const USERS: usize = 1;
/// The bit of what cannot be borrowed.
const NO_VIEW: usize = 4;
/// The bits of each kind are its number; those of an arena are all clear.
const SOURCE: usize = MemoryKind::Source as usize;
const TARGET: usize = MemoryKind::Target as usize;
const LIST: usize = MemoryKind::List as usize;
const BITS: usize = 7;

const_assert_eq!(MemoryKind::Exclusive as usize, USERS);
const_assert_eq!(SOURCE & (USERS | NO_VIEW), USERS);
const_assert_eq!(TARGET & LIST & (USERS | NO_VIEW), USERS | NO_VIEW);

const_assert!(align_of::<Arena>() > BITS);
const_assert!(align_of::<CachedRegion>() > BITS);
const_assert!(align_of::<Pieces>() > BITS);
const_assert_eq!(size_of::<Option<Owner>>(), size_of::<usize>());

// SAFETY: an owner is an `Arc` of an arena or of a region, which are `Send`, or nothing.
unsafe impl Send for Owner {}
// SAFETY: a shared owner only gives shared views of them, and they are `Sync`.
unsafe impl Sync for Owner {}

assert_impl_all!(Arc<Arena>: Send, Sync);
assert_impl_all!(Arc<CachedRegion>: Send, Sync);

impl Owner {
    /// The room is no one's, and goes back to no one.
    pub(super) const NO_ONE: Self = Self(NonNull::without_provenance(NonZero::<usize>::MIN));

    pub(super) fn arena(arena: Arc<Arena>) -> Self {
        let raw = NonNull::new(Arc::into_raw(arena).cast_mut()).expect("an Arc is somewhere");
        Self(raw.cast())
    }

    pub(super) fn user(region: Option<Arc<CachedRegion>>, kind: MemoryKind) -> Self {
        let bits = bits_of(kind);
        let Some(region) = region else { return Self(NonNull::without_provenance(bits)) };
        let raw = NonNull::new(Arc::into_raw(region).cast_mut()).expect("an Arc is somewhere");
        Self(raw.cast().map_addr(|addr| addr | bits))
    }

    pub(super) fn list(pieces: Pieces) -> Self {
        Self(NonNull::from(Box::leak(Box::new(pieces))).cast().map_addr(|addr| addr | LIST))
    }

    /// Takes the pieces of a list out.
    pub(super) fn into_list(self) -> Result<Pieces, Self> {
        if !self.is_list() {
            return Err(self);
        }
        let owner = ManuallyDrop::new(self);
        // SAFETY: the bits say that this came from `Box::leak`, and the owner, which alone had it, ends here.
        Ok(*unsafe { Box::from_raw(owner.unmarked().cast::<Pieces>()) })
    }

    #[inline]
    pub(super) fn is_users(&self) -> bool {
        self.bits() & USERS != 0
    }

    /// Whether the bytes lie in one place, and no other writes them.
    #[inline]
    pub(super) fn has_view(&self) -> bool {
        self.bits() & NO_VIEW == 0
    }

    /// Whether no other accesses the bytes, which lie in one place.
    #[inline]
    pub(super) fn is_exclusive(&self) -> bool {
        self.bits() & !USERS == 0
    }

    #[inline]
    pub(super) fn is_list(&self) -> bool {
        self.bits() == LIST
    }

    /// What others may do with the bytes.
    pub(super) fn kind(&self) -> MemoryKind {
        match self.bits() {
            SOURCE => MemoryKind::Source,
            TARGET => MemoryKind::Target,
            LIST => MemoryKind::List,
            _ => MemoryKind::Exclusive,
        }
    }

    #[inline]
    fn bits(&self) -> usize {
        self.0.addr().get() & BITS
    }

    /// The arena, if it is one's.
    #[inline]
    pub(super) fn as_arena(&self) -> Option<&Arena> {
        // SAFETY: the bits say that this came from an `Arc<Arena>`, of which the owner holds a share, so it lives as long as the
        // borrow; there is no exclusive access to what an `Arc` shares.
        (self.bits() == 0).then(|| unsafe { self.0.cast::<Arena>().as_ref() })
    }

    /// The region that registers memory of the application's, if any does.
    #[inline]
    pub(super) fn as_region(&self) -> Option<&CachedRegion> {
        if self.bits() == 0 || self.is_list() {
            return None;
        }
        // SAFETY: the bits say that this came from an `Arc<CachedRegion>`, of which the owner holds a share, so it lives as long
        // as the borrow; there is no exclusive access to what an `Arc` shares.
        self.region().map(|region| unsafe { region.as_ref() })
    }

    /// The pieces, if it is a list.
    pub(super) fn as_pieces(&self) -> Option<&Pieces> {
        // SAFETY: the bits say that this came from `Box::leak`; the owner alone has it, and is borrowed.
        self.is_list().then(|| unsafe { &*self.unmarked().cast::<Pieces>() })
    }

    /// The same, to be changed.
    pub(super) fn pieces_mut(&mut self) -> Option<&mut Pieces> {
        // SAFETY: the bits say that this came from `Box::leak`; the owner alone has it, and is borrowed exclusively.
        self.is_list().then(|| unsafe { &mut *self.unmarked().cast::<Pieces>() })
    }

    /// Whether both are the same arena, or the same region or none.
    pub(super) fn is(&self, other: &Self) -> bool {
        self.0 == other.0
    }

    /// The region of the application's memory; `None` where there are no bits but those of its kind.
    #[inline]
    fn region(&self) -> Option<NonNull<CachedRegion>> {
        NonNull::new(self.unmarked().cast())
    }

    /// Drops the pieces, out of the way of what is dropped with every message.
    ///
    /// # Safety
    /// It is a list, and not used any more.
    #[cold]
    #[inline(never)]
    unsafe fn drop_list(&mut self) {
        // SAFETY: the word is what `Box::leak` gave, with bits; it is given back once, as the caller promises.
        drop(unsafe { Box::from_raw(self.unmarked().cast::<Pieces>()) });
    }

    #[inline]
    fn unmarked(&self) -> *mut () {
        self.0.as_ptr().map_addr(|addr| addr & !BITS)
    }
}

#[inline]
fn bits_of(kind: MemoryKind) -> NonZero<usize> {
    debug_assert_ne!(kind, MemoryKind::List, "a list is no memory of its own");
    NonZero::<usize>::MIN | (kind as usize)
}

impl Clone for Owner {
    /// # Panics
    /// Where it is a list, which has one owner.
    fn clone(&self) -> Self {
        match self.bits() {
            // SAFETY: the word is what `Arc::into_raw` gave for an arena, and the share of `self` keeps the count above zero.
            0 => unsafe { Arc::increment_strong_count(self.0.cast::<Arena>().as_ptr()) },
            LIST => panic!("a list has one owner"),
            _ => {
                if let Some(region) = self.region() {
                    // SAFETY: as above, for a region, with the bits taken off.
                    unsafe { Arc::increment_strong_count(region.as_ptr()) };
                }
            }
        }
        Self(self.0)
    }
}

impl Drop for Owner {
    #[inline]
    fn drop(&mut self) {
        if self.bits() == 0 {
            // SAFETY: the word is what `Arc::into_raw` gave for an arena; its share is given back once, here.
            drop(unsafe { Arc::from_raw(self.0.cast::<Arena>().as_ptr()) });
        } else if self.is_list() {
            // SAFETY: it is one, and dropped once.
            unsafe { self.drop_list() };
        } else if let Some(region) = self.region() {
            // SAFETY: as of an arena, for a region, with the bits taken off.
            drop(unsafe { Arc::from_raw(region.as_ptr()) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arena() -> Arc<Arena> {
        Arena::new(1 << 16).expect("memory")
    }

    #[test]
    fn each_owner_holds_a_share_and_gives_it_back_once() {
        let arena = arena();
        let owner = Owner::arena(arena.clone());
        let other = owner.clone();
        assert_eq!(Arc::strong_count(&arena), 3);
        assert!(owner.as_arena().is_some_and(|seen| std::ptr::eq(seen, Arc::as_ptr(&arena))) && !owner.is_users());
        assert!(owner.is(&other) && !owner.is(&Owner::user(None, MemoryKind::Exclusive)));
        drop((owner, other));
        assert_eq!(Arc::strong_count(&arena), 1);
    }

    #[test]
    fn a_region_an_arena_and_no_owner_are_distinguished() {
        let region = Arc::new(CachedRegion::of_test(7));
        let owner = Owner::user(Some(region.clone()), MemoryKind::Target);
        let other = owner.clone();
        assert_eq!(Arc::strong_count(&region), 3);
        assert!(other.as_region().is_some_and(|seen| seen.number() == 7) && other.is_users());
        assert!(
            !owner.is(&Owner::user(Some(Arc::new(CachedRegion::of_test(7))), MemoryKind::Target))
                && !owner.is(&Owner::user(None, MemoryKind::Exclusive))
        );
        drop((owner, other));
        assert_eq!(Arc::strong_count(&region), 1);
    }

    #[test]
    fn the_kind_of_memory_is_a_part_of_the_word() {
        use MemoryKind::{Exclusive, Source, Target};
        let seen = |owner: &Owner| (owner.kind(), owner.is_exclusive(), owner.has_view(), owner.is_list());
        for (kind, is_exclusive, has_view) in [(Exclusive, true, true), (Source, false, true), (Target, false, false)] {
            for region in [None, Some(Arc::new(CachedRegion::of_test(7)))] {
                let owner = Owner::user(region, kind).clone();
                assert_eq!((seen(&owner), owner.is_users()), ((kind, is_exclusive, has_view, false), true));
            }
        }
        assert_eq!(seen(&Owner::arena(arena())), (Exclusive, true, true, false));
    }

    #[test]
    fn memory_without_a_region_has_no_share_of_anything() {
        let owner = Owner::user(None, MemoryKind::Exclusive);
        assert!(owner.clone().as_region().is_none() && owner.as_arena().is_none() && owner.is_users());
        assert!(owner.is(&Owner::user(None, MemoryKind::Exclusive)) && !owner.is(&Owner::arena(arena())));
    }
}
