/*
 * DPDK's data path is made of static inline functions, which a foreign language cannot call.
 * Each one that Rocinante needs has a thin, out-of-line twin here; a call costs about 2 ns.
 */
#pragma once
#include <stdbool.h>
#include <rte_ethdev.h>
#include <rte_mbuf.h>

/* A capability that DPDK spells as a macro, which bindgen does not evaluate. */
static const uint64_t ROCI_TX_OFFLOAD_MULTI_SEGS = RTE_ETH_TX_OFFLOAD_MULTI_SEGS;

uint16_t roci_eth_rx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **pkts, uint16_t count);
uint16_t roci_eth_tx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **pkts, uint16_t count);
struct rte_mbuf *roci_pktmbuf_alloc(struct rte_mempool *pool);
void roci_pktmbuf_free(struct rte_mbuf *mbuf);
/* The start of the packet's first segment. */
void *roci_pktmbuf_data(const struct rte_mbuf *mbuf);
/* Reserves `len` bytes at the end of the packet; NULL where the tail room is too small. */
char *roci_pktmbuf_append(struct rte_mbuf *mbuf, uint16_t len);
/* Copies `len` bytes from `offset` of a chained packet into `to`; NULL where the packet is shorter. */
const void *roci_pktmbuf_read(const struct rte_mbuf *mbuf, uint32_t offset, uint32_t len, void *to);
/*
 * A packet of room for a head and for a tail from the pool, and between them a payload that stays where it is, in a
 * segment for each page of the device's that it touches: a page is a power of two from 4096 on. `shinfo` counts a user
 * for each until the packet is freed. NULL where the pool is empty.
 */
struct rte_mbuf *roci_pktmbuf_around(struct rte_mempool *pool, uint16_t head_len, void *payload, rte_iova_t iova,
				     uint16_t payload_len, uint64_t page, struct rte_mbuf_ext_shared_info *shinfo,
				     uint16_t tail_len);
/* Adds to the users of external memory, and returns how many there are. */
uint16_t roci_ext_refcnt_update(struct rte_mbuf_ext_shared_info *shinfo, int16_t value);
uint64_t roci_tsc(void);
/* Macros that a foreign language cannot evaluate. */
static const uint64_t ROCI_RX_OFFLOAD_IPV4_CKSUM = RTE_ETH_RX_OFFLOAD_IPV4_CKSUM;
static const uint64_t ROCI_RX_OFFLOAD_UDP_CKSUM = RTE_ETH_RX_OFFLOAD_UDP_CKSUM;
static const uint64_t ROCI_RX_IP_CKSUM_MASK = RTE_MBUF_F_RX_IP_CKSUM_MASK;
static const uint64_t ROCI_RX_IP_CKSUM_BAD = RTE_MBUF_F_RX_IP_CKSUM_BAD;
static const uint64_t ROCI_RX_L4_CKSUM_MASK = RTE_MBUF_F_RX_L4_CKSUM_MASK;
static const uint64_t ROCI_RX_L4_CKSUM_BAD = RTE_MBUF_F_RX_L4_CKSUM_BAD;
/* What RoCEv2 flows may be spread by. */
static const uint64_t ROCI_RSS_ADDRESSES = RTE_ETH_RSS_IPV4 | RTE_ETH_RSS_IPV6;
static const uint64_t ROCI_RSS_PORTS = RTE_ETH_RSS_NONFRAG_IPV4_UDP | RTE_ETH_RSS_NONFRAG_IPV6_UDP;
/* Writes to every page of a pool's buffers, all of which are in it: so that no packet waits for one. */
void roci_pktmbuf_pool_touch(struct rte_mempool *pool);
int roci_errno(void);
/* Before a call that may fail without saying why: a reason from before would be taken for its own. */
void roci_clear_errno(void);
/*
 * Keeps DPDK's log, and echoes it to stderr if so wished; once DPDK runs, what is critical in any case. Call it before DPDK
 * starts. Not 0 where that fails.
 */
int roci_log_open(bool echo);
/* Takes the last `room` bytes at most of what DPDK has said since the last call, and returns how many there were. */
size_t roci_log_take(char *to, size_t room);
/* Starts DPDK by rte_eal_init; what that prints is kept with the log. Call it once. */
int roci_eal_init(int argc, char **argv);
/* What the compiler of the installed headers thinks of the layouts: compared with the bindings by a test. */
struct roci_layout {
	size_t mbuf_size, mbuf_data_off, mbuf_nb_segs, mbuf_data_len, mbuf_pkt_len;
	size_t eth_conf_size, eth_dev_info_size, eth_stats_size, eth_link_size, eth_rxconf_size, eth_txconf_size;
};
void roci_layout(struct roci_layout *layout);
