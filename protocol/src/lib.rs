//! RoCEv2 in pure parts: the wire, the reliable connection, datagrams, and how connections are made ([`cm`]).
//!
//! This crate holds no socket, no clock and no thread. [`wire`] turns bytes into checked values and back;
//! [`rc`] is the reliable connection (IBTA volume 1, chapter 9) as a state machine whose every output goes
//! through an environment that the caller supplies; [`ud`] is the unreliable datagram; [`sim`] is a deterministic
//! world in which two of these machines talk over a network that loses, repeats, reorders, delays and corrupts.
//!
//! ```
//! use roci_protocol::wire::Frame;
//!
//! // Hostile bytes are refused by name, never by a panic.
//! assert!(Frame::parse(&[0xff; 60]).is_err());
//! ```
//!
//! Threads: everything is `Send` and nothing is shared. Non-goals: InfiniBand's link layer, RD and XRC.
#![forbid(unsafe_code)]

pub mod cm;
mod histogram;
pub mod in_place;
pub mod lint;
pub mod msg;
pub mod rc;
mod sentence;
pub mod sim;
mod types;
pub mod ud;
pub mod wire;

pub use histogram::Histogram;
pub use types::{Access, Msn, Mtu, Nanos, NoPkey, Pkey, Psn, Qpn, Rkey};
