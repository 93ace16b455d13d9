"""Both ports inside TLS: clients, workers and tools that know the authority are served, others are told why not."""

import contextlib
import http.client
import json
import ssl
import subprocess

import cluster
from cluster import Cluster, wait_for

QUESTION = {"messages": [{"role": "user", "content": "What is 57 + 85?"}], "temperature": 0}


def issue(folder):
    folder.mkdir()
    subprocess.run(["tests/tls/issue", str(folder)], check=True)
    return folder


def tool(*arguments):
    done = subprocess.run(["deploy/tessera", *arguments], capture_output=True, text=True,
                          timeout=cluster.PATIENCE_SECONDS)
    return done.returncode, done.stdout, done.stderr


def encrypted(folder):
    """A coordinator with the certificate in `folder`, and a worker that knows its authority."""
    return Cluster("--tls-cert", str(folder / "cert.pem"), "--tls-key", str(folder / "key.pem"), workers=1,
                   worker_flags=("--tls-ca", str(folder / "ca.pem")))


def ask(port, method, path, body=None, ca=None, own=None):
    context = ssl.create_default_context(cafile=ca)
    if own is not None:
        context.load_cert_chain(own / "cert.pem", own / "key.pem")
    connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=cluster.PATIENCE_SECONDS, context=context)
    with contextlib.closing(connection):
        connection.request(method, path, None if body is None else json.dumps(body))
        response = connection.getresponse()
        return response.status, response.read().decode()


def test_clients_workers_and_tools_that_know_the_authority_are_served(tmp):
    files = issue(tmp / "a")
    ca = str(files / "ca.pem")
    with encrypted(files) as c:
        wait_for("the worker", lambda: ask(c.port, "GET", "/ready", ca=ca)[0] == 200)
        status, text = ask(c.port, "POST", "/v1/chat/completions", QUESTION, ca)
        assert status == 200 and json.loads(text)["choices"][0]["message"]["content"] == "142", text
        status, text = ask(c.port, "POST", "/v1/chat/completions", {**QUESTION, "stream": True}, ca)
        assert status == 200 and text.endswith("data: [DONE]\n\n"), text
        assert "https://127.0.0.1" in c.log("coordinator")

        code, out, err = tool("status", "--coordinator", c.grpc, "--tls-ca", ca)
        assert code == 0 and "w0/0" in out, (out, err)
        code, out, err = tool("check", "--coordinator", c.grpc, "--tls-ca", ca, "--name", "w1/0")
        assert code == 0, (out, err)
        code, out, err = tool("complete", "What is 57 + 85?", "--url", f"https://127.0.0.1:{c.port}", "--tls-ca", ca,
                              "--temperature", "0")
        assert code == 0 and out.strip().startswith("142"), (out, err)


def test_those_who_do_not_know_it_are_told_why(tmp):
    files, other = issue(tmp / "a"), issue(tmp / "b")
    wrong = str(other / "ca.pem")
    with encrypted(files) as c:
        code, _, err = tool("status", "--coordinator", c.grpc, "--tls-ca", wrong)
        assert code != 0 and "--tls-ca holds no authority of its certificate" in err, err
        code, _, err = tool("status", "--coordinator", c.grpc)
        assert code != 0 and "--tls-ca" in err, err
        code, _, err = tool("complete", "x", "--url", f"https://127.0.0.1:{c.port}", "--tls-ca", wrong)
        assert code != 0 and "certificate is refused" in err and "--tls-ca" in err, err
        try:
            ask(c.port, "GET", "/ready", ca=wrong)
            raise AssertionError("a foreign authority was trusted")
        except ssl.SSLCertVerificationError:
            pass
        status, _, text = c.get("/ready")
        assert status == 400 and "speaks https" in text, text
        c.start_worker("w1")
        wait_for("the worker's complaint", lambda: "--tls-ca" in c.log("w1"))


