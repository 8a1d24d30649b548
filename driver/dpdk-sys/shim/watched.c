/*
 * What the drivers of shared memory ask of the kernel while two processes meet. build.rs has their archives call these
 * functions instead of libc's. A refusal is kept with its reason: the drivers log some of them without it, at a level that
 * hides them, or not at all, and whoever waits for the link would only see that it does not come.
 */
#define _GNU_SOURCE
#include "shim.h"
#include <errno.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const char *refused_call;
static int refusal;

int roci_refusal_take(const char **call)
{
	pthread_mutex_lock(&lock);
	const int reason = refusal;

	*call = refused_call;
	refusal = 0;
	pthread_mutex_unlock(&lock);
	return reason;
}

/* That a peer is not there, not yet or no longer, or has not written, is no refusal of the kernel's. */
static bool is_about_peer(int reason)
{
	return reason == ECONNREFUSED || reason == ENOENT || reason == ECONNRESET || reason == ECONNABORTED ||
	       reason == EPIPE || reason == ENOTCONN || reason == EINTR || reason == EWOULDBLOCK;
}

/* Leaves errno as it is. */
static void keep(const char *call, int reason)
{
	if (is_about_peer(reason))
		return;
	pthread_mutex_lock(&lock);
	refused_call = call;
	refusal = reason;
	pthread_mutex_unlock(&lock);
}

#define WATCHED(type, name, parameters, arguments)                                                                     \
	type roci_##name parameters;                                                                                   \
	type roci_##name parameters                                                                                    \
	{                                                                                                              \
		type const result = name arguments;                                                                    \
		if (result == (type)-1)                                                                                \
			keep(#name, errno);                                                                            \
		return result;                                                                                         \
	}

WATCHED(int, socket, (int domain, int type, int protocol), (domain, type, protocol))
WATCHED(int, connect, (int fd, const struct sockaddr *address, socklen_t length), (fd, address, length))
WATCHED(int, accept, (int fd, struct sockaddr *address, socklen_t *length), (fd, address, length))
WATCHED(ssize_t, sendmsg, (int fd, const struct msghdr *message, int flags), (fd, message, flags))
WATCHED(int, eventfd, (unsigned int count, int flags), (count, flags))
WATCHED(int, memfd_create, (const char *name, unsigned int flags), (name, flags))
WATCHED(int, ftruncate64, (int fd, off64_t length), (fd, length))
WATCHED(void *, mmap64, (void *at, size_t length, int protection, int flags, int fd, off64_t offset),
	(at, length, protection, flags, fd, offset))

/* Descriptors that come with a message and find no room are lost without an error. */
ssize_t roci_recvmsg(int fd, struct msghdr *message, int flags);
ssize_t roci_recvmsg(int fd, struct msghdr *message, int flags)
{
	const ssize_t result = recvmsg(fd, message, flags);

	if (result < 0)
		keep("recvmsg", errno);
	else if (message->msg_flags & MSG_CTRUNC)
		keep("recvmsg", EMFILE);
	return result;
}

/*
 * memif's server closes a fresh connection that it cannot greet, and leaves it on the interrupt thread's list, which aborts
 * the process. That is what becomes of a client that is killed, or gives up, between connect and hello. So a greeting is
 * always sent, as far as the driver knows: the end of the connection is what it then receives, and it knows how to end one.
 */
ssize_t roci_memif_sendmsg(int fd, const struct msghdr *message, int flags);
ssize_t roci_memif_sendmsg(int fd, const struct msghdr *message, int flags)
{
	const ssize_t result = sendmsg(fd, message, flags | MSG_NOSIGNAL);
	size_t length = 0;

	if (result >= 0)
		return result;
	keep("sendmsg", errno);
	shutdown(fd, SHUT_RDWR);
	for (size_t at = 0; at < message->msg_iovlen; at++)
		length += message->msg_iov[at].iov_len;
	return (ssize_t)length;
}
