//! What `fi_getinfo` answers: to an application that asks for what there is, and to one that asks for more.

mod common;

use common::{End, Pair, getinfo, getinfo_as};
use roci_fi::abi::attributes::{
    FI_AV_MAP, FI_AV_TABLE, FI_EP_RDM, FI_PROGRESS_AUTO, FI_PROGRESS_MANUAL, FI_THREAD_DOMAIN, FI_THREAD_SAFE,
    fi_domain_attr, fi_ep_attr, fi_fabric_attr, fi_info, fi_rx_attr, fi_tx_attr,
};
use roci_fi::abi::flags::{
    FI_COMPLETION, FI_DELIVERY_COMPLETE, FI_DIRECTED_RECV, FI_FENCE, FI_LOCAL_COMM, FI_MATCH_COMPLETE, FI_MSG,
    FI_MULTI_RECV, FI_ORDER_SAS, FI_RECV, FI_REMOTE_COMM, FI_SEND, FI_TAGGED,
};
use roci_fi::abi::queues::FI_EBADFLAGS;
use roci_fi::abi::{FI_ADDR_UNSPEC, fi_version};
use roci_fi::info::{ADDRESS_FORMAT, INJECT_SIZE, IOV_LIMIT, MAX_MESSAGE, QUEUE_SIZE};

const FI_EP_MSG: i32 = 1;
const FI_EP_DGRAM: i32 = 2;
/// Addresses of IPv4.
const FI_SOCKADDR_IN: u32 = 2;
/// One send after another's completion; capabilities that are not here.
const FI_ORDER_STRICT: u64 = 1;
const FI_NAMED_RX_CTX: u64 = 1 << 49;
const FI_HMEM: u64 = 1 << 47;

/// Hints that ask for nothing yet.
struct Hints {
    info: fi_info,
    tx: fi_tx_attr,
    rx: fi_rx_attr,
    ep: fi_ep_attr,
    domain: fi_domain_attr,
    fabric: fi_fabric_attr,
}

impl Hints {
    fn new() -> Box<Self> {
        // SAFETY: zeros are attributes that ask for nothing.
        let mut hints: Box<Self> = Box::new(unsafe { std::mem::zeroed() });
        hints.info.tx_attr = &raw mut hints.tx;
        hints.info.rx_attr = &raw mut hints.rx;
        hints.info.ep_attr = &raw mut hints.ep;
        hints.info.domain_attr = &raw mut hints.domain;
        hints.info.fabric_attr = &raw mut hints.fabric;
        hints
    }

    fn ask(&self) -> Result<*mut fi_info, i32> {
        getinfo(&raw const self.info)
    }
}