def test_clients_and_workers_show_certificates_where_they_are_asked_for(tmp):
    files, other = issue(tmp / "a"), issue(tmp / "b")
    ca = str(files / "ca.pem")

    def shown(folder):
        return ("--tls-ca", ca, "--tls-cert", str(folder / "cert.pem"), "--tls-key", str(folder / "key.pem"))

    with Cluster("--tls-cert", str(files / "cert.pem"), "--tls-key", str(files / "key.pem"), "--tls-client-ca", ca,
                 workers=0) as c:
        c.start_worker("stranger", "--tls-ca", ca)
        c.start_worker("foreigner", *shown(other))
        c.start_worker("w0", *shown(files))
        wait_for("the worker", lambda: ask(c.port, "GET", "/ready", ca=ca, own=files)[0] == 200)
        status, text = ask(c.port, "POST", "/v1/chat/completions", QUESTION, ca, files)
        assert status == 200 and json.loads(text)["choices"][0]["message"]["content"] == "142", text
        for own in (None, other):
            try:
                ask(c.port, "GET", "/ready", ca=ca, own=own)
                raise AssertionError("a client without a certificate of the authority was served")
            except OSError:
                pass
        code, out, err = tool("status", "--coordinator", c.grpc, *shown(files))
        assert code == 0 and "w0/0" in out and "stranger" not in out and "foreigner" not in out, (out, err)
        for flags in (("--tls-ca", ca), shown(other)):
            code, out, err = tool("status", "--coordinator", c.grpc, *flags)
            assert code != 0 and "--tls-cert" in err, (out, err)
        for name in ("stranger", "foreigner"):
            wait_for("its complaint", lambda: "trying again until it answers" in c.log(name))


def test_a_new_certificate_is_shown_without_a_restart(tmp):
    files, renewed = issue(tmp / "a"), issue(tmp / "b")
    with encrypted(files) as c:
        wait_for("the worker", lambda: ask(c.port, "GET", "/ready", ca=str(files / "ca.pem"))[0] == 200)
        for name in ("key.pem", "cert.pem"):
            (files / name).write_bytes((renewed / name).read_bytes())

        def served_anew():
            with contextlib.suppress(ssl.SSLError):
                return ask(c.port, "GET", "/ready", ca=str(renewed / "ca.pem"))[0] == 200

        wait_for("the new certificate", served_anew)
        text = ask(c.port, "GET", "/metrics", ca=str(renewed / "ca.pem"))[1]
        assert "tessera_tls_certificate_expiry_timestamp_seconds" in text
        wait_for("the new one on gRPC", lambda: tool("status", "--coordinator", c.grpc, "--tls-ca",
                                                     str(renewed / "ca.pem"))[0] == 0)


def test_faulty_certificates_end_the_start(tmp):
    files, other = issue(tmp / "a"), issue(tmp / "b")
    done = subprocess.run(["coordinator/tessera-coordinator", cluster.MODEL, "--port", "0", "--grpc-port", "0",
                           "--tls-cert", str(files / "cert.pem"), "--tls-key", str(other / "key.pem")],
                          capture_output=True, text=True, timeout=cluster.PATIENCE_SECONDS)
    assert done.returncode != 0 and "it is not the key of the first certificate" in done.stderr, done.stderr


def test_up_serves_inside_tls_and_asks_itself(tmp):
    files = issue(tmp / "a")
    code, out, err = tool("up", cluster.MODEL, "--workers", "1", "--port", "0", "--grpc-port", "0", "--once",
                          "--ask", "What is 57 + 85?", "--expect", "142",
                          "--tls-cert", str(files / "cert.pem"), "--tls-key", str(files / "key.pem"))
    assert code == 0 and "curl https://" in out, (out, err)
    code, out, err = tool("up", cluster.MODEL, "--workers", "1", "--port", "0", "--grpc-port", "0", "--once",
                          "--ask", "What is 57 + 85?", "--expect", "142",
                          "--tls-cert", str(files / "cert.pem"), "--tls-key", str(files / "key.pem"),
                          "--tls-client-ca", str(files / "ca.pem"))
    assert code == 0, (out, err)
