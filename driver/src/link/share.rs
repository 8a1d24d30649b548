//! Queue pair numbers that say which queue of a port they belong to.
//!
//! Where several engines share a port, each has a queue of its own, and the leading bits of a queue pair's number are the
//! number of that queue. So any engine that receives a frame computes its owner and looks nothing up.

use roci_protocol::Qpn;

/// Queues of one port that engines may share.
pub const MAX_QUEUES: u16 = 8;
/// Bits of a queue pair's number.
const QPN_BITS: u32 = 24;

/// One engine's part of the queue pair numbers of a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Share {
    queue: u16,
    bits: u32,
}

impl Share {
    /// All numbers: the port has one queue.
    pub const WHOLE: Self = Self { queue: 0, bits: 0 };

    /// The part of `queue` where there are `queues` of them.
    ///
    /// # Panics
    /// When there is no such queue, or when there are more than [`MAX_QUEUES`].
    pub const fn of(queue: u16, queues: u16) -> Self {
        assert!(queue < queues && queues <= MAX_QUEUES);
        Self { queue, bits: bits_for(queues) }
    }

    /// How many leading bits of a number name the queue.
    pub const fn bits(self) -> u32 {
        self.bits
    }

    /// The queue.
    pub const fn queue(self) -> u16 {
        self.queue
    }

    /// The queue that a number names, which need not exist: numbers come from the wire.
    #[inline]
    pub const fn owner(self, qpn: Qpn) -> u16 {
        (qpn.get() >> (QPN_BITS - self.bits)) as u16
    }
}

/// Bits that tell so many queues apart.
const fn bits_for(queues: u16) -> u32 {
    u16::BITS - (queues - 1).leading_zeros()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_few_bits_as_tell_the_queues_apart() {
        let bits = [1, 2, 3, 4, 5, 8].map(|queues| Share::of(0, queues).bits());
        assert_eq!(bits, [0, 1, 2, 2, 3, 3]);
        assert_eq!(Share::of(0, 1), Share::WHOLE);
    }

    #[test]
    fn any_number_names_a_queue_by_its_leading_bits() {
        assert_eq!(Share::WHOLE.owner(Qpn::new(0xff_ffff)), 0);
        let share = Share::of(1, 3);
        let owners = [0, 0x3f_ffff, 0x40_0000, 0x80_0001, 0xff_ffff].map(|qpn| share.owner(Qpn::new(qpn)));
        assert_eq!(owners, [0, 0, 1, 2, 3]);
    }
}
