//! In band: RDMA-CM, a connection for each lane. Every end listens at its service; private data says who asks, and whom it
//! means.

mod asked;

use std::collections::BTreeMap;
use std::net::SocketAddr;

use roci_driver::link::Link;
use roci_driver::link::udp::station;
use roci_driver::{CmChannel, CmEvent, ConnId, Engine, PortSpace, QueuePair, RejReason, ServiceId, UnconnectedQp};

use super::absent::{AbsentRanks, is_to_be_asked_again};
use super::answer::{CROSSED, refusal_of, reject, said, session_of};
use super::lane_request::LaneRequest;
use super::method::{Meant, Method, MethodEvent, Refusal, Site};
use crate::core::no_connection::NoConnection;
use crate::core::peer::PeerId;
use crate::endpoint::address::EndpointAddress;
use crate::endpoint::locality::ends;
use roci_protocol::Mtu;
use roci_protocol::cm::ListenError;

/// Attempts that are under way.
#[derive(Debug)]
pub(crate) struct InBand {
    ours: BTreeMap<PeerId, Ours>,
    theirs: BTreeMap<PeerId, Theirs>,
    /// Whose a connection is, which lane it is for, and whether we asked for it.
    by_id: BTreeMap<ConnId, (PeerId, u8, bool)>,
    absent: AbsentRanks,
    /// What a REQ asks for at most of peers that have refused a longer MTU.
    shorter: BTreeMap<PeerId, Mtu>,
    /// Where events of its connections come.
    channel: CmChannel,
}

/// What we have asked for.
#[derive(Debug)]
struct Ours {
    /// The MTU that it is asked for with.
    mtu: Mtu,
    /// Queue pairs whose peer's station is being asked for.
    resolving: Vec<(usize, UnconnectedQp)>,
    ids: Vec<ConnId>,
    granted: BTreeMap<usize, QueuePair>,
}

/// What a peer has asked for.
#[derive(Debug)]
struct Theirs {
    /// By lane. They stay for as long as the connections: what was granted is not granted again.
    ids: Box<[Option<ConnId>]>,
    /// It was answered.
    is_prepared: bool,
    established: usize,
}

impl Theirs {
    fn of_lanes(lanes: usize) -> Self {
        Self { ids: vec![None; lanes].into(), is_prepared: false, established: 0 }
    }

    fn has(&self, lane: usize) -> bool {
        self.ids.get(lane).is_some_and(Option::is_some)
    }

    /// Whether each lane is asked for.
    fn is_whole(&self) -> bool {
        self.ids.iter().all(Option::is_some)
    }
}

impl InBand {
    /// Listens at the service of this end's address.
    pub(crate) fn new<L: Link>(engine: &mut Engine<L>, own: EndpointAddress) -> Result<Self, ListenError> {
        let channel = engine.cm_create_channel();
        let listens = engine.cm_listen_on(channel, ServiceId::of_port(PortSpace::Tcp, own.service));
        listens.inspect_err(|_| engine.cm_destroy_channel(channel))?;
        let (ours, theirs, by_id) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Ok(Self { ours, theirs, by_id, absent: AbsentRanks::default(), shorter: BTreeMap::new(), channel })
    }

    /// Asks for the lanes that could not be asked for before.
    fn go_on<L: Link>(&mut self, site: &mut Site<'_, L>, peer: PeerId) -> Result<(), NoConnection> {
        let Some(ours) = self.ours.get_mut(&peer) else { return Ok(()) };
        let to = site.book.address(peer).ok_or(NoConnection::NoHost)?;
        let own = site.book.own();
        let mut lanes = std::mem::take(&mut ours.resolving).into_iter();
        while let Some((lane, qp)) = lanes.next() {
            let hello = LaneRequest {
                lane,
                lanes: site.lanes.len(),
                service: own.service,
                incarnation: own.incarnation,
                meant: Meant { incarnation: to.incarnation, session: site.book.session(peer) },
            };
            let data = hello.emit();
            // What was begun over the network goes on there, whatever ports there are by now.
            let is_local = !qp.is_on(0) && site.attached.port_of(peer).is_some();
            let address = SocketAddr::new(if is_local { ends(own < to).1 } else { to.ip }, to.service);
            // Sockets find each other by their ports; other stations are asked for, or known.
            let is_socket = !is_local && station::port_of(site.engine.link(0).mac()).is_some();
            let qp = if is_socket { qp.toward(to.socket_station()) } else { qp };
            match site.engine.cm_connect(qp.reporting_to(self.channel), address, &site.lanes[lane].params, &data) {
                Ok(id) => {
                    site.engine.cm_be_patient(id, site.patience_over(is_local));
                    ours.ids.push(id);
                    self.by_id.insert(id, (peer, lane as u8, true));
                }
                Err((why, qp)) if is_to_be_asked_again(&why) => ours.resolving.push((lane, qp)),
                Err((error, qp)) => {
                    site.engine.discard_qp(qp);
                    // Giving the attempt up discards the others.
                    ours.resolving.extend(lanes);
                    return Err(error.into());
                }
            }
        }
        Ok(())
    }

