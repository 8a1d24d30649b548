//! Out of band: the addresses of queue pairs travel as mail, over the launcher.
//!
//! `ask ADDRESS;..`, or `ask local ADDRESS;..` over the port between two of one host, is answered by `grant ADDRESS;..` or `refuse WHY`, with an address for each lane; `knock` asks to be
//! asked. `gone ADDRESS;WHY` ends the connection whose first address of the sender's this is: a word about another attempt,
//! or by another sender, fits none. What a peer mails is hostile until it is parsed: it costs its sender the attempt, and no other
//! peer anything.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use roci_driver::link::Link;
use roci_driver::neighbour::{Resolution, Unreachable};
use roci_driver::{Address, Engine, QueuePair, UnconnectedQp};
use roci_protocol::wire::MacAddr;

use super::method::{AskedOver, Method, MethodEvent, Refusal, Site};
use crate::config::Config;
use crate::core::no_connection::NoConnection;
use crate::core::peer::PeerId;

/// How a refusal says that both have asked.
const CROSSED: &str = "crossed";
/// How it says that there is no local port.
const NO_LOCAL_PORT: &str = "no local port";
/// How a request says that it is for the port between the two ends alone.
const LOCAL: &str = "local ";
/// The longest reason that is mailed.
const REASON_LEN: usize = 512;

/// Attempts that are under way.
#[derive(Debug)]
pub(crate) struct OutOfBand {
    /// What we have asked for: queue pairs that wait for their peers' addresses.
    asked: BTreeMap<PeerId, Vec<UnconnectedQp>>,
    /// What we were asked for: the peers' addresses.
    asked_for: BTreeMap<PeerId, Vec<Address>>,
    /// What we have prepared: the addresses of our queue pairs.
    prepared: BTreeMap<PeerId, String>,
    /// The first address that we have sent to a peer for the present attempt, or connection ...
    ours: BTreeMap<PeerId, Address>,
    /// ... and the first that it has sent, once queue pairs are connected with it.
    theirs: BTreeMap<PeerId, Address>,
    has_gateway: bool,
    patience: Duration,
}

