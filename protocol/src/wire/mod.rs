//! The wire: every header as a checked view and a repr.
//!
//! A *view* is a borrowed, unaligned struct laid over bytes that were checked to be long enough; a *repr* is
//! the plain value that the rest of the stack works with. Parsing arbitrary bytes never panics, and emitting
//! a parsed repr gives the same bytes. Layouts follow IBTA volume 1 chapter 9 (transport headers) and
//! annex A17 (RoCEv2); they are proven against their sizes at compile time.

pub mod aeth;
pub mod atomic;
pub mod bth;
pub mod cm;
pub mod deth;
pub mod ethernet;
pub mod frame;
pub mod icrc;
pub mod identification;
pub mod ieth;
pub mod immdt;
pub mod inflow;
pub mod ipv4;
pub mod ipv6;
pub mod mad;
pub mod malformed;
pub mod opcode;
pub mod packet;
pub mod pretty;
pub mod reth;
pub mod udp;
pub mod words;

pub use aeth::{Aeth, NakCode, Syndrome};
pub use atomic::{AtomicAckEth, AtomicEth};
pub use bth::Bth;
pub use deth::Deth;
pub use ethernet::{Ethernet, MacAddr};
pub(crate) use frame::seal;
pub use frame::{Flow, Frame, FrameLayers, Ip, MAX_OVERHEAD};
pub use ieth::Ieth;
pub use immdt::ImmDt;
pub use inflow::Inflow;
pub use ipv4::Ipv4;
pub use ipv6::Ipv6;
pub use mad::{MadError, MadHeader};
pub use malformed::Malformed;
pub use opcode::{Opcode, Transport};
pub use packet::{Extensions, Headers, Packet};
pub use reth::Reth;
pub use udp::Udp;
pub use words::{HeaderWords, WordBody, WordPacket};

/// Splits a view of type `V` off the front of `bytes`.
pub(crate) fn take<V>(bytes: &[u8]) -> Result<(&V, &[u8]), Malformed>
where
    V: zerocopy::FromBytes + zerocopy::KnownLayout + zerocopy::Immutable + zerocopy::Unaligned,
{
    V::ref_from_prefix(bytes).map_err(|_| Malformed::Truncated)
}
