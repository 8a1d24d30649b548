//! In band: RDMA-CM, a connection for each lane. Every end listens at its service; private data says who asks, and whom it
//! means.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use roci_driver::link::Link;
use roci_driver::{CmCallError, CmEvent, ConnId, Engine, PortSpace, QueuePair, RejReason, ServiceId, UnconnectedQp};

use super::method::{Method, MethodEvent, Refusal, Site};
use crate::core::no_connection::NoConnection;
use crate::core::peer::PeerId;
use crate::endpoint::address::EndpointAddress;
use roci_protocol::cm::ListenError;

const MAGIC: [u8; 4] = *b"ROCI";
/// The first byte behind it, which says how the others are laid out.
const VERSION: u8 = 1;
/// The magic number, a version, a lane and how many there are, and a reserved byte; a service and two reserved bytes; and two
/// incarnations. RDMA-CM leaves 56 bytes of a REQ.
const LEN: usize = 28;
/// How a refusal says that both have asked.
const CROSSED: &str = "crossed";
/// The longest text of a refusal.
const REFUSAL_LEN: usize = 140;

/// Attempts that are under way.
#[derive(Debug)]
pub(crate) struct InBand {
    ours: BTreeMap<PeerId, Ours>,
    theirs: BTreeMap<PeerId, Theirs>,
    /// Whose a connection is, which lane it is for, and whether we asked for it.
    by_id: BTreeMap<ConnId, (PeerId, usize, bool)>,
}

/// What we have asked for.
#[derive(Debug, Default)]
struct Ours {
    /// Queue pairs whose peer's station is being asked for.
    resolving: Vec<(usize, UnconnectedQp)>,
    ids: Vec<ConnId>,
    granted: BTreeMap<usize, QueuePair>,
}

/// What a peer has asked for.
#[derive(Debug, Default)]
struct Theirs {
    ids: BTreeMap<usize, ConnId>,
    /// It was answered.
    is_prepared: bool,
    established: usize,
}

impl InBand {
    /// Listens at the service of this end's address.
    pub(crate) fn new<L: Link>(engine: &mut Engine<L>, own: EndpointAddress) -> Result<Self, ListenError> {
        engine.cm_listen(ServiceId::of_port(PortSpace::Tcp, own.service))?;
        Ok(Self { ours: BTreeMap::new(), theirs: BTreeMap::new(), by_id: BTreeMap::new() })
    }

