//! What waits for a peer leaves as far as there is room, and neither kind of it keeps the others waiting.

use roci_driver::link::Link;

use crate::core::Core;
use crate::core::peer::Peer;
use crate::services::Services;
use crate::services::tag::TagService;

/// Sends what waits for a peer, and the credits that it is owed.
#[inline]
pub(in crate::endpoint) fn go_on<L: Link>(core: &mut Core<L>, services: &mut Services, peer: &mut Peer) {
    if peer.connection.owes_terms {
        core.send_terms(peer);
    }
    advance(core, services, peer);
    core.return_credits(peer);
}

/// Whether something waits to be sent to a peer.
#[inline]
pub(super) fn has_work(tag: &TagService, peer: &Peer) -> bool {
    (peer.tx.has_work() || tag.has_work(peer.id)) && peer.is_open()
}

/// Sends what waits for a peer, as far as credits and buffers go.
#[inline]
pub(in crate::endpoint) fn advance<L: Link>(core: &mut Core<L>, services: &mut Services, peer: &mut Peer) {
    if has_work(&services.tag, peer) {
        post_waiting(core, services, peer);
    }
}

/// Transfers first, because they cost no credit and leave places to others; then control messages, because they set memory free;
/// then the rest by turns, one at a time: neither a long payload nor many messages may keep the others waiting.
fn post_waiting<L: Link>(core: &mut Core<L>, services: &mut Services, peer: &mut Peer) {
    core.post_transfers(peer);
    while core.post_control(peer) {}
    if peer.tx.stream_waits {
        services.stream.go_on(core, peer);
    }
    let mut without = 0;
    while without < TURNS {
        let turn = peer.tx.next_turn;
        peer.tx.next_turn = if turn + 1 == TURNS { 0 } else { turn + 1 };
        let has_posted = match turn {
            0 => services.tag.post_message(core, peer),
            1 => services.tag.post_fragment(core, peer),
            2 => core.post_payload(peer),
            3 => core.post_served(peer),
            _ => core.post_by_message(peer),
        };
        without = if has_posted { 0 } else { without + 1 };
        if has_posted {
            core.post_transfers(peer);
            while core.post_control(peer) {}
        }
    }
}

/// Those that take turns.
const TURNS: u8 = 5;
