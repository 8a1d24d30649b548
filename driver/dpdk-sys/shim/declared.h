/*
 * DPDK's functions as src/lib.rs declares them. The C compiler, which sees the installed headers as well, refuses what
 * differs.
 */
#pragma once
#include <rte_alarm.h>
#include <rte_bus_vdev.h>
#include <rte_cycles.h>
#include <rte_dev.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_lcore.h>
#include <rte_mbuf.h>
#include <rte_memory.h>
#include <rte_mempool.h>
#include <rte_version.h>

int rte_dev_dma_map(struct rte_device *dev, void *addr, uint64_t iova, size_t len);
int rte_dev_dma_unmap(struct rte_device *dev, void *addr, uint64_t iova, size_t len);
int rte_eal_alarm_set(uint64_t us, void (*cb)(void *), void *arg);
int rte_eth_allmulticast_enable(uint16_t port);
int rte_eth_dev_adjust_nb_rx_tx_desc(uint16_t port, uint16_t *rx, uint16_t *tx);
int rte_eth_dev_close(uint16_t port);
uint16_t rte_eth_dev_count_avail(void);
int rte_eth_dev_get_port_by_name(const char *name, uint16_t *port);
int rte_eth_dev_is_valid_port(uint16_t port);
int rte_eth_dev_start(uint16_t port);
int rte_eth_dev_stop(uint16_t port);
int rte_eth_macaddr_get(uint16_t port, struct rte_ether_addr *mac);
int rte_extmem_register(void *addr, size_t len, uint64_t *iova_addrs, unsigned int n_pages, size_t page);
int rte_extmem_unregister(void *addr, size_t len);
uint64_t rte_get_tsc_hz(void);
uint64_t rte_mem_virt2iova(const void *addr);
unsigned int rte_mempool_avail_count(const struct rte_mempool *pool);
void rte_mempool_free(struct rte_mempool *pool);
struct rte_mempool *rte_pktmbuf_pool_create(const char *name, unsigned int n, unsigned int cache, uint16_t priv_size,
					    uint16_t room, int socket);
const char *rte_strerror(int errnum);
int rte_thread_register(void);
void rte_thread_unregister(void);
int rte_vdev_uninit(const char *name);
const char *rte_version(void);
