//! IPv4 identifications that senders count up, as Linux does for a connected socket.
//!
//! A link over sockets does not show them, so for a peer of this stack they are known to be right by their place alone: each is near that
//! of the sender's packet before. What is damaged on its way passes for such a packet once in 2^32 / [`NEAR`] times, and not once in
//! 65,536 as where any identification may be right.

use roci_protocol::wire::inflow::SenderV4;

use crate::link::TRAIN;

/// Senders that are remembered; of two that fall into one place the last is.
const SENDERS: usize = 256;
/// How far one is from that of the packet before at most: packets between them were lost, or have been overtaken by so many.
const NEAR: u16 = 4096;
const BEHIND: u16 = 256;

/// What speaks for a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum IcrcCheck {
    /// Its ICRC is right.
    Right,
    /// Its ICRC is right for an identification that is as likely as any other.
    Possible,
    /// It has no ICRC, by agreement.
    LeftOut,
}

/// The last identification of each sender.
pub(super) struct Identifications(Box<[Option<LastOf>; SENDERS]>);

#[derive(Clone, Copy)]
struct LastOf {
    sender: SenderV4,
    last: u16,
}

impl Identifications {
    pub(super) fn new() -> Self {
        Self(Box::new([None; SENDERS]))
    }

    /// Judges the identification that a packet's ICRC was made with; `None` where it can only be damage.
    #[inline]
    pub(super) fn check(&mut self, is_of_this_stack: bool, sender: SenderV4, id: u16) -> Option<IcrcCheck> {
        if !is_of_this_stack {
            return Some(IcrcCheck::Possible);
        }
        match self.distance(sender, id) {
            Some(distance) if distance < NEAR => {}
            _ if id < TRAIN => return Some(IcrcCheck::Possible),
            Some(_) => return None,
            // Who is not known may begin anywhere.
            None => {}
        }
        self.note(sender, id);
        Some(IcrcCheck::Right)
    }

    /// The same. What is taken for damage may be a sender that begins anew: its next packets follow this one.
    pub(super) fn check_or_begin_anew(
        &mut self,
        is_of_this_stack: bool,
        sender: SenderV4,
        id: u16,
    ) -> Option<IcrcCheck> {
        let check = self.check(is_of_this_stack, sender, id);
        if check.is_none() {
            self.note(sender, id);
        }
        check
    }

    /// How far an identification is from the furthest that may be [`BEHIND`] the sender's last one; `None` where that is not known.
    #[inline]
    fn distance(&self, sender: SenderV4, id: u16) -> Option<u16> {
        let of_sender = self.0[place(sender)].filter(|last_of| last_of.sender == sender);
        of_sender.map(|last_of| id.wrapping_sub(last_of.last).wrapping_add(BEHIND))
    }

    /// Remembers a sender's last identification.
    #[inline]
    fn note(&mut self, sender: SenderV4, id: u16) {
        self.0[place(sender)] = Some(LastOf { sender, last: id });
    }
}

/// Addresses of a network, and ports of a host, are spread over all places.
#[inline]
const fn place(sender: SenderV4) -> usize {
    (sender.get().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - SENDERS.ilog2())) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    const SENDER: SenderV4 = sender(7);

    const fn sender(port: u16) -> SenderV4 {
        SenderV4::new(std::net::Ipv4Addr::LOCALHOST, port)
    }

    fn follows(known: &Identifications, sender: SenderV4, id: u16) -> bool {
        known.distance(sender, id).is_none_or(|distance| distance < NEAR)
    }

    #[test]
    fn what_is_near_the_last_one_follows_it_on_both_sides_and_around_the_end() {
        let mut known = Identifications::new();
        for last in [0, 1000, u16::MAX - 3] {
            known.note(SENDER, last);
            let is_next = |ahead: u16| follows(&known, SENDER, last.wrapping_add(ahead));
            assert!([0, 1, 63, NEAR - BEHIND - 1, 0_u16.wrapping_sub(BEHIND)].into_iter().all(is_next));
            assert!(![NEAR - BEHIND, 0x8000, 0_u16.wrapping_sub(BEHIND + 1)].into_iter().any(is_next));
            let likely = (0..=u16::MAX).filter(|&id| follows(&known, SENDER, id)).count();
            assert_eq!(likely, usize::from(NEAR));
        }
    }

    #[test]
    fn each_sender_has_its_own_and_one_that_is_not_known_may_begin_anywhere() {
        let mut known = Identifications::new();
        let last = sender(100);
        let senders = (1..100).map(sender).filter(|&sender| place(sender) != place(last));
        for sender in senders.clone() {
            assert!(follows(&known, sender, 40_000));
            known.note(sender, 40_000);
        }
        known.note(last, 5);
        assert!(!follows(&known, last, 40_000) && follows(&known, last, 6));
        assert!(senders.clone().count() > 90 && senders.filter(|&sender| !follows(&known, sender, 5)).count() > 60);
    }

    #[test]
    fn a_sender_may_begin_anew_and_then_follows_itself() {
        let mut known = Identifications::new();
        let counted = Some(IcrcCheck::Right);
        assert_eq!([100, 101].map(|id| known.check_or_begin_anew(true, SENDER, id)), [counted; 2]);
        assert_eq!(
            [known.check(true, SENDER, 30_000), known.check(true, SENDER, 30_000)],
            [None; 2],
            "a look changes nothing"
        );
        assert_eq!([30_000, 30_001, 102].map(|id| known.check_or_begin_anew(true, SENDER, id)), [None, counted, None]);
    }

    #[test]
    fn another_stack_may_write_anything_and_the_place_in_a_train_is_no_count() {
        let mut known = Identifications::new();
        let possible = Some(IcrcCheck::Possible);
        assert_eq!([100, 50_000, 100].map(|id| known.check(false, SENDER, id)), [possible; 3]);
        assert_eq!(
            [20_000, 1, TRAIN - 1, 20_001].map(|id| known.check(true, SENDER, id) == possible),
            [false, true, true, false]
        );
    }
}
