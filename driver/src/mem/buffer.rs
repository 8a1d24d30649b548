//! A piece of memory with one owner: cut from an arena, or the application's own.
//!
//! The bytes of a *target* may be read and written by others at the same time: no reference to them is made, and they are copied
//! in and out.
//!
//! A buffer has a *room*, which is what it owns and gives back, and a *view* within it, which is what it shows as
//! bytes. Cutting a buffer in two divides the room; skipping a header only moves the view.

mod access;
mod descriptor;
mod list;

use std::fmt;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::Arc;

use static_assertions::{assert_impl_all, const_assert};

use super::arena::{ArenaError, LINE};
use super::owner::Owner;
use super::{Arena, CachedRegion, UserMemory};

use descriptor::{BufferDescriptor, Place};
pub(super) use list::Pieces;
pub use list::{ListError, MAX_PIECES};

/// Bytes that have no other owner, or that the application shares, or a list of such: see [`MemoryKind`](super::MemoryKind). When it is dropped, on whatever thread that
/// is, those of an arena return to it, and those of the application are the application's again.
///
/// It is a slice of its bytes. Borrowing those of a [target](super::MemoryKind::Target) panics, and so does borrowing those of a
/// [source](super::MemoryKind::Source) to write them.
pub struct Buffer {
    /// It is taken out when the buffer is dropped, and not before.
    descriptor: ManuallyDrop<Place>,
}

const_assert!(size_of::<Option<Buffer>>() == size_of::<usize>());

// SAFETY: the room belongs to the buffer alone (see `deref`), and so travels with it from thread to thread; what it shares with
// others it may share with those of any thread. The owner is `Send`.
unsafe impl Send for Buffer {}
// SAFETY: a shared buffer only gives shared views of bytes that nothing writes meanwhile, or copies by atomic loads.
unsafe impl Sync for Buffer {}

assert_impl_all!(Owner: Send, Sync);

impl Arena {
    /// Cuts a buffer of `len` bytes; their content is whatever was there before.
    #[inline]
    pub fn buffer(self: &Arc<Self>, len: usize) -> Result<Buffer, ArenaError> {
        let (offset, room) = self.allocate(len)?;
        Ok(Buffer::of_arena(self.clone(), offset, room, len))
    }
}

impl Buffer {
    /// Bytes of the heap that each buffer takes, beside its room.
    pub const HEAP_BYTES: usize = size_of::<BufferDescriptor>();

    /// The owner of `room` bytes of the mapping from `offset` on, which `arena` gave to no other buffer.
    fn of_arena(arena: Arc<Arena>, offset: usize, room: usize, len: usize) -> Self {
        debug_assert!(len <= room);
        // SAFETY: `take` found the range within the mapping.
        let room_at = unsafe { arena.base().add(offset) };
        let room_at = NonNull::new(room_at).expect("nothing is mapped at address 0");
        Self::of(BufferDescriptor { room_at, room, len, start: 0, adoption: 0, owner: Owner::arena(arena) })
    }

    /// The owner of adopted memory of the application. No two live buffers of different calls have the same `adoption`.
    pub(super) fn of_user(memory: UserMemory, adoption: u32, region: Option<Arc<CachedRegion>>) -> Self {
        let (room_at, len) = (memory.start(), memory.len());
        Self::of(BufferDescriptor {
            room_at,
            room: len,
            len,
            start: 0,
            adoption,
            owner: Owner::user(region, memory.kind()),
        })
    }

    fn of_list(pieces: Pieces, len: usize) -> Self {
        let owner = Owner::list(pieces);
        Self::of(BufferDescriptor { room_at: NonNull::dangling(), room: len, len, start: 0, adoption: 0, owner })
    }

    #[inline]
    fn of(descriptor: BufferDescriptor) -> Self {
        Self { descriptor: ManuallyDrop::new(descriptor.placed()) }
    }

    fn into_list(mut self) -> Result<Pieces, Self> {
        if !self.is_list() {
            return Err(self);
        }
        let owner = std::mem::replace(&mut self.descriptor.owner, Owner::NO_ONE);
        owner.into_list().map_err(|_| unreachable!("it is a list"))
    }

    /// Whether the bytes are the application's own, and not an arena's. A list is the application's.
    pub fn is_users(&self) -> bool {
        self.descriptor.owner.is_users()
    }

    /// The number of the registration that covers these bytes of the application's; each registration of an engine has
    /// another. `None` where there is none: the bytes are copied, or they are an arena's.
    pub fn registration(&self) -> Option<u64> {
        self.descriptor.owner.as_region().map(CachedRegion::number)
    }

