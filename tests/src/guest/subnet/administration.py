# Requests to the SA that infiniband-diags and osmtest do not send: paths between many ports (SubnAdmGetMulti), services, and subscriptions to events.
# libibumad and the kernel carry the MADs.
import ctypes, socket, struct, subprocess, sys, time

umad = ctypes.CDLL('libibumad.so.3')
SIZE = 256
ADMINISTRATION, VERSION = 3, 2
SET, REPORT, GET_MULTI, RESPONSE = 0x02, 0x06, 0x14, 0x80
# The response to a Set is a GetResp.
ANSWERS = {SET: 0x81, GET_MULTI: 0x94}
INFORM_INFO, NOTICE, MULTI_PATH, SERVICE = 0x03, 0x02, 0x3A, 0x31
ANYBODY = 0xFFFF
TRAPS = {64: 'in service', 65: 'out of service', 66: 'created', 67: 'deleted'}


def fail(what):
    print(what)
    sys.exit(1)


class Port:
    """An agent of the SA class at a port. It receives Reports."""

    def __init__(self, device, lid):
        self.fd = umad.umad_open_port(device.encode(), 1)
        methods = (ctypes.c_long * (128 // (8 * ctypes.sizeof(ctypes.c_long))))()
        methods[0] = 1 << REPORT
        self.agent = umad.umad_register(self.fd, ADMINISTRATION, VERSION, 1, methods)
        if self.fd < 0 or self.agent < 0:
            fail(f'{device}: no agent: {self.fd} {self.agent}')
        # Known only when a port is open.
        self.header = umad.umad_size()
        self.manager = lid
        self.transaction = 0

    def send(self, mad, lid, timeout):
        packet = ctypes.create_string_buffer(self.header + SIZE)
        umad.umad_set_addr(packet, lid, 1, 0, ctypes.c_int32(0x80010000 - (1 << 32)))
        packet[self.header:self.header + len(mad)] = mad
        # The kernel refuses a second response while the first is in flight; a repeated Report may arrive before
        # that.
        if umad.umad_send(self.fd, self.agent, packet, SIZE, timeout, 3 if timeout else 0) and timeout:
            fail('not sent')

    def receive(self, seconds):
        """The next MAD and the LID of its sender, or None after the timeout."""
        length = ctypes.c_int(16 * SIZE)
        packet = ctypes.create_string_buffer(self.header + length.value)
        if umad.umad_recv(self.fd, packet, ctypes.byref(length), int(seconds * 1000)) < 0:
            return None
        if umad.umad_status(packet):
            fail(f'status {umad.umad_status(packet)} of a datagram')
        return packet.raw[self.header:self.header + length.value], struct.unpack_from('>H', packet.raw, 28)[0]

    def ask(self, method, attribute, mask, record):
        """Sends a request and returns the response. Acknowledges Reports that arrive meanwhile."""
        self.transaction += 1
        mad = struct.pack('>BBBBHHQHHI', 1, ADMINISTRATION, VERSION, method, 0, 0, self.transaction, attribute, 0, 0)
        mad += bytes(12) + struct.pack('>QHHQ', 0, 0, 0, mask) + record
        self.send(mad.ljust(SIZE, b'\0'), self.manager, 1000)
        while True:
            answer = self.receive(8) or fail('no answer')
            if answer[0][3] == ANSWERS[method]:
                return answer[0]
            self.acknowledge(*answer)

    def acknowledge(self, report, lid):
        """Answers a Report with ReportResp; returns its trap number and GID."""
        if (report[3], struct.unpack_from('>H', report, 16)[0]) != (REPORT, NOTICE):
            fail(f'method {report[3]:#x} attribute {report[16:18].hex()} is no Report')
        self.send(report[:3] + bytes([REPORT | RESPONSE]) + report[4:SIZE], lid, 0)
        trap, gid = struct.unpack_from('>H', report, 56 + 4)[0], report[56 + 16:56 + 32]
        return trap, socket.inet_ntop(socket.AF_INET6, gid)

    def subscribe(self, trap, wanted):
        record = bytes(16) + struct.pack('>HHHBBHHII', ANYBODY, 0, 0, 1, wanted, ANYBODY, trap, 1 << 8 | 19, 0xFFFFFF)
        answer = self.ask(SET, INFORM_INFO, 0, record)
        status = struct.unpack_from('>H', answer, 4)[0]
        if status:
            fail(f'InformInfo of trap {trap}: status {status:#x}')


def reports(port, traps, command):
    """Subscribes, runs a command, and waits for a Report of each trap. Then unsubscribes, and expects no Report."""
    for trap in traps:
        port.subscribe(trap, 1)
    subprocess.run(command, shell=True, check=True)
    missing, end = set(traps), time.monotonic() + 20
    while missing and time.monotonic() < end:
        came = port.receive(1)
        if came:
            trap, gid = port.acknowledge(*came)
            print(f'Report of trap {trap}: {gid} {TRAPS[trap]}')
            missing.discard(trap)
    if missing:
        fail(f'no Report of traps {sorted(missing)}')
    for trap in traps:
        port.subscribe(trap, 0)
    while came := port.receive(1):
        port.acknowledge(*came)
    subprocess.run(command, shell=True, check=True)
    if came := port.receive(3):
        fail(f'a Report without a subscription: {port.acknowledge(*came)}')
    print('every event was reported, and none without a subscription')


def multi_path(port, sources, destinations):
    """Prints the paths from each source GID to each destination GID."""
    gids = b''.join(socket.inet_pton(socket.AF_INET6, gid) for gid in sources + destinations)
    record = struct.pack('>IBBHIBBBBB3xI', 0, 0, 127, 0, 0, 0, 0, 0, len(sources), len(destinations), 0) + gids
    # NumbPath, SGIDCount, DGIDCount.
    answer = port.ask(GET_MULTI, MULTI_PATH, 1 << 6 | 1 << 19 | 1 << 20, record)
    stride = struct.unpack_from('>H', answer, 44)[0] * 8
    if struct.unpack_from('>H', answer, 4)[0] or not stride:
        fail(f'MultiPathRecord: status {answer[4:6].hex()}, records of {stride} bytes')
    for at in range(56, len(answer) - stride + 1, stride):
        to, source = answer[at + 8:at + 24], answer[at + 24:at + 40]
        dlid, slid = struct.unpack_from('>HH', answer, at + 40)
        name = [socket.inet_ntop(socket.AF_INET6, gid) for gid in (source, to)]
        if dlid:
            print(f'path {name[0]} {slid} to {name[1]} {dlid}')


def service(port, gid, lease):
    """Registers service 0x1234 of a port in the default partition, with a lease in seconds."""
    record = struct.pack('>Q16sHHI', 0x1234, socket.inet_pton(socket.AF_INET6, gid), 0xFFFF, 0, lease)
    record += bytes(16) + b'judge'.ljust(64, b'\0')
    # ServiceID, ServiceGID, ServiceP_Key, ServiceLease, ServiceName.
    answer = port.ask(SET, SERVICE, 0b1010111, record)
    if status := struct.unpack_from('>H', answer, 4)[0]:
        fail(f'ServiceRecord: status {status:#x}')


if __name__ == '__main__':
    what, device, lid = sys.argv[1], sys.argv[2], int(sys.argv[3], 0)
    umad.umad_init()
    port = Port(device, lid)
    if what == 'reports':
        reports(port, [int(trap) for trap in sys.argv[4].split(',')], sys.argv[5])
    elif what == 'service':
        service(port, sys.argv[4], int(sys.argv[5]))
    else:
        multi_path(port, sys.argv[4].split(','), sys.argv[5].split(','))
