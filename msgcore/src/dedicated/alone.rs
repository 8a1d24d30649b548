//! A dedicated worker alone, whose peers are known by their addresses: see [`Worker::open_alone`](crate::Worker::open_alone).

use std::sync::Arc;

use super::questions::ask;
use super::rings::{Answer, Command, EndpointRequest, Question};
use super::{DedicatedWorker, EngineHost};
use crate::core::refused::CallError;
use crate::sync::EventFd;
use crate::worker::domain::DomainError;
use crate::worker::wireup_error::WireupError;
use crate::{EndpointAddress, ExchangeError, InsertError, OpError, PeerId};

impl DedicatedWorker {
    /// Opens another endpoint on this worker's engine, with a handle of its own, which another thread may use ([`Domain`]). Both have an
    /// address, peers, requests and completions of their own; they share the thread, the port, memory and keys. A handle that is closed
    /// or dropped ends its endpoint, and the last one the thread.
    ///
    /// # Errors
    /// The worker is a rank of a job, there are too many endpoints, or there is no memory left.
    ///
    /// [`Domain`]: crate::Domain
    pub fn open_endpoint(&mut self) -> Result<Self, DomainError> {
        let wait_fd = Arc::new(EventFd::new().map_err(WireupError::WaitFd)?);
        let request = EndpointRequest { wait_fd: wait_fd.clone(), limits: self.limits };
        let (facts, rings) = *ask!(self, OpenEndpoint(request))??;
        let host = self.host.beside(rings.clone(), wait_fd);
        Ok(Self::at(facts, self.buffered_limit, rings, host))
    }
}

impl<H: EngineHost> DedicatedWorker<H> {
    /// Returns this end's address, by which others reach it.
    pub fn address(&self) -> EndpointAddress {
        self.constants.address
    }

    /// Returns the peer at an address, as [`Worker::insert`](crate::Worker::insert) does.
    pub fn insert(&mut self, address: EndpointAddress) -> Result<PeerId, InsertError> {
        ask!(self, Insert(address)).map_err(|error| match error {
            OpError::Forked => InsertError::Forked,
            _ => InsertError::EngineGone,
        })?
    }

    /// Forgets a peer, as [`Worker::remove`](crate::Worker::remove) does.
    pub fn remove(&mut self, peer: PeerId) -> Result<(), CallError> {
        ask!(self, Remove(peer)).map_err(CallError::from)?
    }

    /// Returns the address of a peer, whether it was inserted or has come by itself.
    pub fn address_of(&mut self, peer: PeerId) -> Result<Option<EndpointAddress>, OpError> {
        ask!(self, AddressOf(peer))
    }

    /// Returns the next text of a connection's exchange, as [`Worker::next_exchange`](crate::Worker::next_exchange) does.
    pub fn next_exchange(&mut self) -> Result<Option<(EndpointAddress, String)>, OpError> {
        ask!(self, NextExchange)
    }

    /// Takes a text of a connection's exchange, as [`Worker::deliver_exchange`](crate::Worker::deliver_exchange) does.
    pub fn deliver_exchange(&mut self, text: &str) -> Result<(), ExchangeError> {
        ask!(self, DeliverExchange(text.to_owned())).map_err(|_| ExchangeError::EngineGone)?
    }
}
