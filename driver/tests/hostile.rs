//! Every field of every header, with every kind of wrong value: what the victim does about it, and what it says.
//!
//! The rule that each row proves:
//!
//! - A frame raises `rx_frames`, and then either one counter of frames that reach no queue pair (malformed, unknown
//!   queue pair, wrong address, neighbours), or `rx_delivered`. `EngineStats::is_balanced` holds.
//! - A packet that was delivered raises one more, which says what became of it: `rx_requests` for a request that was
//!   executed, or the name of what was wrong with it. A response that is as it should be raises none.
//! - `duplicate_dropped` is a part of `duplicate_request`, and a NAK beyond a READ's missing response raises
//!   `implied_nak_seq_err` beside its own counter. What begins with `tx_`, and `retransmitted_packets`, count
//!   what the victim sends and are left out here.
//! - Whatever is refused leaves no trace: the victim's memory and the end of each of its work requests are compared
//!   with those of another victim that did not get the frame.
//! - On the wire there is silence, or the answer that IBTA has for it.
//!
//! Beside the wrong values stand good ones that must pass, so that the comparison can fail.
//!
//! The stack does not check station addresses (the port filters, or a bridge did), IPv4's reserved bit, or UDP's
//! checksum (the ICRC covers more): such rows say that the packet is executed.

#[path = "hostile/lab.rs"]
mod lab;
#[path = "hostile/row.rs"]
mod row;

use lab::{Keys, Lab, MTU, Net, READS, RECEIVE, REGION, Said};
use roci_driver::SendWr;
use roci_driver::WcStatus;
use roci_protocol::wire::{Headers, NakCode, Opcode, Transport};
use roci_protocol::{Pkey, Qpn, Rkey};
use row::{Row, row, run};

/// A SEND that fits into one packet.
fn send(lab: &mut Lab) -> Vec<u8> {
    lab.packet(Opcode::RcSendOnly, 0, 20, |_, _| ())
}

/// A SEND whose headers were edited.
fn edited(name: impl Into<String>, edit: fn(&mut Headers)) -> Row {
    row(name, move |lab| lab.packet(Opcode::RcSendOnly, 0, 20, |headers, _| edit(headers)))
}

/// A SEND with other bytes at `offset` of its IP, its UDP, its base transport header.
fn patched(name: impl Into<String>, header: fn(&Lab) -> usize, offset: usize, bytes: &[u8]) -> Row {
    let bytes = bytes.to_vec();
    row(name, move |lab| {
        let frame = send(lab);
        lab.patch(frame, header(lab) + offset, &bytes)
    })
}

/// A packet of `payload` bytes, `ahead` of the first that is expected.
fn packet(opcode: Opcode, ahead: i32, payload: usize) -> Row {
    row(format!("{} {ahead:+} with {payload} bytes", opcode.name()), move |lab| {
        lab.packet(opcode, ahead, payload, |_, _| ())
    })
}

/// A request for memory, edited.
fn access(name: &str, opcode: Opcode, payload: usize, edit: fn(&mut Headers, &Keys)) -> Row {
    row(format!("{} {name}", opcode.name()), move |lab| lab.packet(opcode, 0, payload, edit))
}

/// An answer to the victim's first requests.
fn answer(opcode: Opcode, ahead: i32, syndrome: u8, payload: usize) -> Row {
    row(format!("{} {ahead:+} of {syndrome:#04x} with {payload} bytes", opcode.name()), move |lab| {
        lab.answer(opcode, ahead, syndrome, payload)
    })
}

fn link(_: &Lab) -> usize {
    0
}

#[test]
fn good_requests_are_executed_on_every_net() {
    for net in [Net::V4, Net::V4Tagged, Net::V6] {
        run(vec![
            row("SEND", send).executes().on(net),
            packet(Opcode::RcSendOnlyImm, 0, 0).executes().on(net),
            packet(Opcode::RcWriteOnly, 0, MTU).executes().on(net),
            packet(Opcode::RcWriteOnlyImm, 0, 3).executes().on(net),
            access("of 600 bytes", Opcode::RcReadRequest, 0, |headers, _| reth(headers).len = 600)
                .counts("rx_requests")
                .says(&[
                    Said::Data(Opcode::RcReadResponseFirst, 0),
                    Said::Data(Opcode::RcReadResponseMiddle, 1),
                    Said::Data(Opcode::RcReadResponseLast, 2),
                ])
                .on(net),
            packet(Opcode::RcFetchAdd, 0, 0)
                .counts("rx_requests")
                .says(&[Said::Data(Opcode::RcAtomicAck, 0)])
                .changes()
                .on(net),
        ]);
    }
}

