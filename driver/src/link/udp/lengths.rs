//! How long frames may be: what was asked for, what the interface carries, and what a path is known to carry.

use std::net::IpAddr;

use roci_protocol::Nanos;
use roci_protocol::wire::ethernet;

use crate::link::dpdk::device::JUMBO_FRAME;

/// The shortest packets that a path may be limited to: a path MTU of 256 bytes fits them (IPv4's own least is 576, RFC 791).
pub(super) const LEAST_MTU: usize = 576;
/// How long what a path carries is believed (RFC 1191, 6.3).
const PATH_NS: Nanos = 600_000_000_000;
/// Time between two looks at an interface that carries less than it did: when it carries more again nothing says so.
const INTERFACE_NS: Nanos = 1_000_000_000;

/// How long frames may be.
pub(super) struct Lengths {
    /// What was asked for, and no device carries more.
    asked: usize,
    interface: usize,
    /// The most that the interface has carried.
    widest: usize,
    /// When to look at the interface again, if it carries less.
    next_look: Nanos,
    /// What a path carries, and until when that is believed.
    path: Option<(usize, Nanos)>,
    /// The way that was last found to carry less than the interface, and how much.
    narrow_way: Option<(IpAddr, usize)>,
}

impl Lengths {
    pub(super) fn new(asked: Option<u16>, interface: usize) -> Self {
        let asked = asked.map_or(usize::MAX, |mtu| ethernet::LEN + usize::from(mtu)).min(JUMBO_FRAME);
        let interface = ethernet::LEN + interface;
        Self { asked, interface, widest: interface, next_look: 0, path: None, narrow_way: None }
    }

    /// Whether the interface carries less than it did, and was not looked at for a while.
    pub(super) fn are_to_be_looked_at(&mut self, now: Nanos) -> bool {
        let are_short = self.interface < self.widest.min(self.asked);
        let is_time = are_short && now >= self.next_look;
        if is_time {
            self.next_look = now + INTERFACE_NS;
        }
        is_time
    }

    pub(super) fn set_interface(&mut self, mtu: usize) {
        let was = std::mem::replace(&mut self.interface, ethernet::LEN + mtu);
        self.widest = self.widest.max(self.interface);
        if self.interface < was.min(self.asked) {
            tracing::warn!(
                "udp: the interface carries packets of {mtu} bytes now: longer ones of connections that are up are lost until it carries more"
            );
        }
    }

    /// The longest frame.
    pub(super) fn most(&self) -> usize {
        let path = self.path.map_or(usize::MAX, |(len, _)| len);
        self.asked.min(self.interface).min(path)
    }

    /// The longest frame over a way that carries packets of so many bytes.
    pub(super) fn most_over(&self, mtu: usize) -> usize {
        self.most().min(ethernet::LEN.saturating_add(mtu.max(LEAST_MTU)))
    }

    /// The kernel has refused a packet to an address: it was longer than the interface carries, or the way there.
    pub(super) fn note_way(&mut self, to: IpAddr, mtu: usize) {
        if ethernet::LEN.saturating_add(mtu) < self.interface && self.narrow_way != Some((to, mtu)) {
            self.narrow_way = Some((to, mtu));
            tracing::warn!(
                "udp: the way to {to} carries packets of {mtu} bytes: longer ones of connections that are up are lost until it carries more"
            );
        }
    }

    /// A path carries packets of so many bytes. That is looked for again after a while, as the kernel does.
    pub(super) fn shorten(&mut self, now: Nanos, mtu: usize) {
        let len = ethernet::LEN + mtu.max(LEAST_MTU);
        if len < self.most() {
            tracing::warn!(
                "udp: a path carries packets of {mtu} bytes: connections made in the next 10 minutes keep to that; a longer packet of one that is up is lost, and where nothing changes that, ROCI_PORT_MTU={mtu} does"
            );
            self.path = Some((len, now + PATH_NS));
        }
    }

    pub(super) fn forget_old(&mut self, now: Nanos) {
        self.path = self.path.filter(|&(_, until)| now < until);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_as_long_as_asked_for_or_as_the_interface_carries() {
        let most = |asked, interface| Lengths::new(asked, interface).most();
        assert_eq!(
            [most(None, 1500), most(None, 65_536), most(Some(1500), 9000), most(Some(9000), 1500)],
            [1514, 9216, 1514, 1514]
        );
        let mut lengths = Lengths::new(None, 9000);
        lengths.set_interface(1500);
        assert_eq!(lengths.most(), 1514);
    }

    #[test]
    fn an_interface_that_carries_less_is_looked_at_now_and_then_until_it_carries_as_much_as_it_did() {
        let looks = |lengths: &mut Lengths, seconds: Nanos| {
            let times = (0..seconds * 10).map(|tenth| tenth * INTERFACE_NS / 10);
            times.filter(|&now| lengths.are_to_be_looked_at(now)).count()
        };
        let mut lengths = Lengths::new(Some(9000), 65_536);
        assert_eq!(looks(&mut lengths, 10), 0);
        lengths.set_interface(9000);
        assert_eq!(looks(&mut lengths, 10), 0, "more is not asked for");
        lengths.set_interface(1500);
        assert_eq!(looks(&mut lengths, 10), 10);
        lengths.set_interface(9000);
        assert_eq!((looks(&mut lengths, 30), lengths.most()), (0, 9014));
    }

    #[test]
    fn a_path_that_carries_less_is_remembered_for_ten_minutes_and_one_that_carries_more_is_no_news() {
        let mut lengths = Lengths::new(None, 1500);
        lengths.shorten(1, 9000);
        assert_eq!(lengths.most(), 1514);
        lengths.shorten(1, 1280);
        lengths.forget_old(PATH_NS);
        assert_eq!(lengths.most(), 1294);
        lengths.forget_old(PATH_NS + 1);
        assert_eq!(lengths.most(), 1514);
        lengths.shorten(0, 0);
        assert_eq!(lengths.most(), 14 + LEAST_MTU, "no packet of a connection's fits into less");
    }
}
