//! The link over UDP sockets: between processes' ends on the loopback interface, and with a plain socket as a hostile or a foreign peer.

#[path = "udp/marking.rs"]
mod marking;
#[path = "udp/namespace.rs"]
mod namespace;
#[path = "udp/regular.rs"]
mod regular;

use std::cell::Cell;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, UdpSocket};
use std::rc::Rc;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use roci_driver::link::udp::{UdpAddress, UdpError, UdpLink, station};
use roci_driver::link::{Batch, Link, TRAIN};
use roci_driver::{
    Access, Algorithm, Buffer, CompletionQueue, Dialect, Engine, PdId, QpParams, QueuePair, SendWr, WcStatus,
};
use roci_protocol::wire::{Bth, Flow, Frame, Headers, Ip, MacAddr, Opcode, identification};
use roci_protocol::{Mtu, Psn, Qpn};

use marking::Marking;

const PATIENCE: Duration = Duration::from_secs(20);

/// A link on the loopback interface, at an address of its own.
fn loopback() -> UdpLink {
    UdpLink::open_on_loopback(None).expect("the loopback interface is up")
}

/// The one address of IPv6, whose port 4791 is whose end comes first.
fn six() -> MutexGuard<'static, ()> {
    static SIX: Mutex<()> = Mutex::new(());
    SIX.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether this machine has IPv6; where it has not, the reason is said.
fn has_ipv6() -> bool {
    let socket = UdpSocket::bind((Ipv6Addr::LOCALHOST, 0));
    if let Err(error) = &socket {
        eprintln!("SKIPPED: IPv6: {error}");
    }
    socket.is_ok()
}

fn at(ip: &str, port: Option<u16>) -> Result<UdpLink, UdpError> {
    UdpLink::open(UdpAddress { ip: Some(ip.parse().expect("an address")), port }, None)
}

/// An engine on a link, with a queue pair that is connected.
struct End {
    engine: Engine<Marking>,
    /// Whether its packets are marked on their way.
    marks: Rc<Cell<bool>>,
    pd: PdId,
    cq: CompletionQueue,
    qp: QueuePair,
}

fn params() -> QpParams {
    QpParams { dialect: Dialect::Rocinante, mtu: Mtu::Mtu1024, ..QpParams::default() }
}

fn connected(links: [UdpLink; 2], params: [QpParams; 2]) -> [End; 2] {
    let ends = links.map(|link| {
        let mut engine = Engine::new(8 << 20).expect("memory");
        let ip = link.own().ip();
        let marks = Rc::new(Cell::new(false));
        engine.add_port(Marking { inner: link, marks: marks.clone() }, ip, false);
        let (pd, cq) = (engine.alloc_pd(), engine.create_cq(256));
        let qp = engine.create_qp(0, pd, cq).expect("a number is free");
        (engine, marks, pd, cq, qp)
    });
    let addresses = [0, 1].map(|who| ends[who].0.address_of(&ends[who].4, &params[who]));
    let mut peers = addresses.iter().rev();
    let mut params = params.iter();
    ends.map(|(mut engine, marks, pd, cq, qp)| {
        let peer = peers.next().expect("each has one");
        let qp = engine.connect(qp, peer, params.next().expect("each has them")).expect("they agree");
        End { engine, marks, pd, cq, qp }
    })
}

fn pair() -> [End; 2] {
    connected([loopback(), loopback()], [params(), params()])
}

impl End {
    fn buffer(&self, bytes: &[u8]) -> Buffer {
        let mut buffer = self.engine.buffer(bytes.len()).expect("memory");
        buffer.copy_from_slice(bytes);
        buffer
    }

    fn post_recv(&mut self, len: usize) {
        let room = self.engine.buffer(len).expect("memory");
        self.engine.post_recv(self.qp, 1, room).expect("accepted");
    }

    fn post(&mut self, wr: SendWr) {
        self.engine.post_send(self.qp, wr).expect("accepted");
    }
}

