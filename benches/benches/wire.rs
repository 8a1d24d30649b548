//! Frames: emitting with the ICRC in the same pass, parsing, verifying.
#![allow(missing_docs)] // criterion's macros

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use roci_protocol::wire::{Bth, Flow, Frame, Headers, Ip, MacAddr, Opcode};
use roci_protocol::{Psn, Qpn};

const SIZES: [usize; 4] = [8, 64, 1024, 4096];

fn flow() -> Flow {
    let ip = Ip::between([10, 0, 0, 1].into(), [10, 0, 0, 2].into()).expect("both are IPv4");
    Flow::new(MacAddr([2, 0, 0, 0, 0, 1]), MacAddr([2, 0, 0, 0, 0, 2]), None, ip, 0xc000)
}

fn frames(criterion: &mut Criterion) {
    let headers = Headers::plain(Bth::new(Opcode::RcSendOnly, Qpn::new(7), Psn::new(1)));
    let mut group = criterion.benchmark_group("frame");
    for size in SIZES {
        let mut flow = flow();
        let payload = vec![0x5a; size];
        let mut bytes = vec![0; flow.frame_len(&headers, size)];
        group.throughput(Throughput::Bytes(size as u64));
        group.bench_with_input(BenchmarkId::new("emit", size), &payload, |bencher, payload| {
            bencher.iter(|| flow.emit(black_box(&mut bytes), &headers, size, |into| into.copy_from_slice(payload)));
        });
        group.bench_with_input(BenchmarkId::new("parse_and_verify", size), &bytes, |bencher, bytes| {
            bencher.iter(|| Frame::parse(black_box(bytes)).and_then(|frame| frame.verify_icrc()));
        });
    }
    group.finish();
}

criterion_group!(benches, frames);
criterion_main!(benches);
