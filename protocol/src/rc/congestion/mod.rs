//! Congestion control: how many packets may be in flight, and when the next may leave.
//!
//! One trait, three controllers. [`Unlimited`] is for links with two stations; [`Dcqcn`] reacts to the marks of
//! switches, as RoCEv2 NICs do; [`Delay`] needs no marks, and measures the round trip.

mod dcqcn;
mod delay;
mod pacer;

pub use dcqcn::Dcqcn;
pub use delay::Delay;

use crate::Nanos;
use crate::rc::Config;

/// What a controller hears and says. All of it is called on the data path: no allocation, no division.
pub trait CongestionControl {
    /// Packets in flight, at most.
    fn window(&self) -> u32;

    /// The next packet may not leave before this time.
    fn release_at(&self) -> Nanos;

    /// A packet of so many bytes on the wire leaves.
    fn on_sent(&mut self, now: Nanos, bytes: usize);

    /// So many packets were acknowledged, with a round trip where one was measured.
    fn on_acknowledged(&mut self, now: Nanos, packets: u32, rtt: Option<Nanos>);

    /// The peer misses packets that others have overtaken.
    fn on_loss(&mut self, now: Nanos);

    /// Nothing was received for a timeout.
    fn on_silence(&mut self, now: Nanos);

    /// The peer says that a packet was marked on its way (IBTA A17.9.3: CNP).
    fn on_notification(&mut self, now: Nanos);
}

/// Which controller a queue pair uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Algorithm {
    /// None.
    #[default]
    Unlimited,
    /// DCQCN: marks of switches, echoed by the receiver.
    Dcqcn,
    /// The round trip's delay.
    Delay,
}

impl Algorithm {
    /// DSCP and ECN for the packets: only DCQCN wants switches to mark them (RFC 3168: ECT(0)).
    pub const fn traffic_class(self, class: u8) -> u8 {
        const ECT_0: u8 = 2;
        match self {
            Self::Dcqcn => class & !3 | ECT_0,
            Self::Unlimited | Self::Delay => class,
        }
    }
}

/// No control: for links that two share, where the peer's buffers are the limit.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unlimited;

impl CongestionControl for Unlimited {
    #[inline]
    fn window(&self) -> u32 {
        u32::MAX
    }

    #[inline]
    fn release_at(&self) -> Nanos {
        0
    }

    #[inline]
    fn on_sent(&mut self, _: Nanos, _: usize) {}

    #[inline]
    fn on_acknowledged(&mut self, _: Nanos, _: u32, _: Option<Nanos>) {}

    fn on_loss(&mut self, _: Nanos) {}

    fn on_silence(&mut self, _: Nanos) {}

    fn on_notification(&mut self, _: Nanos) {}
}

/// A controller that is chosen when the connection is made: a branch each, no call through a pointer.
#[derive(Clone, Debug)]
pub(super) enum Controller {
    Unlimited(Unlimited),
    Dcqcn(Box<Dcqcn>),
    Delay(Box<Delay>),
}

impl Controller {
    /// The controller that a queue pair is configured with.
    pub(super) fn new(config: &Config) -> Self {
        match config.congestion {
            Algorithm::Unlimited => Self::Unlimited(Unlimited),
            Algorithm::Dcqcn => Self::Dcqcn(Box::new(Dcqcn::new(config.link_rate))),
            Algorithm::Delay => Self::Delay(Box::new(Delay::new(config.window, config.mtu))),
        }
    }
}

impl Controller {
    /// Whether this side, where it reads, asks for no more than the path takes: then the responder does not space the
    /// answers. With marks it is the responder that learns of congestion.
    pub(super) const fn spaces_answers(&self) -> bool {
        matches!(self, Self::Delay(_))
    }
}

macro_rules! of_each {
    ($self:ident, $controller:ident => $call:expr) => {
        match $self {
            Controller::Unlimited($controller) => $call,
            Controller::Dcqcn($controller) => $call,
            Controller::Delay($controller) => $call,
        }
    };
}

impl CongestionControl for Controller {
    #[inline]
    fn window(&self) -> u32 {
        of_each!(self, controller => controller.window())
    }

    #[inline]
    fn release_at(&self) -> Nanos {
        of_each!(self, controller => controller.release_at())
    }

    #[inline]
    fn on_sent(&mut self, now: Nanos, bytes: usize) {
        of_each!(self, controller => controller.on_sent(now, bytes));
    }

    #[inline]
    fn on_acknowledged(&mut self, now: Nanos, packets: u32, rtt: Option<Nanos>) {
        of_each!(self, controller => controller.on_acknowledged(now, packets, rtt));
    }

    fn on_loss(&mut self, now: Nanos) {
        of_each!(self, controller => controller.on_loss(now));
    }

    fn on_silence(&mut self, now: Nanos) {
        of_each!(self, controller => controller.on_silence(now));
    }

    fn on_notification(&mut self, now: Nanos) {
        of_each!(self, controller => controller.on_notification(now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Mtu;

    #[test]
    fn only_dcqcn_asks_for_marks() {
        assert_eq!(Algorithm::Dcqcn.traffic_class(0b1010_0101), 0b1010_0110);
        assert_eq!(Algorithm::Dcqcn.traffic_class(0b1010_0111), 0b1010_0110);
        assert_eq!(Algorithm::Delay.traffic_class(0b1010_0101), 0b1010_0101);
        assert_eq!(Algorithm::Unlimited.traffic_class(0b1010_0101), 0b1010_0101);
    }

    /// Passes every kind of event to a controller; returns its window and its release time after each.
    fn story<C: CongestionControl>(control: &mut C) -> [(u32, Nanos); 6] {
        let steps: [fn(&mut C); 6] = [
            |control| control.on_acknowledged(1_000_000, 4, Some(20_000)),
            |control| control.on_sent(1_000_000, 4000),
            |control| {
                control.on_loss(1_100_000);
                control.on_sent(1_100_000, 4000);
            },
            |control| {
                control.on_silence(1_200_000);
                control.on_sent(1_200_000, 4000);
            },
            |control| {
                control.on_notification(1_300_000);
                control.on_sent(1_300_000, 4000);
            },
            |control| {
                control.on_acknowledged(9_000_000, 4, Some(20_000));
                control.on_sent(9_000_000, 4000);
            },
        ];
        steps.map(|step| {
            step(control);
            (control.window(), control.release_at())
        })
    }

    #[test]
    fn a_queue_pair_has_the_controller_that_it_is_configured_with() {
        let of = |congestion| {
            let (mtu, window, link_rate) = (Mtu::Mtu4096, 64, 8_000_000_000);
            Controller::new(&Config { mtu, window, congestion, link_rate, ..Config::default() })
        };
        assert_eq!(story(&mut of(Algorithm::Unlimited)), [(u32::MAX, 0); 6], "no limit");
        assert_eq!(story(&mut of(Algorithm::Dcqcn)), story(&mut Dcqcn::new(8_000_000_000)));
        assert_eq!(story(&mut of(Algorithm::Delay)), story(&mut Delay::new(64, Mtu::Mtu4096)));
        let spaces = [Algorithm::Unlimited, Algorithm::Dcqcn, Algorithm::Delay].map(|it| of(it).spaces_answers());
        assert_eq!(spaces, [false, false, true], "who sees the delay of what it reads");
    }
}
