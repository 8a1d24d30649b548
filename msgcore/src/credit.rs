//! Credits: the receive buffers that a peer has posted for us, and those that we owe it.
//!
//! Both ends of a connection start with the same number. A message costs its sender one; its receiver gives
//! it back once the buffer is posted again, on the next message of its own or, when half of all credits wait
//! to be given back and there is nothing to send, in a message of nothing else. Such a message costs no credit:
//! each gives back at least half of all, so no more than [`RESERVE`] can be on their way, and as many more
//! buffers are posted.

/// Receive buffers beyond the credits, for messages that cost none.
pub(crate) const RESERVE: u16 = 4;

/// The account of one connection, kept by one of its ends.
#[derive(Debug)]
pub(crate) struct Credits {
    limit: u16,
    /// Messages that we may send.
    available: u16,
    /// Buffers posted again and not yet given back.
    owed: u16,
    /// Buffers kept back because memory for unexpected messages is short.
    withheld: u16,
}

impl Credits {
    pub(crate) fn new(limit: u16) -> Self {
        assert!(limit >= 2, "one credit cannot be given back before it is used");
        Self { limit, available: limit, owed: 0, withheld: 0 }
    }

    pub(crate) fn available(&self) -> u16 {
        self.available
    }

    /// Sends a message: spends a credit.
    pub(crate) fn spend(&mut self) {
        assert!(self.available > 0, "a message was sent without a credit");
        self.available -= 1;
    }

    /// The peer gave back `count`; `false` where it gives more than there are.
    #[must_use]
    pub(crate) fn receive(&mut self, count: u16) -> bool {
        match self.available.checked_add(count).filter(|&sum| sum <= self.limit) {
            Some(sum) => {
                self.available = sum;
                true
            }
            None => false,
        }
    }

    /// A buffer that cost the peer a credit is posted again; `false` where the peer had none to spend.
    #[must_use]
    pub(crate) fn reposted(&mut self, withhold: bool) -> bool {
        if self.owed + self.withheld == self.limit {
            return false;
        }
        if withhold {
            self.withheld += 1;
        } else {
            self.owed += 1;
        }
        true
    }

    /// Memory is free again: what was kept back can be given.
    pub(crate) fn release_withheld(&mut self) {
        self.owed += self.withheld;
        self.withheld = 0;
    }

    /// Whether the peer should hear even without a message to carry the news.
    pub(crate) fn is_return_due(&self) -> bool {
        self.owed >= self.limit / 2
    }

    /// Takes all that is owed, for a header.
    pub(crate) fn take_owed(&mut self) -> u16 {
        std::mem::take(&mut self.owed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two ends, messages and returns in flight, in every order that dice choose: nothing is lost, nobody starves,
    /// and the returns on their way never exceed the reserve.
    #[test]
    fn credits_are_conserved_and_the_reserve_suffices() {
        for limit in 2..40 {
            let mut sender = Credits::new(limit);
            let mut receiver = Credits::new(limit);
            let (mut messages, mut returns) = (0u16, Vec::new());
            let mut state = u64::from(limit);
            for _ in 0..10_000 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                match state >> 62 {
                    0 | 1 if sender.available() > 0 => {
                        sender.spend();
                        messages += 1;
                    }
                    2 if messages > 0 => {
                        messages -= 1;
                        assert!(receiver.reposted(false));
                        if receiver.is_return_due() {
                            returns.push(receiver.take_owed());
                        }
                    }
                    3 if !returns.is_empty() => assert!(sender.receive(returns.remove(0))),
                    _ => {}
                }
                assert!(returns.len() <= RESERVE.into(), "limit {limit}: {} returns in flight", returns.len());
                let in_flight: u16 = returns.iter().sum();
                assert_eq!(sender.available() + messages + receiver.owed + in_flight, limit);
                let stuck = sender.available() == 0 && messages == 0 && returns.is_empty();
                assert!(!stuck, "limit {limit}: the sender starves");
            }
        }
    }

    #[test]
    fn a_peer_cannot_give_more_than_there_is() {
        let mut credits = Credits::new(4);
        assert!(!credits.receive(1));
        credits.spend();
        assert!(credits.receive(1));
        assert!(!credits.receive(u16::MAX));
    }

    #[test]
    fn withheld_credits_are_given_later() {
        let mut credits = Credits::new(4);
        assert!((0..4).all(|_| credits.reposted(true)));
        assert!(!credits.reposted(false), "it sent more than it may");
        assert!(!credits.is_return_due());
        credits.release_withheld();
        assert!(credits.is_return_due());
        assert_eq!(credits.take_owed(), 4);
    }
}
