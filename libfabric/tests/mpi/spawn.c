/* Processes that are started while others run (MPI_Comm_spawn): they join a communicator with their parents, and every rank of
 * it adds up what all have sent.
 * Usage: mpiexec -n 2 spawn */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { CHILDREN = 2 };

static void expect(int condition, const char *what) {
    if (condition) return;
    fprintf(stderr, "spawn: %s\n", what);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

int main(int argc, char **argv) {
    MPI_Comm parents, between, together;
    int rank, size, sum = 0, parent_count;
    (void)argc;
    MPI_Init(NULL, NULL);
    MPI_Comm_size(MPI_COMM_WORLD, &parent_count);
    MPI_Comm_get_parent(&parents);
    int is_child = parents != MPI_COMM_NULL;
    if (is_child) {
        between = parents;
        MPI_Comm_remote_size(between, &parent_count);
    } else {
        MPI_Comm_spawn(argv[0], MPI_ARGV_NULL, CHILDREN, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &between, MPI_ERRCODES_IGNORE);
    }
    MPI_Intercomm_merge(between, is_child, &together);
    MPI_Comm_rank(together, &rank);
    MPI_Comm_size(together, &size);
    expect(size == parent_count + CHILDREN, "not all are there");
    int mine = rank + 1;
    MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, together);
    expect(sum == size * (size + 1) / 2, "the sum is wrong");
    /* A ring of long messages, through parents and children alike. */
    enum { LEN = 1 << 18 };
    int *out = malloc(LEN * sizeof *out), *in = malloc(LEN * sizeof *in);
    expect(out != NULL && in != NULL, "no memory");
    for (int i = 0; i < LEN; i++) out[i] = rank * LEN + i;
    int next = (rank + 1) % size, before = (rank + size - 1) % size;
    MPI_Sendrecv(out, LEN, MPI_INT, next, 5, in, LEN, MPI_INT, before, 5, together, MPI_STATUS_IGNORE);
    for (int i = 0; i < LEN; i++) expect(in[i] == before * LEN + i, "a message is wrong");
    free(out);
    free(in);
    MPI_Comm_free(&together);
    MPI_Comm_disconnect(&between);
    if (!is_child && rank == 0) printf("%d ranks have exchanged messages, %d of them started by the others\n", size, CHILDREN);
    MPI_Finalize();
    return 0;
}
