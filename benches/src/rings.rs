//! The rings between an application's thread and a dedicated worker's: commands one way, their ends the other.

use roci_driver::{Arena, Buffer};
use roci_msgcore::internals::CommandRings;

use crate::cq;

/// So many buffers, of an arena of their own.
pub fn buffers(count: usize) -> Vec<Buffer> {
    let arena = Arena::new(cq::ARENA).expect("memory");
    cq::buffers(&arena, count)
}

/// The application's side: a SEND of every buffer.
#[inline]
pub fn post(rings: &CommandRings, buffers: &mut Vec<Buffer>) {
    buffers.drain(..).for_each(|buffer| assert!(rings.send(buffer), "room for all"));
}

/// The engine's side: a command is taken, and has ended. `false` where none was there.
#[inline]
pub fn answer(rings: &CommandRings) -> bool {
    let command = rings.take();
    command.map(|buffer| assert!(rings.end(buffer), "room for all")).is_some()
}

/// The application's side: all ends that are there.
#[inline]
pub fn hear(rings: &CommandRings, buffers: &mut Vec<Buffer>) {
    buffers.extend(std::iter::from_fn(|| rings.hear()));
}

/// The rings with both sides on one thread, and a batch of buffers.
#[derive(Debug)]
pub struct Commands {
    rings: CommandRings,
    buffers: Vec<Buffer>,
}

impl Commands {
    /// For batches of this length.
    pub fn new(batch: usize) -> Self {
        Self { rings: CommandRings::default(), buffers: buffers(batch) }
    }

    /// A batch of SENDs through the ring of commands, and their ends back.
    #[inline]
    pub fn turn(&mut self) {
        post(&self.rings, &mut self.buffers);
        while answer(&self.rings) {}
        hear(&self.rings, &mut self.buffers);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_buffers_come_back() {
        let mut commands = Commands::new(16);
        (0..100).for_each(|_| commands.turn());
        assert_eq!(commands.buffers.len(), 16);
    }
}
