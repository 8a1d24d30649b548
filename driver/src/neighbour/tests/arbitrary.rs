//! Whatever arrives: no panic, one verdict, one counter.

use proptest::prelude::*;

use super::*;

fn valid() -> Vec<Vec<u8>> {
    vec![
        who_has("10.0.0.1", None),
        who_has("10.7.0.1", Some(7)),
        is_at(PEER, "10.0.0.2"),
        solicit("2001:db8::2", "ff02::1:ff00:1", "2001:db8::1", Some(PEER)),
        solicit("::", "ff02::1:ff00:1", "2001:db8::1", None),
        advertise("2001:db8::1", "2001:db8::2", Some(PEER), Flags::SOLICITED),
        ping4("10.0.0.1", b"some payload"),
        ping6("2001:db8::1", b"some payload"),
    ]
}

/// Ours, with questions open that any of the frames may answer.
fn curious() -> Neighbours {
    let mut us = ours();
    us.resolve(0, ip("10.0.0.2"), None);
    us.resolve(0, ip("2001:db8::2"), None);
    tick(&mut us, 0);
    us
}

fn counted(us: &mut Neighbours, frame: &[u8]) -> Result<(), TestCaseError> {
    let before = us.stats().frames();
    let (verdict, replies) = feed(us, 1, frame);
    prop_assert_eq!(us.stats().frames(), before + 1);
    prop_assert!(replies.len() <= 1);
    prop_assert!(replies.iter().all(|reply| reply.len() <= frame.len().max(90)));
    prop_assert!(replies.is_empty() || !matches!(verdict, NeighbourVerdict::Ignored(_)));
    Ok(())
}

/// Makes the checksums of an untagged frame right again, so that what is behind them is reached.
fn mend(frame: &mut [u8]) {
    let put = |frame: &mut [u8], at: usize, sum: u16| frame[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    if frame.len() >= 54 && frame[12..14] == [8, 0] {
        put(frame, 24, 0);
        put(frame, 24, checksum(&[&frame[14..34]]));
        put(frame, 36, 0);
        let end = usize::from(u16::from_be_bytes([frame[16], frame[17]])).saturating_add(14).clamp(34, frame.len());
        put(frame, 36, checksum(&[&frame[34..end]]));
    }
    if frame.len() >= 62 && frame[12..14] == [0x86, 0xdd] {
        put(frame, 56, 0);
        let len = usize::from(u16::from_be_bytes([frame[18], frame[19]])).min(frame.len() - 54);
        let sum = checksum(&[&frame[22..54], &frame[18..20], &[0, 58], &frame[54..54 + len]]);
        put(frame, 56, sum);
    }
}

#[test]
fn every_valid_frame_is_understood() {
    for frame in valid() {
        assert!(!matches!(feed(&mut curious(), 1, &frame).0, NeighbourVerdict::Ignored(_)), "{frame:02x?}");
        let mut mended = frame.clone();
        mend(&mut mended);
        assert_eq!(mended, frame);
    }
}

#[test]
fn a_frame_cut_anywhere_is_counted() {
    for frame in valid() {
        for len in 0..frame.len() {
            let mut us = curious();
            feed(&mut us, 1, &frame[..len]);
            assert_eq!(us.stats().frames(), 1);
        }
    }
}

proptest! {
    #[test]
    fn arbitrary_bytes_raise_one_counter(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        counted(&mut curious(), &bytes)?;
    }

    #[test]
    fn arbitrary_payloads_raise_one_counter(
        ethertype in prop::sample::select(vec![0x0806u16, 0x0800, 0x86dd, 0x8100]),
        bytes in proptest::collection::vec(any::<u8>(), 0..200),
    ) {
        let frame = [&OURS.0[..], &PEER.0, &ethertype.to_be_bytes(), &bytes].concat();
        counted(&mut curious(), &frame)?;
    }

    #[test]
    fn flipped_bits_raise_one_counter(
        pick in any::<prop::sample::Index>(),
        flips in proptest::collection::vec((any::<prop::sample::Index>(), 0u8..8), 1..5),
        is_mended in any::<bool>(),
    ) {
        let mut frame = pick.get(&valid()).clone();
        let len = frame.len();
        for (at, bit) in flips {
            frame[at.index(len)] ^= 1 << bit;
        }
        if is_mended {
            mend(&mut frame);
        }
        counted(&mut curious(), &frame)?;
    }
}
