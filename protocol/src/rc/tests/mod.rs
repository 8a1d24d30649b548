//! Packet scripts: one scenario each, against one side alone.

mod answers;
mod atomics;
mod credits;
mod fast_path;
mod loss;
mod repairs;
mod replays;
mod replies;
mod requester;
mod responder;
mod selective;
mod sending;
mod states;
mod windows;

use super::*;
use crate::wire::{Aeth, AtomicEth, Bth, Headers, ImmDt, NakCode, Reth, Syndrome};
use crate::{Access, Msn, Mtu, Psn, Qpn, Rkey};

const MTU: usize = 256;
const KEY: Rkey = Rkey(7);
const REGION: u64 = 4096;

/// A world that writes down what it is asked for.
#[derive(Default)]
struct Script {
    sent: Vec<(Headers, usize)>,
    placed: Vec<(usize, usize)>,
    written: Vec<(u64, usize)>,
    done: Vec<RcCompletion<u32>>,
    /// Packets that the link still takes.
    room: Option<usize>,
    /// The region has gone.
    is_revoked: bool,
    /// The value that atomics operate on, and how many did.
    word: u64,
    atomics: usize,
    /// Memory windows that are valid.
    windows: Vec<Rkey>,
    /// Early packets that can still be kept.
    keeps: usize,
    /// What is kept and what comes under its name differ; what was let go.
    disagrees: bool,
    released: Vec<Held>,
    /// Maps that were sent, without their trailing zeros.
    maps: Vec<Vec<u8>>,
    /// Receives that queue pairs share.
    shared: Vec<RecvRequest<u32>>,
}

impl Env for Script {
    type Buffer = u32;

    fn transmit(&mut self, headers: &Headers, payload: Payload<'_, u32>) -> Result<(), TxError> {
        if self.room == Some(0) {
            return Err(TxError::Busy);
        }
        self.room = self.room.map(|room| room - 1);
        let len = match payload {
            Payload::None => 0,
            Payload::Local { len, .. } => len,
            Payload::Bytes(bytes) => {
                if headers.bth.opcode == Opcode::RcAck {
                    let end = bytes.iter().rposition(|&byte| byte != 0).map_or(0, |at| at + 1);
                    self.maps.push(bytes[..end].to_vec());
                }
                bytes.len()
            }
            Payload::Remote { .. } if self.is_revoked => return Err(TxError::Denied),
            Payload::Remote { len, .. } => len,
        };
        self.sent.push((*headers, len));
        Ok(())
    }

    fn place(&mut self, _: &mut u32, offset: usize, bytes: &[u8]) {
        self.placed.push((offset, bytes.len()));
    }

    fn authorize(&self, rkey: Rkey, va: u64, len: u64, _: Access) -> Result<(), Denied> {
        if rkey == KEY && va + len <= REGION && !self.is_revoked { Ok(()) } else { Err(Denied) }
    }

    fn place_remote(&mut self, rkey: Rkey, va: u64, bytes: &[u8]) -> Result<(), Denied> {
        self.authorize(rkey, va, bytes.len() as u64, Access::REMOTE_WRITE)?;
        self.written.push((va, bytes.len()));
        Ok(())
    }

    fn atomic(&mut self, rkey: Rkey, va: u64, operation: AtomicOperation) -> Result<u64, Denied> {
        self.authorize(rkey, va, 8, Access::REMOTE_ATOMIC)?;
        self.atomics += 1;
        let original = self.word;
        self.word = operation.apply(original);
        Ok(original)
    }

    fn invalidate(&mut self, rkey: Rkey) -> Result<(), Denied> {
        let at = self.windows.iter().position(|&window| window == rkey).ok_or(Denied)?;
        self.windows.remove(at);
        Ok(())
    }

    fn execute_local(&mut self, operation: SendOp) -> Result<(), Denied> {
        match operation {
            SendOp::BindWindow { window, region: KEY, .. } => self.windows.push(window),
            SendOp::LocalInvalidate { rkey } => return self.invalidate(rkey),
            _ => return Err(Denied),
        }
        Ok(())
    }

    fn hold(&mut self, _: Held) -> bool {
        let can = self.keeps > 0;
        self.keeps -= usize::from(can);
        can
    }

    fn holds_same(&self, _: Held, _: &Packet<'_>) -> bool {
        !self.disagrees
    }

