//! Bytes through the streams of two workers, over a wire that allocates nothing.

use roci_msgcore::Worker;
use roci_msgcore::stream::Streams as _;

use crate::cq::wire::WireEnd;
use crate::parts::PartTable;
use crate::tags::{ROUND_NS, connected_workers};

/// Bytes of each put.
const PUT: usize = 64;
/// Exchanges after which the streams are open, and their tables have grown.
const WARM_UP: usize = 100;

/// What `worker_instructions` counts.
pub const STREAMS: &PartTable = &[("stream_64", there_and_back)];

/// Bytes that go there through the one stream and come back through the other.
fn there_and_back() -> Box<dyn FnMut()> {
    let (clock, [mut near, mut far]) = connected_workers();
    let mut bytes = [7; PUT];
    let mut exchange = move || {
        clock.advance(ROUND_NS);
        put_and_get((&mut near, 1), (&mut far, 0), &mut bytes);
        put_and_get((&mut far, 0), (&mut near, 1), &mut bytes);
    };
    (0..WARM_UP).for_each(|_| exchange());
    Box::new(exchange)
}

/// Puts bytes at one end, each of which is named with its peer, and gets them at the other.
fn put_and_get(from: (&mut Worker<WireEnd>, usize), to: (&mut Worker<WireEnd>, usize), bytes: &mut [u8; PUT]) {
    let (mut put, mut got) = (0, 0);
    while got < PUT {
        if put < PUT {
            put += from.0.stream(from.1).expect("a peer").put(&bytes[put..]).expect("it lives");
        }
        got += to.0.stream(to.1).expect("a peer").get(&mut bytes[got..]).expect("it lives");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_go_there_and_come_back() {
        for (_, start) in STREAMS {
            let mut exchange = start();
            (0..1000).for_each(|_| exchange());
        }
    }
}
