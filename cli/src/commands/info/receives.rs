//! The receive queues of a rank, and the memory that a peer costs.

use comfy_table::Table;
use roci_msgcore::Config;
use roci_msgcore::receive_queues::{Kind, ReceiveQueue};
use serde_json::{Value, json};

use super::new_table;

/// A row for each queue, and one for their sum.
pub(super) fn table(config: &Config) -> Table {
    let mut table = new_table(["receive queue", "for messages up to", "bytes per connection", "bytes shared"]);
    let queues = config.receive_queues();
    for queue in &queues {
        let [own, shared] = bytes_of(queue);
        table.add_row([queue.to_string(), payload_of(queue).to_string(), own.to_string(), shared.to_string()]);
    }
    if queues.len() > 1 {
        let sums = [queues.bytes_per_connection(), queues.bytes_shared()].map(|bytes| bytes.to_string());
        let [own, shared] = sums;
        table.add_row(["together".into(), String::new(), own, shared]);
    }
    table
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
