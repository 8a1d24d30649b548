//! End-to-end credits (IBTA 9.7.7.2): the receives that the peer has posted, coded into every acknowledgement.
//! The messaging core counts its own credits, by message, and switches these off (`msgcore/src/core/credits.rs`).

use crate::Msn;
use crate::wire::aeth::CREDIT_UNLIMITED;

/// How many receives each code stands for (IBTA table 44).
const CODES: [u32; 31] = [
    0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144,
    8192, 12_288, 16_384, 24_576, 32_768,
];
const _: () = assert!(CODES.len() == CREDIT_UNLIMITED as usize);

/// The largest code that does not promise more than `receives`.
pub(super) fn code_of(receives: usize) -> u8 {
    (CODES.partition_point(|&count| count as usize <= receives) - 1) as u8
}

/// How far the peer's receives reach, as a requester sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Limit {
    /// The peer does not count (it shares receives among queue pairs, or does not take part), or credits were not asked
    /// for.
    Unlimited,
    /// The last message for which a receive is posted: IBTA's limit sequence number.
    Until(Msn),
}

impl Limit {
    /// Hears an acknowledgement's message number and credit code. Once unlimited, always unlimited.
    #[inline]
    pub(super) fn hear(&mut self, msn: Msn, code: u8) {
        let Self::Until(limit) = *self else { return };
        *self = match CODES.get(usize::from(code)) {
            None => Self::Unlimited,
            Some(&count) => {
                let advertised = Msn::new(msn.get().wrapping_add(count));
                Self::Until(if advertised.since(limit) > 0 { advertised } else { limit })
            }
        };
    }

    /// Whether message `ssn` may start. One message beyond the limit may: it asks, and is answered by an
    /// acknowledgement with fresh credits or by an RNR NAK.
    #[inline]
    pub(super) fn allows(self, ssn: Msn) -> bool {
        match self {
            Self::Unlimited => true,
            Self::Until(limit) => ssn.since(limit) <= 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credit_codes_round_down() {
        assert_eq!([0, 1, 5, 6, 7, 32_767, 1 << 20].map(code_of), [0, 1, 4, 5, 5, 29, 30]);
    }

    #[test]
    fn a_limit_rises_and_allows_one_message_beyond_it() {
        let mut limit = Limit::Until(Msn::new(0));
        assert!(limit.allows(Msn::new(1)) && !limit.allows(Msn::new(2)));
        limit.hear(Msn::new(1), 2);
        assert!(limit.allows(Msn::new(4)) && !limit.allows(Msn::new(5)));
        limit.hear(Msn::new(1), 0);
        assert_eq!(limit, Limit::Until(Msn::new(3)), "an older word takes nothing back");
        limit.hear(Msn::new(2), CREDIT_UNLIMITED);
        limit.hear(Msn::new(2), 0);
        assert_eq!(limit, Limit::Unlimited);
    }

    #[test]
    fn limits_work_across_the_wrap() {
        let mut limit = Limit::Until(Msn::new(0xff_ffff));
        limit.hear(Msn::new(0xff_ffff), 4);
        assert!(limit.allows(Msn::new(4)) && !limit.allows(Msn::new(5)));
    }
}
