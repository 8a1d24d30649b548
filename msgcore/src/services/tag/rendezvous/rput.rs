//! RPUT: the receiver opens the application's buffer to the sender, which writes the payload by RDMA WRITE and says so
//! behind it on the same queue pair: what is said is executed after what was written.

use roci_driver::link::Link;
use roci_driver::{Access, Buffer, MemoryRegion};
use roci_protocol::msg::{Label, Message, Way};

use super::Remote;
use crate::Rank;
use crate::services::tag::request::{Done, Operation, Request};
use crate::worker::Worker;

/// Receiver: the buffer is open to the sender.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opened {
    pub(crate) from: Rank,
    pub(crate) label: Label,
    pub(crate) region: MemoryRegion,
    pub(crate) len: usize,
}

impl<L: Link> Worker<L> {
    /// Receiver: opens the buffer, or falls back to R3.
    pub(super) fn open_buffer(&mut self, request: Request, from: Rank, label: Label, remote: Remote, buffer: Buffer) {
        let len = remote.len as usize;
        match self.register(buffer, Access::REMOTE_WRITE) {
            Ok(region) => {
                self.requests.replace(request, Operation::Opened(Opened { from, label, region, len }));
                let (id, reply, rkey) = (remote.id, request.to_wire(), region.rkey());
                if let Some(endpoint) = self.endpoint(from) {
                    endpoint.say(Message::Grant { id, reply, way: Way::Rput, rkey, va: 0, len: len as u32 });
                }
                self.advance(from);
            }
            Err(buffer) => {
                self.stats.fallback_registration += 1;
                self.grant_stream(request, from, label, remote, buffer);
            }
        }
    }

    /// Receiver: what was granted has been written.
    pub(crate) fn on_written(&mut self, from: Rank, reply: u64, len: u64) -> Result<(), String> {
        let request = Request::from_wire(reply);
        match self.requests.get(request) {
            Some(&Operation::Opened(Opened { from: writer, label, region, len: all })) if writer == from => {
                if len != all as u64 {
                    return Err(format!("it wrote {len} bytes of a message of {all}"));
                }
                let buffer = self.deregister(region);
                self.requests.end(request, Ok(Done::new(buffer, all, from, label)));
                Ok(())
            }
            Some(Operation::Piped(pipe)) if pipe.from == from => self.on_piece(request, len),
            _ => Err(format!("it wrote for {reply:#x}, which waits for nothing")),
        }
    }
}
