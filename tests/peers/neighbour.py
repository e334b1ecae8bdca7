"""Creates an address handle for a neighbour that cannot be resolved, while another thread sends other commands to the device.

Prints how long the address handle took, its error number, and how long the slowest other command took, in milliseconds.
"""

import ctypes
import threading
import time

verbs = ctypes.CDLL("libibverbs.so.1", use_errno=True)
for name in ("ibv_get_device_list", "ibv_open_device", "ibv_alloc_pd", "ibv_create_ah"):
    getattr(verbs, name).restype = ctypes.c_void_p


class AddressHandle(ctypes.Structure):
    """`struct ibv_ah_attr`."""

    _fields_ = [
        ("gid", ctypes.c_uint8 * 16),
        ("flow_label", ctypes.c_uint32),
        ("sgid_index", ctypes.c_uint8),
        ("hop_limit", ctypes.c_uint8),
        ("traffic_class", ctypes.c_uint8),
        ("grh_padding", ctypes.c_uint8),
        ("dlid", ctypes.c_uint16),
        ("sl", ctypes.c_uint8),
        ("src_path_bits", ctypes.c_uint8),
        ("static_rate", ctypes.c_uint8),
        ("is_global", ctypes.c_uint8),
        ("port_num", ctypes.c_uint8),
        ("padding", ctypes.c_uint8),
    ]


def main() -> None:
    devices = ctypes.cast(verbs.ibv_get_device_list(None), ctypes.POINTER(ctypes.c_void_p))
    context = ctypes.c_void_p(verbs.ibv_open_device(ctypes.c_void_p(devices[0])))
    domain = ctypes.c_void_p(verbs.ibv_alloc_pd(context))
    gid = bytes(10) + b"\xff\xff" + bytes((10, 99, 99, 99))
    handle = AddressHandle(gid=(ctypes.c_uint8 * 16)(*gid), hop_limit=64, is_global=1, port_num=1)
    found = {}

    def ask() -> None:
        start = time.monotonic()
        found["handle"] = verbs.ibv_create_ah(domain, ctypes.byref(handle))
        found["error"] = ctypes.get_errno()
        found["took"] = time.monotonic() - start

    asking = threading.Thread(target=ask)
    asking.start()
    longest = 0.0
    while asking.is_alive():
        start = time.monotonic()
        other = ctypes.c_void_p(verbs.ibv_alloc_pd(context))
        assert other and verbs.ibv_dealloc_pd(other) == 0
        longest = max(longest, time.monotonic() - start)
    asking.join()
    assert found["handle"] is None, "somebody has that address"
    print(f"asked {found['took'] * 1000:.0f} error {found['error']} longest {longest * 1000:.0f}")


main()