impl OutOfBand {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            asked: BTreeMap::new(),
            asked_for: BTreeMap::new(),
            prepared: BTreeMap::new(),
            ours: BTreeMap::new(),
            theirs: BTreeMap::new(),
            has_gateway: config.gateway.is_some(),
            patience: Duration::from_secs(config.connect_timeout_s),
        }
    }

    /// Queue pairs for all lanes to a peer, and their addresses.
    fn create<L: Link>(
        &mut self,
        site: &mut Site<'_, L>,
        peer: PeerId,
    ) -> Result<(Vec<UnconnectedQp>, String), NoConnection> {
        let (mut qps, mut addresses) = (Vec::new(), Vec::<Address>::new());
        for lane in 0..site.lanes.len() {
            match site.create_qp(peer, lane) {
                Ok(qp) => {
                    addresses.push(site.engine.address_of(&qp, &site.lanes[lane].params));
                    qps.push(qp);
                }
                Err(why) => {
                    discard(site, qps);
                    return Err(why);
                }
            }
        }
        self.ours.extend(addresses.first().map(|&first| (peer, first)));
        let texts: Vec<_> = addresses.iter().map(Address::to_string).collect();
        Ok((qps, texts.join(";")))
    }

    /// Connects queue pairs with the addresses that their peer has sent.
    fn connect_with<L: Link>(
        &mut self,
        site: &mut Site<'_, L>,
        peer: PeerId,
        qps: Vec<UnconnectedQp>,
        addresses: &[Address],
    ) -> Result<Vec<QueuePair>, NoConnection> {
        let connected = self.connect(site, qps, addresses)?;
        self.theirs.extend(addresses.first().map(|&first| (peer, first)));
        Ok(connected)
    }

    fn connect<L: Link>(
        &self,
        site: &mut Site<'_, L>,
        qps: Vec<UnconnectedQp>,
        addresses: &[Address],
    ) -> Result<Vec<QueuePair>, NoConnection> {
        if qps.len() != addresses.len() {
            let (here, there) = (qps.len(), addresses.len());
            discard(site, qps);
            return Err(NoConnection::ReceiveQueues { here, there });
        }
        let mut connected = Vec::new();
        let mut failure = None;
        for (lane, (qp, address)) in qps.into_iter().zip(addresses).enumerate() {
            if failure.is_some() {
                site.engine.discard_qp(qp);
                continue;
            }
            match self.connect_lane(site, lane, qp, *address) {
                Ok(qp) => connected.push(qp),
                Err(why) => failure = Some(why),
            }
        }
        let Some(why) = failure else { return Ok(connected) };
        for qp in connected {
            site.engine.destroy_qp(qp);
        }
        Err(why)
    }

    fn connect_lane<L: Link>(
        &self,
        site: &mut Site<'_, L>,
        lane: usize,
        qp: UnconnectedQp,
        mut address: Address,
    ) -> Result<QueuePair, NoConnection> {
        if qp.is_on(0) && site.is_shared_port && self.has_gateway {
            match station_of(site.engine, &address, self.patience) {
                Ok(mac) => address.mac = mac,
                Err(why) => {
                    site.engine.discard_qp(qp);
                    return Err(NoConnection::NoWay { ip: address.ip, why });
                }
            }
        }
        Ok(site.engine.connect(qp, &address, &site.lanes[lane].params)?)
    }

    fn on_mail<L: Link>(&mut self, site: &mut Site<'_, L>, from: PeerId, text: &str) -> Option<MethodEvent> {
        let (verb, rest) = text.split_once(' ').unwrap_or((text, ""));
        match verb {
            "ask" => self.on_asked(site, from, rest),
            "grant" => self.on_granted(site, from, rest),
            "refuse" => {
                // Where both have asked, the peer's own request may have been answered meanwhile.
                if self.asked.contains_key(&from) {
                    <Self as Method<L>>::forget(self, site, from);
                }
                let why = match rest {
                    CROSSED => Refusal::Crossed,
                    NO_LOCAL_PORT => Refusal::NoLocalPort,
                    _ => Refusal::Because(NoConnection::Refused(rest.to_owned())),
                };
                Some(MethodEvent::Refused(from, why))
            }
            "knock" => Some(MethodEvent::Knocked(from)),
            "gone" => {
                let (address, why) = rest.split_once(';')?;
                let is_theirs = self.theirs.get(&from).is_some_and(|theirs| address.parse() == Ok(*theirs));
                is_theirs.then(|| {
                    self.ours.remove(&from);
                    MethodEvent::Gone(from, why.to_owned())
                })
            }
            // Another release's word, or nonsense: nothing that we wait for.
            _ => None,
        }
    }

    /// A peer asks for a connection with queue pairs at these addresses.
    fn on_asked<L: Link>(&mut self, site: &mut Site<'_, L>, from: PeerId, text: &str) -> Option<MethodEvent> {
        let local = text.strip_prefix(LOCAL);
        match parse(local.unwrap_or(text)) {
            Ok(addresses) => {
                self.asked_for.insert(from, addresses);
                let over = if local.is_some() { AskedOver::Local } else { AskedOver::Network };
                Some(MethodEvent::Asked(from, over))
            }
            Err(why) => {
                self.refuse(site, from, &Refusal::Because(why));
                None
            }
        }
    }

    /// A peer has granted what we have asked for, at these addresses.
    fn on_granted<L: Link>(&mut self, site: &mut Site<'_, L>, from: PeerId, addresses: &str) -> Option<MethodEvent> {
        let qps = self.asked.remove(&from)?;
        let outcome = match parse(addresses) {
            Ok(addresses) => self.connect_with(site, from, qps, &addresses),
            Err(why) => {
                discard(site, qps);
                Err(why)
            }
        };
        Some(match outcome {
            Ok(connected) => MethodEvent::Granted(from, connected),
            Err(why) => MethodEvent::Refused(from, Refusal::Because(why)),
        })
    }
}

impl<L: Link> Method<L> for OutOfBand {
    fn ask(&mut self, site: &mut Site<'_, L>, peer: PeerId) -> Result<(), NoConnection> {
        let (qps, addresses) = self.create(site, peer)?;
        self.asked.insert(peer, qps);
        let over = if site.attached.port_of(peer).is_some() { LOCAL } else { "" };
        site.send_mail(peer, &format!("ask {over}{addresses}"));
        Ok(())
    }

