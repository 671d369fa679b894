"""A link between two network namespaces that hands every frame over late, for kernels without sch_netem."""

import collections
import contextlib
import fcntl
import os
import select
import struct
import subprocess
import threading
import time

TUN = "/dev/net/tun"
TUNSETIFF, IFF_TAP, IFF_NO_PI = 0x400454CA, 0x0002, 0x1000


def why_none():
    """Why there can be none here; empty: there can."""
    try:
        os.close(os.open(TUN, os.O_RDWR))
    except OSError as error:
        return f"{TUN}: {error.strerror}"
    return ""


class LateLink:
    """Joins the device eth0 of two namespaces, which it makes, until it is closed."""

    def __init__(self, namespaces, delay_s):
        self.delay_s = delay_s
        self.ends = [self._end_in(name, f"pl{os.getpid()}-{i}") for i, name in enumerate(namespaces)]
        self.stop_reader, self.stop_writer = os.pipe()
        self.thread = threading.Thread(target=self._relay, daemon=True)
        self.thread.start()

    @staticmethod
    def _end_in(namespace, device):
        end = os.open(TUN, os.O_RDWR | os.O_NONBLOCK)
        fcntl.ioctl(end, TUNSETIFF, struct.pack("16sH22x", device.encode(), IFF_TAP | IFF_NO_PI))
        subprocess.run(["ip", "link", "set", device, "netns", namespace, "name", "eth0"], check=True)
        return end

    def _relay(self):
        other = dict(zip(self.ends, reversed(self.ends)))
        late = collections.deque()  # (when it is due, to, frame), in order: all wait equally long
        while True:
            timeout = max(0, late[0][0] - time.monotonic()) if late else None
            readable = select.select([*self.ends, self.stop_reader], [], [], timeout)[0]
            if self.stop_reader in readable:
                return
            for end in readable:
                with contextlib.suppress(OSError):  # its device is down
                    late.append((time.monotonic() + self.delay_s, other[end], os.read(end, 1 << 16)))
            while late and late[0][0] <= time.monotonic():
                _, end, frame = late.popleft()
                with contextlib.suppress(OSError):
                    os.write(end, frame)

    def close(self):
        os.write(self.stop_writer, b"x")
        self.thread.join()
        for fd in (*self.ends, self.stop_reader, self.stop_writer):
            os.close(fd)
