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
