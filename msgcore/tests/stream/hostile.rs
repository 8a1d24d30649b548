//! A peer that writes nonsense: a bare engine at the other end of the wire.

use roci_msgcore::stream::{StreamBreach, StreamConfig, StreamError};
use roci_msgcore::{Breach, OpError};

use super::pair::{SMALL, stream};
use super::scene::{CHUNK, Scene, announcement};

const DATA: u32 = 1 << 28;
const ANNOUNCEMENT: u32 = 2 << 28;
const TAIL: u32 = 3 << 28;
const BYTES: StreamConfig = StreamConfig { piggyback: false, ..SMALL };

#[test]
fn a_peer_that_writes_as_it_should_is_understood() {
    let mut scene = Scene::open(SMALL);
    scene.chunk(0, (0, 5, 0), b"right", DATA | 1);
    scene.talk();
    let mut bytes = [0; 9];
    assert_eq!(scene.victim.get(&mut bytes), Ok(5));
    assert_eq!(&bytes[..5], b"right");
    let mut scene = Scene::open(BYTES);
    let write = scene.write(scene.ring, 0, b"right");
    scene.post(write);
    scene.word(0, 5, DATA | 5);
    scene.talk();
    assert_eq!(scene.victim.get(&mut bytes), Ok(5));
    assert_eq!(&bytes[..5], b"right");
}

/// Two heads are executed before the victim looks: the word is newer than the first news of it.
#[test]
fn a_word_that_is_newer_than_its_news_is_no_offence() {
    let mut scene = Scene::open(BYTES);
    let write = scene.write(scene.ring, 0, b"onetwo");
    scene.post(write);
    scene.word(0, 3, DATA | 3);
    scene.word(0, 6, DATA | 6);
    scene.talk();
    let mut bytes = [0; 6];
    assert_eq!(scene.victim.get(&mut bytes), Ok(6));
    assert_eq!(&bytes, b"onetwo");
}

#[test]
fn an_offer_must_be_one_and_the_only_one() {
    let cut_short = |offer: &[u8]| offer[1..].to_vec();
    let other_magic = |offer: &[u8]| [&[0], &offer[1..]].concat();
    for spoil in [cut_short, other_magic, |_: &[u8]| Vec::new()] {
        let mut scene = Scene::silent(SMALL);
        let offer = scene.answer();
        scene.send_offer(&spoil(&offer));
        scene.expect(StreamBreach::Offer);
    }
    let mut scene = Scene::open(SMALL);
    let again = scene.answer();
    scene.send_offer(&again);
    scene.expect(StreamBreach::Offer);
}

/// A peer whose streams the application does not use may offer one, once; it takes no memory of the arena's.
#[test]
fn an_offer_that_comes_first_waits_for_the_application() {
    for is_repeated in [false, true] {
        let mut donor = Scene::silent(SMALL);
        let offer = donor.answer();
        let mut scene = Scene::connected(SMALL, &[]);
        let free = scene.victim.0.free_bytes();
        scene.send_offer(&offer);
        scene.talk();
        assert_eq!(scene.victim.0.free_bytes(), free);
        if is_repeated {
            scene.send_offer(&offer);
            scene.talk();
            assert!(!scene.victim.0.is_connected(1));
            let error = scene.victim.is_open().expect_err("the peer is gone");
            let breach = Breach::Stream(StreamBreach::Offer);
            assert_eq!(error, StreamError::Peer(OpError::PeerProtocol { peer: 1.into(), breach }));
        } else {
            assert_eq!(scene.victim.is_open(), Ok(true), "its own offer left at once");
        }
    }
}

#[test]
fn a_write_with_immediate_without_a_stream_is_refused() {
    let mut scene = Scene::connected(SMALL, &[]);
    let write = scene.write(roci_driver::Rkey(1), 0, b"");
    scene.post(write.with_imm(DATA | 1));
    scene.talk();
    let error = scene.victim.is_open().expect_err("the peer is gone");
    assert_eq!(error, StreamError::Peer(OpError::PeerProtocol { peer: 1.into(), breach: Breach::UnaskedWrite }));
}

/// More WRITEs with immediate than the peer has credits for, each of which changes nothing: all receives are posted again.
#[test]
fn a_flood_of_writes_changes_nothing() {
    let mut scene = Scene::open(SMALL);
    for _ in 0..20 {
        (0..10).for_each(|_| scene.word(8, 0, TAIL));
        scene.talk();
    }
    scene.victim.0.inside().check_invariants().expect("what must hold");
    scene.chunk(0, (0, 5, 0), b"right", DATA | 1);
    scene.talk();
    let mut bytes = [0; 9];
    assert_eq!(scene.victim.get(&mut bytes), Ok(5));
}