#[test]
fn ethernet() {
    run(vec![
        patched("another station", link, 0, &[2, 0, 0, 0, 0, 99]).executes(),
        patched("from another station", link, 6, &[2, 0, 0, 0, 0, 99]).executes(),
        patched("RoCE version 1", link, 12, &[0x89, 0x15]).counts("rx_not_ip"),
        patched("ARP", link, 12, &[0x08, 0x06]).counts("rx_not_ip"),
        patched("a service tag", link, 12, &[0x88, 0xa8]).counts("rx_not_ip"),
        patched("IPv4 under IPv6's type", link, 12, &[0x86, 0xdd]).counts("rx_ip_header"),
        patched("IPv6 under IPv4's type", link, 12, &[0x08, 0x00]).counts("rx_ip_header").on(Net::V6),
        patched("another VLAN", link, 14, &[0, 8]).counts("rx_wrong_address").on(Net::V4Tagged),
        patched("no VLAN", link, 14, &[0, 0]).counts("rx_wrong_address").on(Net::V4Tagged),
        patched("another priority", link, 14, &[0xf0, 7]).executes().on(Net::V4Tagged),
        patched("a tag in a tag", link, 16, &[0x81, 0]).counts("rx_not_ip").on(Net::V4Tagged),
        row("an unexpected VLAN", |lab| tagged(lab, 7)).counts("rx_wrong_address"),
        row("a tag that only says its priority", |lab| tagged(lab, 0xe000)).executes(),
        row("Ethernet's own pad", |lab| [&send(lab)[..], &[0; 9]].concat()).executes(),
    ]);
}

fn tagged(lab: &mut Lab, control: u16) -> Vec<u8> {
    let mut frame = send(lab);
    frame.splice(12..12, [0x81, 0, (control >> 8) as u8, control as u8]);
    frame
}

#[test]
fn every_prefix_of_a_frame_is_refused_once() {
    for net in [Net::V4, Net::V4Tagged, Net::V6] {
        let whole = Lab::new(net).packet(Opcode::RcWriteOnlyImm, 0, 5, |_, _| ()).len();
        for len in 0..whole {
            let mut lab = Lab::new(net);
            let before = lab.counters();
            let frame = lab.packet(Opcode::RcWriteOnlyImm, 0, 5, |_, _| ());
            lab.inject(&frame[..len]);
            assert_eq!(lab.listen(), []);
            let raised = lab.counters().into_iter().filter(|(name, count)| before[name] != *count);
            let names: Vec<_> = raised.map(|(name, _)| name).collect();
            assert!(names.len() == 2 && names.contains(&"rx_frames"), "{len} bytes: {names:?}");
        }
    }
}

/// Shorter packets whose lengths agree: the headers that the opcode announces are not there.
#[test]
fn every_packet_that_is_too_short_for_its_headers_is_refused_once() {
    for &opcode in Opcode::ALL.iter().filter(|opcode| opcode.transport() == Transport::Rc) {
        let mut lab = Lab::new(Net::V4);
        let (whole, first) = (lab.packet(opcode, 0, 0, |_, _| ()).len(), lab.bth_at());
        for len in first..whole {
            let short = row(format!("{len} bytes of {}", opcode.name()), move |lab: &mut Lab| {
                let frame = lab.packet(opcode, 0, 0, |_, _| ());
                lab.resize(frame, len)
            });
            short.counts("rx_truncated").run();
        }
    }
}

#[test]
fn ipv4() {
    let ip = Lab::ip_at;
    run(vec![
        patched("version 6", ip, 0, &[0x65]).counts("rx_ip_header"),
        patched("version 0", ip, 0, &[0x05]).counts("rx_ip_header"),
        patched("four words", ip, 0, &[0x44]).counts("rx_ip_header"),
        patched("options", ip, 0, &[0x46]).counts("rx_ip_header"),
        patched("type of service", ip, 1, &[0xfe]).executes(),
        patched("length 0", ip, 2, &[0, 0]).counts("rx_ip_length"),
        patched("length 19", ip, 2, &[0, 19]).counts("rx_ip_length"),
        patched("length 20", ip, 2, &[0, 20]).counts("rx_truncated"),
        patched("length 27", ip, 2, &[0, 27]).counts("rx_truncated"),
        patched("length 60", ip, 2, &[0, 60]).counts("rx_udp_length"),
        patched("length 65535", ip, 2, &[0xff, 0xff]).counts("rx_ip_length"),
        patched("identification", ip, 4, &[0xab, 0xcd]).executes(),
        patched("may be fragmented", ip, 6, &[0, 0]).executes(),
        patched("the reserved bit", ip, 6, &[0x80, 0]).executes(),
        patched("more fragments", ip, 6, &[0x20, 0]).counts("rx_ip_fragment"),
        patched("a fragment's offset", ip, 6, &[0, 1]).counts("rx_ip_fragment"),
        patched("time to live 0", ip, 8, &[0]).executes(),
        patched("time to live 255", ip, 8, &[255]).executes(),
        patched("ICMP", ip, 9, &[1]).counts("rx_not_udp"),
        patched("TCP", ip, 9, &[6]).counts("rx_not_udp"),
        patched("IPv6 in IPv4", ip, 9, &[41]).counts("rx_not_udp"),
        row("checksum", |lab| flipped(lab, Lab::ip_at, 10)).counts("rx_ip_checksum"),
        row("checksum's low byte", |lab| flipped(lab, Lab::ip_at, 11)).counts("rx_ip_checksum"),
        patched("source", ip, 12, &[10, 0, 0, 9]).counts("rx_wrong_address"),
        patched("our own source", ip, 12, &[10, 0, 0, 2]).counts("rx_wrong_address"),
        patched("destination", ip, 16, &[10, 0, 0, 9]).counts("rx_wrong_address"),
        patched("broadcast", ip, 16, &[255; 4]).counts("rx_wrong_address"),
    ]);
}