    fn on_event<L: Link>(&mut self, site: &mut Site<'_, L>, event: &CmEvent) -> Option<MethodEvent> {
        match *event {
            CmEvent::Request { id, place, source, station, ref private_data, .. } => {
                self.on_request(site, id, place, (source.map(|(host, _)| host), station), private_data)
            }
            CmEvent::Replied { id, qp, ref private_data } => {
                let attempt =
                    self.by_id.get(&id).and_then(|&(peer, lane, _)| Some((peer, lane, self.ours.get_mut(&peer)?)));
                let Some((peer, lane, ours)) = attempt else {
                    // It was given up while the answer was on its way.
                    site.engine.destroy_qp(qp);
                    return None;
                };
                // That is what the connection is with, whatever was said before.
                site.book.note_session(peer, session_of(private_data));
                ours.granted.insert(lane.into(), qp);
                let is_complete = ours.granted.len() == site.lanes.len();
                is_complete.then(|| MethodEvent::Granted(peer, ours.granted.values().copied().collect()))
            }
            CmEvent::Established { id, .. } => {
                let &(peer, _, is_ours) = self.by_id.get(&id)?;
                let theirs = self.theirs.get_mut(&peer).filter(|_| !is_ours)?;
                theirs.established += 1;
                (theirs.established == site.lanes.len()).then_some(MethodEvent::Established(peer))
            }
            CmEvent::Rejected { id, reason, ref private_data } => {
                self.on_rejected(site, id, reason, refusal_of(reason, private_data))
            }
            CmEvent::Failed { id, error } => self.give_up(site, id, NoConnection::from(error).into()),
            CmEvent::Unreachable { id } => self.on_unanswered(site, id),
            // Its completions may say so first; where all receives are shared it has none.
            CmEvent::Disconnected { id, .. } => {
                let (peer, ..) = self.by_id.remove(&id)?;
                Some(MethodEvent::Gone(peer, "it has ended the connection".into()))
            }
            CmEvent::TimewaitExit { id } => {
                self.by_id.remove(&id);
                None
            }
            CmEvent::ServiceResolved { .. } | CmEvent::ServiceFailed { .. } => None,
        }
    }

    fn on_rejected<L: Link>(
        &mut self,
        site: &mut Site<'_, L>,
        id: ConnId,
        reason: RejReason,
        why: Refusal,
    ) -> Option<MethodEvent> {
        match reason {
            RejReason::INVALID_SERVICE_ID if self.is_of_rank(id) => self.ask_later(site, id, why),
            RejReason::INVALID_MTU => self.ask_for_shorter(site, id, why),
            _ => self.give_up(site, id, why),
        }
    }

    /// A request is not answered. Over a port between two ends alone that says that the peer has given the port up.
    fn on_unanswered<L: Link>(&mut self, site: &mut Site<'_, L>, id: ConnId) -> Option<MethodEvent> {
        let is_local = self.by_id.get(&id).is_some_and(|(peer, ..)| site.attached.port_of(*peer).is_some());
        self.give_up(site, id, if is_local { Refusal::NoLocalPort } else { NoConnection::Unanswered.into() })
    }

    /// Whether a connection is to a rank, whose address is known before it listens.
    fn is_of_rank(&self, id: ConnId) -> bool {
        self.by_id.get(&id).is_some_and(|&(peer, _, is_ours)| is_ours && peer.rank().is_some())
    }