/// Polls both until one has a completion.
fn wait(ends: &mut [End; 2], who: usize) -> roci_driver::WorkCompletion {
    let until = Instant::now() + PATIENCE;
    while Instant::now() < until {
        for end in ends.iter_mut() {
            end.engine.poll();
        }
        if let Some(done) = ends[who].engine.poll_cq(ends[who].cq) {
            return done;
        }
    }
    panic!("nothing came: {:?} {:?}", ends[0].engine.stats(), ends[1].engine.stats());
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 + at / 251) as u8).collect()
}

/// Sends, writes and reads every length that falls on an edge of packets or of trains, and looks at each byte.
fn assert_moves_everything(ends: &mut [End; 2]) {
    let packet = 1024;
    let train = packet * usize::from(TRAIN);
    let lens = [0, 1, 8, packet - 1, packet, packet + 1, 3 * packet + 5, train - 1, train, train + 1, 700_001];
    let access = Access::REMOTE_READ.and(Access::REMOTE_WRITE);
    for len in lens {
        let bytes = pattern(len);
        ends[1].post_recv(len);
        let message = ends[0].buffer(&bytes);
        ends[0].post(SendWr::send(2, message));
        let (sent, came) = (wait(ends, 0), wait(ends, 1));
        assert_eq!((sent.status, came.status, came.len), (WcStatus::Success, WcStatus::Success, len));
        assert!(came.buffer[..] == bytes, "{len} bytes sent");
        let room = ends[1].engine.buffer(len + 7).expect("memory");
        let pd = ends[1].pd;
        let region = ends[1].engine.register(pd, room, access).map_err(|_| "a key").expect("a key is free");
        let message = ends[0].buffer(&bytes);
        ends[0].post(SendWr::write(3, message, region.rkey(), 7));
        assert_eq!(wait(ends, 0).status, WcStatus::Success, "{len} bytes written");
        let room = ends[0].engine.buffer(len).expect("memory");
        ends[0].post(SendWr::read(4, room, region.rkey(), 7));
        let read = wait(ends, 0);
        assert!(read.status == WcStatus::Success && read.buffer[..] == bytes, "{len} bytes read");
        ends[1].engine.deregister(region);
    }
}

#[test]
fn messages_of_every_length_cross_between_two_sockets() {
    let link = loopback();
    let has_trains = link.offload() == (true, true);
    let mut ends = connected([link, loopback()], [params(), params()]);
    assert_moves_everything(&mut ends);
    if !has_trains {
        eprintln!("SKIPPED: trains: this kernel has no UDP GSO, or no UDP GRO");
        return;
    }
    for end in &ends {
        assert_eq!(end.engine.stats().rx_other_identification, 0, "trains arrive as they were sent");
        assert!(end.engine.stats().is_balanced());
    }
}

/// 1 MiB is as many packets of 1 KiB as 17 messages of the kernel's carry, and of 8 KiB as 19. Some more are cut short by the turns of a
/// poll, and by the parts that the READ is asked for in.
#[test]
fn what_answers_a_long_read_leaves_in_full_trains() {
    const LEN: usize = 1 << 20;
    if !loopback().offload().0 {
        eprintln!("SKIPPED: trains: this kernel has no UDP GSO");
        return;
    }
    for (mtu, most) in [(Mtu::Mtu1024, 24), (Mtu::Mtu8192, 24)] {
        let of_mtu = || QpParams { mtu, ..params() };
        let mut ends = connected([loopback(), loopback()], [of_mtu(), of_mtu()]);
        let (pd, source) = (ends[1].pd, ends[1].buffer(&pattern(LEN)));
        let region =
            ends[1].engine.register(pd, source, Access::REMOTE_READ).map_err(|_| "a key").expect("a key is free");
        // After many calls of the kernel each has one message.
        let mut bursts = 0;
        for _ in 0..100 {
            let before = ends[1].engine.link_stats(0).tx_bursts;
            let room = ends[0].engine.buffer(LEN).expect("memory");
            ends[0].post(SendWr::read(1, room, region.rkey(), 0));
            let read = wait(&mut ends, 0);
            assert!(read.status == WcStatus::Success && read.buffer[..] == pattern(LEN), "{mtu:?}");
            bursts = ends[1].engine.link_stats(0).tx_bursts - before;
        }
        assert!((17..=most).contains(&bursts), "{mtu:?}: {bursts}");
    }
}

