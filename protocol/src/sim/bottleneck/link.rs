//! The shared link: a queue of bytes, marks in the manner of RED, and random loss.

use rand::Rng;
use rand::rngs::StdRng;

use super::Bottleneck;
use crate::Nanos;
use crate::rc::congestion::Algorithm;

/// When a packet is marked (Floyd and Jacobson's RED, on the queue of the moment, as switches for DCQCN do).
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Marking {
    /// No mark while fewer bytes than this wait.
    pub k_min: u64,
    /// Every packet is marked once this many wait.
    pub k_max: u64,
    /// The probability of a mark just before that; between the two it rises in a line.
    pub p_max: f64,
}

impl Default for Marking {
    /// The DCQCN paper has 5 KB, 200 KB and 1 % for 40 Gb/s; a slower line wants a shorter and steeper slope.
    fn default() -> Self {
        Self { k_min: 5_000, k_max: 100_000, p_max: 0.1 }
    }
}

impl Marking {
    fn probability(&self, queue: u64) -> f64 {
        if queue <= self.k_min {
            0.0
        } else if queue >= self.k_max {
            1.0
        } else {
            self.p_max * (queue - self.k_min) as f64 / (self.k_max - self.k_min) as f64
        }
    }
}

/// What becomes of a packet.
pub(super) enum Passage {
    /// It leaves the link.
    Arrives {
        at: Nanos,
        is_marked: bool,
    },
    Dropped,
}

/// The link that all flows share.
pub(super) struct BottleneckLink {
    dice: StdRng,
    loss: f64,
    rate: u64,
    buffer: u64,
    /// `None` where packets may not be marked.
    marking: Option<Marking>,
    /// When everything that waits now will have left: the queue, as time.
    free_at: Nanos,
    pub(super) max_queue: u64,
    pub(super) overflows: u64,
    pub(super) lost: u64,
    pub(super) offered: u64,
}

impl BottleneckLink {
    pub(super) fn new(plan: &Bottleneck, dice: StdRng) -> Self {
        let may_mark = may_be_marked(plan.algorithm);
        Self {
            dice,
            loss: plan.loss,
            rate: plan.rate,
            buffer: plan.buffer,
            marking: may_mark.then_some(plan.marking),
            free_at: 0,
            max_queue: 0,
            overflows: 0,
            lost: 0,
            offered: 0,
        }
    }

    /// A packet of so many bytes arrives at the end of the queue.
    pub(super) fn pass(&mut self, now: Nanos, bytes: u64) -> Passage {
        self.offered += bytes;
        let queue = bytes_within(self.free_at.saturating_sub(now), self.rate);
        if queue + bytes > self.buffer {
            self.overflows += 1;
            return Passage::Dropped;
        }
        self.max_queue = self.max_queue.max(queue + bytes);
        self.free_at = self.free_at.max(now) + time_of(bytes, self.rate);
        let is_marked = self.marking.is_some_and(|marking| self.dice.random::<f64>() < marking.probability(queue));
        if self.dice.random::<f64>() < self.loss {
            self.lost += 1;
            return Passage::Dropped;
        }
        Passage::Arrives { at: self.free_at, is_marked }
    }
}

/// Whether the algorithm's packets say that they may be marked (RFC 3168: ECN-capable).
fn may_be_marked(algorithm: Algorithm) -> bool {
    algorithm.traffic_class(0) & 3 != 0
}

/// How long so many bytes take at a rate.
pub(super) fn time_of(bytes: u64, rate: u64) -> Nanos {
    bytes * 8_000_000_000 / rate
}

fn bytes_within(time: Nanos, rate: u64) -> u64 {
    time * (rate / 1_000_000) / 8_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_begin_rise_and_become_certain() {
        let marking = Marking { k_min: 1000, k_max: 3000, p_max: 0.5 };
        let percent = |queue| (marking.probability(queue) * 100.0) as u32;
        assert_eq!([0, 1000, 2000, 3000, 9000].map(percent), [0, 0, 25, 100, 100]);
    }

    #[test]
    fn a_time_and_its_bytes_agree() {
        assert_eq!(time_of(1250, 10_000_000_000), 1000);
        assert_eq!(bytes_within(1000, 10_000_000_000), 1250);
    }
}