/// A SEND with one byte wrong and nothing made right again.
fn flipped(lab: &mut Lab, header: fn(&Lab) -> usize, offset: usize) -> Vec<u8> {
    let mut frame = send(lab);
    frame[header(lab) + offset] ^= 0x01;
    frame
}

#[test]
fn ipv6() {
    let ip = Lab::ip_at;
    let rows = [
        patched("version 4", ip, 0, &[0x40]).counts("rx_ip_header"),
        patched("version 7", ip, 0, &[0x70]).counts("rx_ip_header"),
        patched("class and flow label", ip, 0, &[0x6f, 0xef, 0xff, 0xff]).executes(),
        patched("length 0", ip, 4, &[0, 0]).counts("rx_truncated"),
        patched("length 40", ip, 4, &[0, 40]).counts("rx_udp_length"),
        patched("length 65535", ip, 4, &[0xff, 0xff]).counts("rx_ip_length"),
        patched("hop-by-hop options", ip, 6, &[0]).counts("rx_not_udp"),
        patched("TCP", ip, 6, &[6]).counts("rx_not_udp"),
        patched("a fragment", ip, 6, &[44]).counts("rx_not_udp"),
        patched("ICMP", ip, 6, &[58]).counts("rx_not_udp"),
        patched("no next header", ip, 6, &[59]).counts("rx_not_udp"),
        patched("hop limit 0", ip, 7, &[0]).executes(),
        patched("source", ip, 23, &[9]).counts("rx_wrong_address"),
        patched("destination", ip, 39, &[9]).counts("rx_wrong_address"),
        patched("a group", ip, 24, &[0xff, 2]).counts("rx_wrong_address"),
    ];
    run(rows.into_iter().map(|row| row.on(Net::V6)).collect());
}

#[test]
fn udp() {
    for net in [Net::V4, Net::V6] {
        let udp = Lab::udp_at;
        let rows = [
            patched("source port", udp, 0, &[0, 0]).executes(),
            patched("destination port", udp, 2, &[0x12, 0xb6]).counts("rx_not_roce"),
            patched("length 0", udp, 4, &[0, 0]).counts("rx_udp_length"),
            patched("length 8", udp, 4, &[0, 8]).counts("rx_udp_length"),
            patched("one less", udp, 4, &[0, 8 + 12 + 20 + 3]).counts("rx_udp_length"),
            patched("the length", udp, 4, &[0, 8 + 12 + 20 + 4]).executes(),
            patched("one more", udp, 4, &[0, 8 + 12 + 20 + 5]).counts("rx_udp_length"),
            patched("length 65535", udp, 4, &[0xff, 0xff]).counts("rx_udp_length"),
            patched("checksum", udp, 6, &[0xab, 0xcd]).executes(),
        ];
        run(rows.into_iter().map(|row| row.on(net)).collect());
    }
}

#[test]
fn base_transport_header() {
    let bth = Lab::bth_at;
    run(vec![
        edited("solicited", |headers| headers.bth.solicited = true).executes(),
        edited("not migrated", |headers| headers.bth.mig_req = false).executes(),
        edited("forward congestion", |headers| headers.bth.fecn = true).executes(),
        edited("backward congestion", |headers| headers.bth.becn = true).executes(),
        edited("reserved beside congestion", |headers| headers.bth.reserved_6 = 0x3f).executes(),
        edited("reserved beside AckReq", |headers| headers.bth.reserved_7 = 0x7f).executes(),
        edited("no answer asked for", |headers| headers.bth.ack_req = false).counts("rx_requests").changes(),
        edited("a limited member of the partition", |headers| headers.bth.pkey = Pkey(0x7fff)).executes(),
        edited("another partition", |headers| headers.bth.pkey = Pkey(0x1234)).counts("rx_bad_pkey"),
        edited("partition 0", |headers| headers.bth.pkey = Pkey(0)).counts("rx_bad_pkey"),
        edited("one bit of the partition", |headers| headers.bth.pkey = Pkey(0xfffe)).counts("rx_bad_pkey"),
        edited("queue pair 0", |headers| headers.bth.dest_qpn = Qpn::new(0)).counts("rx_unknown_qpn"),
        edited("queue pair 1", |headers| headers.bth.dest_qpn = Qpn::new(1)).counts("rx_bad_management"),
        edited("all stations", |headers| headers.bth.dest_qpn = Qpn::new(0xff_ffff)).counts("rx_unknown_qpn"),
        row("a queue pair that is gone", |lab| to(lab, lab.gone)).counts("rx_unknown_qpn"),
        row("a queue pair without a peer", |lab| to(lab, lab.unconnected)).counts("rx_unknown_qpn"),
        row("another generation", |lab| to(lab, Qpn::new(lab.qp.qpn().get() ^ 0x80_0000))).counts("rx_unknown_qpn"),
        patched("one pad byte", bth, 1, &[0x10]).executes(),
        row("more pad than payload", |lab| {
            let frame = lab.packet(Opcode::RcSendOnly, 0, 0, |_, _| ());
            lab.patch(frame, lab.bth_at() + 1, &[0x30])
        })
        .counts("rx_pad"),
        row("a length that is no multiple of four", |lab| {
            let frame = send(lab);
            let len = frame.len() + 1;
            lab.resize(frame, len)
        })
        .counts("rx_alignment"),
    ]);
    run((1..16).map(|v| patched(format!("version {v}"), bth, 1, &[v]).counts("rx_transport_version")).collect());
}