    /// A rank does not listen yet: all of the attempt is made again in a while, or is given up where that has taken too long.
    fn ask_later<L: Link>(&mut self, site: &mut Site<'_, L>, id: ConnId, why: Refusal) -> Option<MethodEvent> {
        let &(peer, ..) = self.by_id.get(&id)?;
        if !self.absent.note(peer, site.engine.now()) {
            return self.give_up(site, id, why);
        }
        self.by_id.remove(&id);
        self.end_ours(site, peer, &[]);
        None
    }

    /// The peer's way here carries shorter packets than ours there: all of the attempt is made again with those of the next MTU.
    fn ask_for_shorter<L: Link>(&mut self, site: &mut Site<'_, L>, id: ConnId, why: Refusal) -> Option<MethodEvent> {
        let &(peer, _, is_ours) = self.by_id.get(&id)?;
        let shorter = self.ours.get(&peer).filter(|_| is_ours).and_then(|ours| ours.mtu.shorter());
        let Some(shorter) = shorter else {
            return self.give_up(site, id, why);
        };
        self.by_id.remove(&id);
        self.end_ours(site, peer, &[]);
        self.shorter.insert(peer, shorter);
        self.ask(site, peer).err().map(|why| MethodEvent::Refused(peer, Refusal::Because(why)))
    }

    /// Gives up an attempt of ours, and says why to a peer that has granted it.
    fn end_ours<L: Link>(&mut self, site: &mut Site<'_, L>, peer: PeerId, why: &[u8]) {
        let Some(ours) = self.ours.remove(&peer) else { return };
        ours.resolving.into_iter().for_each(|(_, qp)| site.engine.discard_qp(qp));
        for id in ours.ids {
            self.by_id.remove(&id);
            // Where it has ended meanwhile there is nothing to end.
            let _ = site.engine.cm_disconnect(id, why);
        }
        for qp in ours.granted.into_values() {
            site.engine.destroy_qp(qp);
        }
    }

    /// One lane of an attempt has failed: all of it is given up.
    fn give_up<L: Link>(&mut self, site: &mut Site<'_, L>, id: ConnId, why: Refusal) -> Option<MethodEvent> {
        let (peer, _, is_ours) = self.by_id.remove(&id)?;
        if is_ours {
            <Self as Method<L>>::forget(self, site, peer);
            return Some(MethodEvent::Refused(peer, why));
        }
        let theirs = self.theirs.remove(&peer)?;
        if theirs.is_prepared {
            return Some(MethodEvent::Refused(peer, why));
        }
        // The peer has taken it back, for one of ours, before it was answered: the rest of it is not waited for.
        self.take_back(site, theirs);
        None
    }
}

impl<L: Link> Method<L> for InBand {
    fn ask(&mut self, site: &mut Site<'_, L>, peer: PeerId) -> Result<(), NoConnection> {
        let most = self.shorter.get(&peer).copied().unwrap_or(Mtu::Mtu4096);
        let mut ours = Ours { mtu: most, resolving: Vec::new(), ids: Vec::new(), granted: BTreeMap::new() };
        for lane in 0..site.lanes.len() {
            match site.create_qp(peer, lane) {
                Ok(qp) => {
                    ours.mtu = ours.mtu.min(qp.mtu()).min(site.lanes[lane].params.mtu);
                    ours.resolving.push((lane, qp.with_mtu(most)));
                }
                Err(why) => {
                    ours.resolving.into_iter().for_each(|(_, qp)| site.engine.discard_qp(qp));
                    return Err(why);
                }
            }
        }
        self.ours.insert(peer, ours);
        self.go_on(site, peer)
    }

    fn prepare(&mut self, site: &mut Site<'_, L>, peer: PeerId) -> Result<Vec<QueuePair>, NoConnection> {
        let theirs = self.theirs.get_mut(&peer).filter(|theirs| theirs.is_whole()).ok_or(NoConnection::NoRequest)?;
        theirs.is_prepared = true;
        let mut qps = Vec::new();
        for (lane, &id) in theirs.ids.iter().flatten().enumerate() {
            let made = site.create_qp(peer, lane);
            match made.and_then(|qp| Ok(site.engine.cm_prepare(id, qp, &site.lanes[lane].params)?)) {
                Ok(qp) => qps.push(qp),
                Err(why) => {
                    for qp in qps {
                        site.engine.destroy_qp(qp);
                    }
                    return Err(why);
                }
            }
        }
        Ok(qps)
    }

