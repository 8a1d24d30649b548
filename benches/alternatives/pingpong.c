/* Latency and bandwidth between two MPI ranks, in the rows of `roci perf --json`.
 *
 * Usage: pingpong CPU,CPU MILLISECONDS SIZE,SIZE,...
 * Each rank keeps to one processor. Each test of each size takes about as long as was asked for. A stream has as many
 * messages under way as that of `roci perf`: up to 64, and 4 MiB. What an MPI does at its first messages, such as
 * connecting, is measured by no row: it would be all of the first row, whose count follows its first round trips. */
#define _GNU_SOURCE
#include <mpi.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_IN_FLIGHT = 64, MOST_SAMPLES = 1 << 20, WARM_UP = 20, FIRST_ROUND_TRIPS = 10000 };

static int rank;

static void fail(const char *why) {
    fprintf(stderr, "pingpong: %s\n", why);
    MPI_Abort(MPI_COMM_WORLD, 2);
}

static int ascending(const void *one, const void *other) {
    double a = *(const double *)one, b = *(const double *)other;
    return (a > b) - (a < b);
}

static double round_trip(char *buffer, int bytes) {
    double begun = MPI_Wtime();
    if (rank == 0) {
        MPI_Send(buffer, bytes, MPI_BYTE, 1, 1, MPI_COMM_WORLD);
        MPI_Recv(buffer, bytes, MPI_BYTE, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else {
        MPI_Recv(buffer, bytes, MPI_BYTE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Send(buffer, bytes, MPI_BYTE, 0, 1, MPI_COMM_WORLD);
    }
    return MPI_Wtime() - begun;
}

/* How often rank 0 finds that `once` fits into the time; both learn it. */
static int agree_on_count(double seconds, double once) {
    double fitting = seconds / (once > 1e-9 ? once : 1e-9);
    int count = fitting > MOST_SAMPLES ? MOST_SAMPLES : fitting < 10 ? 10 : (int)fitting;
    MPI_Bcast(&count, 1, MPI_INT, 0, MPI_COMM_WORLD);
    return count;
}

static void latency(char *buffer, int bytes, double seconds, double *samples) {
    double begun = MPI_Wtime();
    for (int i = 0; i < WARM_UP; i++) round_trip(buffer, bytes);
    int count = agree_on_count(seconds, (MPI_Wtime() - begun) / WARM_UP);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < count; i++) samples[i] = round_trip(buffer, bytes) / 2 * 1e6;
    if (rank != 0) return;
    qsort(samples, count, sizeof *samples, ascending);
    printf("{\"test\":\"mpi_lat\",\"bytes\":%d,\"iters\":%d,\"errors\":0,"
           "\"lat_us\":{\"min\":%.3f,\"p50\":%.3f,\"p99\":%.3f}}\n",
           bytes, count, samples[0], samples[count / 2], samples[(int)(count * 0.99)]);
}

/* `count` messages from rank 0 to rank 1; the clock stops when rank 1 says that it has the last one. */
static double stream(char *buffer, int bytes, int in_flight, int count) {
    MPI_Request requests[MOST_IN_FLIGHT];
    MPI_Status statuses[MOST_IN_FLIGHT];
    char word = 0;
    MPI_Barrier(MPI_COMM_WORLD);
    double begun = MPI_Wtime();
    for (int i = 0; i < count; i++) {
        int slot = i % in_flight;
        char *place = buffer + (size_t)slot * bytes;
        if (i >= in_flight) MPI_Wait(&requests[slot], MPI_STATUS_IGNORE);
        if (rank == 0)
            MPI_Isend(place, bytes, MPI_BYTE, 1, 2, MPI_COMM_WORLD, &requests[slot]);
        else
            MPI_Irecv(place, bytes, MPI_BYTE, 0, 2, MPI_COMM_WORLD, &requests[slot]);
    }
    MPI_Waitall(count < in_flight ? count : in_flight, requests, statuses);
    if (rank == 0)
        MPI_Recv(&word, 1, MPI_BYTE, 1, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    else
        MPI_Send(&word, 1, MPI_BYTE, 0, 3, MPI_COMM_WORLD);
    return MPI_Wtime() - begun;
}

static void bandwidth(char *buffer, int bytes, int in_flight, double seconds) {
    double once = stream(buffer, bytes, in_flight, 2 * in_flight) / (2 * in_flight);
    int count = agree_on_count(seconds, once);
    double elapsed = stream(buffer, bytes, in_flight, count);
    if (rank != 0) return;
    printf("{\"test\":\"mpi_bw\",\"bytes\":%d,\"iters\":%d,\"errors\":0,"
           "\"bw_gigabytes_per_s\":%.6f,\"mmsgs\":%.6f}\n",
           bytes, count, (double)bytes * count / elapsed / 1e9, count / elapsed / 1e6);
}

static int in_flight_of(int bytes) {
    int fitting = (4 << 20) / bytes;
    return fitting > MOST_IN_FLIGHT ? MOST_IN_FLIGHT : fitting < 2 ? 2 : fitting;
}

static void measure(int bytes, double seconds, double *samples) {
    int in_flight = in_flight_of(bytes);
    char *buffer = malloc((size_t)bytes * in_flight);
    if (buffer == NULL) fail("no memory");
    memset(buffer, 1, (size_t)bytes * in_flight);
    latency(buffer, bytes, seconds, samples);
    bandwidth(buffer, bytes, in_flight, seconds);
    fflush(stdout);
    free(buffer);
}

/* The one of two numbers with a comma between that belongs to this rank. */
static void keep_to_one_processor(const char *list) {
    const char *comma = strchr(list, ',');
    cpu_set_t set;
    if (comma == NULL) fail("the first argument is no CPU,CPU");
    CPU_ZERO(&set);
    CPU_SET(atoi(rank == 0 ? list : comma + 1), &set);
    if (sched_setaffinity(0, sizeof set, &set) != 0) fail("cannot run on that processor");
}

int main(int argc, char **argv) {
    int size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (argc != 4 || size != 2) fail("usage: mpiexec -n 2 pingpong CPU,CPU MILLISECONDS SIZE,SIZE,...");
    keep_to_one_processor(argv[1]);
    double seconds = atof(argv[2]) / 1e3;
    double *samples = malloc(MOST_SAMPLES * sizeof *samples);
    if (samples == NULL) fail("no memory");
    for (int i = 0; i < FIRST_ROUND_TRIPS; i++) round_trip((char *)samples, 1);
    for (char *word = strtok(argv[3], ","); word != NULL; word = strtok(NULL, ",")) {
        int bytes = atoi(word);
        if (bytes < 1 || bytes > 64 << 20) fail("a size lies between 1 and 64 MiB");
        measure(bytes, seconds, samples);
    }
    free(samples);
    MPI_Finalize();
    return 0;
}
