//! Active messages: each runs a handler at its receiver, by the handler's name.
//!
//! A *short* one has up to three arguments, a *medium* one a payload that fits [`ActiveMessages::max_active`], and a *long* one is sent behind
//! a put, and runs once the put's bytes are in the receiver's memory. [`ActiveMessages::request_active`] has the handler reply.
//!
//! Handlers run inside the receiver's progress, on the thread of its engine, in no order. A handler may reply to a request and access
//! its end's segments; it cannot send. What it is to lead to it leaves to the application, by a channel or whatever it captures.
//!
//! ```
//! use roci_driver::Engine;
//! use roci_driver::link::sim::{Clock, SimLink};
//! use roci_msgcore::active::{ActiveMessages as _, HandlerId};
//! use roci_msgcore::{Config, Ports, Worker};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let clock = Clock::default();
//! # let (near, far) = SimLink::pair(&clock);
//! # let hosts = [[10, 0, 0, 1].into(), [10, 0, 0, 2].into()];
//! # let mut engines = vec![Engine::new(32 << 20)?, Engine::new(32 << 20)?];
//! # engines[0].add_port(near, hosts[0], true);
//! # engines[1].add_port(far, hosts[1], true);
//! # let mut workers = Vec::new();
//! # for ports in Ports::group(engines, &hosts) {
//! #     workers.push(Worker::assemble(ports, &Config::default())?);
//! # }
//! # let [near, far] = &mut workers[..] else { unreachable!() };
//! far.register_handler("add", Box::new(|context, message| {
//!     context.reply(&[message.arguments.iter().sum()], &[]).expect("a request");
//! }))?;
//!
//! let request = near.request_active(1.into(), HandlerId::of("add"), &[20, 22], &[])?;
//! let sum = loop {
//!     near.progress();
//!     far.progress();
//!     if let Some(outcome) = near.test(request) {
//!         break outcome?.data;
//!     }
//! #   clock.advance(1_000);
//! };
//! assert_eq!(sum, Some(42));
//! # Ok(())
//! # }
//! ```

use roci_driver::Buffer;
use roci_driver::link::Link;
use roci_protocol::msg::{ActiveKind, MAX_ARGUMENTS};

use super::Worker;
use crate::core::peer_id::PeerId;
use crate::core::refused::{CallError, Refused};
use crate::core::request::Request;
use crate::core::segment::RemoteAddress;
use crate::services::am::Active;
use crate::services::am::handlers::pad;
use crate::services::rma::operation::{OneSidedCall, Then};
use crate::services::tag::requests::LIMIT;

pub use crate::services::am::handlers::{ActiveMessage, Handler, HandlerContext, HandlerId, ReplyError, Written};

/// Active messages of a worker, whose engine runs wherever it does.
pub trait ActiveMessages {
    /// Registers a handler under a name, by which peers call it. A message for a name that is not registered here runs nothing, and
    /// is counted; so register before others send.
    ///
    /// # Errors
    /// The name is taken, or looks like another on the wire.
    fn register_handler(&mut self, name: &str, handler: Handler) -> Result<HandlerId, CallError>;

    /// Returns the longest payload of an active message, in bytes.
    fn max_active(&self) -> usize;

    /// Sends an active message. Arguments and payload are the caller's again when the call returns.
    ///
    /// # Errors
    /// There is no such peer, or it is gone; there are too many arguments, or too much payload; or too many messages wait for that
    /// peer: make progress, and try again.
    fn send_active(
        &mut self,
        to: PeerId,
        handler: HandlerId,
        arguments: &[u64],
        payload: &[u8],
    ) -> Result<(), CallError>;

    /// Sends an active message whose handler replies. The request's outcome has the reply's payload as its buffer, and the reply's
    /// first argument as [`Done::data`](crate::Done::data).
    ///
    /// # Errors
    /// As for [`ActiveMessages::send_active`]; 256 requests to one peer may wait for their replies.
    fn request_active(
        &mut self,
        to: PeerId,
        handler: HandlerId,
        arguments: &[u64],
        payload: &[u8],
    ) -> Result<Request, CallError>;

