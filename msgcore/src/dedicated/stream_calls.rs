//! Calls on streams, as they go to the engine and come back answered.

use roci_driver::Buffer;
use roci_driver::link::Link;

use crate::stream::{StreamConfig, StreamError, StreamPayload, StreamStats, Streams as _};
use crate::{PeerId, Worker};

/// A call for the engine. Bytes come back with the answer, for the next call.
pub(super) enum StreamCall {
    Open(PeerId),
    IsOpen(PeerId),
    Put((PeerId, Vec<u8>)),
    PutPayload((PeerId, StreamPayload)),
    /// Room, and how many bytes of it may be written.
    Get((PeerId, Vec<u8>, usize)),
    GetInto((PeerId, Option<Buffer>)),
    Flush(PeerId),
    Configure(StreamConfig),
    Adopt(Buffer),
    Write((StreamPayload, usize, Vec<u8>)),
    Release(StreamPayload),
    Stats,
}

/// The engine's answer to the call of the same name.
pub(super) enum StreamAnswer {
    Open(Result<(), StreamError>),
    IsOpen(Result<bool, StreamError>),
    Put((Result<usize, StreamError>, Vec<u8>)),
    PutPayload(Result<usize, StreamError>),
    Get((Result<usize, StreamError>, Vec<u8>)),
    GetInto((Result<usize, StreamError>, Option<Buffer>)),
    Flush(Result<bool, StreamError>),
    Configure(Result<(), StreamError>),
    Adopt(Result<StreamPayload, StreamError>),
    Write((Result<(), StreamError>, Vec<u8>)),
    Release(Result<Buffer, StreamError>),
    Stats(Box<StreamStats>),
}

/// Carries a call of the application's out, at the engine's side.
pub(super) fn carry_out<L: Link>(worker: &mut Worker<L>, call: StreamCall) -> StreamAnswer {
    match call {
        StreamCall::Open(peer) => StreamAnswer::Open(worker.open_stream(peer)),
        StreamCall::IsOpen(peer) => StreamAnswer::IsOpen(worker.is_stream_open(peer)),
        StreamCall::Put((to, bytes)) => StreamAnswer::Put((worker.put_bytes(to, &bytes), bytes)),
        StreamCall::PutPayload((to, payload)) => StreamAnswer::PutPayload(worker.put_payload(to, payload)),
        StreamCall::Get((from, mut room, len)) => StreamAnswer::Get((worker.get_bytes(from, &mut room[..len]), room)),
        StreamCall::GetInto((from, mut buffer)) => StreamAnswer::GetInto((worker.get_into(from, &mut buffer), buffer)),
        StreamCall::Flush(to) => StreamAnswer::Flush(worker.flush_stream(to)),
        StreamCall::Configure(config) => StreamAnswer::Configure(worker.configure_streams(config)),
        StreamCall::Adopt(buffer) => StreamAnswer::Adopt(worker.adopt_payload(buffer)),
        StreamCall::Write((payload, offset, bytes)) => {
            StreamAnswer::Write((worker.write_payload(payload, offset, &bytes), bytes))
        }
        StreamCall::Release(payload) => StreamAnswer::Release(worker.release_payload(payload)),
        StreamCall::Stats => StreamAnswer::Stats(Box::new(Worker::stream_stats(worker))),
    }
}
