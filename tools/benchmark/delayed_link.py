#!/usr/bin/env python3
"""Two network namespaces of this machine with a cable between them that takes its time, as one between two machines does.

    delayed_link.py NAMESPACE NAMESPACE [--delay-ms 1] [--gbit-s RATE] [--device slow0]

Makes the namespaces that are not there, gives them 10.78.0.1 and 10.78.0.2, and relays packets between two TUN devices, each so long after it
came, one after another at that rate, until it is ended; then both are gone, but for namespaces that were there before. Prints "ready". Wants root.
"""
import argparse
import collections
import ctypes
import fcntl
import os
import select
import signal
import struct
import subprocess
import sys
import threading
import time

TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
CLONE_NEWNET = 0x40000000
MTU = 9000
MOST = 4096  # packets on their way; a switch drops more


def ip(*words):
    subprocess.run(["ip", *words], check=True)


def enter(descriptor):
    if ctypes.CDLL(None, use_errno=True).setns(descriptor, CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "entering a network namespace")
    os.close(descriptor)


def tun(namespace, device, address):
    outside = os.open("/proc/self/ns/net", os.O_RDONLY)
    enter(os.open(f"/run/netns/{namespace}", os.O_RDONLY))
    descriptor = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(descriptor, TUNSETIFF, struct.pack("16sH", device.encode(), IFF_TUN | IFF_NO_PI))
    enter(outside)
    ip("-n", namespace, "addr", "add", address, "dev", device)
    ip("-n", namespace, "link", "set", device, "mtu", str(MTU), "up")
    ip("-n", namespace, "link", "set", "lo", "up")
    os.set_blocking(descriptor, False)
    return descriptor


def relay(source, destination, delay, rate):
    """Packets of one direction, in their order."""
    on_their_way, free_at = collections.deque(), 0.0
    while True:
        wait = max(0.0, on_their_way[0][0] - time.monotonic()) if on_their_way else None
        if select.select([source], [], [], wait)[0]:
            packet, now = os.read(source, 65536), time.monotonic()
            if len(on_their_way) < MOST:
                free_at = max(now, free_at) + (len(packet) / rate if rate else 0.0)
                on_their_way.append((free_at + delay, packet))
        while on_their_way and on_their_way[0][0] <= time.monotonic():
            try:
                os.write(destination, on_their_way.popleft()[1])
            except BlockingIOError:
                pass  # lost, as on a cable


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("namespaces", nargs=2)
    parser.add_argument("--delay-ms", type=float, default=1.0)
    parser.add_argument("--gbit-s", type=float)
    parser.add_argument("--device", default="slow0")
    words = parser.parse_args()
    made = [name for name in words.namespaces if not os.path.exists(f"/run/netns/{name}")]
    for name in made:
        ip("netns", "add", name)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        ends = [tun(name, words.device, f"10.78.0.{number}/24") for number, name in enumerate(words.namespaces, 1)]
        rate = words.gbit_s * 1e9 / 8 if words.gbit_s else None
        for source, destination in (ends, ends[::-1]):
            threading.Thread(target=relay, args=(source, destination, words.delay_ms / 1e3, rate), daemon=True).start()
        print("ready", flush=True)
        while True:
            signal.pause()
    except KeyboardInterrupt:
        pass
    finally:
        for name in made:
            ip("netns", "del", name)


if __name__ == "__main__":
    sys.exit(main())