#[test]
fn news_before_the_offer_is_refused() {
    let mut scene = Scene::silent(SMALL);
    scene.chunk(0, (0, 5, 0), b"early", DATA | 1);
    scene.expect(StreamBreach::EarlyNews);
}

#[test]
fn immediate_data_without_meaning_is_refused() {
    for immediate in [0, 1, 0x0fff_ffff, 4 << 28, u32::MAX] {
        for config in [SMALL, BYTES] {
            let mut scene = Scene::open(config);
            scene.chunk(0, (0, 5, 0), b"wrong", immediate);
            scene.expect(StreamBreach::Immediate(immediate));
        }
    }
}

#[test]
fn a_head_that_stands_still_or_jumps_is_refused() {
    let room = (SMALL.ring / CHUNK) as u64;
    for (position, advance) in [(0, 0), (2, 2), (17, 17), (0x0fff_ffff, 0x0fff_ffff)] {
        let mut scene = Scene::open(SMALL);
        scene.chunk(0, (0, 5, 0), b"wrong", DATA | position);
        scene.expect(StreamBreach::Head { advance, room });
    }
    let room = SMALL.ring as u64;
    for (position, advance) in [(0, 0), (0x8001, 0x8001), (0x0fff_ffff, 0x0fff_ffff)] {
        let mut scene = Scene::open(BYTES);
        scene.word(0, advance, DATA | position);
        scene.expect(StreamBreach::Head { advance, room });
    }
}

#[test]
fn more_chunks_than_the_ring_has_are_refused() {
    let mut scene = Scene::open(SMALL);
    let slots = (SMALL.ring / CHUNK) as u32;
    for number in 0..slots {
        scene.chunk(number as usize, (number, 1, 0), b"x", DATA | (number + 1));
    }
    scene.talk();
    assert_eq!(scene.victim.is_open(), Ok(true), "the ring is full, and that is all");
    scene.chunk(0, (slots, 1, 0), b"x", DATA | (slots + 1));
    scene.talk();
    let breach = StreamBreach::Head { advance: 1, room: 0 };
    assert_eq!(
        scene.victim.put(b"x"),
        Err(StreamError::Peer(OpError::PeerProtocol { peer: 1.into(), breach: breach.into() }))
    );
}

#[test]
fn a_head_that_disagrees_with_its_news_is_refused() {
    for word in [0, 4, SMALL.ring as u64 + 1, u64::MAX] {
        let mut scene = Scene::open(BYTES);
        scene.word(0, word, DATA | 5);
        scene.expect(StreamBreach::HeadWord(word));
    }
}

#[test]
fn a_notice_that_is_no_word_is_refused() {
    for (immediate, at) in [(DATA | 5, 0), (TAIL, 8)] {
        let mut scene = Scene::open(BYTES);
        let write = scene.write(scene.words, at, b"short");
        scene.post(write.with_imm(immediate));
        scene.expect(StreamBreach::Word(5));
    }
}

#[test]
fn a_tail_beyond_what_was_sent_is_refused() {
    for config in [SMALL, BYTES] {
        for (word, position) in [(1, 1), (u64::MAX, 0x0fff_ffff), (5, 5)] {
            let mut scene = Scene::open(config);
            scene.word(8, word, TAIL | position);
            scene.expect(StreamBreach::Tail { tail: u64::from(position), known: 0, head: 0 });
        }
        let mut scene = Scene::open(config);
        scene.word(8, 7, TAIL);
        scene.expect(StreamBreach::Tail { tail: 7, known: 0, head: 0 });
    }
    for tail in [1, u64::MAX] {
        let mut scene = Scene::open(SMALL);
        scene.chunk(0, (0, 5, tail), b"wrong", DATA | 1);
        scene.expect(StreamBreach::Tail { tail, known: 0, head: 0 });
    }
}

#[test]
fn a_tail_never_goes_back() {
    let mut scene = Scene::open(SMALL);
    for _ in 0..3 {
        assert_eq!(scene.victim.put(b"x"), Ok(1));
    }
    scene.word(8, 3, TAIL | 3);
    scene.talk();
    assert_eq!(scene.victim.put(b"x"), Ok(1));
    scene.chunk(0, (0, 5, 2), b"wrong", DATA | 1);
    scene.expect(StreamBreach::Tail { tail: 2, known: 3, head: 4 });
}

