//! Memory that stays: what `mem` promises and a link relies on, without the two knowing each other.

/// Memory that a device may read from for as long as its owner is kept.
///
/// # Safety
/// From [`Lasting::base`] on [`Lasting::len`] bytes are mapped and readable, at the same place, until the value is
/// dropped, whatever else is done with it. They may be written meanwhile: a reader takes what it finds for bytes and
/// for nothing more.
pub unsafe trait Lasting: Send + Sync {
    /// Where it begins.
    fn base(&self) -> *const u8;

    /// How many bytes there are.
    fn len(&self) -> usize;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes that are contiguous in physical memory, at least: base and length are multiples.
    fn page_size(&self) -> usize;

    /// Whether its pages keep their place in physical memory and are never swapped.
    fn is_pinned(&self) -> bool;
}
