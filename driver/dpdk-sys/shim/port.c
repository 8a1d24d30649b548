/* Ports: what they can do, how they are configured. DPDK's structures for that grow from release to release. */
#include "shim.h"
#include <rte_bus_vdev.h>
#include <rte_eal.h>
#include <rte_lcore.h>

/* What RoCEv2 flows may be spread by. */
static const uint64_t addresses = RTE_ETH_RSS_IPV4 | RTE_ETH_RSS_IPV6;
static const uint64_t ports = RTE_ETH_RSS_NONFRAG_IPV4_UDP | RTE_ETH_RSS_NONFRAG_IPV6_UDP;

int roci_port_info(uint16_t port, struct roci_port_info *info)
{
	struct rte_eth_dev_info all;
	const int status = rte_eth_dev_info_get(port, &all);

	if (status != 0)
		return status;
	*info = (struct roci_port_info){
		.driver = all.driver_name,
		.device = all.device,
		.max_queues = RTE_MIN(all.max_rx_queues, all.max_tx_queues),
		.max_mtu = all.max_mtu,
		.max_segments = all.tx_desc_lim.nb_mtu_seg_max,
		.sends_chains = all.tx_offload_capa & RTE_ETH_TX_OFFLOAD_MULTI_SEGS,
		.checks_ip = all.rx_offload_capa & RTE_ETH_RX_OFFLOAD_IPV4_CKSUM,
		.checks_udp = all.rx_offload_capa & RTE_ETH_RX_OFFLOAD_UDP_CKSUM,
		.spreads_by_address = all.flow_type_rss_offloads & addresses,
		.spreads_by_port = all.flow_type_rss_offloads & ports,
	};
	return 0;
}

int roci_port_configure(uint16_t port, uint16_t queues, const struct roci_port_conf *wanted)
{
	struct rte_eth_dev_info all;
	struct rte_eth_conf conf = { 0 };
	const int status = rte_eth_dev_info_get(port, &all);

	if (status != 0)
		return status;
	conf.rxmode.mtu = wanted->mtu;
	if (wanted->sends_chains)
		conf.txmode.offloads |= RTE_ETH_TX_OFFLOAD_MULTI_SEGS;
	if (wanted->checks_ip)
		conf.rxmode.offloads |= RTE_ETH_RX_OFFLOAD_IPV4_CKSUM;
	if (wanted->checks_udp)
		conf.rxmode.offloads |= RTE_ETH_RX_OFFLOAD_UDP_CKSUM;
	if (wanted->spreads) {
		conf.rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
		conf.rx_adv_conf.rss_conf.rss_hf = all.flow_type_rss_offloads & (addresses | ports);
	}
	return rte_eth_dev_configure(port, queues, queues, &conf);
}

int roci_port_rx_queue(uint16_t port, uint16_t queue, uint16_t descriptors, struct rte_mempool *pool)
{
	return rte_eth_rx_queue_setup(port, queue, descriptors, 0, NULL, pool);
}

int roci_port_tx_queue(uint16_t port, uint16_t queue, uint16_t descriptors)
{
	return rte_eth_tx_queue_setup(port, queue, descriptors, 0, NULL);
}

/* The installed headers leave these to drivers. */
struct rte_eth_dev *rte_eth_dev_allocated(const char *name);
int rte_eth_dev_release_port(struct rte_eth_dev *dev);

int roci_vdev_init(const char *name, const char *args)
{
	const int status = rte_vdev_init(name, args);

	/* memif leaves its place in the table of ports taken. With EEXIST the name is that of a device which works. */
	if (status != 0 && status != -EEXIST)
		rte_eth_dev_release_port(rte_eth_dev_allocated(name));
	return status;
}

bool roci_port_is_up(uint16_t port)
{
	struct rte_eth_link link;

	return rte_eth_link_get_nowait(port, &link) == 0 && link.link_status == RTE_ETH_LINK_UP;
}

bool roci_addresses_are_virtual(void)
{
	return rte_eal_iova_mode() == RTE_IOVA_VA;
}
