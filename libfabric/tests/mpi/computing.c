/* One-sided communication with a target that computes: it makes no call of MPI's until what was put is in its memory. So the provider
 * must make progress by itself.
 * Usage: mpiexec -n 2 computing, with automatic progress of data */
#include <mpi.h>
#include <stdio.h>

enum { NUMBERS = 10000 };

int main(int argc, char **argv) {
    int rank, is_right = 1;
    long *window;
    MPI_Win win;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Win_allocate((NUMBERS + 1) * sizeof *window, sizeof *window, MPI_INFO_NULL, MPI_COMM_WORLD, &window, &win);
    MPI_Win_lock_all(MPI_MODE_NOCHECK, win);
    for (int at = 0; at <= NUMBERS; at++) window[at] = 0;
    MPI_Win_sync(win);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        static long numbers[NUMBERS];
        const long done = 1;
        for (int at = 0; at < NUMBERS; at++) numbers[at] = at * 3 + 1;
        MPI_Put(numbers, NUMBERS, MPI_LONG, 1, 0, NUMBERS, MPI_LONG, win);
        MPI_Win_flush(1, win);
        MPI_Put(&done, 1, MPI_LONG, 1, NUMBERS, 1, MPI_LONG, win);
        MPI_Win_flush(1, win);
    } else if (rank == 1) {
        while (*(volatile long *)&window[NUMBERS] == 0) continue;
        MPI_Win_sync(win);
        for (int at = 0; at < NUMBERS; at++) is_right &= window[at] == at * 3 + 1;
    }
    MPI_Win_unlock_all(win);
    MPI_Win_free(&win);
    if (!is_right) MPI_Abort(MPI_COMM_WORLD, 1);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) printf("2 ranks have exchanged %d numbers while one computed\n", NUMBERS);
    MPI_Finalize();
    return 0;
}
