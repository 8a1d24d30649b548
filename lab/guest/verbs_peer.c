/*
 * verbs_peer: a peer made of libibverbs that does what a test tells it, one line at a time, over TCP.
 *
 * Usage: verbs_peer [-d] [PORT]      -d: go to the background once it listens; PORT: 7471 if not given
 *
 * One connection is one session, and one process: whatever the session had is freed by the kernel when the connection
 * ends, and nothing that goes wrong in it outlives it. README.md tells the protocol.
 */
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PORT_NUM 1            /* rxe has one port */
#define CQ_DEPTH 1024
#define QP_DEPTH 512
#define MAX_LINE 65536
#define MAX_WORDS 32
#define MAX_OBJECTS 256       /* of each kind */
#define MAX_MR_BYTES (64 << 20)
#define MAX_ALL_MR_BYTES (256 << 20) /* more would meet the guest's out-of-memory killer */
#define MAX_PEEK 256
#define MAX_POLL 256
#define MAX_POLL_MS 60000

/* The session: what the connection has made so far. */
static struct ibv_context *context;
static char device_name[64];
static int gid_index;
static struct ibv_pd *pd;
static struct ibv_cq *cq;

/* Objects are known to the other side by their index here. A destroyed one leaves a hole. */
static struct {
	struct ibv_mr *mr;
	uint8_t *bytes;
	uint64_t size;
} mrs[MAX_OBJECTS];
static struct ibv_srq *srqs[MAX_OBJECTS];
static struct ibv_qp *qps[MAX_OBJECTS];
static struct ibv_ah *ahs[MAX_OBJECTS];
static struct {
	struct ibv_mw *mw;
	struct ibv_qp *qp; /* that the last bind was posted to */
} mws[MAX_OBJECTS];
static int mr_count, srq_count, qp_count, ah_count, mw_count;
static uint64_t all_mr_bytes;

/* The request that is being answered: its key=value words, and the answer as far as it is known. */
static struct {
	const char *key;
	const char *value;
} words[MAX_WORDS];
static int word_count;
static char answer[MAX_LINE];
static size_t answer_length;
static jmp_buf next_request;

static void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void fail(int error, const char *format, ...) __attribute__((format(printf, 2, 3), noreturn));

static void append(const char *format, va_list arguments)
{
	size_t room = sizeof answer - answer_length;
	int length = vsnprintf(answer + answer_length, room, format, arguments);

	if (length > 0)
		answer_length += (size_t)length < room ? (size_t)length : room - 1;
}

static void say(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	append(format, arguments);
	va_end(arguments);
}

/* Answers "error WHAT: STRERROR", whatever was said before, and gives the request up. */
static void fail(int error, const char *format, ...)
{
	va_list arguments;

	answer_length = 0;
	say("error ");
	va_start(arguments, format);
	append(format, arguments);
	va_end(arguments);
	if (error)
		say(": %s", strerror(error));
	longjmp(next_request, 1);
}

/* ---- arguments ---- */

static const char *optional_text(const char *key, const char *otherwise)
{
	for (int i = 0; i < word_count; i++)
		if (!strcmp(words[i].key, key))
			return words[i].value;
	return otherwise;
}

static const char *text(const char *key)
{
	const char *value = optional_text(key, NULL);

	if (!value)
		fail(EINVAL, "%s is missing", key);
	return value;
}

static int given(const char *key)
{
	return optional_text(key, NULL) != NULL;
}

/* Decimal, or hexadecimal after 0x; strtoull alone would take "010", "-1" and " 1" as well. */
static uint64_t number(const char *key, uint64_t most)
{
	const char *value = text(key);
	int base = !strncmp(value, "0x", 2) ? 16 : 10;
	const char *digits = base == 16 ? value + 2 : value;
	const char *allowed = base == 16 ? "0123456789abcdefABCDEF" : "0123456789";
	uint64_t parsed;

	if (!*digits || digits[strspn(digits, allowed)])
		fail(EINVAL, "%s is not a number", key);
	errno = 0;
	parsed = strtoull(digits, NULL, base);
	if (errno || parsed > most)
		fail(ERANGE, "%s", key);
	return parsed;
}

static uint64_t optional_number(const char *key, uint64_t most, uint64_t otherwise)
{
	return given(key) ? number(key, most) : otherwise;
}

static int access_flags(const char *letters)
{
	int flags = 0;

	for (; *letters; letters++)
		switch (*letters) {
		case 'l': flags |= IBV_ACCESS_LOCAL_WRITE; break;
		case 'r': flags |= IBV_ACCESS_REMOTE_READ; break;
		case 'w': flags |= IBV_ACCESS_REMOTE_WRITE; break;
		case 'a': flags |= IBV_ACCESS_REMOTE_ATOMIC; break;
		case 'b': flags |= IBV_ACCESS_MW_BIND; break;
		default: fail(EINVAL, "access is of the letters lrwab");
		}
	return flags;
}

