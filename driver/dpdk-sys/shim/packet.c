/* Packets, and what else is inline in DPDK's headers. */
#include "shim.h"
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

int roci_pktmbuf_alloc_bulk(struct rte_mempool *pool, struct rte_mbuf **mbufs, unsigned int count)
{
	return rte_pktmbuf_alloc_bulk(pool, mbufs, count);
}

void roci_pktmbuf_free(struct rte_mbuf *mbuf)
{
	rte_pktmbuf_free(mbuf);
}

const void *roci_pktmbuf_read(const struct rte_mbuf *mbuf, uint32_t offset, uint32_t len, void *to)
{
	return rte_pktmbuf_read(mbuf, offset, len, to);
}

struct rte_mbuf *roci_pktmbuf_around(struct rte_mempool *pool, uint16_t head_len, void *payload, rte_iova_t iova,
				     uint16_t payload_len, uint64_t page, struct rte_mbuf_ext_shared_info *shinfo,
				     uint16_t tail_len)
{
	/* At both ends of a payload's pages a part of one. */
	struct rte_mbuf *segments[UINT16_MAX / 4096 + 2 + 2];
	const uint64_t first = page - (iova & (page - 1));
	uint16_t pieces = 1, at = 0;
	uint64_t room;

	for (room = first; room < payload_len; room += page)
		pieces++;
	if (rte_pktmbuf_alloc_bulk(pool, segments, pieces + 2u) != 0)
		return NULL;
	segments[0]->data_len = head_len;
	room = first;
	for (uint16_t i = 1; i <= pieces; i++) {
		const uint16_t len = RTE_MIN((uint64_t)(payload_len - at), room);

		rte_pktmbuf_attach_extbuf(segments[i], RTE_PTR_ADD(payload, at), iova + at, len, shinfo);
		segments[i]->data_len = len;
		segments[i - 1]->next = segments[i];
		at += len;
		room = page;
	}
	rte_mbuf_ext_refcnt_update(shinfo, pieces);
	segments[pieces + 1]->data_len = tail_len;
	segments[pieces]->next = segments[pieces + 1];
	segments[0]->nb_segs = pieces + 2;
	segments[0]->pkt_len = (uint32_t)head_len + payload_len + tail_len;
	return segments[0];
}

uint16_t roci_ext_refcnt_update(struct rte_mbuf_ext_shared_info *shinfo, int16_t value)
{
	return rte_mbuf_ext_refcnt_update(shinfo, value);
}

uint64_t roci_tsc(void)
{
	return rte_rdtsc();
}

int roci_errno(void)
{
	return rte_errno;
}

static void touch(struct rte_mempool *pool, void *unused, void *object, unsigned int index)
{
	const struct rte_mbuf *buffer = object;
	volatile char *bytes = buffer->buf_addr;

	(void)pool;
	(void)unused;
	(void)index;
	for (uint32_t at = 0; at < buffer->buf_len; at += 4096)
		bytes[at] = 0;
	bytes[buffer->buf_len - 1] = 0;
}

void roci_pktmbuf_pool_touch(struct rte_mempool *pool)
{
	rte_mempool_obj_iter(pool, touch, NULL);
}

void roci_clear_errno(void)
{
	rte_errno = 0;
}
