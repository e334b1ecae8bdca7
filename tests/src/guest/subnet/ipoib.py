"""Sockets between two network namespaces of the guest: every byte that arrives is compared with what was sent.

ipoib.py tcp|udp|multicast NEAR_ADDRESS FAR_ADDRESS [AMOUNT]

tcp moves AMOUNT MiB each way at the same time; udp sends AMOUNT datagrams of growing sizes, each way; multicast sends AMOUNT datagrams to the
group FAR_ADDRESS, whose member is the far namespace.

ipoib.py stream PORT ADDRESS AMOUNT
"""
import os, random, socket, struct, sys, threading

WAIT = 60


def open_at(namespace, address, kind):
    """A socket of this namespace."""
    with open(f"/run/netns/{namespace}") as file:
        os.setns(file.fileno(), os.CLONE_NEWNET)
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    made = socket.socket(family, kind)
    made.settimeout(WAIT)
    return made


def pour(stream, data):
    stream.sendall(data)
    stream.shutdown(socket.SHUT_WR)


def drain(stream):
    parts = []
    while part := stream.recv(1 << 16):
        parts.append(part)
    return b"".join(parts)


def tcp(near, far, amount):
    listener = open_at("far", far, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((far, 7000))
    listener.listen()
    client = open_at("near", near, socket.SOCK_STREAM)
    client.bind((near, 0))
    client.connect((far, 7000))
    server, _ = listener.accept()
    server.settimeout(WAIT)
    sent = [random.randbytes(amount << 20) for _ in range(2)]
    pours = [threading.Thread(target=pour, args=pair) for pair in zip((client, server), sent)]
    got = [None, None]

    def take(at, stream):
        got[at] = drain(stream)

    takes = [threading.Thread(target=take, args=pair) for pair in enumerate((server, client))]
    for thread in pours + takes:
        thread.start()
    for thread in pours + takes:
        thread.join()
    assert got == sent, "other bytes than sent"
    print(f"TCP: {amount} MiB each way are the same")


def udp(near, far, amount):
    ends = []
    for namespace, address in (("near", near), ("far", far)):
        end = open_at(namespace, address, socket.SOCK_DGRAM)
        end.bind((address, 7001))
        ends.append(end)
    for number in range(amount):
        data = random.randbytes(1 + number * 37 % 9000)
        for at, address in ((0, far), (1, near)):
            ends[at].sendto(data, (address, 7001))
            assert ends[1 - at].recv(1 << 16) == data, f"datagram {number} of {len(data)} bytes is another"
    print(f"UDP: {amount} datagrams each way are the same")


def multicast(near, group, amount):
    member = open_at("far", group, socket.SOCK_DGRAM)
    member.bind((group, 7002))
    sender = open_at("near", group, socket.SOCK_DGRAM)
    if ":" in group:
        member.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP,
                          socket.inet_pton(socket.AF_INET6, group) + struct.pack("@I", index_at("far")))
        sender.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, index_at("near"))
    else:
        request = socket.inet_aton(group) + socket.inet_aton("0.0.0.0") + struct.pack("@i", index_at("far"))
        member.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, request)
        sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(near))
    # Joining takes time, because the administration and the switches are involved.
    member.settimeout(1)
    for _ in range(WAIT):
        sender.sendto(b"there?", (group, 7002))
        try:
            member.recv(100)
            break
        except TimeoutError:
            continue
    for number in range(amount):
        data = b"%d " % number + random.randbytes(1 + number * 31 % 1500)
        sender.sendto(data, (group, 7002))
        while (got := member.recv(1 << 16)) == b"there?":
            pass
        assert got == data, f"datagram {number} is another"
    print(f"multicast: {amount} datagrams are the same")


def stream(port, address, amount):
    """Sends AMOUNT MiB to a peer outside, which sends all of it back at the end."""
    end = open_at("near", address, socket.SOCK_STREAM)
    end.connect((address, int(port)))
    sent = random.randbytes(amount << 20)
    pour(end, sent)
    assert drain(end) == sent, "other bytes than sent"
    print(f"stream: {amount} MiB there and back are the same")


def index_at(namespace):
    with open(f"/run/netns/{namespace}") as file:
        os.setns(file.fileno(), os.CLONE_NEWNET)
    return socket.if_nametoindex(f"{namespace}0")


if __name__ == "__main__":
    way, near, far = sys.argv[1:4]
    {"tcp": tcp, "udp": udp, "multicast": multicast, "stream": stream}[way](near, far, int(sys.argv[4]))
