//! Whose a buffer's room is, in one word: buffers move from queue to queue with every message, and each word of theirs is
//! seen in its latency.

use std::num::NonZero;
use std::ptr::NonNull;
use std::sync::Arc;

use static_assertions::{assert_impl_all, const_assert, const_assert_eq};

use super::{Arena, CachedRegion, MemoryKind};

/// What keeps a room: an arena, or the region that registers memory of the application's, if any does.
///
/// The word is what `Arc::into_raw` gave, so a share of its own. The lowest bit distinguishes a region from an arena, and the
/// two above it say what kind of memory of the application's it is; where there is no region, these bits are all of it.
pub(super) struct Owner(NonNull<()>);

/// What an [`Owner`] refers to.
pub(super) enum Seen<'a> {
    Arena(&'a Arena),
    User(Option<&'a CachedRegion>),
}

/// The bit of the application's memory.
const USERS: usize = 1;
/// The bit of a source.
const SOURCE: usize = 2;
/// The bit of a target.
const TARGET: usize = 4;
const BITS: usize = USERS | SOURCE | TARGET;

const_assert!(align_of::<Arena>() > BITS);
const_assert!(align_of::<CachedRegion>() > BITS);
const_assert_eq!(size_of::<Option<Owner>>(), size_of::<usize>());

// SAFETY: an owner is an `Arc` of an arena or of a region, which are `Send`, or nothing.
unsafe impl Send for Owner {}
// SAFETY: a shared owner only gives shared views of them, and they are `Sync`.
unsafe impl Sync for Owner {}

assert_impl_all!(Arc<Arena>: Send, Sync);
assert_impl_all!(Arc<CachedRegion>: Send, Sync);

impl Owner {
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

    #[inline]
    pub(super) fn is_users(&self) -> bool {
        self.has(USERS)
    }

    /// Whether nothing may be written.
    #[inline]
    pub(super) fn is_source(&self) -> bool {
        self.has(SOURCE)
    }

    /// Whether others may write meanwhile.
    #[inline]
    pub(super) fn is_target(&self) -> bool {
        self.has(TARGET)
    }

    /// Whether it is no other's meanwhile.
    #[inline]
    pub(super) fn is_exclusive(&self) -> bool {
        !self.has(SOURCE | TARGET)
    }

    #[inline]
    fn has(&self, bits: usize) -> bool {
        self.0.addr().get() & bits != 0
    }

    #[inline]
    pub(super) fn see(&self) -> Seen<'_> {
        if self.is_users() {
            // SAFETY: the bit says that this came from an `Arc<CachedRegion>`, of which the owner holds a share, so it
            // lives as long as the borrow; there is no exclusive access to what an `Arc` shares.
            Seen::User(self.region().map(|region| unsafe { region.as_ref() }))
        } else {
            // SAFETY: as above, of an `Arc<Arena>`.
            Seen::Arena(unsafe { self.0.cast::<Arena>().as_ref() })
        }
    }

    /// Whether both are the same arena, or the same region or none.
    pub(super) fn is(&self, other: &Self) -> bool {
        self.0 == other.0
    }

    /// The region where the bit is set; `None` where there are no others than those three.
    #[inline]
    fn region(&self) -> Option<NonNull<CachedRegion>> {
        NonNull::new(self.0.as_ptr().map_addr(|addr| addr & !BITS).cast())
    }
}

fn bits_of(kind: MemoryKind) -> NonZero<usize> {
    let bits = match kind {
        MemoryKind::Exclusive => USERS,
        MemoryKind::Source => USERS | SOURCE,
        MemoryKind::Target => USERS | TARGET,
    };
    NonZero::new(bits).expect("a bit")
}

impl Clone for Owner {
    fn clone(&self) -> Self {
        if !self.is_users() {
            // SAFETY: the word is what `Arc::into_raw` gave for an arena, and the share of `self` keeps the count above zero.
            unsafe { Arc::increment_strong_count(self.0.cast::<Arena>().as_ptr()) };
        } else if let Some(region) = self.region() {
            // SAFETY: as above, for a region, with the bits taken off.
            unsafe { Arc::increment_strong_count(region.as_ptr()) };
        }
        Self(self.0)
    }
}

impl Drop for Owner {
    #[inline]
    fn drop(&mut self) {
        if !self.is_users() {
            // SAFETY: the word is what `Arc::into_raw` gave for an arena; its share is given back once, here.
            drop(unsafe { Arc::from_raw(self.0.cast::<Arena>().as_ptr()) });
        } else if let Some(region) = self.region() {
            // SAFETY: as above, for a region, with the bits taken off.
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
        assert!(
            matches!(owner.see(), Seen::Arena(seen) if std::ptr::eq(seen, Arc::as_ptr(&arena))) && !owner.is_users()
        );
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
        assert!(matches!(other.see(), Seen::User(Some(seen)) if seen.number() == 7) && other.is_users());
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
        let seen = |owner: &Owner| (owner.is_exclusive(), owner.is_source(), owner.is_target());
        for (kind, expected) in
            [(Exclusive, (true, false, false)), (Source, (false, true, false)), (Target, (false, false, true))]
        {
            for region in [None, Some(Arc::new(CachedRegion::of_test(7)))] {
                let owner = Owner::user(region, kind).clone();
                assert_eq!((seen(&owner), owner.is_users()), (expected, true));
            }
        }
        assert_eq!(seen(&Owner::arena(arena())), (true, false, false));
    }

    #[test]
    fn memory_without_a_region_has_no_share_of_anything() {
        let owner = Owner::user(None, MemoryKind::Exclusive);
        assert!(matches!(owner.clone().see(), Seen::User(None)) && owner.is_users());
        assert!(owner.is(&Owner::user(None, MemoryKind::Exclusive)) && !owner.is(&Owner::arena(arena())));
    }
}