#[test]
fn a_chunk_with_another_number_or_length_is_refused() {
    let most = (CHUNK - 16) as u32;
    for (number, len) in [(1, 5), (u32::MAX, 5), (0, 0), (0, 4), (0, 6), (0, most + 1), (0, u32::MAX)] {
        let mut scene = Scene::open(SMALL);
        scene.chunk(0, (number, len, 0), b"wrong", DATA | 1);
        scene.expect(StreamBreach::Chunk { number, len, written: 21 });
    }
    // The length is right, and longer than a chunk: it runs into the next one.
    let mut scene = Scene::open(SMALL);
    scene.chunk(0, (0, most + 1, 0), &stream(0, CHUNK - 15), DATA | 1);
    scene.expect(StreamBreach::Chunk { number: 0, len: most + 1, written: CHUNK + 1 });
    // News without a chunk: what lies there is nothing.
    let mut scene = Scene::open(SMALL);
    let write = scene.write(scene.ring, 3 * CHUNK, b"elsewhere");
    scene.post(write.with_imm(DATA | 1));
    scene.expect(StreamBreach::Chunk { number: 0, len: 0, written: 9 });
}

#[test]
fn announcements_of_absurd_lengths_are_refused() {
    for len in [0, (1 << 30) + 1, u64::MAX] {
        let mut scene = Scene::open(SMALL);
        scene.chunk(0, (0, 16, 0), &announcement(1, len), ANNOUNCEMENT | 1);
        scene.expect(StreamBreach::Announcement(len));
        let mut scene = Scene::open(BYTES);
        let write = scene.write(scene.ring, 0, &announcement(1, len));
        scene.post(write);
        scene.word(0, 16, ANNOUNCEMENT | 16);
        scene.expect(StreamBreach::Announcement(len));
    }
    let mut scene = Scene::open(SMALL);
    scene.chunk(0, (0, 5, 0), b"wrong", ANNOUNCEMENT | 1);
    scene.expect(StreamBreach::Announcement(5));
    let mut scene = Scene::open(BYTES);
    scene.word(0, 17, ANNOUNCEMENT | 0x11);
    scene.expect(StreamBreach::Announcement(17));
}

#[test]
fn announcements_out_of_turn_are_refused() {
    let mut scene = Scene::open(StreamConfig { zero_copy: None, ..SMALL });
    scene.chunk(0, (0, 16, 0), &announcement(1, 100_000), ANNOUNCEMENT | 1);
    scene.expect(StreamBreach::Unasked);
    let mut scene = Scene::open(SMALL);
    scene.chunk(0, (0, 16, 0), &announcement(1, 100_000), ANNOUNCEMENT | 1);
    scene.chunk(1, (1, 1, 0), b"x", DATA | 2);
    scene.expect(StreamBreach::Unasked);
}

/// The longest payload under a key that is none: the peer's own table refuses the READ.
#[test]
fn an_announced_key_that_is_none_ends_the_connection_when_it_is_used() {
    let mut scene = Scene::open(SMALL);
    scene.chunk(0, (0, 16, 0), &announcement(0x1234_5678, 1 << 30), ANNOUNCEMENT | 1);
    scene.talk();
    assert_eq!(scene.victim.get(&mut [0; 100]), Ok(0));
    scene.talk();
    let error = scene.victim.get(&mut [0; 100]).expect_err("there is no such key");
    assert!(matches!(error, StreamError::Peer(OpError::PeerGone { peer, .. }) if peer == 1), "{error}");
}

#[test]
fn a_write_beyond_the_ring_is_denied_and_ends_the_connection() {
    for at in [SMALL.ring - 4, SMALL.ring, usize::MAX - 8] {
        let mut scene = Scene::open(SMALL);
        let write = scene.write(scene.ring, at, b"beyond");
        scene.post(write.with_imm(DATA | 1));
        scene.talk();
        assert!(matches!(scene.victim.put(b"x"), Err(StreamError::Peer(OpError::PeerGone { peer, .. })) if peer == 1));
    }
}

/// What is got was checked when it came: a header that is changed later moves no bound.
#[test]
fn a_header_that_is_changed_later_changes_nothing() {
    let mut scene = Scene::open(SMALL);
    scene.chunk(0, (0, 5, 0), b"right", DATA | 1);
    scene.talk();
    let write = scene.write(scene.ring, 0, &[0xff; 16]);
    scene.post(write);
    scene.talk();
    let mut bytes = [0; 100];
    assert_eq!(scene.victim.get(&mut bytes), Ok(5));
    assert_eq!(&bytes[..5], b"right");
}