fn to(lab: &mut Lab, qpn: Qpn) -> Vec<u8> {
    lab.packet(Opcode::RcSendOnly, 0, 20, |headers, _| headers.bth.dest_qpn = qpn)
}

#[test]
fn opcodes() {
    for code in 0..=u8::MAX {
        match Opcode::from_wire(code) {
            None => {
                let row = patched(format!("opcode {code:#04x}"), Lab::bth_at, 0, &[code]).counts("rx_unknown_opcode");
                // Of a reliable connection's peer it is a request that cannot be done.
                if code >> 5 == 0 { row.invalid().run() } else { row.run() }
            }
            // For a packet that was not sent yet.
            Some(Opcode::Cnp) => packet(Opcode::Cnp, 0, 16).counts("rp_cnp_ignored").run(),
            Some(opcode) if opcode.transport() != Transport::Rc => {
                packet(opcode, 0, 20).counts("rx_wrong_transport").run();
            }
            Some(_) => {}
        }
    }
}

#[test]
fn packet_sequence_numbers() {
    let missing = Said::Nak(NakCode::PsnSequence, 0);
    run(vec![
        packet(Opcode::RcSendOnly, 1, 20).counts("out_of_sequence").says(&[missing]),
        packet(Opcode::RcReadRequest, 1, 0).counts("out_of_sequence").says(&[missing]),
        packet(Opcode::RcSendOnly, 0x7f_ffff, 20).counts("out_of_sequence").says(&[missing]),
        packet(Opcode::RcSendOnly, 2, 20)
            .after(|lab| {
                let first = lab.packet(Opcode::RcSendOnly, 1, 20, |_, _| ());
                lab.prepare(first);
            })
            .counts("out_of_sequence"),
        // From before the connection: nothing was executed that could be acknowledged.
        packet(Opcode::RcSendOnly, -1, 20).counts("duplicate_request").comes_first(),
        packet(Opcode::RcWriteOnly, -0x80_0000, 20).counts("duplicate_request").comes_first(),
        packet(Opcode::RcSendOnly, -1, 20)
            .after(|lab| prepare(lab, send))
            .counts("duplicate_request")
            .says(&[Said::Ack(0)]),
        packet(Opcode::Cnp, -1, 16).counts("rp_cnp_handled"),
        packet(Opcode::Cnp, -0x2_0000, 16).counts("rp_cnp_ignored"),
        row("a SEND again", send).after(|lab| prepare(lab, send)).counts("duplicate_request").says(&[Said::Ack(0)]),
        packet(Opcode::RcFetchAdd, 0, 0)
            .after(|lab| prepare(lab, |lab| lab.packet(Opcode::RcFetchAdd, 0, 0, |_, _| ())))
            .counts("duplicate_request")
            .says(&[Said::Data(Opcode::RcAtomicAck, 0)]),
        access("again, with another operand", Opcode::RcFetchAdd, 0, |headers, _| {
            headers.ext.atomic.as_mut().expect("it has one").swap_or_add = 2;
        })
        .after(|lab| prepare(lab, |lab| lab.packet(Opcode::RcFetchAdd, 0, 0, |_, _| ())))
        .counts("duplicate_request")
        .counts("duplicate_dropped"),
        packet(Opcode::RcReadRequest, -1, 0).counts("duplicate_request").counts("duplicate_dropped"),
    ]);
}

fn prepare(lab: &mut Lab, make: fn(&mut Lab) -> Vec<u8>) {
    let frame = make(lab);
    lab.prepare(frame);
}

fn reth(headers: &mut Headers) -> &mut roci_protocol::wire::Reth {
    headers.ext.reth.as_mut().expect("it has one")
}

fn atomic(headers: &mut Headers) -> &mut roci_protocol::wire::AtomicEth {
    headers.ext.atomic.as_mut().expect("it has one")
}

