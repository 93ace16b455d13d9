"""A TCP proxy that hands bytes on late, as a long line does: delaying_proxy.py HOST PORT TARGET_HOST TARGET_PORT SECONDS"""

import queue
import socket
import sys
import threading
import time


def carry(source, target, delay):
    """Every byte arrives `delay` seconds after it came; the end of the stream too."""
    waiting = queue.Queue()

    def read():
        while True:
            try:
                data = source.recv(1 << 16)
            except OSError:
                data = b""
            waiting.put((time.monotonic() + delay, data))
            if not data:
                return

    threading.Thread(target=read, daemon=True).start()
    while True:
        due, data = waiting.get()
        time.sleep(max(0, due - time.monotonic()))
        try:
            if not data:
                target.shutdown(socket.SHUT_WR)
                return
            target.sendall(data)
        except OSError:
            source.close()
            return


def main(host, port, target_host, target_port, seconds):
    with socket.create_server((host, int(port))) as server:
        while True:
            inner, _ = server.accept()
            outer = socket.create_connection((target_host, int(target_port)))
            for one, other in ((inner, outer), (outer, inner)):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                threading.Thread(target=carry, args=(one, other, float(seconds)), daemon=True).start()


main(*sys.argv[1:])
