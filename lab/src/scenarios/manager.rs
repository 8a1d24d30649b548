//! Connections by RDMA-CM, against rdma-core's programs as Debian ships them.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use roci_driver::{
    CmCallError, CmEvent, ConnId, MemoryRegion, PortSpace, QpParams, QueuePair, RejReason, SendWr, ServiceId,
};
use roci_protocol::Rkey;

use super::connected::expect;
use crate::LabError;
use crate::lab::{GidRoute, GuestPair, Lab, PairTerms, V4, V6, all_access, pattern};

const PATIENCE: Duration = Duration::from_secs(30);
pub(super) const PORT: u16 = 7174;
const ROUNDS: usize = 3;
/// rping's message: address, key and length of a buffer.
const INFO: usize = 16;
/// More than a packet of any MTU: the REQ decides on it for both.
const SIZE: usize = 5000;

/// Nothing is lost here, but a program that waits without sleeping may keep the guest's only processor from answering.
pub(super) fn params() -> QpParams {
    let patience = Duration::from_secs(1).as_nanos() as u64;
    QpParams { ack_timeout_ns: patience, ack_timeout_max_ns: patience, ..PairTerms::default().params }
}

/// The next event of the connection manager.
pub(super) fn event(lab: &mut Lab) -> Result<CmEvent, LabError> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(event) = lab.engine.poll_cm() {
            return Ok(event);
        }
        if Instant::now() > deadline {
            return Err("the connection manager is silent".into());
        }
        lab.engine.poll();
    }
}

/// Connects to a service of the guest's and posts `receives` before the connection opens.
pub(super) fn connect(
    lab: &mut Lab,
    route: GidRoute,
    receives: usize,
    len: usize,
) -> Result<(ConnId, QueuePair), LabError> {
    let id = ask(lab, route, b"hello")?;
    match event(lab)? {
        CmEvent::Replied { qp, .. } => {
            post_receives(lab, qp, receives, len)?;
            lab.engine.cm_confirm(id)?;
            expect("what follows", event(lab)?, CmEvent::Established { id, qp })?;
            Ok((id, qp))
        }
        other => Err(format!("instead of a reply: {other:?}").into()),
    }
}

/// Asks the guest for a connection.
pub(super) fn ask(lab: &mut Lab, route: GidRoute, private_data: &[u8]) -> Result<ConnId, LabError> {
    let peer = SocketAddr::new(route.theirs.parse()?, PORT);
    let deadline = Instant::now() + PATIENCE;
    let (port, address) = lab.place(route)?;
    let mut qp = lab.engine.create_qp_at(port, address, lab.pd, lab.cq)?;
    loop {
        match lab.engine.cm_connect(qp, peer, &params(), private_data) {
            Ok(id) => return Ok(id),
            Err((CmCallError::Resolving, again)) if Instant::now() < deadline => qp = again,
            Err((error, _)) => return Err(error.into()),
        }
        lab.engine.poll();
    }
}

/// Takes a connection and posts `receives` before the guest may send.
pub(super) fn accept(lab: &mut Lab, receives: usize, len: usize) -> Result<(ConnId, QueuePair), LabError> {
    match event(lab)? {
        CmEvent::Request { id, place, .. } => {
            let qp = prepare(lab, id, place)?;
            post_receives(lab, qp, receives, len)?;
            lab.engine.cm_accept(id, b"welcome")?;
            expect("what follows", event(lab)?, CmEvent::Established { id, qp })?;
            Ok((id, qp))
        }
        other => Err(format!("instead of a request: {other:?}").into()),
    }
}

/// The queue pair for a connection that the guest asks for.
pub(super) fn prepare(lab: &mut Lab, id: ConnId, (port, address): (usize, usize)) -> Result<QueuePair, LabError> {
    let qp = lab.engine.create_qp_at(port, address, lab.pd, lab.cq)?;
    Ok(lab.engine.cm_prepare(id, qp, &params())?)
}

fn post_receives(lab: &mut Lab, qp: QueuePair, count: usize, len: usize) -> Result<(), LabError> {
    (0..count).try_for_each(|_| lab.post_recv(GuestPair { qp, theirs: 0 }, 1, len))
}

pub(super) fn service() -> ServiceId {
    ServiceId::of_port(PortSpace::Tcp, PORT)
}

/// Checks that the connection ends, whichever side ends it, and is forgotten in the end.
pub(super) fn ends(lab: &mut Lab, id: ConnId) -> Result<(), LabError> {
    match event(lab)? {
        CmEvent::Disconnected { id: ended, .. } if ended == id => {}
        other => return Err(format!("instead of the end: {other:?}").into()),
    }
    expect("what follows the end", event(lab)?, CmEvent::TimewaitExit { id })?;
    while lab.engine.poll_cq(lab.cq).is_some() {}
    Ok(())
}

