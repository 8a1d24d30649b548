//! What Firehose needs from the world around it.

use roci_protocol::Rkey;

use super::bucket::Bucket;
use super::error::Failed;
use super::operations::Hold;
use super::pin_error::PinError;
use super::wire::MAX_MESSAGE;
use crate::core::peer_id::PeerId;

/// Messages, memory and the application, for [`FirehoseEngine`](super::FirehoseEngine). No call may come back into it.
pub trait Environment {
    /// Sends a message to a peer. It arrives once, whole and unchanged, or the peer is gone; messages may overtake each
    /// other, and what one-sided traffic does. There are never more of them unanswered than firehoses to that peer.
    fn send(&mut self, peer: PeerId, message: &[u8]);

    /// Returns how long a message to a peer may be.
    fn room(&self) -> usize {
        MAX_MESSAGE
    }

    /// Pins a bucket of this rank's, and opens it to peers.
    fn pin(&mut self, bucket: Bucket) -> Result<Rkey, PinError>;

    /// Closes a bucket to peers, and unpins it.
    fn unpin(&mut self, bucket: Bucket, key: Rkey);

    /// Unpins a bucket and pins another, for memory that does both at once more cheaply. Whatever comes of it, `victim`
    /// is unpinned.
    fn repin(&mut self, victim: Bucket, key: Rkey, bucket: Bucket) -> Result<Rkey, PinError> {
        self.unpin(victim, key);
        self.pin(bucket)
    }

    /// An operation that had to wait has its memory, or never will. `context` is what it was begun with.
    fn ended(&mut self, context: u64, outcome: Result<Hold, Failed>);
}
