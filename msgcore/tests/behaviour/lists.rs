//! Messages that are gathered from several buffers, and scattered into several.

use roci_msgcore::{
    Buffer, CallError, Done, MAX_PIECES, OpError, Pattern, Refused, SendOptions, Source, Tag, TagMatch,
};
use roci_testkit::World as _;

use super::common::{World, pattern};

const FAULTS: &str = "loss=0.03,dup=0.03,reorder=0.03,corrupt=0.01,seed=5";
const LONGEST: usize = 300_001;

/// Where a message is cut: into many pieces, some of them short or empty, or into one.
const CUTS: [&[usize]; 4] = [&[1, 3, 7, 8], &[0, 0], &[2], &[]];

/// A list of buffers that is as long as `len`, cut at these eighths.
fn list(world: &mut World, who: usize, len: usize, eighths: &[usize]) -> Buffer {
    let mut at = 0;
    let mut pieces = Vec::new();
    for end in eighths.iter().map(|eighth| len * eighth / 8).chain([len]) {
        pieces.push(world.workers[who].buffer(end - at).expect("memory"));
        at = end;
    }
    Buffer::list(pieces).expect("few")
}

/// Gathers these bytes, the first half of them from memory that nothing may write.
fn gather(world: &mut World, who: usize, bytes: &'static [u8], eighths: &[usize]) -> Buffer {
    let mut rest = list(world, who, bytes.len() - bytes.len() / 2, eighths);
    rest.copy_in(0, &bytes[bytes.len() / 2..]);
    let first = world.workers[who].adopt(bytes[..bytes.len() / 2].into()).expect("it is there");
    Buffer::list([first].into_iter().chain(rest.into_pieces()).collect()).expect("few")
}

/// The first bytes of a buffer, in whatever pieces they are.
fn content(buffer: &Buffer, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    buffer.copy_out(0, &mut bytes);
    bytes
}

/// Sends lists of all lengths and cuts to `to`, which has posted lists that are cut otherwise, or posts them later.
fn carry(settings: &[(&str, &str)], to: usize) -> World {
    let mut world = World::pair(settings);
    let bytes: &'static [u8] = pattern(LONGEST, 1).leak();
    let before = world.workers[to].memory();
    for (round, len) in [0, 1, 63, 8_153, 20_000, 65_537, LONGEST].into_iter().enumerate() {
        for (which, eighths) in CUTS.into_iter().enumerate() {
            let is_late = (round + which) % 2 == 0;
            let room = list(&mut world, to, len + which, CUTS[(which + 1) % CUTS.len()]);
            let payload = gather(&mut world, 0, &bytes[..len], eighths);
            let pieces = payload.len();
            let mut receive = None;
            let mut room = Some(room);
            if !is_late {
                receive =
                    room.take().map(|room| world.workers[to].recv(Source::Any, Tag::new(1), room).expect("accepted"));
            }
            let options = if which == 1 { SendOptions::default().synchronous() } else { SendOptions::default() };
            let send = world.workers[0].send_with(to.into(), Tag::new(1), payload, options).expect("accepted");
            world.steps(if is_late { 300 } else { 1 });
            let receive = receive.unwrap_or_else(|| {
                world.workers[to].recv(Source::Any, Tag::new(1), room.take().expect("it is late")).expect("accepted")
            });
            let Done { buffer, len: came, .. } = world.wait(to, receive).expect("it comes");
            assert!(came == len && content(&buffer, len) == bytes[..len], "{len} {which}: the bytes differ");
            assert_eq!(buffer.into_pieces().len(), CUTS[(which + 1) % CUTS.len()].len() + 1);
            let sent = world.wait(0, send).expect("it goes").buffer;
            assert_eq!((sent.len(), sent.into_pieces().len()), (pieces, eighths.len() + 2));
        }
    }
    world.until("all memory is back", |world| world.workers[to].memory() >= before);
    world
}

