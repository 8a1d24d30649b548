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

struct rte_mbuf *roci_pktmbuf_around(struct rte_mempool *pool, uint16_t head_len, void *payload, rte_iova_t iova,
				     uint16_t payload_len, struct rte_mbuf_ext_shared_info *shinfo, uint16_t tail_len)
{
	struct rte_mbuf *segments[3];
	struct rte_mbuf *head, *middle, *tail;

	if (rte_pktmbuf_alloc_bulk(pool, segments, 3) != 0)
		return NULL;
	head = segments[0];
	middle = segments[1];
	tail = segments[2];
	rte_pktmbuf_attach_extbuf(middle, payload, iova, payload_len, shinfo);
	rte_mbuf_ext_refcnt_update(shinfo, 1);
	head->data_len = head_len;
	middle->data_len = payload_len;
	tail->data_len = tail_len;
	head->next = middle;
	middle->next = tail;
	head->nb_segs = 3;
	head->pkt_len = (uint32_t)head_len + payload_len + tail_len;
	return head;
}

uint16_t roci_ext_refcnt_update(struct rte_mbuf_ext_shared_info *shinfo, int16_t value)
{
	return rte_mbuf_ext_refcnt_update(shinfo, value);
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

void roci_clear_errno(void)
{
	rte_errno = 0;
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
