"""The HTTP port of a real coordinator: keys and bodies, by what other users and large requests cost."""

import os
import pathlib
import re
import socket
import subprocess
import threading
import time

import cluster
from cluster import Cluster, wait_for

MB = 1 << 20


def rss_mb(c):
    status = pathlib.Path(f"/proc/{c.processes['coordinator'].pid}/status").read_text()
    return int(re.search(r"VmRSS:\s*(\d+)", status).group(1)) / 1024


def coordinator(*flags):
    """Without workers: what a door refuses needs none."""
    return Cluster(*flags, workers=0)


def send_bodies(c, count, body):
    """Connections that have sent all but one byte of a body, or as much of it as was taken."""
    head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % (len(body) + 1)
    connections = []
    for _ in range(count):
        s = socket.create_connection(("127.0.0.1", c.port), timeout=cluster.PATIENCE_SECONDS)
        try:
            s.sendall(head + body)
        except ConnectionError:
            pass  # refused, and no longer listened to
        connections.append(s)
    return connections


def status_line(connection):
    try:
        return connection.recv(4096).split(b"\r\n")[0].decode()
    except ConnectionError:
        return "closed"


def test_no_body_is_read_without_the_key(tmp):
    keys = tmp / "keys"
    keys.write_text("first secret\nsecond\n")
    c = coordinator("--api-key-file", str(keys))
    try:
        before = rss_mb(c)
        connections = send_bodies(c, 10, b"x" * (31 * MB))
        assert rss_mb(c) < before + 40, (before, rss_mb(c))
        assert {status_line(s) for s in connections} <= {"HTTP/1.1 401 Unauthorized", "closed"}
        for s in connections:
            s.close()
        for key, status in (("second", 200), ("first secret", 200), ("secret", 401), ("", 401)):
            assert c.request("GET", "/v1/models", headers={"Authorization": "Bearer " + key})[0] == status, key
        assert "chmod 600" in c.log("coordinator")
    finally:
        c.stop()


def test_bodies_are_bounded_in_sum_and_their_memory_goes_back():
    c = coordinator("--max-body-memory-bytes", "64MiB")
    try:
        # Once before, so that what is allocated at the first request does not count.
        assert c.request("POST", "/v1/completions", {"prompt": "a " * MB, "max_tokens": 1})[0] == 400
        before = rss_mb(c)
        connections = send_bodies(c, 8, b"x" * (31 * MB))
        wait_for("a refusal", lambda: "503" in status_line(connections[-1]))
        assert rss_mb(c) < before + 100, (before, rss_mb(c))
        # A small request goes through meanwhile.
        assert c.request("POST", "/tokenize", {"prompt": "a"})[0] == 200
        for s in connections:
            s.close()
        wait_for("the memory", lambda: rss_mb(c) < before + 20)
    finally:
        c.stop()


def test_a_prompt_that_cannot_fit_is_refused_at_once_and_nobody_waits_for_it():
    c = coordinator()
    try:
        before = rss_mb(c)
        answers = {}

        def send(name, body):
            began = time.monotonic()
            answers[name] = c.request("POST", "/v1/completions", body)[0], time.monotonic() - began

        huge = threading.Thread(target=send, args=("huge", {"prompt": "a" * (30 * MB), "max_tokens": 1}))
        huge.start()
        time.sleep(0.2)
        send("medium", {"prompt": "a " * 10_000, "max_tokens": 1})
        huge.join()
        # Tokenising 30 MB took more than a minute.
        assert answers["huge"][0] == 400 and answers["huge"][1] < 20, answers
        assert answers["medium"][0] == 400 and answers["medium"][1] < 10, answers
        wait_for("the memory", lambda: rss_mb(c) < before + 60)
    finally:
        c.stop()


def test_no_key_shows_in_ps(tmp):
    c = coordinator("--api-key", "a-secret", "--api-key=another-secret")
    try:
        arguments = pathlib.Path(f"/proc/{c.processes['coordinator'].pid}/cmdline").read_bytes()
        assert b"secret" not in arguments and b"--api-key\0********" in arguments, arguments
        for key in ("a-secret", "another-secret"):
            assert c.request("GET", "/v1/models", headers={"Authorization": "Bearer " + key})[0] == 200
        # The client reads its key from a file, too; without workers the answer is another error.
        (tmp / "key").write_text("a-secret\n")
        (tmp / "wrong").write_text("wrong\n")

        def complete(file, url=f"http://127.0.0.1:{c.port}"):
            return subprocess.run(["deploy/tessera", "complete", "hello", "--url", url, "--api-key-file", str(file)],
                                  capture_output=True, text=True, timeout=cluster.PATIENCE_SECONDS,
                                  env={"PATH": os.environ["PATH"]}).stderr
        for words in ("API key", "--api-key-file FILE"):
            assert words in complete(tmp / "wrong"), complete(tmp / "wrong")
        inside_tls = complete(tmp / "key", f"https://127.0.0.1:{c.port}")
        assert "https:// is for a coordinator with --tls-cert" in inside_tls, inside_tls
        nobody = complete(tmp / "key", "http://127.0.0.1:1")
        assert "--url http://HOST:PORT" in nobody and "`tessera up MODEL` starts one" in nobody, nobody
        assert "API key" not in complete(tmp / "key"), complete(tmp / "key")
        assert "holds no key" in complete("/dev/null")
    finally:
        c.stop()

