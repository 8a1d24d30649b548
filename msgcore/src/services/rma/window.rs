//! A buffer of which one part after another is transferred.

use std::ops::Range;

use roci_driver::Buffer;

/// A buffer of which one part after another is transferred.
#[derive(Debug)]
pub(super) struct BufferWindow {
    /// Bytes before its view.
    front: usize,
    /// Bytes of its view.
    pub(super) len: usize,
}

impl BufferWindow {
    /// Whether a window can be moved over all of its view: not over a list, and not where a view may not begin.
    pub(super) fn fits(buffer: &mut Buffer) -> bool {
        if buffer.is_list() {
            return false;
        }
        let window = Self::of(buffer);
        u32::try_from(window.front + window.len).is_ok()
    }

    /// A window on all of its view.
    pub(super) fn of(buffer: &mut Buffer) -> Self {
        let (len, room) = (buffer.len(), buffer.capacity());
        buffer.reset();
        let window = Self { front: buffer.capacity() - room, len };
        window.show(buffer, 0..len);
        window
    }

    /// Makes a part of the view the view.
    pub(super) fn show(&self, buffer: &mut Buffer, part: Range<usize>) {
        assert!(part.end <= self.len, "{part:?} of {} bytes", self.len);
        buffer.reset();
        buffer.skip_front(self.front + part.start);
        buffer.set_len(part.len());
    }

    /// Makes the view what it was.
    pub(super) fn show_all(&self, buffer: &mut Buffer) {
        self.show(buffer, 0..self.len);
    }
}
