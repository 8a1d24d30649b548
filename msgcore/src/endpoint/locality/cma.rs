//! Cross Memory Attach between processes of one host: which may read whose memory.
//!
//! Once two ends are connected each sends the place of its [mark](roci_driver::MemoryMark) to the other one, over the socket at which
//! those of its host find it. The kernel says which process a message comes from. Who finds the mark there says so
//! (`attached`), and is sent the addresses of long messages from then on. Where the kernel does not let it, nothing is said.

use std::cmp::Ordering;

use roci_driver::PeerMemory;
use roci_driver::link::Link;
use rustix::process::Pid;

use super::message::LocalBody;
use crate::core::peer::PeerId;
use crate::endpoint::Endpoint;
use crate::endpoint::address::EndpointAddress;
use crate::endpoint::wireup::Meant;

impl<L: Link> Endpoint<L> {
    /// A peer is connected: where it is on this host it may read this process's memory.
    pub(in crate::endpoint) fn offer_memory(&mut self, id: PeerId) {
        let mark = self.wireup.locality.means.as_ref().and_then(|means| means.mark.as_ref());
        if let Some(place) = mark.map(roci_driver::MemoryMark::place) {
            // A peer of another host has no such socket here.
            self.notify_local(id, LocalBody::Mark(place));
        }
    }

    /// Peers do not know this process's memory any more, and fetch what is announced with an address.
    pub(crate) fn withdraw_mark(&mut self) {
        if let Some(means) = &mut self.wireup.locality.means {
            means.mark = None;
        }
    }

    /// A process of this host, which is the sender's, says something of memory.
    pub(super) fn on_cma_message(
        &mut self,
        (from, meant): (EndpointAddress, Meant),
        process: Option<Pid>,
        body: &LocalBody,
    ) {
        let is_off = self.wireup.locality.means.as_ref().is_none_or(|means| means.mark.is_none());
        if is_off || meant.incarnation != self.wireup.book.own().incarnation {
            return;
        }
        // Only the peer itself counts, in this session: no stranger is let in by this, and no peer replaced. The message may be late.
        let Some((id, _)) = self.wireup.book.at(from.place()).filter(|(_, address)| *address == from) else { return };
        if self.wireup.book.check_session(id, meant.session) != Ordering::Equal {
            return;
        }
        let Some(peer) = self.peers.live_mut(id) else { return };
        let LocalBody::Mark(place) = *body else {
            peer.cma.reads_ours = true;
            return;
        };
        let Some(process) = process else {
            tracing::info!("{id}: its memory cannot be read: its process has no number here");
            return;
        };
        match PeerMemory::attach(process, place) {
            Ok(memory) => {
                tracing::info!("{id} is process {process:?}: its long messages are copied from its memory");
                peer.cma.theirs = Some(Box::new(memory));
                self.notify_local(id, LocalBody::Attached);
            }
            Err(why) => tracing::info!("{id}: its memory cannot be read: {why}"),
        }
    }
}
