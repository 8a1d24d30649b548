//! `ibv_rc_pingpong` of rdma-core, unmodified: both sides tell their addresses over TCP, then bounce 4 KiB messages.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use roci_driver::{Address, Dialect, Mtu, QueuePair, SendWr, UnconnectedQp};
use roci_protocol::wire::MacAddr;
use roci_protocol::wire::cm::{gid_of, ip_of};
use roci_protocol::{Psn, Qpn};

use super::connected::expect;
use crate::Failure;
use crate::guest;
use crate::lab::{Lab, Pair, Terms, V4};

const ITERATIONS: usize = 100;
const SIZE: usize = 4096;
/// `0000:000000:000000:` and 32 digits of GID, with the zero that ends the string.
const HELLO_LEN: usize = 52;
const PATIENCE: Duration = Duration::from_secs(30);

fn hello(qp: &UnconnectedQp) -> Result<[u8; HELLO_LEN], Failure> {
    let gid: String = gid_of(V4.ours.parse::<IpAddr>()?).octets().iter().map(|byte| format!("{byte:02x}")).collect();
    let text = format!("0000:{:06x}:{:06x}:{gid}\0", qp.qpn().get(), qp.starting_psn().get());
    Ok(text.as_bytes().try_into()?)
}

fn understand(hello: &[u8; HELLO_LEN]) -> Result<Address, Failure> {
    let text = std::str::from_utf8(&hello[..HELLO_LEN - 1])?;
    let fields: Vec<_> = text.split(':').collect();
    let [_, qpn, psn, gid] = fields[..] else { return Err(format!("not a pingpong's address: {text}").into()) };
    Ok(Address {
        mac: MacAddr(guest::MAC),
        ip: ip_of(Ipv6Addr::from(u128::from_str_radix(gid, 16)?)),
        qpn: Qpn::new(u32::from_str_radix(qpn, 16)?),
        psn: Psn::new(u32::from_str_radix(psn, 16)?),
        mtu: Mtu::Mtu1024,
        max_rd_atomic: 1,
        dialect: Dialect::Verbs,
        icrc: true,
    })
}

/// Reads exactly this much, while the engine goes on.
fn read_exact(lab: &mut Lab, stream: &mut TcpStream, bytes: &mut [u8]) -> Result<(), Failure> {
    stream.set_nonblocking(true)?;
    let deadline = Instant::now() + PATIENCE;
    let mut filled = 0;
    while filled < bytes.len() {
        match stream.read(&mut bytes[filled..]) {
            Ok(0) => return Err("the guest's pingpong hung up".into()),
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && Instant::now() < deadline => {
                lab.engine.poll();
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn connect(lab: &mut Lab, qp: UnconnectedQp, theirs: &[u8; HELLO_LEN]) -> Result<QueuePair, Failure> {
    let peer = understand(theirs)?;
    lab.record_opening(&qp, V4, &peer)?;
    Ok(lab.engine.connect(qp, &peer, &Terms::default().params)?)
}

fn post_receives(lab: &mut Lab, qp: QueuePair, count: usize) -> Result<(), Failure> {
    for _ in 0..count {
        lab.post_recv(Pair { qp, theirs: 0 }, 1, SIZE)?;
    }
    Ok(())
}

/// Bounces messages until all iterations are done on this side.
fn bounce(lab: &mut Lab, qp: QueuePair, begins: bool) -> Result<(), Failure> {
    let pair = Pair { qp, theirs: 0 };
    let serve = |lab: &mut Lab| -> Result<(), Failure> {
        let message = lab.buffer(&[0x7b; SIZE])?;
        lab.post(pair, SendWr::send(2, message))
    };
    let (mut sent, mut received) = (0, 0);
    if begins {
        serve(lab)?;
    }
    while sent < ITERATIONS || received < ITERATIONS {
        match lab.wait_ok()?.wr_id {
            1 => {
                received += 1;
                if !(begins && received == ITERATIONS) {
                    serve(lab)?;
                }
            }
            _ => sent += 1,
        }
    }
    expect("the messages", (sent, received), (ITERATIONS, ITERATIONS))
}

pub(super) fn client(lab: &mut Lab) -> Result<(), Failure> {
    lab.run(&format!("ibv_rc_pingpong -d rxe0 -g 1 -n {ITERATIONS} -c >/tmp/pingpong 2>&1 & sleep 2"))?;
    let qp = lab.engine.create_qp_at(0, V4.address, lab.pd, lab.cq)?;
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, lab.guest.pingpong_port))?;
    stream.write_all(&hello(&qp)?)?;
    let mut theirs = [0; HELLO_LEN];
    read_exact(lab, &mut stream, &mut theirs)?;
    let qp = connect(lab, qp, &theirs)?;
    post_receives(lab, qp, ITERATIONS)?;
    stream.write_all(b"done\0")?;
    bounce(lab, qp, true)?;
    finish(lab)
}

pub(super) fn server(lab: &mut Lab) -> Result<(), Failure> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    // The management network's host, as the guest sees it.
    let port = listener.local_addr()?.port();
    lab.run(&format!("ibv_rc_pingpong -d rxe0 -g 1 -n {ITERATIONS} -p {port} 10.0.2.2 >/tmp/pingpong 2>&1 &"))?;
    listener.set_nonblocking(true)?;
    let deadline = Instant::now() + PATIENCE;
    let mut stream = loop {
        match listener.accept() {
            Ok((stream, _)) => break stream,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && Instant::now() < deadline => {
                lab.engine.poll();
            }
            Err(error) => return Err(error.into()),
        }
    };
    let mut theirs = [0; HELLO_LEN];
    read_exact(lab, &mut stream, &mut theirs)?;
    let qp = lab.engine.create_qp_at(0, V4.address, lab.pd, lab.cq)?;
    let ours = hello(&qp)?;
    let qp = connect(lab, qp, &theirs)?;
    post_receives(lab, qp, ITERATIONS)?;
    stream.write_all(&ours)?;
    read_exact(lab, &mut stream, &mut [0; 5])?;
    bounce(lab, qp, false)?;
    finish(lab)
}

/// The guest's program must have ended well.
fn finish(lab: &mut Lab) -> Result<(), Failure> {
    lab.idle(Duration::from_millis(300));
    let output = lab.run("n=0; while pidof ibv_rc_pingpong >/dev/null && [ $n -lt 50 ]; do sleep 0.1; n=$((n+1)); done; cat /tmp/pingpong")?;
    expect("that it counted all iterations", output.contains(&format!("{ITERATIONS} iters")), true)
        .map_err(|failure| format!("{failure}: {output}").into())
}
