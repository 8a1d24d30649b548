//! Vbufs: buffers of one size, made once and used for the worker's lifetime, for messages that wait to be sent, for
//! receives, and for messages that wait to be received.

use roci_driver::link::Link;
use roci_driver::{Buffer, Engine};

/// The arena cuts buffers in lines, and those of at least a page in pages.
const LINE: usize = 64;
const PAGE: usize = 4096;

/// The vbufs of one size.
#[derive(Debug)]
pub(crate) struct Pool {
    size: usize,
    free: Vec<Buffer>,
    /// Vbufs that exist, in here and out.
    made: usize,
    /// Vbufs that the application has, or has dropped: so many can come back.
    handed_out: usize,
    /// Vbufs made at once when there is none ...
    batch: usize,
    /// ... until so many exist.
    limit: usize,
}

impl Pool {
    /// An empty pool.
    pub(crate) fn new(size: usize, batch: usize, limit: usize) -> Self {
        Self { size, free: Vec::new(), made: 0, handed_out: 0, batch, limit }
    }

    /// Whether one can be taken without making others.
    #[inline]
    pub(crate) fn has_one(&self) -> bool {
        !self.free.is_empty()
    }

    /// A vbuf, whole; `None` where the limit is reached or the arena is full.
    #[inline]
    pub(crate) fn take<L: Link>(&mut self, engine: &Engine<L>) -> Option<Buffer> {
        if self.free.is_empty() {
            self.grow(engine);
        }
        self.free.pop()
    }

    /// A vbuf that is free, whole; none is made.
    pub(crate) fn take_free(&mut self) -> Option<Buffer> {
        self.free.pop()
    }

    /// Returns the bytes that are taken of the arena when the pool grows.
    pub(crate) fn growth(&self) -> usize {
        self.batch * self.room()
    }

    /// Makes sure that `count` can be taken, as far as that goes.
    pub(crate) fn provide<L: Link>(&mut self, engine: &Engine<L>, count: usize) -> bool {
        while self.free.len() < count && self.grow(engine) {}
        self.free.len() >= count
    }

    /// Makes sure that one can be taken, past the limit if need be, as far as the arena goes.
    pub(crate) fn provide_one(&mut self, engine: &Engine<impl Link>) -> bool {
        if !self.provide(engine, 1)
            && let Ok(mut vbuf) = engine.buffer(self.size)
        {
            vbuf.reset();
            self.free.push(vbuf);
            self.made += 1;
        }
        self.has_one()
    }

    /// Returns how many can be taken without making others.
    #[inline]
    pub(crate) fn free(&self) -> usize {
        self.free.len()
    }

    /// Takes a vbuf back.
    #[inline]
    pub(crate) fn give(&mut self, mut vbuf: Buffer) {
        vbuf.reset();
        // The receive for a peer's first message is shorter than a vbuf, and is not used again.
        if vbuf.len() >= self.size {
            self.free.push(vbuf);
        }
    }

    /// A vbuf will not come back: the application has it.
    pub(crate) fn forfeit(&mut self) {
        self.made -= 1;
        self.handed_out += 1;
    }

    /// A vbuf will not come back: it is gone with what was wrong with it.
    pub(crate) fn write_off(&mut self) {
        self.made -= 1;
    }

    /// A vbuf comes back that the application had.
    pub(crate) fn adopt(&mut self) {
        self.made += 1;
        self.handed_out -= 1;
    }

    /// Whether a buffer with so much room is as good as one of these that the application has. More are not wanted:
    /// whatever an application gives back would pile up here.
    pub(crate) fn is_its_own(&self, room: usize) -> bool {
        self.handed_out > 0 && room == self.room()
    }

    /// Bytes that one takes of the arena.
    fn room(&self) -> usize {
        let grain = if self.size < PAGE { LINE } else { PAGE };
        self.size.next_multiple_of(grain)
    }

    /// Vbufs that exist.
    pub(crate) fn made(&self) -> usize {
        self.made
    }

    /// Bytes of a vbuf.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// Bytes of the arena that they take.
    pub(crate) fn bytes(&self) -> usize {
        self.made * self.room()
    }

    /// Whether no more are in here than exist.
    pub(crate) fn is_sound(&self) -> bool {
        self.free.len() <= self.made
    }

    #[cold]
    fn grow<L: Link>(&mut self, engine: &Engine<L>) -> bool {
        let wanted = self.batch.min(self.limit - self.made.min(self.limit));
        let before = self.made;
        for _ in 0..wanted {
            let Ok(mut vbuf) = engine.buffer(self.size) else { break };
            vbuf.reset();
            self.free.push(vbuf);
            self.made += 1;
        }
        self.made > before
    }
}
