#!/usr/bin/env python3
"""Recomputes the invariant CRC of every RoCE frame of a capture in two ways: with scapy's layers, and with zlib's crc32 over bytes
masked here as RoCEv2 A17.3.3 requires. scapy knows only version 2; in version 1 it dissects the global route header as an IPv6
header, whose format it has.

    icrc_scapy.py FILE.pcapng [--frames N] [--version-1]

Exits with 0 if every frame is RoCE version 2 (with --version-1: version 1) and all three values agree, 77 if scapy is not installed, and
1 otherwise.
"""
import struct
import sys
import zlib

try:
    import logging
    logging.getLogger("scapy.runtime").setLevel(logging.ERROR)
    from scapy.contrib.roce import BTH
    from scapy.layers.inet import IP, UDP
    from scapy.layers.inet6 import IPv6
    from scapy.layers.l2 import Ether
    from scapy.utils import PcapNgReader
except ImportError as missing:
    print(f"SKIPPED: scapy is not installed ({missing})")
    sys.exit(77)

ROCE_PORT = 4791
ROCE_V1 = b"\x89\x15"
NEXT_BTH = 0x1b
BTH_SIZE = 12
ICRC = 4


def ones(data, start, length):
    data[start:start + length] = b"\xff" * length


def masked(network, version_1):
    """The bytes that the CRC covers, from the network header on, with the fields that routers may change set to ones."""
    data = bytearray(network)
    version = data[0] >> 4
    if version == 4:
        udp = (data[0] & 0xF) * 4
        ones(data, 1, 1), ones(data, 8, 1), ones(data, 10, 2)
    elif version == 6:
        udp = 40
        data[0] |= 0x0F
        ones(data, 1, 3), ones(data, 7, 1)
    else:
        raise ValueError(f"IP version {version}")
    if version_1:
        ones(data, udp + 4, 1)
    else:
        ones(data, udp + 6, 2), ones(data, udp + 8 + 4, 1)
    return bytes(8 * [0xFF]) + bytes(data[:-ICRC])


def network_bytes(frame):
    """Returns whether the frame is version 1, and the frame without its link headers and the padding after the datagram."""
    start = 12
    while frame[start:start + 2] in (b"\x81\x00", b"\x88\xa8"):
        start += 4
    version_1, network = frame[start:start + 2] == ROCE_V1, frame[start + 2:]
    if network[0] >> 4 == 4:
        return version_1, network[:struct.unpack_from(">H", network, 2)[0]]
    return version_1, network[:40 + struct.unpack_from(">H", network, 4)[0]]


def by_zlib(version_1, network):
    return struct.pack("<I", zlib.crc32(masked(network, version_1))), network[-ICRC:]


def version_1_by_scapy(network):
    header, transport = IPv6(network[:40]), BTH(network[40:])
    if header.nh != NEXT_BTH:
        raise ValueError(f"next header {header.nh} of the global route header")
    header.tc, header.fl, header.hlim = 0xff, 0xfffff, 0xff
    transport.fecn, transport.becn, transport.resv6 = 1, 1, 0x3f
    covered = 8 * b"\xff" + header.self_build() + transport.self_build()[:BTH_SIZE] + network[40 + BTH_SIZE:-ICRC]
    return struct.pack("<I", zlib.crc32(covered))


def by_scapy(frame):
    packet = Ether(frame)
    layer = packet.getlayer(IP) or packet.getlayer(IPv6)
    if layer is None or UDP not in packet or packet[UDP].dport != ROCE_PORT or BTH not in packet:
        raise ValueError("not RoCEv2")
    bth = packet[BTH]
    body = bytes(bth)[:-ICRC]
    return bth.compute_icrc(body)


def judge(frame, wants_version_1):
    """Returns what is wrong with a frame, or None."""
    version_1, network = network_bytes(frame)
    if version_1 != wants_version_1:
        raise ValueError("another version of RoCE")
    ours, carried = by_zlib(version_1, network)
    theirs = version_1_by_scapy(network) if version_1 else by_scapy(frame)
    if not ours == theirs == carried:
        return f"carried {carried.hex()}, zlib {ours.hex()}, scapy {theirs.hex()}"
    return None


def main():
    path = sys.argv[1]
    wanted = int(sys.argv[sys.argv.index("--frames") + 1]) if "--frames" in sys.argv else None
    frames = faults = 0
    with PcapNgReader(path) as reader:
        while True:
            try:
                frame = reader.read_packet()
            except EOFError:
                break
            frames += 1
            try:
                fault = judge(bytes(frame), "--version-1" in sys.argv)
            except (ValueError, IndexError, struct.error) as error:
                fault = str(error)
            if fault:
                faults += 1
                print(f"frame {frames}: {fault}")
    print(f"icrc judge: {frames} frames, {faults} faults")
    sys.exit(faults > 0 or frames == 0 or wanted not in (None, frames))


main()
