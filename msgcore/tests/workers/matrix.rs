//! Every operation between ranks on threads of their own, over memif and over UDP sockets: each length around what is cut, aligned and
//! not, at a peer and at oneself, by each means, in memory that is exposed, also under a key of the owner's choice, and in memory that
//! is only offered. Every byte that was written is compared, and those around it.

use std::hash::{DefaultHasher, Hasher as _};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, Ordering};

use roci_launcher::Job;
use roci_msgcore::active::{ActiveMessage, HandlerContext, HandlerId};
use roci_msgcore::collectives::Collectives as _;
use roci_msgcore::one_sided::{AtomicOp, AtomicWidth, RemoteAccess, RemoteAddress, Segment, SegmentKey, Signal};
use roci_msgcore::{DedicatedWorker, PeerId, Rank, UserMemory, Worker};

use crate::ranks::{Member, config, run_ranks};

const RANKS: usize = 2;
/// Around nothing, a page and the MTUs of both devices, and what takes many of all; then at an odd place, and at an aligned one.
const LENGTHS: [usize; 13] = [0, 1, 7, 8, 1023, 1024, 1025, 4095, 4096, 4097, 65_537, 300_001, LONGEST];
const PLACES: [usize; 2] = [GUARD + 1, 2 * GUARD];
const LONGEST: usize = 8 << 20;
/// Bytes on both sides of what is written, that must stay.
const GUARD: usize = 64;
/// Each rank has a part of each rank's memory, which begins with numbers.
const NUMBERS: usize = GUARD;
const LONG: usize = 8;
const SHORT: usize = 20;
const SIGNALS: usize = 24;
/// The key that all ranks choose.
const REQUESTED: u64 = u64::MAX / 7;
const PART: usize = NUMBERS + LONGEST + 4 * GUARD;

/// A link that loses frames, and the MTU that connections have there.
const MEMIF: [(&str, &str); 2] = [("faults", FAULTS), ("mtu", "4096")];
const UDP: [(&str, &str); 2] = [("faults", FAULTS), ("mtu", "1024")];
const FAULTS: &str = "loss=0.002,dup=0.002,reorder=0.002,corrupt=0.001,seed=5";
/// RDMA, gets that the target answers, messages alone, and one end alone without RDMA.
const MEANS: [[&[(&str, &str)]; RANKS]; 4] = [
    [&[], &[]],
    [&[("rdma_gets", "off")], &[("rdma_gets", "off")]],
    [&[("rdma", "off")], &[("rdma", "off")]],
    [&[], &[("rdma", "off")]],
];
const FIREHOSES: [(&str, &str); 3] = [("firehose_bucket", "4KiB"), ("firehose_m", "1"), ("firehose_maxvictim_m", "1")];

const OPS: [AtomicOp; 11] = [
    AtomicOp::Add(u64::MAX - 4),
    AtomicOp::Swap(0x0102_0304_0506_0708),
    AtomicOp::CompareSwap { compare: 0x0102_0304_0506_0708, swap: 0xdead_beef_0000_0100 },
    AtomicOp::CompareSwap { compare: 1, swap: 2 },
    AtomicOp::And(0x00ff_00ff_00ff_00ff),
    AtomicOp::Or(1 << 63 | 1 << 31),
    AtomicOp::Xor(0x8000_0001_8000_0001),
    AtomicOp::Min(7),
    AtomicOp::Max(u64::MAX - 1),
    AtomicOp::SignedMin(3),
    AtomicOp::SignedMax(9),
];

