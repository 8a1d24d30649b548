//! A dedicated worker alone, whose peers are known by their addresses: see [`Worker::open_alone`](crate::Worker::open_alone).

use super::questions::ask;
use super::rings::{Answer, Command, Question};
use super::{DedicatedWorker, EngineHost};
use crate::core::refused::CallError;
use crate::{EndpointAddress, ExchangeError, InsertError, OpError, PeerId};

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