    fn prepare(&mut self, site: &mut Site<'_, L>, peer: PeerId) -> Result<Vec<QueuePair>, NoConnection> {
        let theirs = self.asked_for.remove(&peer).ok_or(NoConnection::NoRequest)?;
        let (qps, ours) = self.create(site, peer)?;
        let connected = self.connect_with(site, peer, qps, &theirs)?;
        self.prepared.insert(peer, ours);
        Ok(connected)
    }

    fn accept(&mut self, site: &mut Site<'_, L>, peer: PeerId) -> Result<(), NoConnection> {
        let addresses = self.prepared.remove(&peer).ok_or(NoConnection::NoRequest)?;
        site.send_mail(peer, &format!("grant {addresses}"));
        Ok(())
    }

    /// What is sent to a peer before it has read the grant is lost, and comes again only after a timeout.
    fn is_established_by_terms(&self) -> bool {
        true
    }

    fn confirm(&mut self, _site: &mut Site<'_, L>, _peer: PeerId) -> Result<(), NoConnection> {
        Ok(())
    }

    fn refuse(&mut self, site: &mut Site<'_, L>, peer: PeerId, why: &Refusal) {
        self.asked_for.remove(&peer);
        self.prepared.remove(&peer);
        let text = match why {
            Refusal::Crossed => CROSSED.to_owned(),
            Refusal::NoLocalPort => NO_LOCAL_PORT.to_owned(),
            Refusal::Because(why) => why.to_string().replace('\n', " "),
        };
        site.send_mail(peer, &format!("refuse {text}"));
    }

    fn knock(&mut self, site: &mut Site<'_, L>, peer: PeerId) -> Result<(), NoConnection> {
        site.send_mail(peer, "knock");
        Ok(())
    }

    fn forget(&mut self, site: &mut Site<'_, L>, peer: PeerId) {
        self.ours.remove(&peer);
        discard(site, self.asked.remove(&peer).unwrap_or_default());
    }

    fn part(&mut self, site: &mut Site<'_, L>, peer: PeerId, why: &str) {
        self.theirs.remove(&peer);
        let Some(ours) = self.ours.remove(&peer) else { return };
        let why: String = why.replace('\n', " ").chars().take(REASON_LEN).collect();
        site.send_mail(peer, &format!("gone {ours};{why}"));
    }

    /// It has nothing of the engine but queue pairs, which go with their peers.
    fn close(&mut self, _: &mut Engine<L>) {}

    fn poll(&mut self, site: &mut Site<'_, L>) -> Result<Option<MethodEvent>, NoConnection> {
        while let Some((from, text)) = site.texts.inbox.pop_front() {
            if let Some(event) = self.on_mail(site, from, &text) {
                return Ok(Some(event));
            }
        }
        Ok(None)
    }
}

/// Where frames for a peer go: to its own station, or to the gateway's, which is asked for.
///
/// # Errors
/// Nothing leads to the peer.
pub(crate) fn station_of<L: Link>(
    engine: &mut Engine<L>,
    peer: &Address,
    patience: Duration,
) -> Result<MacAddr, Unreachable> {
    if engine.is_on_link(0, 0, peer.ip) {
        return Ok(peer.mac);
    }
    let deadline = Instant::now() + patience;
    loop {
        match engine.resolve(0, 0, peer.ip) {
            Resolution::Known(mac) => return Ok(mac),
            Resolution::Pending if Instant::now() < deadline => {
                engine.poll();
            }
            Resolution::Pending => return Err(Unreachable::NoAnswer),
            Resolution::Unreachable(why) => return Err(why),
        }
    }
}

fn discard<L: Link>(site: &mut Site<'_, L>, qps: Vec<UnconnectedQp>) {
    for qp in qps {
        site.engine.discard_qp(qp);
    }
}

fn parse(text: &str) -> Result<Vec<Address>, NoConnection> {
    text.split(';').map(|address| Ok(address.parse::<Address>()?)).collect()
}