#[test]
fn messages_cross_in_ipv6_and_without_icrcs_and_in_either_dialect() {
    let verbs = QpParams { dialect: Dialect::Verbs, ..params() };
    let unsealed = QpParams { icrc: false, ..params() };
    for params in [verbs, unsealed] {
        assert_moves_everything(&mut connected([loopback(), loopback()], [params.clone(), params]));
    }
    if !has_ipv6() {
        return;
    }
    // Two processes at one address.
    let _ours = six();
    let ends = [at("::1", None).expect("IPv6 is there"), at("::1", None).expect("a port of its own")];
    assert_moves_everything(&mut connected(ends, [params(), params()]));
}

#[test]
fn of_two_at_one_address_the_second_has_a_port_of_its_own() {
    let ip = loopback().own().ip().to_string();
    let ends = [at(&ip, None), at(&ip, None)].map(|end| end.expect("there are ports"));
    let ports = ends.each_ref().map(|end| end.own().port());
    assert!(ports[0] == 4791 && ports[1] != 4791, "{ports:?}");
    assert_eq!(ends.each_ref().map(Link::mac), ports.map(station::of_port));
    let taken = at(&ip, Some(4791)).err().expect("it is the first's").to_string();
    assert_eq!(
        taken,
        format!(
            "udp: another process has port 4791 of {ip}: end it ('ss -ulnp' shows it) or use another address; a peer that finds us by RDMA-CM needs this port, others may have any: leave it out"
        )
    );
    assert_moves_everything(&mut connected(ends, [params(), params()]));
}

#[test]
fn an_address_of_another_host_and_a_port_of_entropy_are_refused_by_name() {
    let refusal = |result: Result<UdpLink, UdpError>| result.err().expect("refused").to_string();
    assert_eq!(refusal(at("fe80::1", None)), "udp: fe80::1 is valid on one link only: use an address of a wider scope");
    assert!(refusal(at("192.0.2.77", None)).starts_with("udp: no interface of this host has the address 192.0.2.77"));
    assert_eq!(
        refusal(at("127.0.0.1", Some(50_000))),
        "udp: port 50000 is none that peers answer to: it must be 4791, or between 16384 and 32767"
    );
}

/// Sends to a peer whose socket is gone, and sees that its host has said so.
fn assert_is_refused(ours: &mut End) {
    let message = ours.buffer(b"anybody there?");
    ours.post(SendWr::send(1, message));
    let until = Instant::now() + PATIENCE;
    let done = loop {
        ours.engine.poll();
        if let Some(done) = ours.engine.poll_cq(ours.cq) {
            break done;
        }
        assert!(Instant::now() < until, "no error was reported");
    };
    assert_eq!(done.status, WcStatus::RetryExcErr);
    assert_eq!(ours.engine.stats().peers_refused, 1);
}

/// The peer's process has ended: its host says so, and no timeout is waited for.
#[test]
fn a_peer_whose_socket_is_gone_ends_its_connection_at_once() {
    let patient = QpParams { ack_timeout_ns: 3_600_000_000_000, ack_timeout_max_ns: 3_600_000_000_000, ..params() };
    let near = loopback();
    let sends_from = SocketAddr::new(near.own().ip(), near.source_port().expect("it has one"));
    let [mut ours, theirs] = connected([near, loopback()], [patient.clone(), patient]);
    drop(theirs);
    // What strangers send to the port that it sends from leaves room for what its host reports.
    let stranger = UdpSocket::bind(SocketAddr::from(([127, 0, 0, 1], 0))).expect("a socket");
    (0..20_000).for_each(|_| drop(stranger.send_to(&[0], sends_from)));
    assert_is_refused(&mut ours);
}

