//! Unreliable datagrams, and what a kernel needs to send us any.

use std::time::Duration;

use roci_driver::neighbour::Resolution;
use roci_driver::{DatagramQp, Destination, SendWr};
use roci_protocol::Qpn;
use roci_protocol::ud::GRH_LEN;

use super::connected::expect;
use crate::LabError;
use crate::lab::{GidRoute, Lab, V4, V6, VLAN, number, pattern};

const QKEY: u32 = 0x1111_2222;

fn our_qp(lab: &mut Lab, route: GidRoute) -> Result<DatagramQp, LabError> {
    Ok(lab.engine.create_datagram_qp(lab.place(route)?, lab.cq, QKEY, 16)?)
}

pub(super) fn ours(lab: &mut Lab) -> Result<(), LabError> {
    for route in [V4, V6] {
        lab.begin_part();
        lab.ask(&format!("open gid={}", route.gid))?;
        let theirs = lab.ask(&format!("qp type=ud qkey={QKEY}"))?;
        let target = lab.remote(4096 + GRH_LEN)?;
        let qp = our_qp(lab, route)?;
        let (ip, (port, address)) = (route.theirs.parse()?, lab.place(route)?);
        let mac = loop {
            match lab.engine.resolve(port, address, ip) {
                Resolution::Known(mac) => break mac,
                Resolution::Pending => lab.idle(Duration::from_millis(1)),
                Resolution::Unreachable(why) => return Err(why.into()),
            }
        };
        let handle = lab.engine.create_ah((port, address), ip, mac)?;
        let to = Destination { qpn: Qpn::new(number(&theirs, "qpn")?), qkey: QKEY };
        for (len, imm) in [(0, None), (100, Some(0x55aa_55aa)), (4096, None)] {
            let receive = format!("recv qp={} wr=1 mr={} off=0 len={}", theirs["qp"], target.mr, len + GRH_LEN);
            lab.ask(&receive)?;
            let wr = SendWr::send(1, lab.buffer(&pattern(3, len))?);
            let wr = imm.into_iter().fold(wr, SendWr::with_imm);
            lab.engine.post_datagram(qp, handle, to, wr).map_err(|refused| refused.why)?;
            lab.wait_ok()?;
            let done = lab.they_succeed()?;
            expect("the length", number(&done, "len")? as usize, len + GRH_LEN)?;
            expect("the sender", number(&done, "src_qp")?, qp.qpn().get())?;
            expect("the immediate data", done.get("imm").map(|_| number(&done, "imm").ok()), imm.map(Some))?;
            if len > 0 {
                lab.ask(&format!("check mr={} off={GRH_LEN} len={len} seed=3", target.mr))?;
            }
        }
        lab.engine.destroy_datagram_qp(qp);
        lab.engine.destroy_ah(handle);
    }
    Ok(())
}

pub(super) fn theirs(lab: &mut Lab) -> Result<(), LabError> {
    for route in [V4, V6] {
        lab.begin_part();
        lab.ask(&format!("open gid={}", route.gid))?;
        let theirs = lab.ask(&format!("qp type=ud qkey={QKEY}"))?;
        let source = lab.remote(1000)?;
        lab.ask(&format!("fill mr={} off=0 len=1000 seed=4", source.mr))?;
        let qp = our_qp(lab, route)?;
        let handle = lab.ask(&format!("ah ip={}", route.ours))?;
        for qkey in [QKEY + 1, QKEY] {
            let buffer = lab.engine.buffer(1000 + GRH_LEN)?;
            lab.engine.post_datagram_recv(qp, 9, buffer).map_err(|refused| refused.why)?;
            let to = format!("ah={} dqpn={} qkey={qkey}", handle["ah"], qp.qpn().get());
            let what = format!("op=send_imm imm=7 mr={} off=0 len=1000", source.mr);
            lab.ask(&format!("send qp={} wr=2 {what} {to}", theirs["qp"]))?;
            lab.they_succeed()?;
        }
        let done = lab.wait_ok()?;
        expect("the length and the data", (done.len, done.imm), (1000 + GRH_LEN, Some(7)))?;
        expect("the sender", done.source_qpn, Some(Qpn::new(number(&theirs, "qpn")?)))?;
        expect("the message", done.buffer[GRH_LEN..][..1000] == pattern(4, 1000), true)?;
        let version = if route == V6 { done.buffer[0] >> 4 } else { done.buffer[20] >> 4 };
        expect("the header's version", version, if route == V6 { 6 } else { 4 })?;
        lab.idle(Duration::from_millis(20));
        expect("that the datagram with the foreign key was dropped", lab.engine.poll_cq(lab.cq).is_none(), true)?;
        lab.engine.destroy_datagram_qp(qp);
    }
    Ok(())
}

/// The guest forgets whom it knows, finds us again by ARP and neighbour discovery, and gets its echoes back.
pub(super) fn pings(lab: &mut Lab) -> Result<(), LabError> {
    let before = lab.engine.neighbour_stats(0).echo;
    lab.run("ip neigh flush all")?;
    for (route, version) in [(V4, ""), (V6, "-6"), (VLAN, "")] {
        lab.run(&format!("ping {version} -c 2 -W 5 -s 1400 {}", route.ours))?;
    }
    expect("the echoes", lab.engine.neighbour_stats(0).echo - before, 6)?;
    let unreachable = lab.run("ping -c 1 -W 2 10.77.0.99");
    expect("that no station answers for others", unreachable.is_err(), true)
}