    /// Returns the name of the range under which these bytes of the application are registered with devices; `None`
    /// where devices find them by address, as those of an arena, or where they are copied.
    #[inline]
    pub(crate) fn attached_range(&self) -> Option<u64> {
        self.descriptor.owner.as_region().map(CachedRegion::token)
    }

    /// Shortens or lengthens the view within the room that was allocated.
    ///
    /// # Panics
    /// When `len` exceeds [`Buffer::capacity`].
    #[inline]
    pub fn set_len(&mut self, len: usize) {
        assert!(len <= self.capacity(), "a buffer of {} bytes cannot be set to {len}", self.capacity());
        self.descriptor.len = len;
    }

    /// The room from the view's begin on: what [`Buffer::skip_front`] passed over does not count.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.descriptor.room - self.descriptor.start as usize
    }

    /// Lets the view begin `count` bytes later, for instance behind a header. The room stays whole.
    ///
    /// # Panics
    /// When `count` exceeds the view, or what is skipped reaches 4 GiB.
    pub fn skip_front(&mut self, count: usize) {
        assert!(count <= self.descriptor.len, "{count} bytes cannot be skipped in a buffer of {}", self.descriptor.len);
        self.descriptor.start =
            u32::try_from(self.descriptor.start as usize + count).expect("a front is shorter than 4 GiB");
        self.descriptor.len -= count;
    }

    /// Returns how much [`Buffer::skip_front`] has passed over.
    pub fn skipped(&self) -> usize {
        self.descriptor.start as usize
    }

    /// Whether it can be cut and joined: not where the view begins behind the room's beginning, and no list.
    pub fn can_be_cut(&self) -> bool {
        self.descriptor.start == 0 && !self.is_list()
    }

    /// Makes the whole room the view, and undoes [`Buffer::skip_front`].
    pub fn reset(&mut self) {
        self.descriptor.start = 0;
        self.descriptor.len = self.descriptor.room;
    }

    /// Cuts the buffer in two: this one keeps the room before `at`, the result owns the rest. The view is cut at the
    /// same place. Each piece can be used and dropped by itself; [`Buffer::join`] undoes the cut.
    ///
    /// # Panics
    /// When `at` is no multiple of 64 or exceeds [`Buffer::capacity`], when a front is skipped, or of a list.
    #[must_use = "what is cut off and dropped goes back to its owner"]
    pub fn split_off(&mut self, at: usize) -> Self {
        self.assert_can_be("cut");
        assert!(at.is_multiple_of(LINE), "a buffer cannot be cut at {at}, which is no multiple of {LINE}");
        assert!(at <= self.descriptor.room, "a buffer of {} bytes cannot be cut at {at}", self.descriptor.room);
        let (room, len) = (self.descriptor.room - at, self.descriptor.len.saturating_sub(at));
        // SAFETY: `at` lies within the room, or at its end.
        let room_at = unsafe { self.descriptor.room_at.add(at) };
        let (adoption, owner) = (self.descriptor.adoption, self.descriptor.owner.clone());
        let rest = Self::of(BufferDescriptor { room_at, room, len, start: 0, adoption, owner });
        self.descriptor.room = at;
        self.descriptor.len = self.descriptor.len.min(at);
        rest
    }

    /// Appends `next`, whose room begins where this one's ends; the view then ends where that of `next` does. `next`
    /// comes back where it lies elsewhere, or where this view does not reach the end of its room: its bytes would not
    /// follow these.
    ///
    /// # Panics
    /// When a front of either is skipped, or one is a list.
    pub fn join(&mut self, mut next: Self) -> Result<(), Self> {
        self.assert_can_be("joined");
        next.assert_can_be("joined");
        let ends_at = self.descriptor.room_at.addr().get() + self.descriptor.room;
        let is_neighbour = self.is_of(&next) && ends_at == next.descriptor.room_at.addr().get();
        if !is_neighbour || self.descriptor.len != self.descriptor.room {
            return Err(next);
        }
        self.descriptor.len += next.descriptor.len;
        // What has no room gives nothing back.
        self.descriptor.room += std::mem::take(&mut next.descriptor.room);
        next.descriptor.len = 0;
        Ok(())
    }

    /// Whether both are of one arena, or of memory that the application adopted in one call.
    fn is_of(&self, other: &Self) -> bool {
        self.descriptor.owner.is(&other.descriptor.owner) && self.descriptor.adoption == other.descriptor.adoption
    }

    fn assert_can_be(&self, what: &str) {
        assert!(self.descriptor.start == 0, "a buffer with a skipped front cannot be {what}: reset it first");
        assert!(!self.is_list(), "a list cannot be {what}");
    }
}

