#include "shim.h"
#include <stdio.h>
#include <rte_cycles.h>
#include <rte_errno.h>

uint16_t roci_eth_rx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **pkts, uint16_t count)
{
	return rte_eth_rx_burst(port, queue, pkts, count);
}

uint16_t roci_eth_tx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **pkts, uint16_t count)
{
	return rte_eth_tx_burst(port, queue, pkts, count);
}

struct rte_mbuf *roci_pktmbuf_alloc(struct rte_mempool *pool)
{
	return rte_pktmbuf_alloc(pool);
}

void roci_pktmbuf_free(struct rte_mbuf *mbuf)
{
	rte_pktmbuf_free(mbuf);
}

void *roci_pktmbuf_data(const struct rte_mbuf *mbuf)
{
	return rte_pktmbuf_mtod(mbuf, void *);
}

char *roci_pktmbuf_append(struct rte_mbuf *mbuf, uint16_t len)
{
	return rte_pktmbuf_append(mbuf, len);
}

const void *roci_pktmbuf_read(const struct rte_mbuf *mbuf, uint32_t offset, uint32_t len, void *to)
{
	return rte_pktmbuf_read(mbuf, offset, len, to);
}

uint64_t roci_tsc(void)
{
	return rte_rdtsc();
}

void roci_flush_streams(void)
{
	fflush(NULL);
}

int roci_errno(void)
{
	return rte_errno;
}

void roci_layout(struct roci_layout *layout)
{
	*layout = (struct roci_layout){
		.mbuf_size = sizeof(struct rte_mbuf),
		.mbuf_data_off = offsetof(struct rte_mbuf, data_off),
		.mbuf_nb_segs = offsetof(struct rte_mbuf, nb_segs),
		.mbuf_data_len = offsetof(struct rte_mbuf, data_len),
		.mbuf_pkt_len = offsetof(struct rte_mbuf, pkt_len),
		.eth_conf_size = sizeof(struct rte_eth_conf),
		.eth_dev_info_size = sizeof(struct rte_eth_dev_info),
		.eth_stats_size = sizeof(struct rte_eth_stats),
		.eth_link_size = sizeof(struct rte_eth_link),
		.eth_rxconf_size = sizeof(struct rte_eth_rxconf),
		.eth_txconf_size = sizeof(struct rte_eth_txconf),
	};
}
