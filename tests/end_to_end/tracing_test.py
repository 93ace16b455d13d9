"""Requests become traces: a small collector takes what the coordinator sends by OTLP over HTTP, and its spans say what happened
to each request, under the trace that its client names."""

import contextlib
import http.server
import json
import re
import subprocess
import threading
import time

import cluster
import pip_client
from cluster import running, wait_for
from handover_test import split

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
ASK = {"prompt": "one two three", "max_tokens": 8, "ignore_eos": True}


class Collector:
    """Answers with the given status codes first, then with 200; keeps the spans of what it took."""

    def __init__(self, *codes):
        self.codes, self.spans, self.bodies, self.posts = list(codes), [], [], 0
        collector = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                code = collector.codes.pop(0) if collector.codes else 200
                collector.posts += 1
                assert self.path == "/v1/traces" and self.headers["Content-Type"] == "application/json"
                if code == 200:
                    collector.bodies.append(body)
                    collector.spans += [span for resource in body["resourceSpans"] for scope in resource["scopeSpans"]
                                        for span in scope["spans"]]
                self.send_response(code)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.flag = ("--otlp-endpoint", f"http://127.0.0.1:{self.server.server_address[1]}")
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()

    def wait_for(self, count):
        wait_for(f"{count} spans", lambda: len(self.spans) >= count)
        return {span["name"]: span for span in self.spans}


def attributes(span):
    return {each["key"]: next(iter(each["value"].values())) for each in span["attributes"]}


def times(span):
    return int(span["startTimeUnixNano"]), int(span["endTimeUnixNano"])


def test_a_request_that_is_handed_over_has_a_span_for_each_part(tmp):
    with contextlib.closing(Collector()) as collector, split(tmp, coordinator_flags=collector.flag) as c:
        began = time.time_ns()
        status, _, body = c.request("POST", "/v1/completions", {**ASK, "timings": True},
                                    {"traceparent": f"00-{TRACE}-{PARENT}-01", "X-Request-Id": "mine"})
        ended = time.time_ns()
        assert status == 200, body
        spans = collector.wait_for(5)
        assert sorted(spans) == ["decode", "generate", "hand-over", "prefill", "queue"] and len(collector.spans) == 5
        whole = spans["generate"]
        for span in spans.values():
            assert span["traceId"] == TRACE and re.fullmatch(r"[0-9a-f]{16}", span["spanId"])
            assert span["parentSpanId"] == (PARENT if span is whole else whole["spanId"])
            assert isinstance(span["startTimeUnixNano"], str) and "status" not in span
            start, end = times(span)
            # Clocks of the two programs are one, but for what their units round.
            assert began - 10**6 <= times(whole)[0] <= start <= end <= times(whole)[1] <= ended + 10**6, span
        assert len({span["spanId"] for span in spans.values()}) == 5
        assert times(spans["queue"])[1] == times(spans["prefill"])[0] and times(spans["prefill"])[1] == times(spans["decode"])[0]
        timings = json.loads(body)["timings"]
        start, end = times(spans["decode"])
        assert abs((end - start) / 1e9 - timings["decode"]["seconds"]) < 0.01, (timings, spans["decode"])
        said = attributes(whole)
        assert said["tessera.request_id"] == "mine" and said["gen_ai.usage.output_tokens"] == "8", said
        assert attributes(spans["prefill"])["tessera.replica"] == "p"
        assert attributes(spans["decode"])["tessera.replica"] == "d"
        moved = attributes(spans["hand-over"])
        assert (moved["tessera.from"], moved["tessera.to"]) == ("p", "d") and int(moved["tessera.bytes"]) > 1000, moved
        # What was sent is counted once the collector has answered.
        wait_for("the count", lambda: c.metrics()["tessera_trace_spans_total"] == 5)


def test_clients_say_what_is_recorded(tmp):
    with contextlib.closing(Collector()) as collector, running(*collector.flag, workers=1) as c:
        # Not recorded, then two traces of their own.
        assert c.request("POST", "/v1/completions", ASK, {"traceparent": f"00-{TRACE}-{PARENT}-00"})[0] == 200
        for header in ({}, {"traceparent": "00-nonsense"}):
            assert c.request("POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": "1"}],
                                                              "max_tokens": 2}, header)[0] == 200
        wait_for("two requests", lambda: sum(span["name"] == "generate" for span in collector.spans) == 2)
        whole = [span for span in collector.spans if span["name"] == "generate"]
        assert all("parentSpanId" not in span and re.fullmatch(r"[0-9a-f]{32}", span["traceId"]) for span in whole)
        assert whole[0]["traceId"] != whole[1]["traceId"] and TRACE not in json.dumps(collector.spans)
        # A client that leaves.
        stream = c.stream({**ASK, "max_tokens": 1500}, {"traceparent": f"00-{TRACE}-{PARENT}-01"})
        next(stream)
        stream.close()
        wait_for("the end", lambda: any(span["traceId"] == TRACE for span in collector.spans))
        left = next(span for span in collector.spans if span["traceId"] == TRACE and span["name"] == "generate")
        assert left["status"]["code"] == 2 and "left" in left["status"]["message"], left


def test_another_reader_of_otlp_understands_them(tmp):
    python = pip_client.install("opentelemetry-proto-json", "typing-extensions") / "bin/python"
    with contextlib.closing(Collector()) as collector, split(tmp, coordinator_flags=collector.flag) as c:
        assert c.request("POST", "/v1/completions", ASK, {"traceparent": f"00-{TRACE}-{PARENT}-01"})[0] == 200
        collector.wait_for(5)
    # It gives back what it read: a name, type or form that it does not know would be missing, or refused.
    program = ("import json, sys\n"
               "from opentelemetry.proto_json.collector.trace.v1.trace_service import ExportTraceServiceRequest\n"
               "bodies = json.load(sys.stdin)\n"
               "print(json.dumps([ExportTraceServiceRequest.from_json(json.dumps(body)).to_dict() for body in bodies]))\n")
    done = subprocess.run([python, "-c", program], input=json.dumps(collector.bodies), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == collector.bodies, done.stdout


def test_a_collector_that_fails_costs_no_request(tmp):
    with contextlib.closing(Collector(503, 503)) as collector, running(*collector.flag, workers=1) as c:
        assert c.request("POST", "/v1/completions", ASK)[0] == 200
        wait_for("the third try", lambda: collector.posts == 3 and collector.spans)
        collector.close()
        assert c.request("POST", "/v1/completions", ASK)[0] == 200
        wait_for("what was dropped", lambda: c.metrics()["tessera_trace_spans_dropped_total"] > 0)
        assert c.request("POST", "/v1/completions", ASK)[0] == 200
        assert "does not take traces" in c.log("coordinator")
        c.signal("coordinator", cluster.TERMINATE)
        assert c.ended("coordinator") == 0


def test_what_is_no_collector_is_refused_by_name():
    done = subprocess.run(["coordinator/tessera-coordinator", cluster.MODEL, "--port", "0", "--grpc-port", "0",
                           "--otlp-endpoint", "https://127.0.0.1:4318"], capture_output=True, text=True,
                          timeout=cluster.PATIENCE_SECONDS)
    assert done.returncode != 0 and "--otlp-endpoint" in done.stderr and "http://HOST:PORT" in done.stderr, done