/* An IPv4 address is the GID ::ffff:a.b.c.d. */
static union ibv_gid gid_of(const char *key)
{
	const char *address = text(key);
	char mapped[INET6_ADDRSTRLEN + 8];
	union ibv_gid gid;

	snprintf(mapped, sizeof mapped, "%s%s", strchr(address, ':') ? "" : "::ffff:", address);
	if (inet_pton(AF_INET6, mapped, gid.raw) != 1)
		fail(EINVAL, "%s is not an address", key);
	return gid;
}

static void need_open(void)
{
	if (!context)
		fail(ENOTCONN, "not open");
}

/* The index of an object that exists, out of the table that starts with this pointer. */
static int index_of(const char *key, int count)
{
	uint64_t index = number(key, UINT32_MAX);

	if (index >= (uint64_t)count)
		fail(ENOENT, "%s", key);
	return (int)index;
}

static struct ibv_qp *qp_of(void)
{
	struct ibv_qp *qp = qps[index_of("qp", qp_count)];

	if (!qp)
		fail(ENOENT, "qp");
	return qp;
}

static void need_room(int count)
{
	if (count == MAX_OBJECTS)
		fail(ENOSPC, "too many objects");
}

/* The range mr=, off=, len= (0 and "otherwise" if not given), all of it inside the region. */
static struct ibv_sge range(uint64_t otherwise)
{
	int index = index_of("mr", mr_count);
	uint64_t offset = optional_number("off", UINT64_MAX, 0);
	uint64_t length = optional_number("len", UINT32_MAX, otherwise);

	if (offset > mrs[index].size || length > mrs[index].size - offset)
		fail(ERANGE, "range");
	return (struct ibv_sge){
		.addr = (uintptr_t)mrs[index].bytes + offset,
		.length = (uint32_t)length,
		.lkey = mrs[index].mr->lkey,
	};
}

/* The scatter or gather list of a work request: none at all without a region, or with a length of 0. */
static int optional_sge(struct ibv_sge *sge, uint64_t otherwise)
{
	if (!given("mr"))
		return 0;
	*sge = range(otherwise);
	return sge->length ? 1 : 0;
}

static uint8_t *range_bytes(const struct ibv_sge *sge)
{
	return (uint8_t *)(uintptr_t)sge->addr;
}

/* ---- device and memory ---- */

/* The address alone for one that maps IPv4, so that it reads as it was configured. */
static void say_gid(const union ibv_gid *gid)
{
	char address[INET6_ADDRSTRLEN] = "?";

	if (IN6_IS_ADDR_V4MAPPED((const struct in6_addr *)gid->raw))
		inet_ntop(AF_INET, gid->raw + 12, address, sizeof address);
	else
		inet_ntop(AF_INET6, gid->raw, address, sizeof address);
	say("ok gid=%s", address);
}

static struct ibv_context *open_device(const char *name)
{
	int count = 0;
	struct ibv_device **devices = ibv_get_device_list(&count);
	struct ibv_context *opened = NULL;

	errno = ENODEV;
	for (int i = 0; devices && i < count; i++)
		if (!strcmp(ibv_get_device_name(devices[i]), name))
			opened = ibv_open_device(devices[i]);
	if (!opened)
		fail(errno, "device");
	ibv_free_device_list(devices);
	return opened;
}

static void do_open(void)
{
	static const union ibv_gid none;
	union ibv_gid gid;
	struct ibv_context *opened;
	int index = (int)number("gid", 1023);

	if (context)
		fail(EALREADY, "open");
	opened = open_device(optional_text("device", "rxe0"));
	if (ibv_query_gid(opened, PORT_NUM, index, &gid) || !memcmp(&gid, &none, sizeof gid)) {
		ibv_close_device(opened);
		fail(ENODATA, "gid");
	}
	pd = ibv_alloc_pd(opened);
	cq = pd ? ibv_create_cq(opened, CQ_DEPTH, NULL, NULL, 0) : NULL;
	if (!cq)
		fail(errno, "pd and cq");
	context = opened;
	gid_index = index;
	snprintf(device_name, sizeof device_name, "%s", ibv_get_device_name(opened->device));
	say_gid(&gid);
}

