//! Firehose's environment: messages that take turns with others to their peer, and memory that this end offers.

use std::collections::VecDeque;

use roci_driver::link::Link;
use roci_protocol::Rkey;
use roci_protocol::msg::{GetOnMiss, Message};

use super::firehose::{Bucket, Environment, Failed, Hold, Limits, PinError, is_answer};
use super::offers::Offers;
use crate::core::Core;
use crate::core::peer::{PayloadMessage, Peer, PeerId, WaitingPayload};

/// What Firehose finds around it.
pub(super) struct Surroundings<'a, L: Link> {
    pub(super) core: &'a mut Core<L>,
    /// None once it is gone: then there is nothing to say to it.
    pub(super) peer: Option<&'a mut Peer>,
    pub(super) offers: &'a mut Offers,
    pub(super) limits: Limits,
    pub(super) ended: &'a mut VecDeque<(u64, Result<Hold, Failed>)>,
    /// A get that goes with the next message.
    pub(super) get: Option<GetOnMiss>,
}

impl<L: Link> Environment for Surroundings<'_, L> {
    fn send(&mut self, to: PeerId, message: &[u8]) {
        let peer = self.peer.as_deref_mut().filter(|peer| peer.id == to).expect("it speaks to whom it hears");
        let is_answer = is_answer(message);
        peer.tx.answers_waiting += usize::from(is_answer);
        let payload = WaitingPayload::Firehoses { bytes: message.into(), is_answer };
        peer.tx.payloads.push_back(PayloadMessage { message: Message::Firehose { get: self.get.take() }, payload });
    }

    fn room(&self) -> usize {
        let lanes = self.peer.as_deref().map(|peer| &peer.lanes[..]).unwrap_or_default();
        lanes.iter().map(|lane| lane.payload).max().unwrap_or(0)
    }

    fn pin(&mut self, bucket: Bucket) -> Result<Rkey, PinError> {
        self.offers.pin(self.core, &self.limits, bucket)
    }

    fn unpin(&mut self, bucket: Bucket, _: Rkey) {
        self.offers.unpin(self.core, bucket);
    }

    fn ended(&mut self, context: u64, outcome: Result<Hold, Failed>) {
        self.ended.push_back((context, outcome));
    }
}