    fn release(&mut self, held: Held) {
        self.released.push(held);
    }

    fn take_shared_receive(&mut self) -> Option<RecvRequest<u32>> {
        self.shared.pop()
    }

    fn complete(&mut self, completion: RcCompletion<u32>) {
        self.done.push(completion);
    }
}

impl Script {
    fn opcodes(&self) -> Vec<(Opcode, u32)> {
        self.sent.iter().map(|(headers, _)| (headers.bth.opcode, headers.bth.psn.get())).collect()
    }

    fn statuses(&self) -> Vec<(u64, WcStatus)> {
        self.done.iter().map(|done| (done.wr_id, done.status)).collect()
    }

    fn last_syndrome(&self) -> Option<(Syndrome, u32)> {
        let (headers, _) = self.sent.last()?;
        Some((headers.ext.aeth?.syndrome, headers.bth.psn.get()))
    }
}

fn connected(change: impl FnOnce(&mut Config)) -> RcQueuePair<u32> {
    let mut config = Config {
        dest_qpn: Qpn::new(0x99),
        mtu: Mtu::Mtu256,
        sq_psn: Psn::new(100),
        rq_psn: Psn::new(500),
        ack_timeout_ns: 1000,
        ack_timeout_max_ns: 4000,
        retry_limit: 3,
        rnr_retry_limit: Some(1),
        end_to_end_credits: false,
        ..Config::default()
    };
    change(&mut config);
    let mut qp = RcQueuePair::new(config);
    qp.modify(State::Rtr).expect("legal");
    qp.modify(State::Rts).expect("legal");
    qp
}

fn post(qp: &mut RcQueuePair<u32>, wr_id: u64, op: SendOp, len: usize) {
    let request = SendRequest { wr_id, op, len: len as u32, ..rejected_send() };
    qp.post_send(request).expect("the queue has room");
}

fn send(qp: &mut RcQueuePair<u32>, wr_id: u64, len: usize) {
    post(qp, wr_id, SendOp::Send { imm: None }, len);
}

fn read(qp: &mut RcQueuePair<u32>, wr_id: u64, len: usize) {
    post(qp, wr_id, SendOp::Read { remote: Remote { va: 0, rkey: KEY } }, len);
}

fn receive(qp: &mut RcQueuePair<u32>, wr_id: u64, len: u32) {
    qp.post_recv(RecvRequest { wr_id, buffer: 0, len }).expect("the queue has room");
}

fn request(opcode: Opcode, psn: u32) -> Headers {
    let mut headers = Headers::plain(Bth::new(opcode, Qpn::new(1), Psn::new(psn)));
    headers.bth.ack_req = true;
    headers
}

fn with_reth(opcode: Opcode, psn: u32, va: u64, len: u32) -> Headers {
    let mut headers = request(opcode, psn);
    headers.ext.reth = Some(Reth { va, rkey: KEY, len });
    headers
}

fn add_one(psn: u32) -> Headers {
    let mut headers = request(Opcode::RcFetchAdd, psn);
    headers.ext.atomic = Some(AtomicEth { va: 0, rkey: KEY, swap_or_add: 1, compare: 0 });
    headers
}

fn answer(psn: u32, syndrome: Syndrome) -> Headers {
    let mut headers = Headers::plain(Bth::new(Opcode::RcAck, Qpn::new(1), Psn::new(psn)));
    headers.ext.aeth = Some(Aeth { syndrome, msn: Msn::new(0) });
    headers
}

const ACK: Syndrome = Syndrome::Ack { credit: 31 };

fn feed(qp: &mut RcQueuePair<u32>, script: &mut Script, headers: Headers, len: usize) {
    let payload = vec![0; len];
    qp.on_packet(0, &Packet { headers, payload: &payload }, script);
}

const fn unlimited() -> Quantum {
    Quantum::UNLIMITED
}

fn pump(qp: &mut RcQueuePair<u32>, script: &mut Script) {
    let _ = qp.pump_replies(0, &mut unlimited(), script);
    let _ = qp.pump_requests(0, &mut unlimited(), script);
}

fn rejected_send() -> SendRequest<u32> {
    let op = SendOp::Send { imm: None };
    SendRequest { wr_id: 9, op, buffer: 0, len: 0, signaled: true, solicited: false, fence: false, ack_req: true }
}