/// Frames of a RoCEv2 host whose IPv4 identification counts up, as `rdma_rxe`'s does: a plain socket shows what a link makes of them.
#[test]
fn an_icrc_over_any_identification_is_taken_from_a_foreign_peer_and_of_this_stacks_one_that_counts_up() {
    let verbs = QpParams { dialect: Dialect::Verbs, ..params() };
    // How often an identification was taken that only a stranger may have written, and how often it was refused.
    for (dialect_params, expected) in [(verbs, (4, 1)), (params(), (0, 2))] {
        let mut link = loopback();
        let ours = link.own();
        let foreign = UdpSocket::bind((loopback().own().ip(), 0)).expect("a socket");
        let IpAddr::V4(_) = ours.ip() else { panic!("IPv4") };
        let theirs = foreign.local_addr().expect("bound");
        assert_eq!(link.receive_buffer().map(|bytes| bytes > 0).ok(), Some(true));
        link.flush();
        let mut engine = Engine::new(1 << 20).expect("memory");
        engine.add_port(link, ours.ip(), false);
        let (pd, cq) = (engine.alloc_pd(), engine.create_cq(16));
        let qp = engine.create_qp(0, pd, cq).expect("a number is free");
        let address = engine.address_of(&qp, &dialect_params);
        let peer = roci_driver::Address {
            ip: theirs.ip(),
            mac: station::of_sender(theirs.port()),
            psn: Psn::new(0),
            ..address
        };
        let qp = engine.connect(qp, &peer, &dialect_params).expect("they agree");
        for _ in 0..5 {
            let room = engine.buffer(64).expect("memory");
            engine.post_recv(qp, 1, room).expect("accepted");
        }
        let ip = Ip::between(theirs.ip(), ours.ip()).expect("one version");
        let mut flow = Flow::new(MacAddr::default(), MacAddr::default(), None, ip, theirs.port());
        let mut send = |psn: u32, id: u16, damage: u32| {
            let headers = Headers::plain(Bth::new(Opcode::RcSendOnly, Qpn::new(address.qpn.get()), Psn::new(psn)));
            let mut bytes = vec![0; flow.frame_len(&headers, 16)];
            flow.emit(&mut bytes, &headers, 16, |payload| payload.fill(7));
            let mut packet = bytes.split_off(14 + 20 + 8);
            let icrc = packet.last_chunk_mut::<4>().expect("an ICRC");
            let change = identification::change(28 + bytes.len() - 42 + 12 + 16 + 4, id) ^ damage;
            *icrc = (u32::from_le_bytes(*icrc) ^ change).to_le_bytes();
            foreign.send_to(&packet, ours).expect("sent");
        };
        send(0, 0, 0);
        // It counts up, begins anew, and counts up from there.
        let counted = [(1, 31_000), (2, 31_001), (3, 9_000), (3, 9_001)];
        for (psn, id) in counted {
            send(psn, id, 0);
        }
        send(4, 9_002, 0x1000_0001);
        let until = Instant::now() + PATIENCE;
        let mut came = 0;
        while Instant::now() < until && engine.stats().rx_frames < 6 {
            engine.poll();
            came += std::iter::from_fn(|| engine.poll_cq(cq)).count();
        }
        let stats = engine.stats();
        let wrong = stats.malformed(roci_protocol::wire::Malformed::Icrc);
        assert_eq!((came, (stats.rx_other_identification, wrong)), (4, expected));
    }
}

/// Whatever bytes come, and from whomever.
#[test]
fn garbage_of_any_length_is_dropped_and_counted() {
    let mut ends = pair();
    let victim: SocketAddr = {
        let stats = ends[0].engine.ip(0);
        SocketAddr::new(stats, 4791)
    };
    let foreign = UdpSocket::bind(SocketAddr::new([127, 0, 0, 1].into(), 0)).expect("a socket");
    let lens = (0..200).chain([1024, 4096, 9000, 60_000, 65_507]);
    let mut sent = 0;
    for len in lens {
        foreign.send_to(&pattern(len), victim).expect("sent");
        sent += 1;
        ends[0].engine.poll();
    }
    while ends[0].engine.poll() > 0 {}
    let stats = ends[0].engine.stats();
    assert!(stats.is_balanced() && stats.rx_frames == sent && stats.rx_delivered == 0, "{stats:?}");
    assert_moves_everything(&mut ends);
}