#[test]
fn rdma_headers() {
    for (opcode, payload) in [
        (Opcode::RcWriteOnly, 20),
        (Opcode::RcWriteOnlyImm, 20),
        (Opcode::RcWriteFirst, MTU),
        (Opcode::RcReadRequest, 0),
    ] {
        const LEN: u32 = 300;
        let is_only = opcode != Opcode::RcWriteFirst && opcode != Opcode::RcReadRequest;
        let with = |name: &str, edit: fn(&mut Headers, &Keys)| {
            row(format!("{} {name}", opcode.name()), move |lab: &mut Lab| {
                lab.packet(opcode, 0, payload, |headers, keys| {
                    reth(headers).len = if is_only { payload as u32 } else { LEN };
                    edit(headers, keys);
                })
            })
        };
        run(vec![
            with("key 0", |headers, _| reth(headers).rkey = Rkey(0)).denied(),
            with("one bit of the key", |headers, _| reth(headers).rkey.0 ^= 1).denied(),
            with("another slot's key", |headers, _| reth(headers).rkey.0 ^= 1 << 31).denied(),
            with("a dead key", |headers, keys| reth(headers).rkey = keys.dead).denied(),
            with("another domain's key", |headers, keys| reth(headers).rkey = keys.foreign).denied(),
            with("a key without rights", |headers, keys| reth(headers).rkey = keys.local).denied(),
            with("another queue pair's window", |headers, keys| reth(headers).rkey = keys.other_window).denied(),
            with("outside the window", |headers, keys| {
                (reth(headers).rkey, reth(headers).va) = (keys.window, 11);
            })
            .denied(),
            with("one byte past the end", |headers, _| {
                reth(headers).va = REGION as u64 + 1 - u64::from(reth(headers).len);
            })
            .denied(),
            with("past the end", |headers, _| reth(headers).va = 1 << 40).denied(),
            with("an address that wraps", |headers, _| reth(headers).va = u64::MAX - 3).denied(),
        ]);
    }
    run(vec![
        access("of a write-only region", Opcode::RcReadRequest, 0, |headers, keys| {
            (reth(headers).rkey, reth(headers).len) = (keys.write_only, 1);
        })
        .denied(),
        access("of a write-only window", Opcode::RcReadRequest, 0, |headers, keys| {
            (reth(headers).rkey, reth(headers).va, reth(headers).len) = (keys.window, 10, 1);
        })
        .denied(),
        access("to a read-only region", Opcode::RcWriteOnly, 1, |headers, keys| reth(headers).rkey = keys.read_only)
            .denied(),
        access("through the window", Opcode::RcWriteOnly, 20, |headers, keys| {
            (reth(headers).rkey, reth(headers).va) = (keys.window, 10);
        })
        .executes(),
        access("up to the end", Opcode::RcWriteOnly, 20, |headers, _| reth(headers).va = REGION as u64 - 20).executes(),
        access("of fewer bytes than it says", Opcode::RcWriteOnly, 20, |headers, _| reth(headers).len = 21).invalid(),
        access("of more bytes than it says", Opcode::RcWriteOnly, 20, |headers, _| reth(headers).len = 19).invalid(),
        access("of bytes, but says none", Opcode::RcWriteOnly, 20, |headers, _| reth(headers).len = 0).invalid(),
        access("that is over with its first", Opcode::RcWriteFirst, MTU, |_, _| ()).invalid(),
        access("beyond 2 GiB", Opcode::RcReadRequest, 0, |headers, _| reth(headers).len = (1 << 31) + 1).invalid(),
        access("beyond 2 GiB", Opcode::RcWriteFirst, MTU, |headers, _| reth(headers).len = (1 << 31) + 1).invalid(),
        access("of nothing needs no key", Opcode::RcWriteOnly, 0, |headers, _| {
            (reth(headers).rkey, reth(headers).va) = (Rkey(0), u64::MAX);
        })
        .counts("rx_requests")
        .says(&[Said::Ack(0)]),
        access("of nothing needs no key", Opcode::RcReadRequest, 0, |headers, _| {
            (reth(headers).rkey, reth(headers).va) = (Rkey(0), u64::MAX);
        })
        .counts("rx_requests")
        .says(&[Said::Data(Opcode::RcReadResponseOnly, 0)]),
        access("with a payload", Opcode::RcReadRequest, 4, |_, _| ()).invalid(),
    ]);
}

#[test]
fn atomic_headers() {
    for opcode in [Opcode::RcFetchAdd, Opcode::RcCompareSwap] {
        let with = |name: &str, edit: fn(&mut Headers, &Keys)| access(name, opcode, 0, edit);
        run(vec![
            with("not aligned", |headers, _| atomic(headers).va = 12).invalid(),
            with("key 0", |headers, _| atomic(headers).rkey = Rkey(0)).denied(),
            with("a dead key", |headers, keys| atomic(headers).rkey = keys.dead).denied(),
            with("another domain's key", |headers, keys| atomic(headers).rkey = keys.foreign).denied(),
            with("no right to it", |headers, keys| atomic(headers).rkey = keys.write_only).denied(),
            with("read-only", |headers, keys| atomic(headers).rkey = keys.read_only).denied(),
            with("a window without the right", |headers, keys| {
                (atomic(headers).rkey, atomic(headers).va) = (keys.window, 16);
            })
            .denied(),
            with("past the end", |headers, _| atomic(headers).va = REGION as u64).denied(),
            with("an address that wraps", |headers, _| atomic(headers).va = u64::MAX - 7).denied(),
            access("with a payload", opcode, 4, |_, _| ()).invalid(),
            with("of the last bytes", |headers, _| {
                let request = atomic(headers);
                (request.va, request.compare) = (REGION as u64 - 8, 0x1111_1111_1111_1111);
            })
            .counts("rx_requests")
            .says(&[Said::Data(Opcode::RcAtomicAck, 0)])
            .changes(),
        ]);
    }
}

/// The last of the requests waits for an answer to none of the others.
#[test]
fn more_reads_than_were_granted_are_refused() {
    let mut lab = Lab::new(Net::V4);
    for ahead in 0..=i32::from(READS) {
        let request = lab.packet(Opcode::RcReadRequest, ahead, 0, |headers, _| reth(headers).len = 1);
        lab.inject(&request);
    }
    let said = lab.listen();
    let [answers @ .., refusal] = &said[..] else { panic!("nothing is said") };
    let expected: Vec<_> = (0..i32::from(READS)).map(|ahead| Said::Data(Opcode::RcReadResponseOnly, ahead)).collect();
    assert_eq!((answers, *refusal), (&expected[..], Said::Nak(NakCode::InvalidRequest, i32::from(READS))));
    assert_eq!(lab.counters()["resp_invalid_request"], 1);
}

