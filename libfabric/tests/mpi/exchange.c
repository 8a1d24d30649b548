/* Ranks of an MPI job send each other messages of all lengths, by every mode of MPI's, and check every byte. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, size;

static void check(int is_good, const char *what, long number) {
    if (is_good) return;
    fprintf(stderr, "rank %d: %s, %ld\n", rank, what, number);
    MPI_Abort(MPI_COMM_WORLD, 3);
}

static char byte_of(long at, int sender, int len) { return (char)(at * 7 + (at >> 8) + sender * 31 + len); }

static void fill(char *bytes, int sender, int len) {
    for (long at = 0; at < len; at++) bytes[at] = byte_of(at, sender, len);
}

static void check_bytes(const char *bytes, int sender, int len) {
    for (long at = 0; at < len; at++) check(bytes[at] == byte_of(at, sender, len), "a wrong byte", at);
}

/* Everybody to everybody, all at once, one message by each mode. */
static void all_to_all(int len) {
    MPI_Request *requests = malloc(4 * size * sizeof *requests);
    char *in = malloc((size_t)2 * size * (len + 1)), *out = malloc(len + 1);
    fill(out, rank, len);
    int open = 0;
    for (int peer = 0; peer < size; peer++)
        for (int mode = 0; mode < 2; mode++)
            MPI_Irecv(in + (size_t)(2 * peer + mode) * (len + 1), len, MPI_CHAR, peer, mode, MPI_COMM_WORLD, &requests[open++]);
    for (int peer = 0; peer < size; peer++) {
        MPI_Isend(out, len, MPI_CHAR, peer, 0, MPI_COMM_WORLD, &requests[open++]);
        MPI_Issend(out, len, MPI_CHAR, peer, 1, MPI_COMM_WORLD, &requests[open++]);
    }
    MPI_Waitall(open, requests, MPI_STATUSES_IGNORE);
    for (int number = 0; number < 2 * size; number++) check_bytes(in + (size_t)number * (len + 1), number / 2, len);
    free(requests), free(in), free(out);
}

/* A message that is looked for first, from anybody, and taken by its own receive. */
static void probes(int len) {
    char *out = malloc(len + 1), *in = malloc(len + 1);
    int to = (rank + 1) % size;
    fill(out, rank, len);
    MPI_Request request;
    MPI_Isend(out, len, MPI_CHAR, to, 9, MPI_COMM_WORLD, &request);
    MPI_Status status;
    MPI_Message message;
    MPI_Mprobe(MPI_ANY_SOURCE, 9, MPI_COMM_WORLD, &message, &status);
    int count;
    MPI_Get_count(&status, MPI_CHAR, &count);
    check(count == len && status.MPI_SOURCE == (rank + size - 1) % size, "a wrong message was found", count);
    MPI_Mrecv(in, len, MPI_CHAR, &message, MPI_STATUS_IGNORE);
    check_bytes(in, status.MPI_SOURCE, len);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    free(out), free(in);
}

static void collectives(int len) {
    long sum = 0, mine = rank + 1;
    MPI_Allreduce(&mine, &sum, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    check(sum == (long)size * (size + 1) / 2, "a wrong sum", sum);
    char *bytes = malloc(len + 1), *all = malloc((size_t)size * len + 1);
    for (int root = 0; root < size; root++) {
        if (root == rank) fill(bytes, root, len); else memset(bytes, 0, len);
        MPI_Bcast(bytes, len, MPI_CHAR, root, MPI_COMM_WORLD);
        check_bytes(bytes, root, len);
    }
    fill(bytes, rank, len);
    MPI_Allgather(bytes, len, MPI_CHAR, all, len, MPI_CHAR, MPI_COMM_WORLD);
    for (int peer = 0; peer < size; peer++) check_bytes(all + (size_t)peer * len, peer, len);
    free(bytes), free(all);
    MPI_Barrier(MPI_COMM_WORLD);
}

/* One-sided: everybody puts to the next rank, gets from the one before, and adds to a number of rank 0's. */
static void one_sided(int len) {
    char *window, *bytes = malloc(len + 1);
    MPI_Win win;
    MPI_Win_allocate(len + 16, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window, &win);
    memset(window, 0, len + 16);
    MPI_Win_fence(0, win);
    fill(bytes, rank, len);
    MPI_Put(bytes, len, MPI_CHAR, (rank + 1) % size, 16, len, MPI_CHAR, win);
    long one = 1;
    MPI_Accumulate(&one, 1, MPI_LONG, 0, 0, 1, MPI_LONG, MPI_SUM, win);
    MPI_Win_fence(0, win);
    check_bytes(window + 16, (rank + size - 1) % size, len);
    if (rank == 0) check(*(long *)window == size, "a wrong number", *(long *)window);
    MPI_Get(bytes, len, MPI_CHAR, (rank + size - 1) % size, 16, len, MPI_CHAR, win);
    MPI_Win_fence(0, win);
    check_bytes(bytes, (rank + 2 * size - 2) % size, len);
    free(bytes);
    MPI_Win_free(&win);
}

/* One-sided, while nobody is called upon: everybody puts to a place of its own at all, each second byte of it, and reads it again. */
static void passive(int len) {
    char *window, *bytes = malloc(2 * len + 1), *again = malloc(len + 1);
    MPI_Win win;
    MPI_Aint room = 2 * (MPI_Aint)len;
    MPI_Win_allocate(room * size, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window, &win);
    memset(window, 0x55, room * size);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Datatype every_second;
    MPI_Type_vector(len, 1, 2, MPI_CHAR, &every_second);
    MPI_Type_commit(&every_second);
    fill(bytes, rank, len);
    MPI_Win_lock_all(0, win);
    for (int peer = 0; peer < size; peer++) MPI_Put(bytes, len, MPI_CHAR, peer, rank * room, 1, every_second, win);
    MPI_Win_flush_all(win);
    for (int peer = 0; peer < size; peer++) {
        memset(again, 0, len);
        MPI_Get(again, len, MPI_CHAR, peer, rank * room, 1, every_second, win);
        MPI_Win_flush(peer, win);
        check_bytes(again, rank, len);
    }
    MPI_Win_unlock_all(win);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int peer = 0; peer < size; peer++)
        for (long at = 0; at < len; at++) {
            char *place = window + peer * room + 2 * at;
            check(place[0] == byte_of(at, peer, len) && place[1] == 0x55, "a wrong byte in the window", at);
        }
    MPI_Type_free(&every_second);
    free(bytes), free(again);
    MPI_Win_free(&win);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    static const int lengths[] = {0, 1, 64, 191, 193, 4096, 8152, 8153, 65536, 1000003};
    for (unsigned number = 0; number < sizeof lengths / sizeof *lengths; number++) {
        all_to_all(lengths[number]);
        probes(lengths[number]);
        collectives(lengths[number]);
        one_sided(lengths[number]);
        if (lengths[number] <= 65536) passive(lengths[number]);
    }
    if (rank == 0) printf("%d ranks have exchanged messages of up to 1000003 bytes\n", size);
    MPI_Finalize();
    return 0;
}