/// DSCP and ECN arrive as they were sent, and change the train: a switch marks packets, and the mark is what the peer acts on.
#[test]
fn congestion_marks_and_classes_cross() {
    let v4 = [loopback().own().ip(), loopback().own().ip()];
    let _ours = six();
    for ips in [v4].into_iter().chain(has_ipv6().then_some([Ipv6Addr::LOCALHOST.into(); 2])) {
        let [mut near, mut far] = ips.map(|ip| at(&ip.to_string(), None).expect("there are ports"));
        let ip = Ip::between(near.own().ip(), far.own().ip()).expect("one version");
        let classes = [0, 0b11, 0b1010_1001, 0b1010_1001, 0b10];
        for (psn, class) in classes.into_iter().enumerate() {
            let (source, port) = (near.mac(), near.source_port().expect("it has one"));
            let mut flow = Flow::new(source, far.mac(), None, ip.with_traffic_class(class), port);
            let headers = Headers::plain(Bth::new(Opcode::RcSendOnly, Qpn::new(7), Psn::new(psn as u32)));
            let len = flow.frame_len(&headers, 100);
            near.transmit(len, |frame| flow.emit(frame, &headers, 100, |payload| payload.fill(psn as u8)))
                .expect("room");
        }
        near.flush();
        let (mut seen, until) = (Vec::new(), Instant::now() + PATIENCE);
        while seen.len() < classes.len() && Instant::now() < until {
            let mut batch = Batch::new();
            far.receive(&mut batch);
            for frame in batch {
                let frame = Frame::parse(frame.as_ref()).expect("it was sent so");
                assert_eq!(frame.verify_icrc(), Ok(()));
                seen.push(frame.ip.traffic_class());
            }
        }
        assert_eq!(seen, classes);
    }
}

#[test]
fn frames_that_are_kept_keep_their_bytes() {
    let (mut link, foreign) = (loopback(), UdpSocket::bind(SocketAddr::from(([127, 0, 0, 1], 0))).expect("a socket"));
    let mut kept = Vec::new();
    for round in 0..100_u8 {
        foreign.send_to(&[round; 100], link.own()).expect("sent");
        let until = Instant::now() + PATIENCE;
        while kept.len() <= usize::from(round) && Instant::now() < until {
            let mut batch = Batch::new();
            link.receive(&mut batch);
            kept.extend(batch);
        }
    }
    for (round, frame) in kept.iter().enumerate() {
        assert_eq!(frame.as_ref()[42..], [round as u8; 100]);
    }
}

/// Marks that arrive through a socket are echoed, and their sender slows down.
#[test]
fn a_mark_on_the_way_lowers_the_senders_rate() {
    let params = || QpParams { congestion: Algorithm::Dcqcn, link_rate: 10_000_000_000, ..params() };
    let mut ends = connected([loopback(), loopback()], [params(), params()]);
    let len = 64 * 1024;
    // Packets of a message that leave in the first poll.
    let burst = |ends: &mut [End; 2]| {
        ends[1].post_recv(len);
        let message = ends[0].buffer(&pattern(len));
        let before = ends[0].engine.link_stats(0).tx_frames;
        ends[0].post(SendWr::send(1, message));
        ends[0].engine.poll();
        let burst = ends[0].engine.link_stats(0).tx_frames - before;
        assert_eq!(wait(ends, 1).status, WcStatus::Success);
        assert_eq!(wait(ends, 0).status, WcStatus::Success);
        burst
    };
    let fast = burst(&mut ends);
    ends[0].marks.set(true);
    let until = Instant::now() + PATIENCE;
    while ends[0].engine.stats().queue_pairs.rp_cnp_handled < 20 {
        burst(&mut ends);
        assert!(Instant::now() < until, "{:?}", ends[0].engine.stats());
    }
    let slow = burst(&mut ends);
    let [sender, receiver] = ends.each_ref().map(|end| end.engine.stats().queue_pairs);
    assert!(
        receiver.np_ecn_marked_roce_packets >= receiver.np_cnp_sent && receiver.np_cnp_sent >= sender.rp_cnp_handled
    );
    assert!(slow < fast, "{slow} packets at once where there were {fast}");
}

