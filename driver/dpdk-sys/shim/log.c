/*
 * DPDK's words. Its log, and what it prints while it starts, are kept here instead of being written to the process's
 * stdout and stderr, which are the application's.
 */
#define _GNU_SOURCE
#include "shim.h"
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>
#include <rte_eal.h>
#include <rte_log.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* The end of what was said. */
static char words[8192];
static size_t length;
static bool is_echoed;
/* Nobody quotes what DPDK says before it aborts the process. */
static bool is_running;

static void keep(const char *bytes, size_t count)
{
	pthread_mutex_lock(&lock);
	if (count > sizeof(words)) {
		bytes += count - sizeof(words);
		count = sizeof(words);
	}
	if (length + count > sizeof(words)) {
		const size_t rest = sizeof(words) - count;

		memmove(words, words + length - rest, rest);
		length = rest;
	}
	memcpy(words + length, bytes, count);
	length += count;
	pthread_mutex_unlock(&lock);
}

static void write_all(int fd, const char *bytes, size_t count)
{
	while (count > 0) {
		const ssize_t written = write(fd, bytes, count);

		if (written < 0 && errno == EINTR)
			continue;
		if (written <= 0)
			return;
		bytes += written;
		count -= (size_t)written;
	}
}

static ssize_t on_log(void *cookie, const char *bytes, size_t count)
{
	(void)cookie;
	keep(bytes, count);
	if (is_echoed || (is_running && rte_log_cur_msg_loglevel() <= (int)RTE_LOG_CRIT))
		write_all(STDERR_FILENO, bytes, count);
	return (ssize_t)count;
}

int roci_log_open(bool echo)
{
	const cookie_io_functions_t functions = { .write = on_log };
	FILE *stream = fopencookie(NULL, "w", functions);

	if (stream == NULL)
		return -1;
	setvbuf(stream, NULL, _IOLBF, BUFSIZ);
	is_echoed = echo;
	return rte_openlog_stream(stream);
}

size_t roci_log_take(char *to, size_t room)
{
	size_t count;

	pthread_mutex_lock(&lock);
	count = RTE_MIN(length, room);
	memcpy(to, words + length - count, count);
	length = 0;
	pthread_mutex_unlock(&lock);
	return count;
}

/* One of C's streams while DPDK starts: what the thread prints that starts it is DPDK's, all else is passed on. */
struct guard {
	int fd;
	pthread_t starter;
};

static ssize_t on_print(void *cookie, const char *bytes, size_t count)
{
	const struct guard *guard = cookie;

	const bool is_dpdks = pthread_equal(pthread_self(), guard->starter);

	if (is_dpdks)
		keep(bytes, count);
	if (!is_dpdks || is_echoed)
		write_all(guard->fd, bytes, count);
	return (ssize_t)count;
}

static FILE *guarded(struct guard *guard, int fd)
{
	const cookie_io_functions_t functions = { .write = on_print };
	FILE *stream = fopencookie(guard, "w", functions);

	*guard = (struct guard){ .fd = fd, .starter = pthread_self() };
	/* Whoever prints, prints at once: on the thread that it is told by. */
	if (stream != NULL)
		setvbuf(stream, NULL, _IONBF, 0);
	return stream;
}

int roci_eal_init(int argc, char **argv)
{
	/* Another thread may still print to them when this has returned. */
	static struct guard guards[2];
	FILE *const out = stdout, *const err = stderr;
	FILE *const guarded_out = guarded(&guards[0], STDOUT_FILENO);
	FILE *const guarded_err = guarded(&guards[1], STDERR_FILENO);
	int status;

	if (guarded_out != NULL)
		stdout = guarded_out;
	if (guarded_err != NULL)
		stderr = guarded_err;
	status = rte_eal_init(argc, argv);
	stdout = out;
	stderr = err;
	is_running = status >= 0;
	return status;
}
