//! How serving a client can fail.

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use roci_driver::neighbour::Unreachable;
use roci_driver::{ArenaError, ConnectError, Operation, PostError, WcStatus};
use thiserror::Error;

use crate::exchange::MalformedExchange;

/// Why a client was not served to the end.
#[derive(Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The connection over TCP does not work.
    #[error("TCP: {0}")]
    Tcp(#[from] io::Error),
    /// No client came.
    #[error("no client connected within {0:?}")]
    NoClient(Duration),
    /// The client is there and says nothing.
    #[error(
        "nothing came from the client, by TCP or in packets, for {patience:?} while {due} was due: is it the same test, \
         over RoCEv2 and a reliable connection?"
    )]
    Silent {
        /// What should have come.
        due: &'static str,
        /// How long it was waited for.
        patience: Duration,
    },
    /// The client ended the connection.
    #[error(
        "the client hung up while {0} was due: what it printed says why (a remote access error means other sizes, or \
         another test)"
    )]
    HungUp(&'static str),
    /// The client takes no answers.
    #[error("the client does not read its answers")]
    NotRead,
    /// Bytes that no client of perftest sends.
    #[error(transparent)]
    Malformed(#[from] MalformedExchange),
    /// The next thing that the client said belongs to another test.
    #[error("the client said something else where {0} was due: give this server the name of the client's test")]
    OtherTest(&'static str),
    /// The client has more than one queue pair.
    #[error("the client introduced a second queue pair: run it without -q, or with -q 1")]
    SeveralQueuePairs,
    /// The client's GID and our address are of different kinds.
    #[error(
        "the client's GID is {theirs} and our address {ours}: run it with -x INDEX of a RoCE v2 GID of our kind \
         (ibv_devinfo -v lists them)"
    )]
    OtherGid {
        /// The client's.
        theirs: IpAddr,
        /// Ours.
        ours: IpAddr,
    },
    /// No station is known for the client's address.
    #[error("no way to the client's address {0}: {1}")]
    NoWay(IpAddr, Unreachable),
    /// The queue pair was not made.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// No memory is left.
    #[error(transparent)]
    Arena(#[from] ArenaError),
    /// No memory can be opened to the client.
    #[error("no key is free to open memory to the client")]
    NoKey,
    /// A work request was refused.
    #[error(transparent)]
    Post(#[from] PostError),
    /// The client's messages are too long.
    #[error("the client's messages are longer than {0} bytes: give this server the client's size")]
    TooLong(usize),
    /// A work request failed.
    #[error("{operation:?} failed: {status} ({})", status.verbs_name())]
    Failed {
        /// What it was.
        operation: Operation,
        /// How it ended.
        status: WcStatus,
    },
    /// The queue pair is in the error state.
    #[error("the queue pair broke off while {0} was due: the client did what this test or this size does not allow")]
    BrokenOff(&'static str),
}
