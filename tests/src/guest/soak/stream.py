# One end of a stream of random bytes over TCP; both ends print the digest of their bytes.
import hashlib
import os
import socket
import sys

role, address, length = sys.argv[1], sys.argv[2], int(sys.argv[3])
if role == "server":
    connection = socket.create_server((address, 18515)).accept()[0]
    data = b"".join(iter(lambda: connection.recv(65536), b""))
else:
    data = os.urandom(length)
    socket.create_connection((address, 18515), timeout=60).sendall(data)
print(len(data), hashlib.sha256(data).hexdigest())
