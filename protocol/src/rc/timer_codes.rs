//! The codes of two times of IBTA: of RNR NAKs (how long to wait) and of the local ACK timeout. The retransmission timeout that
//! is used between two of our ends is in `rtt`.

use crate::Nanos;

/// Timer codes of RNR NAKs in units of 10 us (IBTA table 45).
const RNR_10US: [u32; 32] = [
    65_536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096,
    6144, 8192, 12_288, 16_384, 24_576, 32_768, 49_152,
];

/// The wait that an RNR timer code asks for; only the low five bits count.
pub const fn rnr_timer_ns(code: u8) -> Nanos {
    RNR_10US[(code & 31) as usize] as Nanos * 10_000
}

/// The local ACK timeout of a code: 4.096 us times 2^code; code 0 means no timeout (IBTA 9.7.6.1.3).
pub const fn ack_timeout_ns(code: u8) -> Nanos {
    if code == 0 { 0 } else { 4096 << (code & 31) }
}

/// The shortest timeout code that is no shorter than `ns`, at most 31; 0 for "no timeout".
pub const fn ack_timeout_code(ns: Nanos) -> u8 {
    let mut code = 0;
    while ns > 0 && code < 31 && ack_timeout_ns(code) < ns {
        code += 1;
    }
    code
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coded_times_are_those_of_ibta() {
        assert_eq!(rnr_timer_ns(0), 655_360_000);
        assert_eq!(rnr_timer_ns(1), 10_000);
        assert_eq!(rnr_timer_ns(14), 1_280_000);
        assert_eq!(rnr_timer_ns(25), 61_440_000);
        assert_eq!(rnr_timer_ns(31), 491_520_000);
        assert_eq!(rnr_timer_ns(32 + 1), 10_000);
        assert_eq!(ack_timeout_ns(0), 0);
        assert_eq!(ack_timeout_ns(14), 67_108_864);
        assert_eq!([0, 1, 67_108_864, 67_108_865, u64::MAX].map(ack_timeout_code), [0, 1, 14, 15, 31]);
    }
}
