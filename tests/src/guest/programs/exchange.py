# Every rank sends every other rank bytes that only it would send, in blocks of several sizes, and compares what it gets.
from mpi4py import MPI
import sys

world = MPI.COMM_WORLD
rank, size = world.Get_rank(), world.Get_size()


def block(sender, receiver, length):
    return bytes((sender * 37 + receiver * 11 + length + at) & 0xFF for at in range(length))


for length in (1, 64, 4096, 65536, 262144):
    sent = b"".join(block(rank, peer, length) for peer in range(size))
    received = bytearray(length * size)
    world.Alltoall([sent, MPI.BYTE], [received, MPI.BYTE])
    wanted = b"".join(block(peer, rank, length) for peer in range(size))
    if received != wanted:
        print(f"rank {rank}: {length} bytes differ", file=sys.stderr)
        world.Abort(1)
total = world.allreduce(rank, op=MPI.SUM)
if rank == 0:
    print(f"same bytes, {size} ranks, sum {total}")