#[test]
fn keys_to_invalidate() {
    let with = |name: &str, edit: fn(&mut Headers, &Keys)| access(name, Opcode::RcSendOnlyInvalidate, 4, edit);
    run(vec![
        with("a window", |_, _| ()).executes(),
        with("key 0", |headers, _| ieth(headers, Rkey(0))).denied(),
        with("a dead key", |headers, keys| ieth(headers, keys.dead)).denied(),
        with("a region", |headers, keys| ieth(headers, keys.open)).denied(),
        with("another queue pair's window", |headers, keys| ieth(headers, keys.other_window)).denied(),
        with("one bit of the key", |headers, keys| ieth(headers, Rkey(keys.window.0 ^ 1))).denied(),
        with("twice", |_, _| ())
            .after(|lab| prepare(lab, |lab| lab.packet(Opcode::RcSendOnlyInvalidate, 0, 4, |_, _| ())))
            .counts("duplicate_request")
            .says(&[Said::Ack(0)]),
    ]);
}

fn ieth(headers: &mut Headers, key: Rkey) {
    headers.ext.ieth.as_mut().expect("it has one").0 = key;
}

#[test]
fn framing() {
    use Opcode::{
        RcCompareSwap, RcFetchAdd, RcReadRequest, RcSendFirst, RcSendLast, RcSendLastImm, RcSendLastInvalidate,
        RcSendMiddle, RcSendOnly, RcSendOnlyImm, RcSendOnlyInvalidate, RcWriteFirst, RcWriteLast, RcWriteLastImm,
        RcWriteMiddle, RcWriteOnly, RcWriteOnlyImm,
    };
    let payload = |opcode| match opcode {
        RcSendFirst | RcSendMiddle | RcWriteFirst | RcWriteMiddle => MTU,
        RcReadRequest | RcFetchAdd | RcCompareSwap => 0,
        _ => 20,
    };
    let starts = [
        RcSendFirst,
        RcSendOnly,
        RcSendOnlyImm,
        RcSendOnlyInvalidate,
        RcWriteFirst,
        RcWriteOnly,
        RcWriteOnlyImm,
        RcReadRequest,
        RcFetchAdd,
        RcCompareSwap,
    ];
    let of_send = [RcSendMiddle, RcSendLast, RcSendLastImm, RcSendLastInvalidate];
    let of_write = [RcWriteMiddle, RcWriteLast, RcWriteLastImm];
    for opcode in of_send.into_iter().chain(of_write) {
        packet(opcode, 0, payload(opcode)).invalid().run();
    }
    for opcode in starts.into_iter().chain(of_write) {
        packet(opcode, 1, payload(opcode)).after(send_first).invalid_next().run();
    }
    for opcode in starts.into_iter().chain(of_send) {
        packet(opcode, 1, payload(opcode)).after(write_first).invalid_next().run();
    }
    for opcode in of_send {
        let row = packet(opcode, 1, payload(opcode)).after(send_first).counts("rx_requests").says(&[Said::Ack(1)]);
        row.changes().run();
    }
    run(vec![
        packet(RcWriteMiddle, 1, MTU).after(write_first).counts("rx_requests").says(&[Said::Ack(1)]).changes(),
        packet(RcWriteLast, 1, 44 + MTU).after(write_first).invalid_next(),
        packet(RcWriteLast, 1, 44).after(write_first).invalid_next(),
        packet(RcWriteLastImm, 1, 20).after(write_first).invalid_next(),
        packet(RcWriteLast, 2, 44).after(write_middle).counts("rx_requests").says(&[Said::Ack(2)]).changes(),
        packet(RcWriteLastImm, 2, 44).after(write_middle).counts("rx_requests").says(&[Said::Ack(2)]).changes(),
    ]);
}

fn send_first(lab: &mut Lab) {
    prepare(lab, |lab| lab.packet(Opcode::RcSendFirst, 0, MTU, |_, _| ()));
}

fn send_middle(lab: &mut Lab) {
    send_first(lab);
    prepare(lab, |lab| lab.packet(Opcode::RcSendMiddle, 1, MTU, |_, _| ()));
}

fn write_first(lab: &mut Lab) {
    prepare(lab, |lab| lab.packet(Opcode::RcWriteFirst, 0, MTU, |headers, _| reth(headers).len = 2 * MTU as u32 + 44));
}

fn write_middle(lab: &mut Lab) {
    write_first(lab);
    prepare(lab, |lab| lab.packet(Opcode::RcWriteMiddle, 1, MTU, |_, _| ()));
}

