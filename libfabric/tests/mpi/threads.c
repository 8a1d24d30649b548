/* MPI_THREAD_MULTIPLE: several threads of every rank send and receive at once, each on a communicator of its own and on the one of
 * all, short messages and long ones; every byte is checked. Another thread forks processes meanwhile.
 * Usage: mpiexec -n 2..8 threads */
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 4, ROUNDS = 60, LONGEST = 1 << 18, CHILDREN = 20 };
static const size_t LENS[] = {0, 8, 190, 5000, 70000, LONGEST};
enum { LEN_COUNT = sizeof LENS / sizeof *LENS };

static int rank, size;
static MPI_Comm own[THREADS];

static void expect(int is_good, const char *what, int number) {
    if (is_good) return;
    fprintf(stderr, "threads: rank %d: %s (%d)\n", rank, what, number);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static char byte_of(size_t at, int sender, int thread, int round) { return (char)(at * 7 + (at >> 8) + sender * 31 + thread * 5 + round); }

/* One message to every other rank, and one from each. */
static void exchange(MPI_Comm comm, int thread, int round, char *out, char *in) {
    size_t len = LENS[round % LEN_COUNT];
    int tag = thread * ROUNDS + round;
    MPI_Request requests[2];
    for (int away = 1; away < size; away++) {
        int to = (rank + away) % size, from = (rank + size - away) % size;
        for (size_t at = 0; at < len; at++) out[at] = byte_of(at, rank, thread, round);
        memset(in, 0x55, len);
        MPI_Irecv(in, (int)len, MPI_CHAR, from, tag, comm, &requests[0]);
        MPI_Isend(out, (int)len, MPI_CHAR, to, tag, comm, &requests[1]);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        for (size_t at = 0; at < len; at++) expect(in[at] == byte_of(at, from, thread, round), "a byte is wrong", (int)len);
    }
}

static void *work(void *argument) {
    int thread = (int)(long)argument, sum;
    char *out = malloc(LONGEST), *in = malloc(LONGEST);
    expect(out != NULL && in != NULL, "no memory", LONGEST);
    for (int round = 0; round < ROUNDS; round++) {
        exchange(round % 2 ? own[thread] : MPI_COMM_WORLD, thread, round, out, in);
        int mine = rank + round;
        MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, own[thread]);
        expect(sum == size * (size - 1) / 2 + size * round, "a sum is wrong", round);
    }
    free(out);
    free(in);
    return NULL;
}

/* A child does nothing of MPI's: it is another program at once. */
static void *fork_children(void *argument) {
    for (int child = 0; child < CHILDREN; child++) {
        pid_t pid = fork();
        expect(pid >= 0, "no child", child);
        if (pid == 0) {
            execl("/bin/true", "true", (char *)NULL);
            _exit(1);
        }
        int status;
        expect(waitpid(pid, &status, 0) == pid && status == 0, "a child fails", child);
        usleep(1000);
    }
    return argument;
}

int main(int argc, char **argv) {
    int provided;
    pthread_t threads[THREADS], forks;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    expect(provided == MPI_THREAD_MULTIPLE, "no MPI_THREAD_MULTIPLE", provided);
    for (int thread = 0; thread < THREADS; thread++) MPI_Comm_dup(MPI_COMM_WORLD, &own[thread]);
    expect(pthread_create(&forks, NULL, fork_children, NULL) == 0, "no thread", THREADS);
    for (long thread = 0; thread < THREADS; thread++)
        expect(pthread_create(&threads[thread], NULL, work, (void *)thread) == 0, "no thread", (int)thread);
    for (int thread = 0; thread < THREADS; thread++) pthread_join(threads[thread], NULL);
    pthread_join(forks, NULL);
    for (int thread = 0; thread < THREADS; thread++) MPI_Comm_free(&own[thread]);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) printf("%d threads of each of %d ranks have exchanged messages\n", THREADS, size);
    MPI_Finalize();
    return 0;
}