/// A program in the guest that runs beside us; its output is looked at when it has ended.
pub(super) fn start(lab: &mut Lab, command: &str) -> Result<(), LabError> {
    lab.run(&format!("rm -f /tmp/rc; ({command}; echo rc=$? >/tmp/rc) >/tmp/output 2>&1 & sleep 1"))?;
    Ok(())
}

/// The same for a program that listens on [`PORT`]; returns once it does.
pub(super) fn start_listener(lab: &mut Lab, command: &str) -> Result<(), LabError> {
    start(lab, command)?;
    lab.run(&until(&format!("rdma resource show cm_id | grep -q 'LISTEN.*:{PORT}'")))?;
    Ok(())
}

/// What the program printed, and its status after `rc=`.
pub(super) fn ended(lab: &mut Lab) -> Result<String, LabError> {
    lab.run(&format!("{}; cat /tmp/output /tmp/rc", until("[ -s /tmp/rc ]")))
}

/// The shell's way to wait for a condition, though not for ever.
pub(super) fn until(condition: &str) -> String {
    format!("n=0; until {condition} || [ $n = 300 ]; do sleep 0.1; n=$((n+1)); done")
}

/// The program ends, and has printed these.
pub(super) fn finished(lab: &mut Lab, marks: &[&str]) -> Result<(), LabError> {
    let output = ended(lab)?;
    match marks.iter().find(|mark| !output.contains(**mark)) {
        None => Ok(()),
        Some(mark) => Err(format!("the guest's program did not print '{mark}': {output}").into()),
    }
}

fn info(region: MemoryRegion) -> [u8; INFO] {
    let mut bytes = [0; INFO];
    bytes[8..12].copy_from_slice(&region.rkey().0.to_be_bytes());
    bytes[12..].copy_from_slice(&(region.len() as u32).to_be_bytes());
    bytes
}

pub(super) fn tell(lab: &mut Lab, qp: QueuePair, bytes: &[u8]) -> Result<(), LabError> {
    let message = lab.buffer(bytes)?;
    lab.post(GuestPair { qp, theirs: 0 }, SendWr::send(2, message).unsignaled())
}

fn hear(lab: &mut Lab, qp: QueuePair) -> Result<Vec<u8>, LabError> {
    let done = lab.wait_ok()?;
    expect("the receive", done.wr_id, 1)?;
    let bytes = done.buffer[..done.len].to_vec();
    lab.post_recv(GuestPair { qp, theirs: 0 }, 1, INFO)?;
    Ok(bytes)
}

/// We are `rping -c`: offer a buffer to be read, then one to be written.
fn rping_as_client(lab: &mut Lab, route: GidRoute) -> Result<(), LabError> {
    start_listener(lab, &format!("rping -s -a {} -p {PORT} -C {ROUNDS} -v -S {SIZE}", route.theirs))?;
    let (id, qp) = connect(lab, route, 4, INFO)?;
    for round in 0..ROUNDS {
        // rping takes it for a string.
        let mut text: Vec<u8> = (0..SIZE).map(|at| b'a' + ((at + round) % 26) as u8).collect();
        text[SIZE - 1] = 0;
        let (source, sink) = (lab.region(&text)?, lab.region(&[0; SIZE])?);
        tell(lab, qp, &info(source))?;
        hear(lab, qp)?;
        tell(lab, qp, &info(sink))?;
        hear(lab, qp)?;
        expect("what came back", lab.content(sink)? == text, true)?;
    }
    lab.engine.cm_disconnect(id, &[])?;
    ends(lab, id)?;
    finished(lab, &["ping data: abcdefghij", "rc="])
}

pub(super) fn rping_client(lab: &mut Lab) -> Result<(), LabError> {
    rping_as_client(lab, V4)
}

pub(super) fn rping_client_v6(lab: &mut Lab) -> Result<(), LabError> {
    rping_as_client(lab, V6)
}

/// We are `rping -s`: read what is offered, say so, write it back, say so.
fn rping_as_server(lab: &mut Lab, route: GidRoute) -> Result<(), LabError> {
    lab.engine.cm_listen(service())?;
    start(lab, &format!("rping -c -a {} -p {PORT} -C {ROUNDS} -v -V -S {SIZE}", route.ours))?;
    let (id, qp) = accept(lab, 4, INFO)?;
    for _ in 0..ROUNDS {
        let (va, rkey, len) = understand(&hear(lab, qp)?)?;
        let buffer = lab.buffer(&vec![0; len])?;
        lab.post(GuestPair { qp, theirs: 0 }, SendWr::read(3, buffer, rkey, va))?;
        let data = lab.wait_ok()?.buffer[..len].to_vec();
        tell(lab, qp, &[0; INFO])?;
        let (va, rkey, len) = understand(&hear(lab, qp)?)?;
        let echo = lab.buffer(&data[..len])?;
        lab.post(GuestPair { qp, theirs: 0 }, SendWr::write(4, echo, rkey, va))?;
        lab.wait_ok()?;
        tell(lab, qp, &[0; INFO])?;
    }
    lab.engine.cm_unlisten(service());
    ends(lab, id)?;
    finished(lab, &["ping data: rdma-ping-2", "rc=0"])
}

