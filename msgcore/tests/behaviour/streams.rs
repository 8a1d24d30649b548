//! Streams beside messages.

use roci_msgcore::OpError;
use roci_msgcore::stream::StreamError;
use roci_testkit::World as _;

use super::keepalive::{LIMIT, STEP, quiet};

/// A stream is a need, too: its end only gets, and nothing of it is under way.
#[test]
fn a_peer_whose_cable_is_cut_is_found_by_a_stream_that_only_gets() {
    let mut pair = quiet(&[]);
    pair.find("the stream is open", |world| {
        let open = [0, 1].map(|who| world.workers[who].stream(1 - who).expect("memory").is_open());
        (open == [Ok(true), Ok(true)]).then_some(())
    });
    pair.steps(3_000);
    pair.cut(1);
    let start = pair.clock.now();
    let error = loop {
        pair.clock.advance(STEP);
        match pair.workers[0].stream(1).expect("it is open").get(&mut [0; 10]) {
            Ok(got) => assert_eq!(got, 0),
            Err(error) => break error,
        }
        assert!(pair.clock.now() - start < LIMIT, "{}", pair.counters());
    };
    assert!(matches!(error, StreamError::Peer(OpError::PeerGone { peer, .. }) if peer == 1), "{error}");
}