    /// Writes a buffer to a peer's memory, and runs a handler there once the bytes are in it, with one argument and where they are. The
    /// request ends, and the buffer returns, as that of a put.
    ///
    /// # Errors
    /// As for [`OneSided::put_with`](crate::one_sided::OneSided::put_with).
    fn send_active_long(
        &mut self,
        to: PeerId,
        handler: HandlerId,
        argument: u64,
        buffer: Buffer,
        at: RemoteAddress,
    ) -> Result<Request, Refused<Buffer>>;
}

impl<L: Link> ActiveMessages for Worker<L> {
    fn register_handler(&mut self, name: &str, handler: Handler) -> Result<HandlerId, CallError> {
        self.endpoint.register_handler(name, handler)
    }

    fn max_active(&self) -> usize {
        self.endpoint.core.receives.queues.max_payload()
    }

    #[inline]
    fn send_active(
        &mut self,
        to: PeerId,
        handler: HandlerId,
        arguments: &[u64],
        payload: &[u8],
    ) -> Result<(), CallError> {
        self.send_active_as(to, active_of(ActiveKind::OneWay, handler, arguments)?, payload)
    }

    fn request_active(
        &mut self,
        to: PeerId,
        handler: HandlerId,
        arguments: &[u64],
        payload: &[u8],
    ) -> Result<Request, CallError> {
        let active = active_of(ActiveKind::Request, handler, arguments)?;
        let request = self.mint().ok_or(CallError::TooMany(LIMIT))?;
        let begun = self.request_active_as(request, to, active, payload);
        Ok(self.named(request, begun.map_err(|why| Refused::new(why, ())))?)
    }

    fn send_active_long(
        &mut self,
        to: PeerId,
        handler: HandlerId,
        argument: u64,
        buffer: Buffer,
        at: RemoteAddress,
    ) -> Result<Request, Refused<Buffer>> {
        long_call(handler, argument, buffer, at).and_then(|call| self.begin_one_sided(to, call))
    }
}

impl<L: Link> Worker<L> {
    /// Returns how many requests more a peer may be sent before one of those under way has been replied to. Who asks for several that
    /// belong together looks first, so that not some of them alone are sent.
    pub fn active_room(&self, to: impl Into<PeerId>) -> usize {
        self.endpoint.services.am.room(to.into())
    }

    /// Sends an active message.
    #[inline]
    pub(crate) fn send_active_as(&mut self, to: PeerId, active: Active, payload: &[u8]) -> Result<(), CallError> {
        let sent = self.endpoint.send_active(to, active, payload);
        self.carry_mail_if_any();
        sent
    }

    /// Sends an active message whose handler replies, under a name that is made elsewhere.
    pub(crate) fn request_active_as(
        &mut self,
        request: Request,
        to: PeerId,
        active: Active,
        payload: &[u8],
    ) -> Result<(), CallError> {
        let begun = self.endpoint.request_active(request, to, active, payload);
        self.carry_mail_if_any();
        begun
    }
}

/// Returns an active message of this kind.
#[inline]
pub(crate) fn active_of(kind: ActiveKind, handler: HandlerId, arguments: &[u64]) -> Result<Active, CallError> {
    let (padded, count) = pad(arguments).ok_or(CallError::Arguments(arguments.len()))?;
    Ok(Active { kind, handler: handler.to_wire(), token: 0, arguments: padded, count })
}

/// Returns the put that a long active message is.
pub(crate) fn long_call(
    handler: HandlerId,
    argument: u64,
    buffer: Buffer,
    at: RemoteAddress,
) -> Result<OneSidedCall, Refused<Buffer>> {
    if !at.has_rkey() {
        return Err(Refused::new(CallError::OnlyOffered, buffer));
    }
    let (rkey, va) = match at.resolve(buffer.len()) {
        Ok(place) => place,
        Err(why) => return Err(Refused::new(why, buffer)),
    };
    let arguments = [va, buffer.len() as u64, argument];
    let count = MAX_ARGUMENTS as u8;
    let active = Active { kind: ActiveKind::Long, handler: handler.to_wire(), token: rkey.0, arguments, count };
    Ok(OneSidedCall::Put { buffer, at, then: Some(Box::new(Then::Message(active.message()))) })
}