/// Asks for one thing more than for nothing.
type Wish = (&'static str, fn(&mut Hints));

/// The most of each that there is.
const GRANTED: [Wish; 22] = [
    ("messages", |it| it.info.caps = FI_MSG | FI_TAGGED | FI_MULTI_RECV | FI_DIRECTED_RECV),
    ("peers near and far", |it| it.info.caps = FI_TAGGED | FI_LOCAL_COMM | FI_REMOTE_COMM),
    ("the address format", |it| it.info.addr_format = ADDRESS_FORMAT),
    ("modes, all of them", |it| it.info.mode = u64::MAX),
    ("reliable datagrams", |it| it.ep.r#type = FI_EP_RDM),
    ("the longest message", |it| it.ep.max_msg_size = MAX_MESSAGE),
    ("a context of each kind", |it| (it.ep.tx_ctx_cnt, it.ep.rx_ctx_cnt) = (1, 1)),
    ("completion of deliveries", |it| it.tx.op_flags = FI_COMPLETION | FI_DELIVERY_COMPLETE),
    ("sends in order", |it| (it.tx.msg_order, it.rx.msg_order) = (FI_ORDER_SAS, FI_ORDER_SAS)),
    ("the longest inject", |it| it.tx.inject_size = INJECT_SIZE),
    ("the longest queues", |it| (it.tx.size, it.rx.size) = (QUEUE_SIZE, QUEUE_SIZE)),
    ("pieces", |it| (it.tx.iov_limit, it.tx.rma_iov_limit, it.rx.iov_limit) = (IOV_LIMIT, IOV_LIMIT, IOV_LIMIT)),
    ("transmit capabilities", |it| it.tx.caps = FI_MSG | FI_SEND),
    ("receive capabilities", |it| it.rx.caps = FI_MSG | FI_RECV | FI_MULTI_RECV),
    ("any multi-receive", |it| it.rx.op_flags = FI_MULTI_RECV),
    ("threads as there are", |it| it.domain.threading = FI_THREAD_SAFE),
    ("threads by domain", |it| it.domain.threading = FI_THREAD_DOMAIN),
    ("manual progress", |it| it.domain.data_progress = FI_PROGRESS_MANUAL),
    ("automatic progress", |it| it.domain.data_progress = FI_PROGRESS_AUTO),
    ("a map", |it| it.domain.av_type = FI_AV_MAP),
    ("a table", |it| it.domain.av_type = FI_AV_TABLE),
    ("8 bytes of data and of keys", |it| (it.domain.cq_data_size, it.domain.mr_key_size) = (8, 8)),
];

/// One more than there is.
const REFUSED: [Wish; 30] = [
    ("a fence", |it| it.info.caps = FI_MSG | FI_FENCE),
    ("receive contexts by name", |it| it.info.caps = FI_MSG | FI_NAMED_RX_CTX),
    ("memory of devices", |it| it.info.caps = FI_MSG | FI_HMEM),
    ("addresses of sockets", |it| it.info.addr_format = FI_SOCKADDR_IN),
    ("connected endpoints", |it| it.ep.r#type = FI_EP_MSG),
    ("datagrams", |it| it.ep.r#type = FI_EP_DGRAM),
    ("another protocol", |it| it.ep.protocol = 3),
    ("a longer message", |it| it.ep.max_msg_size = MAX_MESSAGE + 1),
    ("more transmit contexts", |it| it.ep.tx_ctx_cnt = 2),
    ("more receive contexts", |it| it.ep.rx_ctx_cnt = 2),
    ("shared contexts", |it| it.ep.rx_ctx_cnt = usize::MAX),
    ("authorization", |it| it.ep.auth_key_size = 1),
    ("a receive of the transmitter", |it| it.tx.caps = FI_MSG | FI_RECV),
    ("a completion of matches unasked", |it| it.tx.op_flags = FI_MATCH_COMPLETE),
    ("sends in strict order", |it| it.tx.msg_order = FI_ORDER_STRICT),
    ("completions of sends in order", |it| it.tx.comp_order = 1),
    ("a longer inject", |it| it.tx.inject_size = INJECT_SIZE + 1),
    ("a longer transmit queue", |it| it.tx.size = QUEUE_SIZE + 1),
    ("more pieces of a send", |it| it.tx.iov_limit = IOV_LIMIT + 1),
    ("more pieces of remote memory", |it| it.tx.rma_iov_limit = IOV_LIMIT + 1),
    ("a send of the receiver", |it| it.rx.caps = FI_MSG | FI_SEND),
    ("receives of deliveries", |it| it.rx.op_flags = FI_DELIVERY_COMPLETE),
    ("receives in strict order", |it| it.rx.msg_order = FI_ORDER_STRICT),
    ("completions of receives in order", |it| it.rx.comp_order = 1),
    ("a longer receive queue", |it| it.rx.size = QUEUE_SIZE + 1),
    ("more pieces of a receive", |it| it.rx.iov_limit = IOV_LIMIT + 1),
    ("longer data", |it| it.domain.cq_data_size = 9),
    ("longer keys", |it| it.domain.mr_key_size = 9),
    ("another domain", |it| it.domain.name = c"eth7".as_ptr().cast_mut()),
    ("another fabric", |it| it.fabric.name = c"tcp".as_ptr().cast_mut()),
];

#[test]
fn each_attribute_is_granted_up_to_what_there_is_and_no_further() {
    for (what, wish) in GRANTED {
        let mut hints = Hints::new();
        wish(&mut hints);
        assert!(hints.ask().is_ok(), "{what}");
    }
    for (what, wish) in REFUSED {
        let mut hints = Hints::new();
        wish(&mut hints);
        assert_eq!(hints.ask().err(), Some(-libc::ENODATA), "{what}");
    }
}

/// What MPI libraries rely on: the answer does not offer less than they have asked for, and repeats what is theirs to choose.
#[test]
fn what_is_granted_is_in_the_answer() {
    for (what, wish) in GRANTED {
        let mut hints = Hints::new();
        wish(&mut hints);
        let answer = hints.ask().expect(what);
        // SAFETY: the answer is valid with all that it points to.
        let (info, tx, rx, ep, domain) = unsafe {
            let info = &*answer;
            (info, &*info.tx_attr, &*info.rx_attr, &*info.ep_attr, &*info.domain_attr)
        };
        let asked = &*hints;
        assert_eq!(info.caps & asked.info.caps, asked.info.caps, "{what}");
        assert_eq!((tx.caps & asked.tx.caps, rx.caps & asked.rx.caps), (asked.tx.caps, asked.rx.caps), "{what}");
        assert_eq!((tx.op_flags, rx.op_flags), (asked.tx.op_flags, asked.rx.op_flags), "{what}");
        assert_eq!((info.mode, info.addr_format, ep.r#type), (0, ADDRESS_FORMAT, FI_EP_RDM), "{what}");
        let echoed =
            |asked: i32, answered: i32, default: i32| assert_eq!(answered, if asked == 0 { default } else { asked });
        echoed(asked.domain.threading, domain.threading, FI_THREAD_SAFE);
        echoed(asked.domain.data_progress, domain.data_progress, FI_PROGRESS_MANUAL);
        echoed(asked.domain.av_type, domain.av_type, FI_AV_TABLE);
        // Directions come with what has directions, and only with that.
        let directions = if info.caps & (FI_MSG | FI_TAGGED) == 0 { 0 } else { FI_SEND | FI_RECV };
        assert_eq!(info.caps & (FI_SEND | FI_RECV), directions, "{what}");
    }
}

#[test]
fn an_interface_before_libfabric_1_5_is_not_spoken() {
    assert!(getinfo_as(fi_version(1, 5), std::ptr::null(), std::ptr::null()).is_ok());
    assert_eq!(getinfo_as(fi_version(1, 4), std::ptr::null(), std::ptr::null()).err(), Some(-libc::ENODATA));
}

/// Without `FI_DIRECTED_RECV` the address of a receive is not looked at.
#[test]
fn a_receive_asks_for_a_peer_only_where_the_application_has_asked_for_that() {
    for is_directed in [true, false] {
        let open = || End::with(|info| info.caps &= if is_directed { !0 } else { !FI_DIRECTED_RECV }, |_| {});
        let pair = Pair::of([open(), open()]);
        let itself = pair.ends[1].insert(&pair.ends[1].name());
        let (mut directed, mut any) = ([0; 1], [0; 1]);
        assert_eq!(pair.ends[1].trecv(itself, (1, 0), &mut directed, 1), 0);
        assert_eq!(pair.ends[1].trecv(FI_ADDR_UNSPEC, (1, 0), &mut any, 2), 0);
        assert_eq!(pair.ends[0].tsend(pair.numbers[0], 1, b"x", 3), 0);
        let taken_by = pair.wait(1).good().op_context as usize;
        assert_eq!(taken_by, if is_directed { 2 } else { 1 });
        assert_eq!(pair.ends[1].cancel(3 - taken_by), 0);
        assert_eq!(pair.wait(1).bad().err, libc::ECANCELED);
    }
}

#[test]
fn a_message_with_a_fence_is_refused() {
    let pair = Pair::open();
    let refused = pair.ends[0].tsendmsg(pair.numbers[0], 1, b"behind", (1, FI_FENCE));
    assert_eq!(refused, -(FI_EBADFLAGS as isize));
    assert_eq!(pair.ends[0].tsendmsg(pair.numbers[0], 1, b"before", (1, FI_COMPLETION)), 0);
    let mut room = [0; 6];
    assert_eq!(pair.ends[1].trecv(FI_ADDR_UNSPEC, (1, 0), &mut room, 2), 0);
    pair.wait(1).good();
    assert_eq!(&room, b"before");
}
