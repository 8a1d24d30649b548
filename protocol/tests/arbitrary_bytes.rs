//! Property tests of the wire: no bytes make it panic, and what it accepts it can say again.

use proptest::prelude::*;
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
}
