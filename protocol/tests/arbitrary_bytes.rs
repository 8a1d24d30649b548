//! Property tests of the wire: no bytes make it panic, and what it accepts it can say again.

use proptest::prelude::*;
use roci_protocol::wire::cm::{IP_CM_LEN, IpCm, Mad};
use roci_protocol::wire::{Frame, Headers, Opcode, Packet, icrc};

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = Frame::parse(&bytes).map(|frame| frame.verify_icrc());
        let _ = icrc::verify(&bytes);
        let _ = Packet::parse(&bytes).map(|packet| packet.to_string());
    }

    #[test]
    fn headers_survive_a_round_trip(mut bytes in proptest::collection::vec(any::<u8>(), 48), pick in any::<prop::sample::Index>()) {
        bytes[0] = *pick.get(Opcode::ALL) as u8;
        bytes[1] &= 0xf0; // transport version 0
        let (headers, rest) = Headers::parse(&bytes).expect("a known opcode with room for its headers");
        let mut again = vec![0; headers.wire_len()];
        prop_assert_eq!(headers.emit(&mut again), headers.wire_len());
        prop_assert_eq!(rest.len(), bytes.len() - headers.wire_len());
        prop_assert_eq!(&again[..], &bytes[..headers.wire_len()]);
    }

    #[test]
    fn management_datagrams_never_panic_and_survive_a_round_trip(
        mut bytes in proptest::collection::vec(any::<u8>(), 256),
        is_cm in any::<bool>(),
        attr_id in 0x0fu8..0x1c,
    ) {
        if is_cm {
            bytes[..4].copy_from_slice(&[1, 7, 2, 3]);
            bytes[16..18].copy_from_slice(&[0, attr_id]);
        }
        match Mad::parse(&bytes) {
            Ok(mad) => {
                prop_assert!(mad.to_string().starts_with(mad.message.name()));
                prop_assert_eq!(&mad.emit()[..], &bytes[..]);
            }
            Err(reason) => prop_assert!(!is_cm || !(0x10..=0x1a).contains(&attr_id), "{}", reason),
        }
    }

    #[test]
    fn addressing_headers_never_panic_and_survive_a_round_trip(
        mut bytes in proptest::collection::vec(any::<u8>(), 0..100),
        ip_version in prop::sample::select(vec![None, Some(4u8), Some(6)]),
    ) {
        if let (Some(ip_version), true) = (ip_version, bytes.len() >= IP_CM_LEN) {
            bytes[..2].copy_from_slice(&[0, ip_version << 4]);
            if ip_version == 4 {
                bytes[4..16].fill(0);
                bytes[20..32].fill(0);
            }
        }
        if let Ok((header, rest)) = IpCm::parse(&bytes) {
            let mut again = [0; IP_CM_LEN];
            header.emit(&mut again);
            prop_assert_eq!([&again[..], rest].concat(), bytes);
        } else {
            prop_assert!(ip_version.is_none() || bytes.len() < IP_CM_LEN);
        }
    }
}