#[test]
fn every_protocol_gathers_and_scatters() {
    for protocol in ["auto", "r3", "rget", "rput", "pipeline"] {
        for (pin, faults) in [("auto", FAULTS), ("lock", "")] {
            let settings = [
                ("rndv_protocol", protocol),
                ("pipeline_threshold", "64KiB"),
                ("pipeline_chunk", "64KiB"),
                ("dreg_pin", pin),
                ("faults", faults),
                ("ack_timeout_us", "100"),
            ];
            let world = carry(&settings, 1);
            let stats = world.workers[0].stats();
            assert_eq!(stats.tx_pipeline, 0, "a list is not cut in pieces of a pipeline: {stats:?}");
            let is_fetched = matches!(protocol, "auto" | "rget" | "pipeline");
            assert_eq!(
                (stats.tx_rget > 0, stats.tx_rput > 0),
                (is_fetched, protocol == "rput"),
                "{protocol}: {stats:?}"
            );
        }
    }
}

#[test]
fn a_list_is_sent_to_oneself() {
    carry(&[], 0);
}

/// A list is received in the pieces that come by PIPELINE, into its own memory and staged.
#[test]
fn pieces_of_a_pipeline_are_scattered() {
    let pipeline = [("rndv_protocol", "pipeline"), ("pipeline_chunk", "64KiB")];
    for entries in [("ndreg_entries", "0"), ("ndreg_entries", "100")] {
        let mut world = World::pair(&[&pipeline[..], &[entries]].concat());
        let room = list(&mut world, 1, LONGEST, &[1, 2, 5]);
        let receive = world.workers[1].recv(Source::Any, Tag::new(1), room).expect("accepted");
        let send = world.send(0, 1, &pattern(LONGEST, 3));
        let done = world.wait(1, receive).expect("it comes");
        assert!(content(&done.buffer, LONGEST) == pattern(LONGEST, 3), "{entries:?}");
        world.wait(0, send).expect("it goes");
        assert_eq!(world.workers[0].stats().tx_pipeline, 1);
    }
}

#[test]
fn a_list_comes_back_whole_from_what_does_not_happen() {
    let mut world = World::pair(&[]);
    world.connect_all();
    // Taken back before it has met anything.
    let room = list(&mut world, 1, 100, &[4]);
    let receive = world.workers[1].recv(Source::Any, Tag::new(7), room).expect("accepted");
    world.workers[1].cancel(receive);
    let done = world.wait(1, receive).expect("it is taken back");
    assert!(done.is_cancelled && done.buffer.into_pieces().len() == 2);
    // Too short.
    let room = list(&mut world, 1, 100, &[4]);
    let receive = world.workers[1].recv(Source::Any, Tag::new(8), room).expect("accepted");
    let send = world.send(0, 8, &[1; 101]);
    match world.wait(1, receive) {
        Err(OpError::Truncated(truncated)) => {
            assert_eq!((truncated.room, truncated.buffer.expect("as it was").into_pieces().len()), (100, 2));
        }
        other => panic!("{other:?}"),
    }
    world.wait(0, send).expect("it goes");
    // It cannot be cut for many messages.
    let room = list(&mut world, 1, 100, &[4]);
    let refused = world.workers[1].recv_multi(Pattern::new(Source::Any, TagMatch::Any), room, 1, 1);
    let Err(Refused { why: CallError::CannotBeCut, given }) = refused else { panic!("{refused:?}") };
    assert_eq!(given.into_pieces().len(), 2);
    // A claimed message, into as many pieces as there may be.
    let send = world.send(0, 9, &pattern(1_600, 9));
    let anything = Pattern::new(Source::Any, TagMatch::Any);
    let message = world.find("a message", |world| world.workers[1].claim(anything));
    let pieces = (0..MAX_PIECES).map(|_| world.workers[1].buffer(100).expect("memory")).collect();
    let receive = world.workers[1].recv_message(message, Buffer::list(pieces).expect("few")).expect("accepted");
    let done = world.wait(1, receive).expect("it comes");
    assert!(content(&done.buffer, 1_600) == pattern(1_600, 9));
    // What a worker is given back is no vbuf.
    world.workers[1].give_back(done.buffer);
    world.wait(0, send).expect("it goes");
    assert!(world.workers[1].inside().check_invariants().is_ok());
}