/// The kernel drops what finds the receive buffer full, and says how much with the next packet.
#[test]
fn packets_that_find_the_receive_buffer_full_are_counted() {
    let (mut link, foreign) = (loopback(), UdpSocket::bind(SocketAddr::from(([127, 0, 0, 1], 0))).expect("a socket"));
    let (packet, mut sent, mut came) = (pattern(60_000), 0, 0);
    let room = link.receive_buffer().expect("it has one");
    let mut receive_all = |link: &mut UdpLink| loop {
        let mut batch = Batch::new();
        link.receive(&mut batch);
        if batch.is_empty() {
            break;
        }
        came += batch.len() as u64;
    };
    while sent * packet.len() < room + (1 << 20) {
        foreign.send_to(&packet, link.own()).expect("sent");
        sent += 1;
    }
    receive_all(&mut link);
    foreign.send_to(&packet, link.own()).expect("sent");
    receive_all(&mut link);
    let lost = sent as u64 + 1 - came;
    assert!(lost > 0, "{came} packets found room");
    assert_eq!(link.stats().rx_missed, lost);
}

/// The interface carries less while a connection is up: what is too long is refused (EMSGSIZE), counted and lost, and crosses when it
/// carries more again. Connections made meanwhile have shorter packets.
#[test]
fn an_interface_that_carries_less_shortens_the_packets_of_the_next_connection() {
    if !namespace::is_inside("an_interface_that_carries_less_shortens_the_packets_of_the_next_connection") {
        return;
    }
    // The first connection waits until those that are made meanwhile have moved everything.
    let long = || QpParams { mtu: Mtu::Mtu4096, retry_limit: 1000, ..params() };
    let mut ends = connected([loopback(), loopback()], [long(), long()]);
    namespace::set_mtu(1400);
    ends[1].post_recv(8192);
    let message = ends[0].buffer(&pattern(8192));
    ends[0].post(SendWr::send(1, message));
    let until = Instant::now() + PATIENCE;
    while ends[0].engine.link_stats(0).tx_too_long == 0 {
        ends[0].engine.poll();
        assert!(Instant::now() < until, "{:?}", ends[0].engine.link_stats(0));
    }
    let [near, far] = &mut ends;
    let (cqs, pds) = ([near.cq, far.cq], [near.pd, far.pd]);
    let [near, far] = [(near, cqs[0], pds[0]), (far, cqs[1], pds[1])].map(|(end, cq, pd)| {
        let qp = end.engine.create_qp(0, pd, cq).expect("a number is free");
        let address = end.engine.address_of(&qp, &long());
        (end, qp, address)
    });
    assert_eq!((near.2.mtu, far.2.mtu), (Mtu::Mtu1024, Mtu::Mtu4096), "only one end knows it");
    let old = [near.0.qp, far.0.qp];
    near.0.qp = near.0.engine.connect(near.1, &far.2, &long()).expect("they agree");
    far.0.qp = far.0.engine.connect(far.1, &near.2, &long()).expect("they agree");
    assert_moves_everything(&mut ends);
    namespace::set_mtu(65_536);
    ends[0].qp = old[0];
    ends[1].qp = old[1];
    assert_eq!((wait(&mut ends, 1).len, wait(&mut ends, 0).status), (8192, WcStatus::Success));
    // Connections made from now on have long packets again.
    let until = Instant::now() + PATIENCE;
    let mtu_of_the_next = |end: &mut End| {
        let qp = end.engine.create_qp(0, end.pd, end.cq).expect("a number is free");
        end.engine.address_of(&qp, &long()).mtu
    };
    while mtu_of_the_next(&mut ends[0]) != Mtu::Mtu4096 {
        ends[0].engine.poll();
        assert!(Instant::now() < until, "the interface is not looked at");
        std::thread::sleep(Duration::from_millis(50));
    }
}