/// Bytes of which each run of eight says where it is, and in which round it was written.
fn bytes(len: usize, round: usize) -> Vec<u8> {
    let word =
        |at: usize| (round as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (at as u64).wrapping_mul(0xff51_afd7);
    (0..len.div_ceil(8)).flat_map(|at| word(at).to_le_bytes()).take(len).collect()
}

fn digest(bytes: &[u8]) -> Vec<u8> {
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    hasher.finish().to_le_bytes().into()
}

/// The memory of a rank that all operate on.
struct Opened {
    exposed: [Segment; 2],
    offered: &'static [AtomicU8],
}

impl Opened {
    /// Opens all kinds, and returns the keys to those of all ranks.
    fn open<W: Member>(worker: &mut W) -> (Self, [Vec<SegmentKey>; 3]) {
        let memory = || {
            let mut memory = worker.memory(RANKS * PART);
            memory.fill(0);
            memory
        };
        let (first, second) = (memory(), memory());
        let exposed = [
            worker.expose(first).expect("a key"),
            worker.expose_as(REQUESTED, 0, second, RemoteAccess::ReadWrite).expect("a key"),
        ];
        let offered: &'static [AtomicU8] = (0..RANKS * PART).map(|_| AtomicU8::new(0)).collect::<Vec<_>>().leak();
        // SAFETY: they are mapped for ever, and all references to them are to atomics.
        let target = unsafe { UserMemory::target(NonNull::from(offered).cast(), offered.len()) };
        let offer = worker.offer(target).expect("keys are left");
        let [exposed_keys, offered_keys] =
            [exposed[0].key(), offer.key()].map(|key| worker.gather_keys(key).expect("all are here"));
        (Self { exposed, offered }, [exposed_keys, vec![SegmentKey::requested(REQUESTED); RANKS], offered_keys])
    }

    fn content<W: Member>(&self, worker: &mut W, kind: usize) -> Vec<u8> {
        let Some(&segment) = self.exposed.get(kind) else {
            return self.offered.iter().map(|byte| byte.load(Ordering::Relaxed)).collect();
        };
        let mut content = vec![0; RANKS * PART];
        worker.read_segment(segment, 0, &mut content).expect("it is there");
        content
    }
}

/// What a rank has done to its part of a rank's memory.
struct Part {
    owner: Rank,
    key: SegmentKey,
    begin: usize,
    content: Vec<u8>,
    signals: u64,
}

impl Part {
    fn at(&self, offset: usize) -> RemoteAddress {
        self.key.at(self.begin + offset)
    }

    fn put<W: Member>(&mut self, worker: &mut W, round: usize, len: usize, offset: usize) {
        let sent = bytes(len, round);
        if round.is_multiple_of(2) {
            worker.put_blocking(self.owner, &sent, self.at(offset)).expect("it arrives");
        } else {
            let mut buffer = worker.memory(len);
            buffer.copy_from_slice(&sent);
            let signal = Some((Signal::Add(3), self.at(SIGNALS)));
            let put = worker.put_with(self.owner.into(), buffer, self.at(offset), signal).expect("accepted");
            let done = worker.wait(put).expect("it arrives");
            assert!(done.buffer[..] == sent[..], "the buffer is handed back as it was");
            self.signals += 3;
            self.set(SIGNALS, &{ self.signals }.to_ne_bytes());
        }
        self.set(offset, &sent);
    }

    fn set(&mut self, offset: usize, bytes: &[u8]) {
        self.content[offset..offset + bytes.len()].copy_from_slice(bytes);
    }

    /// Gets what was written, and what is around it.
    fn check<W: Member>(&self, worker: &mut W, len: usize, offset: usize) {
        let around = offset - GUARD..offset + len + GUARD;
        let mut got = vec![0; around.len()];
        worker.get_blocking(self.owner, &mut got, self.at(around.start)).expect("it comes");
        assert!(got == self.content[around], "{len} bytes at {offset} of {}'s memory", self.owner);
    }

    fn count<W: Member>(&mut self, worker: &mut W) {
        let (mut long, mut short) = (0x0000_0001_0000_0100, 0x100);
        worker.put_value(self.owner, long, self.at(LONG)).expect("accepted");
        worker.put_blocking(self.owner, &u32::to_ne_bytes(short), self.at(SHORT)).expect("it arrives");
        worker.fence(self.owner).expect("it is there");
        for op in OPS {
            let mut fetch = |width, offset| {
                let request = worker.atomic_with(self.owner.into(), op, width, self.at(offset)).expect("accepted");
                worker.wait(request).expect("it is done").data.expect("an atomic has a number")
            };
            assert_eq!((fetch(AtomicWidth::U64, LONG), fetch(AtomicWidth::U32, SHORT)), (long, short.into()), "{op:?}");
            (long, short) = (op.apply(long), op.apply_to_u32(short));
        }
        self.set(LONG, &long.to_ne_bytes());
        self.set(SHORT, &short.to_ne_bytes());
    }
}

/// All operations of a rank on the memory of a rank.
fn operate<W: Member>(worker: &mut W, part: &mut Part) {
    let mut round = worker.rank() * 100;
    for len in LENGTHS {
        for place in PLACES.into_iter().take(if len == LONGEST { 1 } else { PLACES.len() }) {
            round += 1;
            part.put(worker, round, len, NUMBERS + place);
            part.check(worker, len, NUMBERS + place);
        }
    }
    part.count(worker);
}

/// A handler answers with the bytes and numbers of its request.
fn echo(context: &mut HandlerContext<'_>, message: ActiveMessage<'_>) {
    context.reply(message.arguments, message.payload).expect("a request");
}

fn ask<W: Member>(worker: &mut W, to: PeerId) {
    let most = worker.max_active();
    for len in LENGTHS.into_iter().filter(|&len| len < most).chain([most - 1, most]) {
        let payload = bytes(len, len);
        let request = worker.request_active(to, HandlerId::of("echo"), &[len as u64], &payload).expect("accepted");
        let reply = worker.wait(request).expect("a reply");
        assert_eq!((reply.data, reply.len, reply.peer), (Some(len as u64), len, to));
        assert!(reply.buffer[..] == payload[..], "{len} bytes");
    }
}

fn rank<W: Member>(job: Job, device: &[(&str, &str)], means: &[(&str, &str)]) {
    let address = format!("udp:127.90.0.{}", job.rank() + 1);
    let device = [device, &[("device", if device[1] == UDP[1] { &address } else { "memif" })]].concat();
    let arena = [("arena_size", "256MiB"), ("local", "off")];
    let knobs = [&device[..], means, &FIREHOSES, &arena].concat();
    let mut worker = W::join(&config(&knobs), job).expect("it opens");
    worker.register_handler("echo", Box::new(echo)).expect("free");
    let (opened, keys) = Opened::open(&mut worker);
    let us = worker.rank();
    for (kind, keys) in keys.iter().enumerate() {
        for (owner, &key) in keys.iter().enumerate() {
            let mut part = Part { owner, key, begin: us * PART, content: vec![0; PART], signals: 0 };
            operate(&mut worker, &mut part);
            // What all have done to its memory an owner sees for itself.
            let digests = worker.all_gather(&digest(&part.content)).expect("all are here");
            if owner == us {
                let content = opened.content(&mut worker, kind);
                assert!(
                    content.chunks(PART).map(digest).eq(digests),
                    "rank {us} finds other bytes than were put there"
                );
            }
            worker.barrier().expect("all are here");
        }
    }
    (0..RANKS).for_each(|to| ask(&mut worker, to.into()));
    let stats = worker.firehose_stats().expect("it lives");
    assert!(stats.repins + stats.unpins > 1000, "most of what is offered was unregistered meanwhile: {stats:?}");
    worker.close().expect("all close");
}

fn all<W: Member>(device: &'static [(&str, &str)]) {
    for means in MEANS {
        run_ranks(RANKS, move |job, _| {
            let means = means[job.rank()];
            rank::<W>(job, device, means);
        });
    }
}

#[test]
fn over_memif() {
    all::<Worker>(&MEMIF);
}

#[test]
fn over_memif_with_threads() {
    all::<DedicatedWorker>(&MEMIF);
}

#[test]
fn over_sockets() {
    all::<Worker>(&UDP);
}

#[test]
fn over_sockets_with_threads() {
    all::<DedicatedWorker>(&UDP);
}