static void do_mr(void)
{
	uint64_t size = number("size", MAX_MR_BYTES);
	int flags = access_flags(text("access"));
	struct ibv_mr *mr;
	void *bytes;

	need_open();
	need_room(mr_count);
	if (!size || size > MAX_ALL_MR_BYTES - all_mr_bytes)
		fail(ERANGE, "size");
	bytes = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (bytes == MAP_FAILED)
		fail(errno, "memory");
	mr = ibv_reg_mr(pd, bytes, size, flags);
	if (!mr) {
		int error = errno;

		munmap(bytes, size);
		fail(error, "mr");
	}
	all_mr_bytes += size;
	mrs[mr_count].mr = mr;
	mrs[mr_count].bytes = bytes;
	mrs[mr_count].size = size;
	say("ok mr=%d addr=%#lx rkey=%#x lkey=%#x", mr_count++, (unsigned long)bytes, mr->rkey, mr->lkey);
}

static uint8_t pattern(uint64_t seed, uint64_t i)
{
	return (uint8_t)(seed + i * 7 + (i >> 8));
}

static void do_fill(void)
{
	struct ibv_sge sge = range(0);
	uint64_t seed = number("seed", UINT64_MAX);

	for (uint64_t i = 0; i < sge.length; i++)
		range_bytes(&sge)[i] = pattern(seed, i);
	say("ok");
}

static void do_check(void)
{
	struct ibv_sge sge = range(0);
	uint64_t seed = number("seed", UINT64_MAX);

	for (uint64_t i = 0; i < sge.length; i++)
		if (range_bytes(&sge)[i] != pattern(seed, i))
			fail(0, "mismatch at %lu", (unsigned long)i);
	say("ok");
}

static void do_peek(void)
{
	struct ibv_sge sge = range(0);

	if (sge.length > MAX_PEEK)
		fail(ERANGE, "len");
	say("ok hex=");
	for (uint32_t i = 0; i < sge.length; i++)
		say("%02x", range_bytes(&sge)[i]);
}

static void do_poke(void)
{
	const char *hex = text("hex");
	size_t digits = strlen(hex);
	struct ibv_sge sge = range(digits / 2);

	if (digits % 2 || hex[strspn(hex, "0123456789abcdefABCDEF")])
		fail(EINVAL, "hex");
	for (size_t i = 0; i < digits / 2; i++) {
		char byte[3] = { hex[2 * i], hex[2 * i + 1], 0 };

		range_bytes(&sge)[i] = (uint8_t)strtoul(byte, NULL, 16);
	}
	say("ok");
}

/* ---- queue pairs ---- */

static void do_srq(void)
{
	struct ibv_srq_init_attr attributes = { .attr = { .max_wr = (uint32_t)number("depth", UINT32_MAX), .max_sge = 1 } };
	struct ibv_srq *srq;

	need_open();
	need_room(srq_count);
	srq = ibv_create_srq(pd, &attributes);
	if (!srq)
		fail(errno, "srq");
	srqs[srq_count] = srq;
	say("ok srq=%d", srq_count++);
}

static enum ibv_qp_type qp_type(void)
{
	const char *type = text("type");

	if (!strcmp(type, "rc"))
		return IBV_QPT_RC;
	if (!strcmp(type, "uc"))
		return IBV_QPT_UC;
	if (!strcmp(type, "ud"))
		return IBV_QPT_UD;
	fail(EINVAL, "type");
}

/* A datagram's queue pair needs no other side, so it can go all the way to sending. */
static int start_ud(struct ibv_qp *qp, uint32_t qkey)
{
	struct ibv_qp_attr attributes = { .qp_state = IBV_QPS_INIT, .port_num = PORT_NUM, .qkey = qkey };
	int error = ibv_modify_qp(qp, &attributes, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY);

	attributes.qp_state = IBV_QPS_RTR;
	if (!error)
		error = ibv_modify_qp(qp, &attributes, IBV_QP_STATE);
	attributes.qp_state = IBV_QPS_RTS;
	if (!error)
		error = ibv_modify_qp(qp, &attributes, IBV_QP_STATE | IBV_QP_SQ_PSN);
	return error;
}