    fn accept(&mut self, site: &mut Site<'_, L>, peer: PeerId) -> Result<(), NoConnection> {
        let theirs = self.theirs.get(&peer).ok_or(NoConnection::NoRequest)?;
        let session = site.book.session(peer).ours.to_be_bytes();
        for &id in theirs.ids.iter().flatten() {
            site.engine.cm_accept(id, &session)?;
            site.engine.cm_be_patient(id, site.patience);
        }
        Ok(())
    }

    /// RTU says it.
    fn is_established_by_terms(&self) -> bool {
        false
    }

    fn confirm(&mut self, site: &mut Site<'_, L>, peer: PeerId) -> Result<(), NoConnection> {
        self.absent.forget(peer);
        self.shorter.remove(&peer);
        let ours = self.ours.remove(&peer).ok_or(NoConnection::NoRequest)?;
        ours.ids.into_iter().try_for_each(|id| Ok(site.engine.cm_confirm(id)?))
    }

    fn refuse(&mut self, site: &mut Site<'_, L>, peer: PeerId, why: &Refusal) {
        let text = match why {
            Refusal::Crossed => CROSSED.to_owned(),
            // Who asks over a port has found it here.
            Refusal::NoLocalPort => NoConnection::NoRank.to_string(),
            Refusal::Because(why) => why.to_string(),
        };
        let Some(theirs) = self.theirs.remove(&peer) else {
            if self.ours.contains_key(&peer) {
                // It has granted what we asked for.
                return self.end_ours(site, peer, said(&text));
            }
            // It has knocked.
            return site.send_mail(peer, &format!("refuse {}", text.replace('\n', " ")));
        };
        for id in theirs.ids.into_iter().flatten() {
            self.by_id.remove(&id);
            reject(site, id, &text);
        }
    }

    fn knock(&mut self, site: &mut Site<'_, L>, peer: PeerId) -> Result<(), NoConnection> {
        site.send_mail(peer, "knock");
        Ok(())
    }

    fn forget(&mut self, site: &mut Site<'_, L>, peer: PeerId) {
        self.absent.forget(peer);
        self.shorter.remove(&peer);
        self.end_ours(site, peer, &[]);
    }

    fn part(&mut self, site: &mut Site<'_, L>, peer: PeerId, _why: &str) {
        self.theirs.remove(&peer);
        let connections = self.by_id.extract_if(.., |_, (rank, ..)| *rank == peer);
        for (id, _) in connections {
            // An attempt that was not answered yet is refused when it is.
            let _ = site.engine.cm_disconnect(id, &[]);
        }
    }

    fn close(&mut self, engine: &mut Engine<L>) {
        engine.cm_destroy_channel(self.channel);
    }

    fn poll(&mut self, site: &mut Site<'_, L>) -> Result<Option<MethodEvent>, NoConnection> {
        while let Some(peer) = self.absent.next_due(site.engine.now()) {
            if let Err(why) = self.ask(site, peer) {
                return Ok(Some(MethodEvent::Refused(peer, Refusal::Because(why))));
            }
        }
        let resolving = self.ours.iter().filter(|(_, ours)| !ours.resolving.is_empty());
        for peer in resolving.map(|(&peer, _)| peer).collect::<Vec<_>>() {
            if let Err(why) = self.go_on(site, peer) {
                <Self as Method<L>>::forget(self, site, peer);
                return Ok(Some(MethodEvent::Refused(peer, Refusal::Because(why))));
            }
        }
        while let Some(event) = site.engine.poll_cm_on(self.channel) {
            if let Some(event) = self.on_event(site, &event) {
                return Ok(Some(event));
            }
        }
        // Mail only ever asks to ask, or says why not.
        while let Some((from, text)) = site.texts.inbox.pop_front() {
            if text == "knock" {
                return Ok(Some(MethodEvent::Knocked(from)));
            }
            if let Some(why) = text.strip_prefix("refuse ") {
                return Ok(Some(MethodEvent::Refused(from, Refusal::Because(NoConnection::Refused(why.to_owned())))));
            }
        }
        Ok(None)
    }
}
