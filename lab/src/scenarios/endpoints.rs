//! librdmacm's endpoints (`rdma_create_ep`): rdma-core's `rdma_server` and `rdma_client` send each other one message.

use roci_driver::{ConnId, QueuePair};

use super::connected::expect;
use super::manager::{PORT, accept, connect, ends, finished, service, start, start_listener, tell};
use crate::LabError;
use crate::lab::{Lab, V4, pattern};

const LEN: usize = 16;
/// Neither program fills its message.
const THEIR_MESSAGE: [u8; LEN] = [0; LEN];

/// `rdma_server` answers our message and ends the connection.
pub(super) fn client(lab: &mut Lab) -> Result<(), LabError> {
    start_listener(lab, &format!("rdma_server -s {} -p {PORT}", V4.theirs))?;
    let (id, qp) = connect(lab, V4, 1, LEN)?;
    tell(lab, qp, &pattern(1, LEN))?;
    hear(lab)?;
    part(lab, id, qp)?;
    finished(lab, &["rdma_server: start", "rdma_server: end 0", "rc=0"])
}

/// `rdma_client` takes our answer and ends the connection.
pub(super) fn server(lab: &mut Lab) -> Result<(), LabError> {
    lab.engine.cm_listen(service())?;
    start(lab, &format!("rdma_client -s {} -p {PORT}", V4.ours))?;
    let (id, qp) = accept(lab, 1, LEN)?;
    lab.engine.cm_unlisten(service());
    hear(lab)?;
    tell(lab, qp, &pattern(2, LEN))?;
    part(lab, id, qp)?;
    finished(lab, &["rdma_client: start", "rdma_client: end 0", "rc=0"])
}

fn hear(lab: &mut Lab) -> Result<(), LabError> {
    let done = lab.wait_ok()?;
    expect("the message", &done.buffer[..done.len], &THEIR_MESSAGE[..])
}

fn part(lab: &mut Lab, id: ConnId, qp: QueuePair) -> Result<(), LabError> {
    ends(lab, id)?;
    lab.engine.destroy_qp(qp);
    Ok(())
}
