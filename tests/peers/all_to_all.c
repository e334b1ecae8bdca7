/* Every rank sends every rank numbers that encode both ranks, and checks the numbers that it receives. Exits with 1 if one is wrong. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

/* From 4 B to 64 KiB to each rank, to cover eager and rendezvous messages. */
static const int counts[] = {1, 256, 16384};

static int element(int from, int to, int at) { return from * 10000019 + to * 10007 + at; }

static long exchange(int rank, int ranks, int count) {
    int *sent = malloc(sizeof(int) * ranks * count), *received = calloc(ranks * count, sizeof(int));
    long wrong = 0;
    for (int to = 0; to < ranks; to++)
        for (int at = 0; at < count; at++) sent[to * count + at] = element(rank, to, at);
    MPI_Alltoall(sent, count, MPI_INT, received, count, MPI_INT, MPI_COMM_WORLD);
    for (int from = 0; from < ranks; from++)
        for (int at = 0; at < count; at++) wrong += received[from * count + at] != element(from, rank, at);
    free(sent);
    free(received);
    return wrong;
}

int main(int argc, char **argv) {
    int rank, ranks;
    long wrong = 0, all = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    for (int i = 0; i < 3; i++) wrong += exchange(rank, ranks, counts[i]);
    MPI_Allreduce(&wrong, &all, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0) printf("%d ranks, %ld wrong\n", ranks, all);
    MPI_Finalize();
    return all != 0;
}