    /// Asks for the lanes that could not be asked for before.
    fn go_on<L: Link>(&mut self, site: &mut Site<'_, L>, peer: PeerId) -> Result<(), NoConnection> {
        let Some(ours) = self.ours.get_mut(&peer) else { return Ok(()) };
        let to = site.book.address(peer).ok_or(NoConnection::NoHost)?;
        let own = site.book.own();
        let address = SocketAddr::new(to.ip, to.service);
        let mut lanes = std::mem::take(&mut ours.resolving).into_iter();
        while let Some((lane, qp)) = lanes.next() {
            let hello = LaneRequest {
                lane,
                lanes: site.lanes.len(),
                service: own.service,
                incarnation: own.incarnation,
                meant: to.incarnation,
            };
            let data = hello.emit();
            match site.engine.cm_connect(qp, address, &site.lanes[lane].params, &data) {
                Ok(id) => {
                    ours.ids.push(id);
                    self.by_id.insert(id, (peer, lane, true));
                }
                Err((CmCallError::Resolving, qp)) => ours.resolving.push((lane, qp)),
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
            CmEvent::Request { id, place, source, ref private_data, .. } => {
                self.on_request(site, id, place, source.map(|(host, _)| host), private_data)
            }
            CmEvent::Replied { id, qp, .. } => {
                let &(peer, lane, _) = self.by_id.get(&id)?;
                let ours = self.ours.get_mut(&peer)?;
                ours.granted.insert(lane, qp);
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
                let said = String::from_utf8_lossy(private_data);
                let said = said.trim_end_matches('\0');
                let why = match said {
                    CROSSED => Refusal::Crossed,
                    "" => Refusal::Because(NoConnection::Rejected(reason)),
                    said => Refusal::Because(NoConnection::Refused(said.to_owned())),
                };
                self.give_up(site, id, why)
            }
            CmEvent::Failed { id, error } => self.give_up(site, id, Refusal::Because(error.into())),
            CmEvent::Unreachable { id } => self.give_up(site, id, Refusal::Because(NoConnection::Unanswered)),
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

    fn on_request<L: Link>(
        &mut self,
        site: &mut Site<'_, L>,
        id: ConnId,
        place: (usize, usize),
        host: Option<IpAddr>,
        data: &[u8],
    ) -> Option<MethodEvent> {
        let lanes = site.lanes.len();
        let judged = self.judge(site, place.0, host, data);
        match judged {
            Ok((peer, asked)) if asked.lanes != lanes => {
                let why = NoConnection::ReceiveQueues { here: lanes, there: asked.lanes };
                reject(site, id, &why.to_string());
                Some(MethodEvent::Refused(peer, Refusal::Because(why)))
            }
            Ok((peer, LaneRequest { lane, .. })) => {
                self.by_id.insert(id, (peer, lane, false));
                let theirs = self.theirs.entry(peer).or_default();
                theirs.ids.insert(lane, id);
                (theirs.ids.len() == lanes).then_some(MethodEvent::Asked(peer))
            }
            Err(why) => {
                reject(site, id, &why.to_string());
                None
            }
        }
    }

    /// Returns who asks, and for what.
    fn judge<L: Link>(
        &self,
        site: &mut Site<'_, L>,
        port: usize,
        host: Option<IpAddr>,
        data: &[u8],
    ) -> Result<(PeerId, LaneRequest), NoConnection> {
        let asked = LaneRequest::parse(data)?;
        if asked.lane >= asked.lanes {
            return Err(NoConnection::NoLane);
        }
        let ip = host.ok_or(NoConnection::Anonymous)?;
        let from = EndpointAddress { ip, service: asked.service, incarnation: asked.incarnation };
        let peer = site.identify(from, asked.meant)?;
        if port != site.port_of(peer) {
            return Err(NoConnection::NoRank);
        }
        if self.theirs.get(&peer).is_some_and(|theirs| theirs.ids.contains_key(&asked.lane)) {
            return Err(NoConnection::Connected { from: peer, to: site.peers.oneself() });
        }
        Ok((peer, asked))
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
        for other in theirs.ids.into_values().filter(|&other| other != id) {
            self.by_id.remove(&other);
            reject(site, other, "it was taken back");
        }
        None
    }
}

impl<L: Link> Method<L> for InBand {
    fn ask(&mut self, site: &mut Site<'_, L>, peer: PeerId) -> Result<(), NoConnection> {
        let mut ours = Ours::default();
        for lane in 0..site.lanes.len() {
            match site.create_qp(peer, lane) {
                Ok(qp) => ours.resolving.push((lane, qp)),
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
        let theirs = self.theirs.get_mut(&peer).ok_or(NoConnection::NoRequest)?;
        theirs.is_prepared = true;
        let mut qps = Vec::new();
        for (&lane, &id) in &theirs.ids {
            let qp = site.create_qp(peer, lane)?;
            qps.push(site.engine.cm_prepare(id, qp, &site.lanes[lane].params)?);
        }
        Ok(qps)
    }

    fn accept(&mut self, site: &mut Site<'_, L>, peer: PeerId) -> Result<bool, NoConnection> {
        let theirs = self.theirs.get(&peer).ok_or(NoConnection::NoRequest)?;
        for &id in theirs.ids.values() {
            site.engine.cm_accept(id, &[])?;
        }
        Ok(false)
    }

    fn confirm(&mut self, site: &mut Site<'_, L>, peer: PeerId) -> Result<(), NoConnection> {
        let ours = self.ours.remove(&peer).ok_or(NoConnection::NoRequest)?;
        ours.ids.into_iter().try_for_each(|id| Ok(site.engine.cm_confirm(id)?))
    }

    fn refuse(&mut self, site: &mut Site<'_, L>, peer: PeerId, why: &Refusal) {
        let text = match why {
            Refusal::Crossed => CROSSED.to_owned(),
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
        for id in theirs.ids.into_values() {
            self.by_id.remove(&id);
            reject(site, id, &text);
        }
    }

    fn knock(&mut self, site: &mut Site<'_, L>, peer: PeerId) -> Result<(), NoConnection> {
        site.send_mail(peer, "knock");
        Ok(())
    }

    fn forget(&mut self, site: &mut Site<'_, L>, peer: PeerId) {
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

    fn poll(&mut self, site: &mut Site<'_, L>) -> Result<Option<MethodEvent>, NoConnection> {
        let resolving = self.ours.iter().filter(|(_, ours)| !ours.resolving.is_empty());
        for peer in resolving.map(|(&peer, _)| peer).collect::<Vec<_>>() {
            if let Err(why) = self.go_on(site, peer) {
                <Self as Method<L>>::forget(self, site, peer);
                return Ok(Some(MethodEvent::Refused(peer, Refusal::Because(why))));
            }
        }
        while let Some(event) = site.engine.poll_cm() {
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

/// What the private data of a request says: who asks from its host, for which lane, and whom it means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct LaneRequest {
    lane: usize,
    lanes: usize,
    /// The service of who asks, and its incarnation.
    service: u16,
    incarnation: u64,
    /// The incarnation of who is asked.
    meant: u64,
}

impl LaneRequest {
    fn emit(self) -> [u8; LEN] {
        let mut data = [0; LEN];
        data[..4].copy_from_slice(&MAGIC);
        data[4..8].copy_from_slice(&[VERSION, self.lane as u8, self.lanes as u8, 0]);
        data[8..10].copy_from_slice(&self.service.to_be_bytes());
        data[12..20].copy_from_slice(&self.incarnation.to_be_bytes());
        data[20..].copy_from_slice(&self.meant.to_be_bytes());
        data
    }

    fn parse(data: &[u8]) -> Result<Self, NoConnection> {
        let data = data.first_chunk::<LEN>().ok_or(NoConnection::Anonymous)?;
        let (&[m0, m1, m2, m3, version, lane, lanes, _], rest) = data.split_first_chunk().expect("it is longer");
        if [m0, m1, m2, m3] != MAGIC || version != VERSION {
            return Err(NoConnection::Anonymous);
        }
        let (&[s0, s1, _, _], rest) = rest.split_first_chunk().expect("it is longer");
        let (&incarnation, rest) = rest.split_first_chunk().expect("it is longer");
        let &meant = rest.first_chunk().expect("it is long enough");
        Ok(Self {
            lane: lane.into(),
            lanes: lanes.into(),
            service: u16::from_be_bytes([s0, s1]),
            incarnation: u64::from_be_bytes(incarnation),
            meant: u64::from_be_bytes(meant),
        })
    }
}

fn reject<L: Link>(site: &mut Site<'_, L>, id: ConnId, text: &str) {
    // Where it has ended meanwhile there is nothing to refuse.
    let _ = site.engine.cm_reject(id, RejReason::CONSUMER_DEFINED, said(text));
}

/// As much of a refusal as goes with it.
fn said(text: &str) -> &[u8] {
    &text.as_bytes()[..text.len().min(REFUSAL_LEN)]
}
