//! The receive queues of a rank, and the memory that a peer costs.

use roci_msgcore::Config;
use roci_msgcore::receive_queues::{Kind, ReceiveQueue};
use serde_json::{Value, json};

/// A row for each queue, for people.
pub(super) fn rows(config: &Config) -> Vec<(&'static str, String)> {
    let queues = config.receive_queues();
    let row = |queue: &ReceiveQueue| {
        let memory = match bytes_of(queue) {
            [own, 0] => format!("{own} bytes per connection"),
            [_, shared] => format!("{shared} bytes shared by all"),
        };
        ("receive queue", format!("{queue}: messages of up to {} bytes, {memory}", payload_of(queue)))
    };
    queues.iter().map(row).collect()
}

/// The same for programs.
pub(super) fn as_json(config: &Config) -> Value {
    let queues = config.receive_queues();
    let queue = |queue: &ReceiveQueue| json!({"queue": queue.to_string(), "payload": payload_of(queue)});
    json!({
        "queues": queues.iter().map(queue).collect::<Vec<_>>(),
        "bytes_per_connection": queues.bytes_per_connection(),
        "bytes_shared": queues.bytes_shared(),
    })
}

fn bytes_of(queue: &ReceiveQueue) -> [usize; 2] {
    match queue.kind {
        Kind::PerPeer { .. } => [queue.bytes(), 0],
        Kind::Shared { .. } => [0, queue.bytes()],
    }
}

/// What is left of a buffer behind the header.
fn payload_of(queue: &ReceiveQueue) -> usize {
    queue.size.saturating_sub(roci_protocol::msg::LEN)
}