#[test]
fn payload_lengths() {
    use Opcode::{RcSendFirst, RcSendLast, RcSendMiddle, RcSendOnly, RcWriteFirst, RcWriteMiddle, RcWriteOnly};
    for first in [RcSendFirst, RcWriteFirst] {
        for len in [0, 1, MTU - 4, MTU - 1, MTU + 1, MTU + 4] {
            let row = row(format!("{} with {len} bytes", first.name()), move |lab| {
                lab.packet(first, 0, len, |headers, _| reth(headers).len = 2 * MTU as u32)
            });
            row.invalid().run();
        }
    }
    for len in [0, 1, MTU - 4, MTU - 1, MTU + 1, MTU + 4] {
        packet(RcSendMiddle, 1, len).after(send_first).invalid_next().run();
        packet(RcWriteMiddle, 1, len).after(write_first).invalid_next().run();
    }
    run(vec![
        packet(RcSendOnly, 0, MTU).executes(),
        packet(RcSendOnly, 0, MTU + 1).invalid(),
        packet(RcWriteOnly, 0, MTU + 1).invalid(),
        packet(RcSendLast, 1, 0).after(send_first).invalid_next(),
        packet(RcSendLast, 1, MTU + 1).after(send_first).invalid_next(),
        packet(RcSendLast, 1, MTU).after(send_first).counts("rx_requests").says(&[Said::Ack(1)]).changes(),
        row("a byte more than the receive", |lab| lab.packet(RcSendLast, 2, 1, |_, _| ()))
            .after(send_middle)
            .counts("resp_invalid_request")
            .says(&[Said::Nak(NakCode::InvalidRequest, 2)]),
    ]);
    assert_eq!(RECEIVE, 2 * MTU, "two packets fill a receive");
}

#[test]
fn no_receive_is_left() {
    let take_all: fn(&mut Lab) = |lab| {
        prepare(lab, |lab| lab.packet(Opcode::RcSendOnly, 0, 1, |_, _| ()));
        prepare(lab, |lab| lab.packet(Opcode::RcSendOnly, 1, 1, |_, _| ()));
    };
    run(vec![
        packet(Opcode::RcSendOnly, 2, 1).after(take_all).counts("out_of_buffer").says(&[Said::Rnr(2)]),
        packet(Opcode::RcSendFirst, 2, MTU).after(take_all).counts("out_of_buffer").says(&[Said::Rnr(2)]),
        packet(Opcode::RcSendOnlyInvalidate, 2, 1).after(take_all).counts("out_of_buffer").says(&[Said::Rnr(2)]),
        packet(Opcode::RcWriteOnlyImm, 2, 1).after(take_all).counts("out_of_buffer").says(&[Said::Rnr(2)]),
        packet(Opcode::RcWriteOnly, 2, 1).after(take_all).counts("rx_requests").says(&[Said::Ack(2)]).changes(),
    ]);
}

#[test]
fn the_icrc() {
    for net in [Net::V4, Net::V6] {
        for byte in 1..=4 {
            row("ICRC", move |lab| {
                let mut frame = send(lab);
                let at = frame.len() - byte;
                frame[at] ^= 0x40;
                frame
            })
            .on(net)
            .counts("rx_icrc_error")
            .run();
        }
        row("payload", |lab| flipped(lab, Lab::bth_at, 15)).on(net).counts("rx_icrc_error").run();
        row("masked bits", |lab| flipped(lab, Lab::bth_at, 4)).on(net).executes().run();
    }
}

/// The victim's SEND of three packets is on its way.
fn sending(lab: &mut Lab) {
    lab.post(|buffer| SendWr::send(100, buffer), 600);
}

#[test]
fn acknowledgements() {
    use Opcode::{
        RcAck, RcAtomicAck, RcReadResponseFirst, RcReadResponseLast, RcReadResponseMiddle, RcReadResponseOnly,
    };
    const ACK: u8 = 31;
    let resent = |first: i32| {
        let all = [Opcode::RcSendFirst, Opcode::RcSendMiddle, Opcode::RcSendLast];
        let resent: Vec<_> = (first..3).map(|at| Said::Request(all[at as usize], at)).collect();
        resent
    };
    for credit in 0..32 {
        answer(RcAck, 2, credit, 0).after(sending).changes().run();
    }
    for reserved in (0x40..0x60).chain(0x65..=0xff) {
        answer(RcAck, 2, reserved, 0).after(sending).counts("bad_response").run();
    }
    for syndrome in [ACK, 0x20, 0x60, 0x61, 0x62, 0x63, 0x64, 0x80] {
        answer(RcAck, 3, syndrome, 0).after(sending).counts("ghost_ack").run();
        answer(RcAck, 0x7f_ffff, syndrome, 0).after(sending).counts("ghost_ack").run();
        answer(RcAck, -1, syndrome, 0).after(sending).counts("stale_ack").run();
        answer(RcAck, 0, syndrome, 0).counts("ghost_ack").run();
        answer(RcAck, -1, syndrome, 0).counts("stale_ack").run();
        answer(RcAck, 2, syndrome, 4).after(sending).counts("bad_response").run();
    }
    for fatal in 0x61..0x65 {
        answer(RcAck, 2, fatal, 0).after(sending).counts("remote_errors").run();
    }
    run(vec![
        answer(RcAck, 0, 0x60, 0).after(sending).counts("packet_seq_err").says(&resent(0)),
        answer(RcAck, 2, 0x60, 0).after(sending).counts("packet_seq_err").says(&resent(2)),
        answer(RcAck, 0, 0x2c, 0).after(sending).counts("rnr_nak"),
    ]);
    for opcode in [RcReadResponseFirst, RcReadResponseMiddle, RcReadResponseLast, RcReadResponseOnly, RcAtomicAck] {
        answer(opcode, 2, ACK, 0).after(sending).counts("stale_response").run();
        answer(opcode, 3, ACK, 0).after(sending).counts("ghost_ack").run();
        answer(opcode, 0, ACK, 0).counts("ghost_ack").run();
        answer(opcode, -1, ACK, 0).counts("stale_response").run();
    }
}

