//! What peers ask for: who asks, whether that can be, and what is said where it cannot.

use std::collections::btree_map::Entry;
use std::net::IpAddr;

use roci_driver::ConnId;
use roci_driver::link::Link;
use roci_protocol::wire::MacAddr;

use super::{InBand, Theirs};
use crate::core::no_connection::NoConnection;
use crate::core::peer::PeerId;
use crate::endpoint::wireup::answer::reject;
use crate::endpoint::wireup::lane_request::LaneRequest;
use crate::endpoint::wireup::method::{AskedOver, MethodEvent, Refusal, Site};

impl InBand {
    pub(super) fn on_request<L: Link>(
        &mut self,
        site: &mut Site<'_, L>,
        id: ConnId,
        place: (usize, usize),
        source: (Option<IpAddr>, MacAddr),
        data: &[u8],
    ) -> Option<MethodEvent> {
        let lanes = site.lanes.len();
        let judged = self.judge(site, place.0, source, data);
        match judged {
            Ok((peer, asked)) if asked.lanes != lanes => {
                let why = NoConnection::ReceiveQueues { here: lanes, there: asked.lanes };
                reject(site, id, &why.to_string());
                Some(MethodEvent::Refused(peer, Refusal::Because(why)))
            }
            Ok((peer, LaneRequest { lane, .. })) => {
                self.by_id.insert(id, (peer, lane as u8, false));
                let theirs = self.theirs.entry(peer).or_insert_with(|| Theirs::of_lanes(lanes));
                theirs.ids[lane] = Some(id);
                let over =
                    if site.attached.peer_behind(place.0).is_some() { AskedOver::Local } else { AskedOver::Network };
                theirs.is_whole().then_some(MethodEvent::Asked(peer, over))
            }
            Err(why) => {
                reject(site, id, &why.to_string());
                None
            }
        }
    }

    /// Returns who asks, and for what.
    fn judge<L: Link>(
        &mut self,
        site: &mut Site<'_, L>,
        port: usize,
        (host, station): (Option<IpAddr>, MacAddr),
        data: &[u8],
    ) -> Result<(PeerId, LaneRequest), NoConnection> {
        let asked = LaneRequest::parse(data)?;
        if asked.lane >= asked.lanes {
            return Err(NoConnection::NoLane);
        }
        site.check_port(port)?;
        let here = site.lanes.len();
        let from = asked.sender(site, port, (host, station))?;
        if site.peers.may_strangers_come() && site.book.at(from.place()).is_none() && asked.lanes != here {
            // Who cannot be connected is not let in.
            return Err(NoConnection::ReceiveQueues { here, there: asked.lanes });
        }
        let peer = site.identify(from, asked.meant)?;
        // One that could not have a port between the two asks over the network.
        if port != site.port_of(peer) && site.attached.port_of(peer).is_none() {
            return Err(NoConnection::NoRank);
        }
        if self.theirs.get(&peer).is_some_and(|theirs| theirs.has(asked.lane)) {
            // What was answered stays: the news that it is up is on its way.
            if let Entry::Occupied(before) = self.theirs.entry(peer)
                && !before.get().is_prepared
            {
                let before = before.remove();
                // It begins again, and what is there of the request before was never answered.
                self.take_back(site, before);
                return Ok((peer, asked));
            }
            return Err(NoConnection::Connected { from: peer, to: site.peers.oneself() });
        }
        Ok((peer, asked))
    }

    /// Refuses what is there of a request that will not be whole.
    pub(super) fn take_back<L: Link>(&mut self, site: &mut Site<'_, L>, request: Theirs) {
        for id in request.ids.into_iter().flatten() {
            self.by_id.remove(&id);
            reject(site, id, "it was taken back");
        }
    }
}
