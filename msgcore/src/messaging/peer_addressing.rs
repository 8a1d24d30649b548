//! Peers by their addresses: what a worker alone has in place of ranks.

use crate::core::completion::OpError;
use crate::core::refused::CallError;
use crate::dedicated::EngineHost;
use crate::{DedicatedWorker, EndpointAddress, ExchangeError, InsertError, PeerId, Worker};

/// Finding peers, meeting them and parting from them without a job, as libfabric's address vectors do.
pub trait PeerAddressing {
    /// Returns this end's address, by which others reach it.
    fn address(&self) -> EndpointAddress;

    /// Returns the peer at an address, which is inserted if it was not before.
    ///
    /// # Errors
    /// The worker is a rank, or there are too many peers.
    fn insert(&mut self, address: EndpointAddress) -> Result<PeerId, InsertError>;

    /// Forgets a peer: what is under way with it ends with [`OpError::PeerRemoved`].
    ///
    /// # Errors
    /// There is none, or the worker is a rank.
    fn remove(&mut self, peer: PeerId) -> Result<(), CallError>;

    /// Returns the address of a peer, whether it was inserted or has come by itself.
    fn address_of(&mut self, peer: PeerId) -> Result<Option<EndpointAddress>, OpError>;

    /// Returns the next text of a connection's exchange that somebody must carry, and the address that it is for
    /// (`connect_method=oob`).
    fn next_exchange(&mut self) -> Result<Option<(EndpointAddress, String)>, OpError>;

    /// Takes a text of a connection's exchange.
    ///
    /// # Errors
    /// The text is none of an exchange's.
    fn deliver_exchange(&mut self, text: &str) -> Result<(), ExchangeError>;
}

/// The calls that are the same for both.
macro_rules! same {
    () => {
        fn address(&self) -> EndpointAddress {
            self.address()
        }

        fn insert(&mut self, address: EndpointAddress) -> Result<PeerId, InsertError> {
            self.insert(address)
        }

        fn remove(&mut self, peer: PeerId) -> Result<(), CallError> {
            self.remove(peer)
        }

        fn deliver_exchange(&mut self, text: &str) -> Result<(), ExchangeError> {
            self.deliver_exchange(text)
        }
    };
}

impl<L: roci_driver::link::Link> PeerAddressing for Worker<L> {
    same!();

    fn address_of(&mut self, peer: PeerId) -> Result<Option<EndpointAddress>, OpError> {
        Ok(Worker::address_of(self, peer))
    }

    fn next_exchange(&mut self) -> Result<Option<(EndpointAddress, String)>, OpError> {
        Ok(Worker::next_exchange(self))
    }
}

impl<H: EngineHost> PeerAddressing for DedicatedWorker<H> {
    same!();

    fn address_of(&mut self, peer: PeerId) -> Result<Option<EndpointAddress>, OpError> {
        self.address_of(peer)
    }

    fn next_exchange(&mut self) -> Result<Option<(EndpointAddress, String)>, OpError> {
        self.next_exchange()
    }
}
