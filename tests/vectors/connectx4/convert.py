#!/usr/bin/env python3
"""Turns the kernel log of a ConnectX-4 boot into boot-trace.txt.

    zcat trace-mlx5_core.txt.gz | python3 convert.py > boot-trace.txt

The log is src/apps/mellanox/trace-mlx5_core.txt.gz of snabbco/snabb (see NOTICE). Only bytes and the driver's own
reading of them are kept: a dump is a `command` line and its bytes in lines of 32 at an offset, lines of zeros left out;
a `note` is what the driver said it understood.
"""
import re
import sys

DUMP = re.compile(r"dump command .*\(0x([0-9a-f]+)\) (INPUT|OUTPUT)")
BYTES = re.compile(r"\] ([0-9a-f]{3,6}): ((?:[0-9a-f]{8} ?){4})$")
NOTES = re.compile(r"(firmware version: .*|requested \d+ \w+ pages.*|Current Pkey table size.*"
                   r"|allocated uar index 0x[0-9a-f]+|allocated completion EQN \d+|eqn \d+, eqe type \w+)")


def flush(dump, notes):
    if dump:
        opcode, direction, data = dump
        print(f"command 0x{opcode} {direction.lower()} {len(data)}")
        for at in range(0, len(data), 32):
            line = bytes(data[at:at + 32])
            if any(line):
                print(f"{at:05x} {line.hex()}")
    for note in notes:
        print(f"note {note}")


def main():
    dump, notes = None, []
    for line in sys.stdin:
        if found := DUMP.search(line):
            flush(dump, notes)
            dump, notes = (found[1], found[2], bytearray()), []
        elif (found := BYTES.search(line)) and dump:
            assert int(found[1], 16) == len(dump[2]), line
            dump[2].extend(bytes.fromhex(found[2].replace(" ", "")))
        elif found := NOTES.search(line):
            notes.append(found[1])
    flush(dump, notes)


main()
