/*
 * What Rust calls that DPDK has no function for: static inline functions of the data path, whose thin twins cost about 2 ns
 * a call, and whatever takes a structure that differs between releases. src/lib.rs documents each, src/layout.rs the
 * structures.
 */
#pragma once
#include <stdbool.h>
#include <rte_ethdev.h>
#include <rte_mbuf.h>

struct roci_port_info {
	const char *driver;
	struct rte_device *device;
	uint16_t max_queues, max_mtu, max_segments;
	bool sends_chains, checks_ip, checks_udp, spreads_by_address, spreads_by_port;
};

struct roci_port_conf {
	uint16_t mtu;
	bool sends_chains, checks_ip, checks_udp, spreads;
};

uint16_t roci_eth_rx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **pkts, uint16_t count);
uint16_t roci_eth_tx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **pkts, uint16_t count);
struct rte_mbuf *roci_pktmbuf_alloc(struct rte_mempool *pool);
int roci_pktmbuf_alloc_bulk(struct rte_mempool *pool, struct rte_mbuf **mbufs, unsigned int count);
void roci_pktmbuf_free(struct rte_mbuf *mbuf);
const void *roci_pktmbuf_read(const struct rte_mbuf *mbuf, uint32_t offset, uint32_t len, void *to);
struct rte_mbuf *roci_pktmbuf_around(struct rte_mempool *pool, uint16_t head_len, void *payload, rte_iova_t iova,
				     uint16_t payload_len, uint64_t page, struct rte_mbuf_ext_shared_info *shinfo,
				     uint16_t tail_len);
uint16_t roci_ext_refcnt_update(struct rte_mbuf_ext_shared_info *shinfo, int16_t value);
void roci_pktmbuf_pool_touch(struct rte_mempool *pool);
uint64_t roci_tsc(void);

int roci_port_info(uint16_t port, struct roci_port_info *info);
int roci_port_configure(uint16_t port, uint16_t queues, const struct roci_port_conf *wanted);
int roci_port_rx_queue(uint16_t port, uint16_t queue, uint16_t descriptors, struct rte_mempool *pool);
int roci_port_tx_queue(uint16_t port, uint16_t queue, uint16_t descriptors);
bool roci_port_is_up(uint16_t port);
int roci_vdev_init(const char *name, const char *args);

bool roci_addresses_are_virtual(void);
int roci_errno(void);
void roci_clear_errno(void);
int roci_log_open(bool echo);
size_t roci_log_take(char *to, size_t room);
int roci_refusal_take(const char **call);
int roci_eal_init(int argc, char **argv);