/// The victim's READ of three packets is on its way.
fn reading(lab: &mut Lab) {
    lab.post(|buffer| SendWr::read(100, buffer, Rkey(1), 0), 2 * MTU + 44);
}

/// The same, and its first packet has come.
fn reading_on(lab: &mut Lab) {
    reading(lab);
    prepare(lab, |lab| lab.answer(Opcode::RcReadResponseFirst, 0, 31, MTU));
}

/// The same, but a packet is missing, and was asked for again.
fn reading_again(lab: &mut Lab) {
    reading(lab);
    prepare(lab, |lab| lab.answer(Opcode::RcReadResponseMiddle, 1, 31, MTU));
}

#[test]
fn read_responses() {
    use Opcode::{
        RcAck, RcAtomicAck, RcReadResponseFirst, RcReadResponseLast, RcReadResponseMiddle, RcReadResponseOnly,
    };
    const ACK: u8 = 31;
    let asked_again = |psn| [Said::Request(Opcode::RcReadRequest, psn)];
    run(vec![
        answer(RcReadResponseFirst, 0, ACK, MTU).after(reading).changes(),
        answer(RcReadResponseMiddle, 1, ACK, MTU).after(reading_on).changes(),
        answer(RcReadResponseFirst, 0, ACK, MTU - 1).after(reading).counts("bad_response"),
        answer(RcReadResponseFirst, 0, ACK, MTU + 1).after(reading).counts("bad_response"),
        answer(RcReadResponseFirst, 0, ACK, 0).after(reading).counts("bad_response"),
        answer(RcReadResponseLast, 0, ACK, MTU).after(reading).counts("stale_response"),
        answer(RcReadResponseMiddle, 0, ACK, MTU).after(reading).counts("stale_response"),
        answer(RcReadResponseFirst, 1, ACK, MTU).after(reading_on).counts("stale_response"),
        answer(RcReadResponseOnly, 0, ACK, 44).after(reading).counts("bad_response"),
        answer(RcReadResponseLast, 1, ACK, 44).after(reading_on).counts("bad_response"),
        answer(RcAtomicAck, 0, ACK, 0).after(reading).counts("bad_response"),
        answer(RcReadResponseFirst, 0, ACK, MTU).after(reading_on).counts("stale_response"),
        answer(RcReadResponseMiddle, 1, ACK, MTU).after(reading).counts("implied_nak_seq_err").says(&asked_again(0)),
        answer(RcReadResponseLast, 2, ACK, 44).after(reading_on).counts("implied_nak_seq_err").says(&asked_again(1)),
        answer(RcReadResponseLast, 3, ACK, 44).after(reading_on).counts("ghost_ack"),
        answer(RcAck, 2, ACK, 0).after(reading).counts("implied_nak_seq_err").says(&asked_again(0)),
        answer(RcReadResponseLast, 2, ACK, 44).after(reading_again).counts("stale_response"),
        answer(RcAck, 1, 0x60, 0)
            .after(reading)
            .counts("packet_seq_err")
            .counts("implied_nak_seq_err")
            .says(&asked_again(0)),
        answer(RcAck, 0, 0x62, 0).after(reading).counts("remote_errors"),
        answer(RcReadResponseFirst, 0, 0x62, MTU).after(reading).counts("bad_response"),
        answer(RcReadResponseFirst, 0, 0x80, MTU).after(reading).counts("bad_response"),
    ]);
}

#[test]
fn atomic_responses() {
    use Opcode::{RcAck, RcAtomicAck, RcReadResponseOnly};
    let adding: fn(&mut Lab) = |lab| lab.post(|buffer| SendWr::fetch_add(100, buffer, Rkey(1), 0, 1), 8);
    run(vec![
        answer(RcAtomicAck, 0, 31, 0).after(adding).changes(),
        answer(RcAtomicAck, 0, 31, 4).after(adding).counts("bad_response"),
        answer(RcReadResponseOnly, 0, 31, 8).after(adding).counts("bad_response"),
        answer(RcAtomicAck, 1, 31, 0).after(adding).counts("ghost_ack"),
        answer(RcAtomicAck, 0, 0x61, 0).after(adding).counts("bad_response"),
        answer(RcAck, 0, 31, 0)
            .after(adding)
            .counts("implied_nak_seq_err")
            .says(&[Said::Request(Opcode::RcFetchAdd, 0)]),
    ]);
}

#[test]
fn a_failed_queue_pair_hears_nothing() {
    let failed: fn(&mut Lab) = |lab| lab.engine.fail_qp(lab.qp, WcStatus::WrFlushErr);
    run(vec![
        row("SEND", send).after(failed).counts("rx_wrong_state"),
        packet(Opcode::RcReadRequest, 0, 0).after(failed).counts("rx_wrong_state"),
        answer(Opcode::RcAck, -1, 31, 0).after(failed).counts("rx_wrong_state"),
    ]);
}
