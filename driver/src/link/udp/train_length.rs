//! How long the packets of the next train are foreseen to be: as long as those of the last one.

use super::rx_room::LEAST_PIECE;
use super::socket::RxMessage;

/// Messages of one packet, after the last train, until no train is foreseen: to receive into many pieces takes longer.
const ALONE: u32 = 8;

/// How long the packets of the last train were: those of the next one are foreseen to be as long.
#[derive(Debug, Default)]
pub(super) struct TrainLength {
    segment: usize,
    /// Messages of one packet since.
    alone: u32,
}

impl TrainLength {
    /// Returns how long packets are foreseen to be; 0 where no train of such a length is that pieces are worth it.
    #[inline]
    pub(super) const fn foreseen(&self) -> usize {
        self.segment
    }

    /// Notes what has come.
    #[inline]
    pub(super) fn note(&mut self, messages: &[RxMessage]) {
        for message in messages {
            if message.len > message.segment {
                let is_worth_it = message.segment >= LEAST_PIECE;
                *self = Self { segment: if is_worth_it { message.segment } else { 0 }, alone: 0 };
            } else if self.segment > 0 {
                self.alone += 1;
                if self.alone == ALONE {
                    *self = Self::default();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(len: usize, segment: usize) -> RxMessage {
        RxMessage { from: ([127, 0, 0, 1], 1).into(), len, segment, spread: 0, traffic_class: 0 }
    }

    #[test]
    fn a_train_is_foreseen_until_packets_come_alone() {
        let mut trains = TrainLength::default();
        trains.note(&[message(5_000, 5_000), message(60_000, LEAST_PIECE - 1)]);
        assert_eq!(trains.foreseen(), 0);
        trains.note(&[message(9_000, 4_500), message(20_000, 8_000), message(70, 70)]);
        assert_eq!(trains.foreseen(), 8_000, "the last train");
        trains.note(&[message(70, 70); 6]);
        trains.note(&[]);
        assert_eq!(trains.foreseen(), 8_000);
        trains.note(&[message(70, 70)]);
        assert_eq!(trains.foreseen(), 0);
        trains.note(&[message(9_000, 4_500), message(3_000, 1_000)]);
        assert_eq!(trains.foreseen(), 0, "short packets");
    }
}