static int start_connected(struct ibv_qp *qp)
{
	struct ibv_qp_attr attributes = {
		.qp_state = IBV_QPS_INIT,
		.port_num = PORT_NUM,
		.qp_access_flags = access_flags(qp->qp_type == IBV_QPT_RC ? "lrwab" : "lwb"),
	};

	return ibv_modify_qp(qp, &attributes, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

static void do_qp(void)
{
	struct ibv_qp_init_attr attributes = {
		.send_cq = cq,
		.recv_cq = cq,
		.qp_type = qp_type(),
		.srq = given("srq") ? srqs[index_of("srq", srq_count)] : NULL,
		.cap = { .max_send_wr = QP_DEPTH, .max_recv_wr = QP_DEPTH, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	uint32_t qkey = attributes.qp_type == IBV_QPT_UD ? (uint32_t)number("qkey", UINT32_MAX) : 0;
	struct ibv_qp *qp;
	int error;

	need_open();
	need_room(qp_count);
	qp = ibv_create_qp(pd, &attributes);
	if (!qp)
		fail(errno, "qp");
	error = attributes.qp_type == IBV_QPT_UD ? start_ud(qp, qkey) : start_connected(qp);
	if (error) {
		ibv_destroy_qp(qp);
		fail(error, "modify");
	}
	qps[qp_count] = qp;
	say("ok qp=%d qpn=%u", qp_count++, qp->qp_num);
}

static enum ibv_mtu mtu_of(uint64_t bytes)
{
	switch (bytes) {
	case 256: return IBV_MTU_256;
	case 512: return IBV_MTU_512;
	case 1024: return IBV_MTU_1024;
	case 2048: return IBV_MTU_2048;
	case 4096: return IBV_MTU_4096;
	}
	fail(EINVAL, "mtu");
}

static struct ibv_ah_attr address_of(const char *key)
{
	return (struct ibv_ah_attr){
		.is_global = 1,
		.port_num = PORT_NUM,
		.grh = {
			.dgid = gid_of(key),
			.sgid_index = (uint8_t)gid_index,
			.traffic_class = (uint8_t)optional_number("tclass", UINT8_MAX, 0),
			.flow_label = (uint32_t)optional_number("flow", 0xfffff, 0),
			.hop_limit = (uint8_t)optional_number("hop", UINT8_MAX, 64),
		},
	};
}

static void do_connect(void)
{
	struct ibv_qp *qp = qp_of();
	struct ibv_qp_attr attributes = {
		.qp_state = IBV_QPS_RTR,
		.ah_attr = address_of("dgid"),
		.dest_qp_num = (uint32_t)number("dqpn", 0xffffff),
		.rq_psn = (uint32_t)number("rq_psn", 0xffffff),
		.sq_psn = (uint32_t)number("sq_psn", 0xffffff),
		.path_mtu = mtu_of(number("mtu", 4096)),
		.max_rd_atomic = (uint8_t)optional_number("rd_atomic", UINT8_MAX, 16),
		.max_dest_rd_atomic = (uint8_t)optional_number("dest_rd_atomic", UINT8_MAX, 16),
		/* 268 ms: under emulation a shorter one ends without any loss. */
		.timeout = (uint8_t)optional_number("timeout", 31, 16),
		.retry_cnt = (uint8_t)optional_number("retry", 7, 6), /* rxe takes 7 for endless */
		.rnr_retry = (uint8_t)optional_number("rnr_retry", 7, 7),
		.min_rnr_timer = (uint8_t)optional_number("min_rnr", 31, 12),
		.qp_access_flags = given("access") ? (unsigned)access_flags(text("access")) : 0,
	};
	int to_rtr = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	int to_rts = IBV_QP_STATE | IBV_QP_SQ_PSN;
	int error;

	if (qp->qp_type == IBV_QPT_UD)
		fail(EINVAL, "type");
	if (given("access"))
		to_rtr |= IBV_QP_ACCESS_FLAGS;
	if (qp->qp_type == IBV_QPT_RC) {
		to_rtr |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
		to_rts |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
	}
	error = ibv_modify_qp(qp, &attributes, to_rtr);
	if (error)
		fail(error, "rtr");
	attributes.qp_state = IBV_QPS_RTS;
	error = ibv_modify_qp(qp, &attributes, to_rts);
	if (error)
		fail(error, "rts");
	say("ok");
}

static void do_state(void)
{
	static const char *const names[] = {
		[IBV_QPS_RESET] = "RESET", [IBV_QPS_INIT] = "INIT", [IBV_QPS_RTR] = "RTR", [IBV_QPS_RTS] = "RTS",
		[IBV_QPS_SQD] = "SQD", [IBV_QPS_SQE] = "SQE", [IBV_QPS_ERR] = "ERR",
	};
	struct ibv_qp_attr attributes;
	struct ibv_qp_init_attr initial;
	int error = ibv_query_qp(qp_of(), &attributes, IBV_QP_STATE, &initial);

	if (error)
		fail(error, "query");
	say("ok state=%s", attributes.qp_state < sizeof names / sizeof *names ? names[attributes.qp_state] : "UNKNOWN");
}

static void do_err(void)
{
	struct ibv_qp_attr attributes = { .qp_state = IBV_QPS_ERR };
	int error = ibv_modify_qp(qp_of(), &attributes, IBV_QP_STATE);

	if (error)
		fail(error, "modify");
	say("ok");
}

/* A bound window keeps rxe's queue pair alive: destroying that would block for 50 s, and then fail. */
static void free_windows_of(const struct ibv_qp *qp)
{
	for (int i = 0; i < mw_count; i++)
		if (mws[i].mw && mws[i].qp == qp) {
			ibv_dealloc_mw(mws[i].mw);
			mws[i].mw = NULL;
		}
}

static void do_destroy(void)
{
	struct ibv_qp *qp = qp_of();
	int error;

	free_windows_of(qp);
	error = ibv_destroy_qp(qp);
	if (error)
		fail(error, "destroy");
	qps[number("qp", UINT32_MAX)] = NULL;
	say("ok");
}

static void do_ah(void)
{
	struct ibv_ah_attr attributes = address_of("ip");
	struct ibv_ah *ah;

	need_open();
	need_room(ah_count);
	ah = ibv_create_ah(pd, &attributes);
	if (!ah)
		fail(errno, "ah");
	ahs[ah_count] = ah;
	say("ok ah=%d", ah_count++);
}

/* ---- work requests ---- */

static void answer_post(int error)
{
	if (error)
		fail(error, "post");
	say("ok");
}

static void do_recv(void)
{
	struct ibv_sge sge;
	struct ibv_recv_wr request = { .wr_id = number("wr", UINT64_MAX), .sg_list = &sge }, *bad;
	struct ibv_qp *qp = qp_of();

	request.num_sge = optional_sge(&sge, 0);
	if (qp->srq)
		fail(EINVAL, "qp has an srq");
	answer_post(ibv_post_recv(qp, &request, &bad));
}

static void do_srqrecv(void)
{
	struct ibv_sge sge;
	struct ibv_recv_wr request = { .wr_id = number("wr", UINT64_MAX), .sg_list = &sge }, *bad;
	int index = index_of("srq", srq_count);

	request.num_sge = optional_sge(&sge, 0);
	answer_post(ibv_post_srq_recv(srqs[index], &request, &bad));
}

static unsigned send_flags(void)
{
	unsigned flags = optional_number("unsignaled", 1, 0) ? 0 : IBV_SEND_SIGNALED;

	if (optional_number("fence", 1, 0))
		flags |= IBV_SEND_FENCE;
	if (optional_number("solicited", 1, 0))
		flags |= IBV_SEND_SOLICITED;
	return flags;
}

static void post_send(struct ibv_qp *qp, struct ibv_send_wr *request)
{
	struct ibv_send_wr *bad;

	answer_post(ibv_post_send(qp, request, &bad));
}

static enum ibv_wr_opcode send_opcode(void)
{
	static const struct {
		const char *name;
		enum ibv_wr_opcode opcode;
	} opcodes[] = {
		{ "send", IBV_WR_SEND },
		{ "send_imm", IBV_WR_SEND_WITH_IMM },
		{ "send_inv", IBV_WR_SEND_WITH_INV },
		{ "write", IBV_WR_RDMA_WRITE },
		{ "write_imm", IBV_WR_RDMA_WRITE_WITH_IMM },
		{ "read", IBV_WR_RDMA_READ },
		{ "cas", IBV_WR_ATOMIC_CMP_AND_SWP },
		{ "fadd", IBV_WR_ATOMIC_FETCH_AND_ADD },
	};
	const char *name = text("op");

	for (size_t i = 0; i < sizeof opcodes / sizeof *opcodes; i++)
		if (!strcmp(opcodes[i].name, name))
			return opcodes[i].opcode;
	fail(EINVAL, "op");
}

/* libibverbs refuses nothing of this by itself, and the kernel would not say which. */
static void need_allowed(enum ibv_qp_type type, enum ibv_wr_opcode opcode)
{
	int is_send = opcode == IBV_WR_SEND || opcode == IBV_WR_SEND_WITH_IMM;
	int is_write = opcode == IBV_WR_RDMA_WRITE || opcode == IBV_WR_RDMA_WRITE_WITH_IMM;

	if ((type == IBV_QPT_UD && !is_send) || (type == IBV_QPT_UC && !is_send && !is_write))
		fail(EOPNOTSUPP, "op");
}

static void do_send(void)
{
	struct ibv_qp *qp = qp_of();
	struct ibv_sge sge;
	struct ibv_send_wr request = {
		.wr_id = number("wr", UINT64_MAX),
		.opcode = send_opcode(),
		.sg_list = &sge,
		.send_flags = send_flags(),
	};
	int is_atomic = request.opcode == IBV_WR_ATOMIC_CMP_AND_SWP || request.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;

	need_allowed(qp->qp_type, request.opcode);
	request.num_sge = optional_sge(&sge, is_atomic ? 8 : 0);
	if (is_atomic && (!request.num_sge || sge.length != 8))
		fail(EINVAL, "len of an atomic is 8");

	switch (request.opcode) {
	case IBV_WR_SEND_WITH_IMM:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		request.imm_data = htonl((uint32_t)number("imm", UINT32_MAX));
		break;
	case IBV_WR_SEND_WITH_INV:
		request.invalidate_rkey = (uint32_t)number("inv", UINT32_MAX);
		break;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
		request.wr.atomic.compare_add = number("compare", UINT64_MAX);
		request.wr.atomic.swap = number("swap", UINT64_MAX);
		break;
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		request.wr.atomic.compare_add = number("add", UINT64_MAX);
		break;
	default:
		break;
	}

	if (qp->qp_type == IBV_QPT_UD) {
		request.wr.ud.ah = ahs[index_of("ah", ah_count)];
		request.wr.ud.remote_qpn = (uint32_t)number("dqpn", 0xffffff);
		request.wr.ud.remote_qkey = (uint32_t)number("qkey", UINT32_MAX);
	} else if (is_atomic) {
		request.wr.atomic.remote_addr = number("raddr", UINT64_MAX);
		request.wr.atomic.rkey = (uint32_t)number("rkey", UINT32_MAX);
	} else if (request.opcode == IBV_WR_RDMA_READ || request.opcode == IBV_WR_RDMA_WRITE ||
		   request.opcode == IBV_WR_RDMA_WRITE_WITH_IMM) {
		request.wr.rdma.remote_addr = number("raddr", UINT64_MAX);
		request.wr.rdma.rkey = (uint32_t)number("rkey", UINT32_MAX);
	}
	post_send(qp, &request);
}

static void do_mw(void)
{
	struct ibv_mw *mw;

	need_open();
	need_room(mw_count);
	if (number("type", 2) != 2)
		fail(EOPNOTSUPP, "type");
	mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
	if (!mw)
		fail(errno, "mw");
	mws[mw_count].mw = mw;
	say("ok mw=%d", mw_count++);
}

static void do_bind(void)
{
	struct ibv_qp *qp = qp_of();
	int index = index_of("mw", mw_count);
	struct ibv_mw *mw = mws[index].mw;
	struct ibv_sge sge = range(0);
	struct ibv_send_wr request;

	if (!mw)
		fail(ENOENT, "mw");
	if (qp->qp_type == IBV_QPT_UD)
		fail(EOPNOTSUPP, "type");
	request = (struct ibv_send_wr){
		.wr_id = number("wr", UINT64_MAX),
		.opcode = IBV_WR_BIND_MW,
		.send_flags = IBV_SEND_SIGNALED,
		.bind_mw = {
			.mw = mw,
			.rkey = (uint32_t)optional_number("rkey", UINT32_MAX, ibv_inc_rkey(mw->rkey)),
			.bind_info = {
				.mr = mrs[index_of("mr", mr_count)].mr,
				.addr = sge.addr,
				.length = sge.length,
				.mw_access_flags = (unsigned)access_flags(text("access")),
			},
		},
	};
	post_send(qp, &request);
	mws[index].qp = qp;
	mw->rkey = request.bind_mw.rkey; /* with a window of type 2, keeping this is the application's task */
	say(" rkey=%#x", mw->rkey);
}

static void do_inval(void)
{
	struct ibv_qp *qp = qp_of();
	struct ibv_send_wr request = {
		.wr_id = number("wr", UINT64_MAX),
		.opcode = IBV_WR_LOCAL_INV,
		.send_flags = IBV_SEND_SIGNALED,
		.invalidate_rkey = (uint32_t)number("rkey", UINT32_MAX),
	};

	if (qp->qp_type == IBV_QPT_UD)
		fail(EOPNOTSUPP, "type");
	post_send(qp, &request);
}

/* ---- completions ---- */

static const char *status_name(enum ibv_wc_status status)
{
#define NAME(name) [name] = #name
	static const char *const names[] = {
		NAME(IBV_WC_SUCCESS), NAME(IBV_WC_LOC_LEN_ERR), NAME(IBV_WC_LOC_QP_OP_ERR), NAME(IBV_WC_LOC_EEC_OP_ERR),
		NAME(IBV_WC_LOC_PROT_ERR), NAME(IBV_WC_WR_FLUSH_ERR), NAME(IBV_WC_MW_BIND_ERR), NAME(IBV_WC_BAD_RESP_ERR),
		NAME(IBV_WC_LOC_ACCESS_ERR), NAME(IBV_WC_REM_INV_REQ_ERR), NAME(IBV_WC_REM_ACCESS_ERR),
		NAME(IBV_WC_REM_OP_ERR), NAME(IBV_WC_RETRY_EXC_ERR), NAME(IBV_WC_RNR_RETRY_EXC_ERR),
		NAME(IBV_WC_LOC_RDD_VIOL_ERR), NAME(IBV_WC_REM_INV_RD_REQ_ERR), NAME(IBV_WC_REM_ABORT_ERR),
		NAME(IBV_WC_INV_EECN_ERR), NAME(IBV_WC_INV_EEC_STATE_ERR), NAME(IBV_WC_FATAL_ERR),
		NAME(IBV_WC_RESP_TIMEOUT_ERR), NAME(IBV_WC_GENERAL_ERR),
	};
#undef NAME

	return status < sizeof names / sizeof *names ? names[status] : "UNKNOWN";
}

static const char *opcode_name(enum ibv_wc_opcode opcode)
{
	switch (opcode) {
	case IBV_WC_SEND: return "SEND";
	case IBV_WC_RDMA_WRITE: return "RDMA_WRITE";
	case IBV_WC_RDMA_READ: return "RDMA_READ";
	case IBV_WC_COMP_SWAP: return "COMP_SWAP";
	case IBV_WC_FETCH_ADD: return "FETCH_ADD";
	case IBV_WC_BIND_MW: return "BIND_MW";
	case IBV_WC_LOCAL_INV: return "LOCAL_INV";
	case IBV_WC_RECV: return "RECV";
	case IBV_WC_RECV_RDMA_WITH_IMM: return "RECV_RDMA_WITH_IMM";
	default: return "UNKNOWN";
	}
}

static void say_completion(const struct ibv_wc *wc)
{
	say("; wr=%lu status=%s opcode=%s len=%u qpn=%u src_qp=%u", (unsigned long)wc->wr_id, status_name(wc->status),
	    opcode_name(wc->opcode), wc->byte_len, wc->qp_num, wc->src_qp);
	/* The flags mean nothing in an error, and rxe sets that of the immediate data, of 0, on what was sent, too. */
	if (wc->status != IBV_WC_SUCCESS || !(wc->opcode & IBV_WC_RECV))
		return;
	if (wc->wc_flags & IBV_WC_WITH_IMM)
		say(" imm=0x%x", ntohl(wc->imm_data));
	/* rxe hands the kernel's flag out as it is, and there IBV_WC_WITH_INV has the bit that is IBV_WC_IP_CSUM_OK here. */
	if (wc->wc_flags & (IBV_WC_WITH_INV | IBV_WC_IP_CSUM_OK))
		say(" inv=0x%x", wc->invalidated_rkey);
	if (wc->wc_flags & IBV_WC_GRH)
		say(" grh=1");
}

static uint64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static void do_poll(void)
{
	static struct ibv_wc completions[MAX_POLL];
	int wanted = (int)optional_number("n", MAX_POLL, 1), count = 0;
	uint64_t deadline = now_ms() + optional_number("ms", MAX_POLL_MS, 5000);

	need_open();
	while (count < wanted) {
		int polled = ibv_poll_cq(cq, wanted - count, completions + count);

		if (polled < 0)
			fail(EIO, "poll");
		count += polled;
		if (!polled) {
			if (now_ms() >= deadline)
				break;
			usleep(200); /* the guest's one processor has the other side's packets to handle, too */
		}
	}
	say("ok count=%d", count);
	for (int i = 0; i < count; i++)
		say_completion(completions + i);
}

static void do_counters(void)
{
	char path[512];
	DIR *folder;
	struct dirent *entry;

	need_open();
	snprintf(path, sizeof path, "/sys/class/infiniband/%s/ports/%d/hw_counters", device_name, PORT_NUM);
	folder = opendir(path);
	if (!folder)
		fail(errno, "hw_counters");
	say("ok");
	while ((entry = readdir(folder))) {
		char file_path[1024];
		unsigned long long value;
		FILE *file;

		snprintf(file_path, sizeof file_path, "%s/%s", path, entry->d_name);
		file = entry->d_name[0] == '.' ? NULL : fopen(file_path, "r");
		if (!file)
			continue;
		if (fscanf(file, "%llu", &value) == 1)
			say(" %s=%llu", entry->d_name, value);
		fclose(file);
	}
	closedir(folder);
}

static int quitting;

static void do_quit(void)
{
	quitting = 1;
	say("ok");
}

/* ---- requests ---- */

/* The keys are listed so that a misspelt one is an error, and not a default. */
static const struct command {
	const char *verb;
	const char *keys;
	void (*run)(void);
} commands[] = {
	{ "open", "gid device", do_open },
	{ "mr", "size access", do_mr },
	{ "fill", "mr off len seed", do_fill },
	{ "check", "mr off len seed", do_check },
	{ "peek", "mr off len", do_peek },
	{ "poke", "mr off hex", do_poke },
	{ "srq", "depth", do_srq },
	{ "srqrecv", "srq wr mr off len", do_srqrecv },
	{ "qp", "type srq qkey", do_qp },
	{ "connect", "qp dqpn dgid sq_psn rq_psn mtu rd_atomic dest_rd_atomic timeout retry rnr_retry min_rnr access tclass "
		     "flow hop", do_connect },
	{ "recv", "qp wr mr off len", do_recv },
	{ "send", "qp wr op mr off len raddr rkey imm inv compare swap add fence solicited unsignaled ah dqpn qkey",
	  do_send },
	{ "ah", "ip tclass flow hop", do_ah },
	{ "mw", "type", do_mw },
	{ "bind", "qp wr mw mr off len access rkey", do_bind },
	{ "inval", "qp wr rkey", do_inval },
	{ "poll", "n ms", do_poll },
	{ "state", "qp", do_state },
	{ "err", "qp", do_err },
	{ "destroy", "qp", do_destroy },
	{ "counters", "", do_counters },
	{ "quit", "", do_quit },
};

static int lists(const char *keys, const char *key)
{
	size_t length = strlen(key);

	while (*keys) {
		size_t end = strcspn(keys, " ");

		if (end == length && !memcmp(keys, key, length))
			return 1;
		keys += end + (keys[end] != 0);
	}
	return 0;
}

/* Splits a request into its verb and its words. */
static const char *parse(char *line)
{
	char *rest, *verb = strtok_r(line, " \t\r", &rest), *word;

	word_count = 0;
	if (!verb)
		fail(EINVAL, "no verb");
	while ((word = strtok_r(NULL, " \t\r", &rest))) {
		char *equals = strchr(word, '=');

		if (!equals)
			fail(EINVAL, "a word without =");
		if (word_count == MAX_WORDS)
			fail(E2BIG, "words");
		*equals = 0;
		words[word_count].key = word;
		words[word_count++].value = equals + 1;
	}
	return verb;
}

static void answer_request(char *line)
{
	const char *verb;

	answer_length = 0;
	if (setjmp(next_request))
		return;
	verb = parse(line);
	for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
		if (!strcmp(commands[i].verb, verb)) {
			for (int word = 0; word < word_count; word++)
				if (!lists(commands[i].keys, words[word].key))
					fail(EINVAL, "unknown key");
			commands[i].run();
			return;
		}
	fail(ENOSYS, "unknown verb");
}

/* Reads a line, without its end. Of one that is too long only the beginning is kept, and *whole is 0. */
static int read_line(FILE *from, char *line, int *whole)
{
	size_t length = 0;
	int byte;

	*whole = 1;
	while ((byte = getc(from)) != EOF && byte != '\n') {
		if (length < MAX_LINE - 1)
			line[length++] = byte ? (char)byte : '?'; /* a NUL would hide the rest */
		else
			*whole = 0;
	}
	line[length] = 0;
	return byte != EOF;
}

static _Noreturn void serve(int connection)
{
	static char line[MAX_LINE];
	FILE *from = fdopen(connection, "r");
	int whole;

	while (from && !quitting && read_line(from, line, &whole)) {
		if (whole)
			answer_request(line);
		else
			answer_length = (size_t)snprintf(answer, sizeof answer, "error line: %s", strerror(EMSGSIZE));
		answer[answer_length] = '\n'; /* append leaves room for this */
		if (send(connection, answer, answer_length + 1, MSG_NOSIGNAL) < 0)
			break;
	}
	exit(0);
}

static int listen_on(uint16_t port)
{
	struct sockaddr_in6 address = { .sin6_family = AF_INET6, .sin6_port = htons(port) }; /* and IPv4's addresses */
	int listener = socket(AF_INET6, SOCK_STREAM, 0), on = 1;

	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
	if (bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, 16)) {
		perror("verbs_peer: listen");
		exit(1);
	}
	return listener;
}

int main(int count, char **arguments)
{
	int background = count > 1 && !strcmp(arguments[1], "-d");
	unsigned long port = count > 1 + background ? strtoul(arguments[1 + background], NULL, 10) : 7471;
	int listener;

	if (!port || port > UINT16_MAX || count > 2 + background) {
		fprintf(stderr, "usage: verbs_peer [-d] [PORT]\n");
		return 2;
	}
	listener = listen_on((uint16_t)port);
	if (background && daemon(0, 0)) {
		perror("verbs_peer: daemon");
		return 1;
	}
	for (;;) {
		int connection = accept(listener, NULL, NULL), on = 1;
		pid_t session;

		if (connection < 0)
			continue;
		setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
		session = fork();
		if (session == 0) {
			close(listener);
			serve(connection);
		}
		close(connection);
		if (session > 0)
			waitpid(session, NULL, 0); /* the next one finds everything of this one freed */
	}
}