impl Drop for Buffer {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: nothing uses it any more, because the buffer ends here.
        BufferDescriptor::give_back(unsafe { ManuallyDrop::take(&mut self.descriptor) });
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({} bytes)", self.descriptor.len)
    }
}

/// Buffers are equal where their views have equal bytes.
impl PartialEq for Buffer {
    fn eq(&self, other: &Self) -> bool {
        let bytes = |buffer: &Self| {
            let mut bytes = vec![0; buffer.descriptor.len];
            buffer.copy_out(0, &mut bytes);
            bytes
        };
        if self.has_view() && other.has_view() { **self == **other } else { bytes(self) == bytes(other) }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::BTreeMap;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use proptest::prelude::*;

    use super::*;

    const SIZE: usize = 1 << 16;

    /// Bytes that differ from line to line.
    pub(super) fn pattern(len: usize) -> Vec<u8> {
        (0..len).map(|at| (at * 7 + at / 64) as u8).collect()
    }

    fn filled(arena: &Arc<Arena>, len: usize) -> Buffer {
        let mut buffer = arena.buffer(len).expect("room");
        buffer.copy_from_slice(&pattern(len));
        buffer
    }

    fn is_whole(arena: &Arena) -> bool {
        *arena.ranges() == BTreeMap::from([(0, SIZE)])
    }

    pub(super) fn panics(action: impl FnOnce()) -> bool {
        catch_unwind(AssertUnwindSafe(action)).is_err()
    }

    #[test]
    fn a_cut_divides_room_and_view_and_a_join_undoes_it() {
        let arena = Arena::new(SIZE).expect("memory");
        for (len, at) in [(256, 0), (256, 64), (256, 256), (5000, 4096), (5000, 4992), (5000, 5056), (5000, 8192)] {
            let mut front = filled(&arena, len);
            let whole = front.capacity();
            let rest = front.split_off(at);
            assert_eq!((front.capacity(), rest.capacity()), (at, whole - at));
            assert_eq!([&*front, &*rest].concat(), pattern(len));
            front.set_len(at);
            front.join(rest).expect("they are neighbours");
            assert_eq!((front.capacity(), front.len()), (whole, len.max(at)));
            assert_eq!(front[..len], pattern(len));
            drop(front);
            assert!(is_whole(&arena), "{len} {at}");
        }
    }

    #[test]
    fn only_a_full_view_and_its_very_neighbour_are_joined() {
        let (arena, other) = (Arena::new(SIZE).expect("memory"), Arena::new(SIZE).expect("memory"));
        let mut front = filled(&arena, 192);
        let mut middle = front.split_off(64);
        let rest = middle.split_off(64);
        let rest = front.join(rest).expect_err("the middle is missing");
        let mut foreign = filled(&other, 128);
        let foreign = front.join(foreign.split_off(64)).expect_err("it is another mapping's");
        assert_eq!(*foreign, pattern(128)[64..]);
        front.set_len(63);
        let middle = front.join(middle).expect_err("a byte would be left out");
        front.set_len(64);
        front.join(middle).expect("it follows");
        front.join(rest).expect("it follows");
        assert_eq!(*front, pattern(192));
    }

    #[test]
    fn a_skipped_front_moves_the_view_and_not_the_room() {
        let arena = Arena::new(SIZE).expect("memory");
        let mut buffer = filled(&arena, 200);
        buffer.skip_front(14);
        buffer.skip_front(50);
        assert_eq!((&*buffer, buffer.capacity()), (&pattern(200)[64..], 256 - 64));
        buffer.set_len(buffer.capacity());
        assert!(panics(|| buffer.set_len(193)));
        assert!(panics(|| buffer.skip_front(193)));
        buffer.skip_front(192);
        assert!(buffer.is_empty() && buffer.capacity() == 0);
        assert_eq!(arena.free_bytes(), SIZE - 256);
        buffer.reset();
        assert_eq!((&buffer[..200], buffer.len(), buffer.capacity()), (&*pattern(200), 256, 256));
        buffer.skip_front(100);
        drop(buffer);
        assert!(is_whole(&arena));
    }

    /// Adopts `bytes`, which the test does not touch meanwhile.
    fn adopted(bytes: &mut [u8], number: u32) -> Buffer {
        let (start, len) = (NonNull::from(&mut *bytes).cast(), bytes.len());
        // SAFETY: the tests drop every buffer before they look at `bytes` again, which outlive it.
        Buffer::of_user(unsafe { UserMemory::new(start, len) }, number, None)
    }

    #[test]
    fn the_applications_memory_is_cut_and_joined_like_an_arenas_and_stays_where_it_is() {
        let mut bytes = pattern(1000);
        let at = bytes.as_ptr();
        let mut front = adopted(&mut bytes, 1);
        assert!(front.is_users() && front.as_ptr() == at);
        assert_eq!((front.len(), front.capacity(), front.registration()), (1000, 1000, None));
        let mut rest = front.split_off(128);
        let last = rest.split_off(832);
        assert_eq!((front.len(), rest.len(), last.len()), (128, 832, 40));
        rest.fill(7);
        rest.join(last).expect("it follows");
        front.join(rest).expect("it follows");
        front.skip_front(127);
        assert_eq!(front[..2], [pattern(128)[127], 7]);
        front.reset();
        drop(front);
        assert_eq!([&bytes[..128], &bytes[960..]], [&pattern(1000)[..128], &pattern(1000)[960..]]);
        assert!(bytes[128..960].iter().all(|&byte| byte == 7));
    }

    #[test]
    fn memory_of_different_calls_is_not_joined_even_where_it_touches() {
        let mut bytes = pattern(256);
        let (left, right) = bytes.split_at_mut(128);
        let mut front = adopted(left, 1);
        let next = front.join(adopted(right, 2)).expect_err("it was adopted by another call");
        let arena = Arena::new(SIZE).expect("memory");
        let ours = front.join(arena.buffer(64).expect("room")).expect_err("it is an arena's");
        assert!(!ours.is_users() && next.is_users());
    }

    #[test]
    fn empty_memory_can_be_adopted() {
        let mut empty = adopted(&mut [], 1);
        assert!(empty.is_empty() && empty.capacity() == 0);
        empty.reset();
        let rest = empty.split_off(0);
        empty.join(rest).expect("nothing follows nothing");
    }

    #[test]
    fn misuse_of_pieces_panics_and_loses_nothing() {
        let arena = Arena::new(SIZE).expect("memory");
        let mut buffer = filled(&arena, 256);
        assert!(panics(|| drop(buffer.split_off(65))));
        assert!(panics(|| drop(buffer.split_off(320))));
        let mut rest = buffer.split_off(128);
        buffer.skip_front(1);
        assert!(panics(|| drop(buffer.split_off(64))));
        rest.skip_front(1);
        buffer.reset();
        assert!(panics(|| drop(buffer.join(rest))));
        assert_eq!(*buffer, pattern(256)[..128]);
        drop(buffer);
        assert!(is_whole(&arena));
    }

    proptest! {
        /// The pieces stay in the order of their addresses, so that the model is a list of what each one must show.
        #[test]
        fn random_cuts_joins_and_drops_keep_bytes_and_return_everything(
            len in 1usize..6000,
            steps in proptest::collection::vec((0u8..4, any::<prop::sample::Index>(), 0usize..100), 1..60),
        ) {
            let arena = Arena::new(SIZE).expect("memory");
            let mut whole = arena.buffer(len).expect("room");
            whole.reset();
            let bytes = pattern(whole.len());
            whole.copy_from_slice(&bytes);
            let (base, mut owned) = (whole.descriptor.room_at.addr().get(), whole.descriptor.room);
            let mut pieces = vec![whole];
            for (what, index, amount) in steps {
                if pieces.is_empty() {
                    break;
                }
                let at = index.index(pieces.len());
                match what {
                    0 => {
                        let cut = (amount * LINE).min(pieces[at].descriptor.room);
                        let rest = pieces[at].split_off(cut);
                        pieces.insert(at + 1, rest);
                    }
                    1 if at + 1 < pieces.len() => {
                        let next = pieces.remove(at + 1);
                        let (piece, behind) = (&pieces[at].descriptor, &next.descriptor);
                        let follows = piece.room_at.addr().get() + piece.room == behind.room_at.addr().get();
                        let refused = pieces[at].join(next).err();
                        prop_assert_eq!(refused.is_none(), follows);
                        pieces.extend(refused);
                        pieces.sort_by_key(|piece| (piece.descriptor.room_at, piece.descriptor.room));
                    }
                    2 => owned -= pieces.remove(at).descriptor.room,
                    _ => {
                        let count = amount.min(pieces[at].len());
                        pieces[at].skip_front(count);
                        prop_assert_eq!(pieces[at].capacity() + count, pieces[at].descriptor.room);
                        pieces[at].reset();
                    }
                }
                prop_assert_eq!(arena.free_bytes(), SIZE - owned);
                for piece in &pieces {
                    let from = piece.descriptor.room_at.addr().get() - base;
                    prop_assert_eq!(&**piece, &bytes[from..from + piece.descriptor.room]);
                }
            }
            drop(pieces);
            prop_assert!(is_whole(&arena));
        }
    }
}
