//! A worker alone: no rank of a job, whose peers are known by their addresses ([`EndpointAddress`]).

use std::time::Duration;

use roci_driver::link::Link;
use thiserror::Error;

use super::Worker;
use super::local_means::local_means;
use super::ports::{Ports, open_alone};
use super::wireup_error::WireupError;
use crate::config::Config;
use crate::core::no_connection::NoConnection;
use crate::core::peer_id::PeerId;
use crate::core::refused::CallError;
use crate::endpoint::address::{BadEndpointAddress, EndpointAddress};
use crate::endpoint::strangers::InsertError;
use crate::endpoint::wireup::{Meant, OutgoingText, PeerSession};

/// Texts of closed endpoints that wait for the application to carry them.
const FAREWELLS: usize = 1 << 14;

/// Why a text of a connection's exchange was not taken.
#[derive(Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ExchangeError {
    /// It does not begin with the address of its sender.
    #[error(transparent)]
    Address(#[from] BadEndpointAddress),
    /// Its sender may not ask.
    #[error(transparent)]
    NoConnection(#[from] NoConnection),
    /// It is none of this end's: ranks exchange theirs over the launcher.
    #[error("this worker exchanges no texts: it is a rank")]
    NotAsked,
    /// The thread of a dedicated worker has ended, or this process was forked from the worker's.
    #[error("the worker's thread is gone")]
    EngineGone,
}

impl Worker {
    /// Opens a worker that is no rank of a job, on the network device that the configuration names, or on a UDP socket where it
    /// names none. Its peers are inserted by their addresses ([`Worker::insert`]), or come by themselves: they have a name with
    /// their first message. Connections are made at the first message, by RDMA-CM unless `connect_method` is set. One that is not
    /// answered has failed after `connect_timeout_s`: its peer may compute.
    ///
    /// ```no_run
    /// use roci_msgcore::{Config, EndpointAddress, Source, Tag, Worker};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let mut config = Config::load(None)?;
    /// config.keepalive_s = 1;
    /// let mut worker = Worker::open_alone(&config)?;
    /// println!("{}", worker.address());
    /// if let Some(text) = std::env::args().nth(1) {
    ///     // However the application comes by the address of another.
    ///     let peer = worker.insert(text.parse::<EndpointAddress>()?)?;
    ///     let send = worker.send_bytes(peer, Tag::new(7), b"hello")?;
    ///     worker.wait(send)?;
    /// } else {
    ///     let receive = worker.recv(Source::Any, Tag::new(7), worker.buffer(64)?)?;
    ///     let message = worker.wait(receive)?;
    ///     println!("{} bytes from {}", message.len, message.peer);
    /// }
    /// worker.close()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// No launcher says that a peer's process has ended. It shows when something is sent to it. Who only waits for a peer sets
    /// `keepalive_s`, at best where all are [`DedicatedWorker`](crate::DedicatedWorker)s, which always answer.
    ///
    /// [`Worker::close`] waits for no peer here: wait for your sends, or call [`Worker::flush`], before.
    ///
    /// # Errors
    /// The device does not work, or joins two processes only.
    pub fn open_alone(config: &Config) -> Result<Self, WireupError> {
        let config = config.for_strangers();
        let ports = Ports::alone(open_alone(&config)?, &config, rand::random());
        let local = local_means(&config, &config.device_of(0)?, &ports.addresses[0], None);
        let ports = Ports { local, ..ports };
        let mut worker = Self::assemble(ports, &config)?;
        worker.publish(&config);
        worker.linger = Some(Duration::from_millis(config.linger_ms));
        Ok(worker)
    }
}

impl<L: Link> Worker<L> {
    /// Returns this end's address, by which others reach it. It is a text, too ([`EndpointAddress`]), which the application
    /// carries to them.
    pub fn address(&self) -> EndpointAddress {
        self.endpoint.wireup.book.own()
    }

    /// Returns the peer at an address, which is inserted if it was not before; this end itself at its own. A peer that has come by
    /// itself keeps its name. It is another peer where the one before has failed, or another endpoint was there.
    ///
    /// # Errors
    /// The worker is a rank, or there are too many peers.
    pub fn insert(&mut self, address: EndpointAddress) -> Result<PeerId, InsertError> {
        self.endpoint.insert(address)
    }

    /// Forgets a peer: what is under way with it ends with [`OpError::PeerRemoved`](crate::OpError::PeerRemoved), and what it has
    /// sent and was not received is discarded. It may be inserted again, and is another peer then.
    ///
    /// # Errors
    /// There is none, or the worker is a rank.
    pub fn remove(&mut self, peer: PeerId) -> Result<(), CallError> {
        self.endpoint.remove(peer)
    }

    /// Returns the address of a peer, whether it was inserted or has come by itself.
    pub fn address_of(&self, peer: PeerId) -> Option<EndpointAddress> {
        self.endpoint.wireup.book.address(peer)
    }

    /// Returns the next text of a connection's exchange that somebody must carry, and the address that it is for
    /// (`connect_method=oob`): [`Worker::deliver_exchange`] takes it there. A text that cannot be carried may be dropped: its
    /// connection fails when it has taken too long.
    pub fn next_exchange(&mut self) -> Option<(EndpointAddress, String)> {
        if !self.endpoint.peers.may_strangers_come() || self.is_forked() {
            return None;
        }
        self.others.farewells.pop_front().or_else(|| self.next_own_exchange())
    }

    /// The endpoint at hand is closed: its last texts are carried with those of another.
    pub(super) fn keep_farewells(&mut self) {
        while let Some(text) = self.next_own_exchange() {
            self.others.farewells.push_back(text);
        }
        // An application that carries none loses the oldest.
        let excess = self.others.farewells.len().saturating_sub(FAREWELLS);
        self.others.farewells.drain(..excess);
    }

    fn next_own_exchange(&mut self) -> Option<(EndpointAddress, String)> {
        let own = self.address();
        let OutgoingText { address, session, text, .. } = self.endpoint.wireup.next_mail()?;
        let PeerSession { ours, theirs } = session;
        Some((address, format!("{own} {} {ours} {theirs} {text}", address.incarnation)))
    }

    /// Takes a text that [`Worker::next_exchange`] has returned elsewhere.
    ///
    /// # Errors
    /// It is not one, or its sender may not ask.
    pub fn deliver_exchange(&mut self, text: &str) -> Result<(), ExchangeError> {
        if !self.endpoint.peers.may_strangers_come() {
            return Err(ExchangeError::NotAsked);
        }
        if self.is_forked() {
            return Err(ExchangeError::EngineGone);
        }
        let mut words = text.splitn(5, ' ');
        let mut next = || words.next().ok_or(BadEndpointAddress::Text);
        let number = |word: &str| word.parse().map_err(|_| BadEndpointAddress::Text);
        let address = next()?.parse::<EndpointAddress>()?;
        let incarnation = number(next()?)?;
        let session = PeerSession { ours: number(next()?)?, theirs: number(next()?)? };
        let (meant, rest) = (Meant { incarnation, session }, next()?);
        // Only who asks may take the place of another: the last words of an endpoint may come after its successor.
        let known = self.endpoint.wireup.book.at(address.place());
        let is_known = known.is_some_and(|(_, known)| known.incarnation == address.incarnation);
        if is_known || rest.starts_with("ask ") {
            let from = self.endpoint.identify(address, meant)?;
            self.endpoint.wireup.deliver_mail(from, rest.to_owned());
        }
        // Who is not known, and asks for nothing, is past.
        Ok(())
    }
}
