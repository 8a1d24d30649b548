//! The scenarios. *Ours* means that our end requests and the guest responds; *theirs* is the other way round.

mod connected;
mod crowd;
mod datagrams;
mod endpoints;
mod errors;
mod losses;
mod manager;
mod mixed;
mod perftest;
mod pingpong;
mod rsockets;
mod services;

use crate::LabError;
use crate::lab::Lab;

/// One row of the table.
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    /// What is exchanged and what must come of it.
    pub(crate) what: &'static str,
    pub(crate) run: fn(&mut Lab) -> Result<(), LabError>,
}

macro_rules! scenarios {
    ($($name:literal, $what:literal, $run:path;)*) => {
        /// All scenarios, in the order in which they run.
        pub(crate) const SCENARIOS: &[Scenario] = &[$(Scenario { name: $name, what: $what, run: $run }),*];
    };
}

scenarios! {
    "neighbours", "the guest's kernel finds and pings us over IPv4, IPv6 and in a VLAN", datagrams::pings;
    "send_ours", "SEND of 0 to 3 MTU + 5 bytes at MTU 256 to 4096", connected::send_ours;
    "send_theirs", "the same, the guest sends", connected::send_theirs;
    "write_ours", "RDMA WRITE of those lengths, with and without immediate data", connected::write_ours;
    "write_theirs", "the same, the guest writes", connected::write_theirs;
    "read_ours", "RDMA READ of those lengths", connected::read_ours;
    "read_theirs", "the same, the guest reads", connected::read_theirs;
    "atomics_ours", "FETCH_ADD, COMPARE_SWAP that hits and one that misses", connected::atomics_ours;
    "atomics_theirs", "the same, the guest requests", connected::atomics_theirs;
    "imm_ours", "SEND with immediate data, solicited", connected::imm_ours;
    "imm_theirs", "the same, the guest sends", connected::imm_theirs;
    "invalidate_ours", "WRITE through the guest's memory window, then SEND with invalidate", connected::invalidate_ours;
    "invalidate_theirs", "the guest writes through our window, then ends it; a late WRITE is denied", connected::invalidate_theirs;
    "large_ours", "WRITE and READ of 1 MiB", connected::large_ours;
    "large_theirs", "the guest writes and reads 1 MiB", connected::large_theirs;
    "zero_copy_payloads_ours", "SEND, WRITE and the responses to a READ leave from where their payloads lie, at MTU 256 to 4096", connected::zero_copy_payloads;
    "ipv6_both", "SEND, WRITE and READ over IPv6 in both directions", connected::ipv6;
    "vlan_both", "the same over IPv4 in a VLAN", connected::vlan;
    "psn_wrap_both", "40 messages across the wrap of the PSN in both directions", connected::psn_wrap;
    "srq_theirs", "two queue pairs of ours share receives for the guest's SENDs", connected::shared_receives;
    "rnr_ours", "SEND before the guest has posted a receive", errors::rnr_ours;
    "rnr_theirs", "the guest sends before we have posted a receive", errors::rnr_theirs;
    "rnr_exhausted_ours", "RNR retries run out here: IBV_WC_RNR_RETRY_EXC_ERR", errors::rnr_exhausted_ours;
    "rnr_exhausted_theirs", "RNR retries run out in the guest", errors::rnr_exhausted_theirs;
    "bad_key_ours", "WRITE, READ and FETCH_ADD with a bad key: IBV_WC_REM_ACCESS_ERR", errors::bad_key_ours;
    "bad_key_theirs", "the same from the guest: our memory is untouched", errors::bad_key_theirs;
    "out_of_bounds_theirs", "the guest writes beyond our region", errors::out_of_bounds_theirs;
    "misaligned_ours", "an atomic at an odd address: IBV_WC_REM_INV_REQ_ERR", errors::misaligned_ours;
    "too_long_ours", "a SEND longer than the guest's receive", errors::too_long_ours;
    "too_long_theirs", "a SEND of the guest's longer than our receive", errors::too_long_theirs;
    "silence_ours", "every packet is lost: IBV_WC_RETRY_EXC_ERR", errors::silence_ours;
    "loss_write_ours", "each packet of a 16-packet WRITE is lost in turn", losses::write_ours;
    "loss_write_theirs", "the same, the guest writes", losses::write_theirs;
    "loss_read_ours", "each response of a 16-packet READ is lost in turn", losses::read_ours;
    "loss_read_theirs", "the same, the guest reads", losses::read_theirs;
    "loss_request_ours", "the READ request, the atomic and their answers are lost; the atomic happens once", losses::requests_ours;
    "loss_request_theirs", "the same, the guest requests", losses::requests_theirs;
    "loss_repeated_write_theirs", "the guest's WRITE is repeated before a READ or an atomic whose answer was lost", losses::repeated_write_theirs;
    "loss_ack_ours", "every second acknowledgement of 32 SENDs is lost", losses::acks_ours;
    "loss_ack_theirs", "the same, the guest sends", losses::acks_theirs;
    "mixed_under_faults", "SEND, WRITE, READ and atomics of both ends at once across the wrap of the PSN, while packets are lost, repeated and reordered both ways, at MTU 256, 1024 and 4096", mixed::mixed;
    "datagram_ours", "datagrams over IPv4 and IPv6, with and without immediate data", datagrams::ours;
    "datagram_theirs", "the guest's datagrams: header area, source QPN, foreign Q_Key dropped", datagrams::theirs;
    "pingpong_client", "ibv_rc_pingpong unmodified in the guest as server, out of band over TCP", pingpong::rc_client;
    "pingpong_server", "ibv_rc_pingpong unmodified in the guest as client", pingpong::rc_server;
    "srq_pingpong_client", "ibv_srq_pingpong in the guest as server: four queue pairs share its receives", pingpong::srq_client;
    "srq_pingpong_server", "ibv_srq_pingpong in the guest as client", pingpong::srq_server;
    "ud_pingpong_client", "ibv_ud_pingpong in the guest as server, datagrams of 4096 bytes", pingpong::ud_client;
    "ud_pingpong_server", "ibv_ud_pingpong in the guest as client", pingpong::ud_server;
    "perftest_send_lat", "`ib_send_lat` unmodified in the guest against our server: one size, over IPv6, and all sizes", perftest::send_lat;
    "perftest_send_bw", "the same, `ib_send_bw`", perftest::send_bw;
    "perftest_write_lat", "the same, `ib_write_lat`", perftest::write_lat;
    "perftest_write_bw", "`ib_write_bw` likewise, over IPv4 and IPv6", perftest::write_bw;
    "perftest_read_lat", "the same, `ib_read_lat`", perftest::read_lat;
    "perftest_read_bw", "the same, `ib_read_bw`", perftest::read_bw;
    "perftest_atomic_lat", "the same, `ib_atomic_lat`", perftest::atomic_lat;
    "perftest_atomic_bw", "the same, `ib_atomic_bw`", perftest::atomic_bw;
    "rping_client", "RDMA-CM to `rping -s`, which reads and writes our memory", manager::rping_client;
    "rping_server", "RDMA-CM from `rping -c`, whose memory we read and write", manager::rping_server;
    "rping_client_ipv6", "RDMA-CM to `rping -s` over IPv6", manager::rping_client_v6;
    "rping_server_ipv6", "RDMA-CM from `rping -c` over IPv6", manager::rping_server_v6;
    "ucmatose_client", "RDMA-CM to `ucmatose -b`, 10 messages each way, the guest disconnects", manager::ucmatose_client;
    "ucmatose_server", "RDMA-CM from `ucmatose -s`, 10 messages each way, we disconnect", manager::ucmatose_server;
    "endpoint_client", "RDMA-CM to `rdma_server`, a message of 16 bytes each way, the guest disconnects", endpoints::client;
    "endpoint_server", "RDMA-CM from `rdma_client`, the same", endpoints::server;
    "crowd_client", "RDMA-CM to `cmtime`: 40 connections are made, then ended by us", crowd::client;
    "crowd_server", "RDMA-CM from `cmtime -s`: 40 connections are made, then ended by the guest", crowd::server;
    "rstream_client", "rsockets' protocol to `rstream -T v`: 240 kB each way through inboxes that wrap, every byte compared at both ends", rsockets::client;
    "rstream_server", "rsockets' protocol from `rstream -T v`, the same", rsockets::server;
    "udaddy_client", "SIDR to `udaddy -b`, 5 datagrams each way", services::udaddy_client;
    "udaddy_server", "SIDR from `udaddy -s`, 5 datagrams each way", services::udaddy_server;
    "cm_rejections", "no listener there, none here, and a refusal by choice", manager::rejections;
    "cm_lost_messages", "the first REQ, REP, RTU, DREQ and DREP are lost", manager::lost_messages;
}