fn understand(info: &[u8]) -> Result<(u64, Rkey, usize), LabError> {
    let info: [u8; INFO] = info.try_into()?;
    let va = u64::from_be_bytes(info[..8].try_into()?);
    let rkey = Rkey(u32::from_be_bytes(info[8..12].try_into()?));
    Ok((va, rkey, u32::from_be_bytes(info[12..].try_into()?) as usize))
}

pub(super) fn rping_server(lab: &mut Lab) -> Result<(), LabError> {
    rping_as_server(lab, V4)
}

pub(super) fn rping_server_v6(lab: &mut Lab) -> Result<(), LabError> {
    rping_as_server(lab, V6)
}

const MESSAGES: usize = 10;

/// ucmatose's server sends first; its client answers.
pub(super) fn ucmatose_client(lab: &mut Lab) -> Result<(), LabError> {
    start_listener(lab, &format!("ucmatose -b {} -c 1 -C {MESSAGES} -S {SIZE} -p {PORT}", V4.theirs))?;
    let (id, qp) = connect(lab, V4, MESSAGES, SIZE)?;
    for _ in 0..MESSAGES {
        expect("the length", lab.wait_ok()?.len, SIZE)?;
    }
    for _ in 0..MESSAGES {
        tell(lab, qp, &pattern(1, SIZE))?;
    }
    ends(lab, id)?;
    finished(lab, &["data transfers complete", "return status 0", "rc=0"])
}

pub(super) fn ucmatose_server(lab: &mut Lab) -> Result<(), LabError> {
    lab.engine.cm_listen(service())?;
    start(lab, &format!("ucmatose -s {} -c 1 -C {MESSAGES} -S {SIZE} -p {PORT}", V4.ours))?;
    let (id, qp) = accept(lab, MESSAGES, SIZE)?;
    for _ in 0..MESSAGES {
        tell(lab, qp, &pattern(2, SIZE))?;
    }
    for _ in 0..MESSAGES {
        expect("the length", lab.wait_ok()?.len, SIZE)?;
    }
    lab.engine.cm_unlisten(service());
    lab.engine.cm_disconnect(id, &[])?;
    ends(lab, id)?;
    finished(lab, &["data transfers complete", "return status 0", "rc=0"])
}

/// First there is no listener in the guest; then none here, and then we refuse by choice.
pub(super) fn rejections(lab: &mut Lab) -> Result<(), LabError> {
    let id = ask(lab, V4, b"hello")?;
    match event(lab)? {
        CmEvent::Rejected { id: refused, reason, .. } => {
            expect("whose refusal it is", refused, id)?;
            expect("why the guest refuses", reason, RejReason::INVALID_SERVICE_ID)?;
        }
        other => return Err(format!("instead of a refusal: {other:?}").into()),
    }
    // The refused connection's name is released in time.
    expect("what follows the refusal", event(lab)?, CmEvent::TimewaitExit { id })?;
    start(lab, &format!("rping -c -a {} -p {PORT} -C 1 -v", V4.ours))?;
    finished(lab, &["RDMA_CM_EVENT_REJECTED", "error 8"])?;
    lab.engine.cm_listen(service())?;
    start(lab, &format!("rping -c -a {} -p {PORT} -C 1 -v", V4.ours))?;
    match event(lab)? {
        CmEvent::Request { id, .. } => lab.engine.cm_reject(id, RejReason::CONSUMER_DEFINED, b"not today")?,
        other => return Err(format!("instead of a request: {other:?}").into()),
    }
    lab.engine.cm_unlisten(service());
    finished(lab, &["RDMA_CM_EVENT_REJECTED", "error 28"])?;
    let _ = event(lab)?;
    debug_assert!(all_access() == params().access);
    Ok(())
}

/// The first two messages of each kind are lost: REQ, REP, RTU, DREQ and DREP are sent again.
pub(super) fn lost_messages(lab: &mut Lab) -> Result<(), LabError> {
    let mut seen = std::collections::BTreeMap::new();
    lab.lose(Box::new(move |_, packet| {
        let Some(Ok(mad)) = roci_protocol::wire::cm::Mad::of_packet(packet) else { return false };
        let count = seen.entry(mad.message.name()).or_insert(0);
        *count += 1;
        *count == 1
    }));
    start_listener(lab, &format!("ucmatose -b {} -c 1 -C {MESSAGES} -S {SIZE} -p {PORT}", V4.theirs))?;
    let (id, qp) = connect(lab, V4, MESSAGES, SIZE)?;
    for _ in 0..MESSAGES {
        lab.wait_ok()?;
    }
    for _ in 0..MESSAGES {
        tell(lab, qp, &pattern(1, SIZE))?;
    }
    ends(lab, id)?;
    finished(lab, &["return status 0", "rc=0"])?;
    expect("that messages were lost", lab.script.borrow().lost >= 4, true)
}
