"""Metrics, health, keys, shutdown and command lines of real processes."""

import json
import re
import shutil
import socket
import subprocess
import threading
import time

import cluster
from cluster import TERMINATE, running, wait_for

ANSWER = {"messages": [{"role": "user", "content": "What is 57 + 85?"}], "temperature": 0}


def test_health_metrics_and_grpc():
    with running() as c:
        assert c.get("/health")[0] == 200
        assert c.get("/ready")[0] == 200
        version = re.fullmatch(r'\{"version":"([^"]+)"\}', c.get("/version")[2]).group(1)
        assert re.fullmatch(r"[0-9.]+\+[0-9a-f]{12}", version), "built without --workspace_status_command?"
        for program in ("coordinator/tessera-coordinator", "worker/tessera-worker", "deploy/tessera"):
            told = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
            assert told.strip() == version, (program, told)
        before = c.metrics()
        for name in ("vllm:prompt_tokens_total", "vllm:generation_tokens_total", "vllm:num_preemptions_total",
                     "vllm:prefix_cache_queries_total", "vllm:num_requests_running", "vllm:kv_cache_usage_perc",
                     "vllm:iteration_tokens_total_count"):
            zeros = [v for k, v in before.items() if k.startswith(name + "{") and "engine=" in k]
            assert zeros == [0, 0], name
        for name, series in (("worker_busy_seconds_total", 1), ("formation_aborts_total", 1), ("link_refused_total", 1),
                             ("link_bytes_total", 24), ("link_timed_bytes_total", 4), ("link_timed_seconds_total", 4)):
            values = [v for k, v in before.items() if k.startswith(f"tessera_{name}{{") and 'worker="w' in k]
            assert len(values) == 2 * series, (name, len(values))
            assert name == "worker_busy_seconds_total" or not any(values), name  # warm-up steps count
        status, _, body = c.request("POST", "/v1/chat/completions", ANSWER)
        assert status == 200 and '"142"' in body, body
        # The same prompt again finds its prefix; a long one fills blocks.
        prompt = [10 + i % 50 for i in range(80)]
        for _ in range(4):
            c.request("POST", "/v1/completions", {"prompt": prompt, "max_tokens": 8, "ignore_eos": True})
        def counted():
            after = c.metrics()
            count = lambda name: sum(v for k, v in after.items() if k.startswith(name))
            all_in = count("vllm:generation_tokens") >= 30 and count("vllm:request_success") >= 5
            return after if all_in else None
        after = wait_for("the counters", counted)

        def total(name):
            def of(metrics):
                return sum(v for k, v in metrics.items() if re.match(re.escape(name) + r"(\{|$)", k))
            return of(after) - of(before)

        assert total("vllm:prompt_tokens_total") > 50, after
        assert total("vllm:generation_tokens_total") >= 34, after
        assert total('vllm:request_success_total') == 5, after
        assert any('finished_reason="length"' in k for k in after), after
        assert total("vllm:prefix_cache_queries_total") > 0
        assert total("vllm:prefix_cache_hits_total") >= 64  # a block: a replica saw the prompt twice
        for name in ("time_to_first_token", "e2e_request_latency", "request_queue_time",
                     "request_prefill_time", "request_decode_time"):
            assert total(f"vllm:{name}_seconds_count") == 5, name
            assert total(f"vllm:{name}_seconds_sum") >= 0, name
        assert total("vllm:inter_token_latency_seconds_count") >= 28
        for name in ("prompt_tokens", "generation_tokens", "params_n", "params_max_tokens",
                     "inference_time_seconds", "time_per_output_token_seconds"):
            assert total(f"vllm:request_{name}_count") == 5, name
        assert total("vllm:request_params_n_sum") == 5
        assert total("vllm:request_generation_tokens_sum") == total("vllm:generation_tokens_total")
        for name in ("prompt_tokens", "generation_tokens"):
            assert total(f"tessera_{name}_total") == total(f"vllm:{name}_total"), name
        assert total("vllm:iteration_tokens_total_sum") == (
            total("vllm:prompt_tokens_total") + total("vllm:generation_tokens_total"))
        assert total("process_cpu_seconds_total") > 0
        for name in ("process_resident_memory_bytes", "process_virtual_memory_bytes", "process_open_fds",
                     "process_max_fds", "process_start_time_seconds"):
            assert after[name] > 0, name

        def steps(phase):
            return sum(v for k, v in after.items()
                       if k.startswith("tessera_step_seconds_count") and f'phase="{phase}"' in k)

        assert steps("prefill") >= 5 and steps("decode") >= 29, after
        for name in ("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc",
                     "vllm:num_preemptions_total", "vllm:cache_config_info", "tessera_worker_up",
                     "tessera_request_migrations_total"):
            assert any(k.startswith(name + "{") for k in after), name
        assert all('model_name="tessera-demo"' in k for k in after if k.startswith("vllm:")), after
        assert sum(v for k, v in after.items() if k.startswith("tessera_worker_up")) == 2

        # What each device was measured to do is said at its start.
        assert re.search(r"memory \d+ bytes, read at (?!0\.0 )\d[\d.]* GB/s", c.log("w0")), c.log("w0")

        assert c.probe("health", "") == "SERVING\n"
        wait_for("gRPC health", lambda: c.probe("health", "tessera.v1.Inference") == "SERVING\n")
        assert c.probe("health", "nothing").startswith("code 5")
        for service in ("", "tessera.v1.Coordinator", "tessera.v1.Planning"):
            assert c.probe("health", service) == "SERVING\n", service
        for version in ("services", "services-v1alpha"):
            services = c.probe(version).splitlines()
            for service in ("tessera.v1.Inference", "tessera.v1.Coordinator", "tessera.v1.Planning",
                            "grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection"):
                assert service in services, (version, services)
        answer = c.probe("complete", "What is 57 + 85?").splitlines()
        assert answer[0] == "142" and answer[1].endswith("completion"), answer


def test_doors_for_browsers_and_fields_of_vllm():
    flags = ("--served-model-name", "first", "--served-model-name", "second", "--allowed-origins",
             "https://a.example,https://b.example", "--allowed-hosts", "llm.example", "--api-key", "secret")
    key = {"Authorization": "bearer secret"}
    with running(*flags, workers=1) as c:
        preflight = {"Origin": "https://b.example", "Access-Control-Request-Method": "POST",
                     "Access-Control-Request-Headers": "authorization"}
        status, headers, _ = c.request("OPTIONS", "/v1/chat/completions", headers=preflight)
        assert status == 200 and headers["Access-Control-Allow-Origin"] == "https://b.example", headers
        status, headers, _ = c.request("OPTIONS", "/v1/plan", headers={**preflight, "Origin": "https://c.example"})
        assert status == 403 and "Access-Control-Allow-Origin" not in headers, headers
        for foreign in ({"Host": "evil.example"}, {"Origin": "http://evil.example"}):
            status, _, text = c.request("GET", "/v1/models", headers={**key, **foreign})
            assert status == 403 and "--allowed-" in text and "evil.example" in text, (status, text)
        for own in ({"Host": "llm.example"}, {"Host": socket.gethostname()}, {"Origin": "http://localhost:3000"}):
            assert c.request("GET", "/v1/models", headers={**key, **own})[0] == 200, own
        models = json.loads(c.request("GET", "/v1/models/", headers=key)[2])
        assert [m["id"] for m in models["data"]] == ["first", "second"], models

        def complete(**fields):
            body = {"model": "second", "prompt": "What is 57 + 85?", "temperature": 0, **fields}
            status, headers, text = c.request("POST", "/v1/completions", body, key)
            assert status == 200, text
            return json.loads(text), headers

        allowed = [40, 41, 42]
        reply, headers = complete(allowed_token_ids=allowed, return_token_ids=True, max_tokens=20, odd_field=1)
        assert reply["model"] == "first" and set(reply["choices"][0]["token_ids"]) <= set(allowed), reply
        assert headers["x-tessera-ignored-fields"] == "odd_field", headers
        assert reply["system_fingerprint"].startswith("fp_"), reply
        assert complete()[0]["system_fingerprint"] == reply["system_fingerprint"]
        empty = complete(max_tokens=0)[0]["choices"][0]
        assert empty["text"] == "" and empty["finish_reason"] == "length", empty
        assert complete(prompt=[10] * 50, truncate_prompt_tokens=7)[0]["usage"]["prompt_tokens"] == 7
        count = {"messages": [{"role": "user", "content": "Count from 3 to 9."},
                              {"role": "assistant", "content": "3 4 5"}], "temperature": 0}
        status, _, text = c.request("POST", "/v1/chat/completions", {**count, "continue_final_message": True}, key)
        assert json.loads(text)["choices"][0]["message"]["content"] == " 6 7 8 9", text
        assert json.loads(c.get("/load")[2]) == {"server_load": 0}
        document = json.loads(c.get("/openapi.json")[2])
        assert "cluster" in json.dumps(document["paths"]["/v1/plan"]["post"]["requestBody"]), document
        c.request("POST", "/v1/completions", {"prompt": "x"})
        refused = {k: v for k, v in c.metrics().items() if k.startswith("tessera_requests_refused_total")}
        assert sum(v for k, v in refused.items() if "unauthenticated" in k) == 1, refused


def test_series_of_a_worker_are_there_from_its_registration_on():
    with running(workers=1) as c:
        c.start("stuck", "tests/end_to_end/stuck_worker", c.grpc, "stuck/0")
        def series():
            return [k for k in c.metrics() if 'engine="r-stuck/0"' in k and k.startswith("vllm:generation_tokens")]
        wait_for("its series", series)


def test_int8_weights_answer_as_well():
    with running("--quantization", "int8", workers=1) as c:
        assert "computed as int8" in c.log("w0"), c.log("w0")
        subprocess.run(["python3", "deploy/demo_model/evaluate.py", "--url", f"http://127.0.0.1:{c.port}",
                        "--per-family", "100", "--bar", "0.94"], check=True)


def test_curl():
    with running(workers=1) as c:
        url = f"http://127.0.0.1:{c.port}"

        def curl(*arguments):
            return subprocess.run(["curl", "-sS", "--max-time", "30", *arguments], capture_output=True,
                                  text=True, check=True).stdout

        body = '{"messages": [{"role": "user", "content": "What is 57 + 85?"}], "temperature": 0%s}'
        assert '"content":"142"' in curl(url + "/v1/chat/completions", "-d", body % "")
        stream = curl("-N", url + "/v1/chat/completions", "-d", body % ', "stream": true')
        assert stream.startswith("data: {") and stream.endswith("data: [DONE]\n\n"), stream
        assert "404" in curl("-o", "/dev/null", "-w", "%{http_code}", url + "/v1/nothing")
        error = curl(url + "/v1/completions", "-d", "{")
        assert '"type":"invalid_request_error"' in error, error
        big = curl("-H", "Expect: 100-continue", url + "/tokenize", "-d",
                   '{"prompt": "%s"}' % ("word " * 20000))
        assert '"count":' in big, big[:200]


def test_ready_follows_the_workers():
    c = cluster.Cluster(workers=0)
    try:
        status, headers, body = c.get("/ready")
        assert status == 503 and "no replica" in body and "Retry-After" in headers, body
        assert c.get("/health")[0] == 200
        assert c.request("POST", "/v1/chat/completions", ANSWER)[0] == 503
        assert c.probe("health", "tessera.v1.Inference") == "NOT_SERVING\n"
        c.start_worker("late")
        wait_for("readiness", lambda: c.get("/ready")[0] == 200)
        assert c.request("POST", "/v1/chat/completions", ANSWER)[0] == 200
    finally:
        c.stop()


def test_a_replica_that_makes_no_step_is_named():
    c = cluster.Cluster("--progress-timeout", "1", workers=0)
    reader = threading.Thread(target=lambda: quietly(long_stream, c, []))
    try:
        c.start("stuck", "tests/end_to_end/stuck_worker", c.grpc, "stuck/0")
        wait_for("readiness", lambda: c.get("/ready")[0] == 200)
        reader.start()
        status, _, body = wait_for("the watchdog", lambda: (r := c.get("/ready"))[0] == 503 and r)
        said = "replica r-stuck/0: no step for"
        assert said in body and "8 sequences in prefill; worker stuck/0 (stage 0, rank 0)" in body, body
        assert c.get("/health")[0] == 200
        # Another one serves: ready, and the stuck one is told all the same.
        c.start_worker("w0")
        status, _, body = wait_for("readiness", lambda: (r := c.get("/ready"))[0] == 200 and r)
        assert '"status":"ready"' in body and said in body, body
        assert c.log("coordinator").count(said) == 1, c.log("coordinator")
    finally:
        c.stop()
        if reader.ident:
            reader.join()


def long_stream(c, events):
    """Several answers at once: one alone may be at its end before a signal arrives."""
    for event in c.stream({"prompt": "Count", "max_tokens": 1900, "ignore_eos": True, "n": 8}):
        events.append(event)


def test_terminate_finishes_what_runs():
    with running("--shutdown-timeout", "60", workers=1) as c:
        events = []
        reader = threading.Thread(target=long_stream, args=(c, events))
        reader.start()
        wait_for("the stream", lambda: len(events) > 10)
        c.signal("coordinator", TERMINATE)
        wait_for("the drain", lambda: "stopping: finishing 1 requests" in c.log("coordinator"))
        reader.join()
        assert events[-1]["choices"][0]["finish_reason"] == "length", events[-1]
        assert c.ended("coordinator") == 0


def test_terminate_ends_what_takes_too_long():
    with running("--shutdown-timeout", "0.1", workers=1) as c:
        events = []
        reader = threading.Thread(target=long_stream, args=(c, events))
        reader.start()
        wait_for("the stream", lambda: len(events) > 10)
        c.signal("coordinator", TERMINATE)
        reader.join()
        assert "error" in events[-1], (events[-1], c.log("coordinator"))
        assert "stopped before the answer was complete" in events[-1]["error"]["message"], events[-1]
        assert c.ended("coordinator") == 0


def test_a_reader_that_does_not_read_keeps_nothing_waiting():
    with running("--shutdown-timeout", "4", workers=1) as c:
        request = json.dumps({"prompt": "Count", "max_tokens": 1900, "ignore_eos": True, "n": 8, "stream": True}).encode()
        with socket.create_connection(("127.0.0.1", c.port)) as reader:
            reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            reader.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
                           b"Content-Length: %d\r\n\r\n%s" % (len(request), request))
            assert reader.recv(1000), c.log("coordinator")
            began = time.monotonic()
            c.signal("coordinator", TERMINATE)
            assert c.ended("coordinator") == 0
            assert time.monotonic() - began < 5.5, c.log("coordinator")  # all of it, not the requests alone


def test_a_second_signal_ends_at_once():
    with running("--shutdown-timeout", "60", workers=1) as c:
        events = []
        reader = threading.Thread(target=lambda: quietly(long_stream, c, events))
        reader.start()
        wait_for("the stream", lambda: len(events) > 10)
        c.signal("coordinator", TERMINATE)
        wait_for("the drain", lambda: "stopping: finishing 1 requests" in c.log("coordinator"))
        began = time.monotonic()
        c.signal("coordinator", TERMINATE)
        assert c.ended("coordinator") == -TERMINATE
        assert time.monotonic() - began < 30  # half of --shutdown-timeout
        reader.join()


def quietly(function, *arguments):
    try:
        function(*arguments)
    except OSError:
        pass
    except Exception as error:  # http.client's own, when the other side is killed
        assert "IncompleteRead" in repr(error), repr(error)


def test_keys_at_both_doors():
    with running("--api-key", "secret", workers=1) as c:
        assert c.request("POST", "/v1/chat/completions", ANSWER)[0] == 401
        key = {"Authorization": "Bearer secret"}
        assert c.request("POST", "/v1/chat/completions", ANSWER, key)[0] == 200
        assert c.probe("complete", "What is 57 + 85?").startswith("code 16")
        assert c.probe("complete", "What is 57 + 85?", "secret").startswith("142\n")


def test_the_limit_of_open_files_is_raised_or_said():
    for limits, said in (("-Hn 4000", "open files: at most 4000"), ("-Hn 64", "open files: at most 64")):
        shell = ("sh", "-c", f'ulimit -Sn 64; ulimit {limits}; exec "$@"', "sh")
        c = cluster.Cluster(workers=0, prefix=shell)
        try:
            assert said in c.log("coordinator"), c.log("coordinator")
            assert c.get("/health")[0] == 200
        finally:
            c.stop()


def refused(program, *arguments):
    done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=60)
    assert done.returncode != 0, arguments
    return done.stderr + done.stdout


def test_a_worker_reads_the_checkpoint_from_its_own_folder(tmp):
    theirs, ours = tmp / "theirs", tmp / "ours"
    for folder in (theirs, ours):
        shutil.copytree(cluster.MODEL, folder)
    c = cluster.Cluster(workers=0, model=str(theirs))
    try:
        shutil.rmtree(theirs)  # as on another machine
        c.start_worker("lost")
        wait_for("its failure", lambda: str(theirs) in c.log("coordinator"))
        assert not c.replicas()
        c.start_worker("w1", "--model-folder", str(ours))
        c.wait_until_ready(1)
        status, _, body = c.request("POST", "/v1/chat/completions", ANSWER)
        assert status == 200 and '"142"' in body, body
    finally:
        c.stop()


def test_a_copied_coordinator_runs_with_its_library_beside_it(tmp):
    linked = subprocess.run(["ldd", "coordinator/tessera-coordinator"], capture_output=True, text=True, check=True)
    library = re.search(r"libtessera_spiece\.so => (\S+)", linked.stdout).group(1)
    assert "libsentencepiece.so" not in linked.stdout, linked.stdout
    copy = shutil.copy("coordinator/tessera-coordinator", tmp)
    shutil.copy(library, tmp)
    done = subprocess.run([copy, "--version"], capture_output=True, text=True, timeout=30)
    assert done.returncode == 0 and done.stdout.startswith("0."), done


def test_a_chat_template_that_cannot_be_read_ends_chat_alone(tmp):
    model = tmp / "model"
    shutil.copytree(cluster.MODEL, model)
    (model / "chat_template.jinja").write_text("{% for m in messages %}\n{% include m.content %}")
    chat = {"messages": [{"role": "user", "content": "What is 57 + 85?"}], "temperature": 0}
    with running(workers=1, model=str(model)) as c:
        assert "chat_template.jinja: chat template line 2: the tag {% include %}" in c.log("coordinator"), c.log("coordinator")
        assert c.request("POST", "/v1/completions", {"prompt": "Hello", "max_tokens": 1})[0] == 200
        assert c.request("POST", "/tokenize", {"prompt": "Hello"})[0] == 200
        for path in ("/v1/chat/completions", "/tokenize"):
            status, _, body = c.request("POST", path, chat)
            assert status == 400, (path, body)
            assert "line 2: the tag {% include %}" in body and "--chat-template FILE" in body, body
    other = tmp / "other.jinja"
    other.write_text("{% for m in messages %}<{{ m.content }}>{% endfor %}")
    with running("--chat-template", str(other), workers=0, model=str(model)) as c:
        tokens = json.loads(c.request("POST", "/tokenize", chat)[2])["tokens"]
        text = json.loads(c.request("POST", "/detokenize", {"tokens": tokens})[2])["prompt"]
        assert text == "<What is 57 + 85?>", text


def test_command_lines_that_cannot_work_say_why(tmp):
    coordinator = "coordinator/tessera-coordinator"
    worker = "worker/tessera-worker"
    local = ["--port", "0", "--grpc-port", "0"]
    assert "--no-such-flag" in refused(coordinator, cluster.MODEL, "--no-such-flag")
    assert "/nowhere" in refused(coordinator, "/nowhere", *local)
    assert "--api-key" in refused(coordinator, cluster.MODEL, *local, "--api-key", "")
    assert "TESSERA_API_KEY" in refused("env", "TESSERA_API_KEY=", coordinator, cluster.MODEL, *local)
    assert "given twice" in refused(coordinator, cluster.MODEL, *local, "--served-model-name", "a", "--served-model-name", "a")
    assert "--served-model-name is empty" in refused(coordinator, cluster.MODEL, *local, "--served-model-name", "")
    text = refused(coordinator, cluster.MODEL, *local, "--allowed-origins", "http://a.example/")
    assert "http://a.example/ is no origin" in text and "without a path" in text, text
    text = refused(coordinator, cluster.MODEL, *local, "--allowed-hosts", "http://a.example")
    assert "http://a.example is no name of a host" in text, text
    assert "download" in refused(coordinator, "nobody/no-such-model", *local)
    text = refused(coordinator, cluster.MODEL, *local, "--chat-template", str(tmp / "none.jinja"))
    assert f"--chat-template {tmp}/none.jinja: there is no such file" in text, text
    text = refused(coordinator, cluster.MODEL, *local, "--chat-template", "{% for m in messages %}{{ m }}{% endfor %}")
    assert "--chat-template takes the name of a file, not a template's text" in text, text
    (tmp / "bad.jinja").write_text("\n{% if %}")
    text = refused(coordinator, cluster.MODEL, *local, "--chat-template", str(tmp / "bad.jinja"))
    assert f"--chat-template {tmp}/bad.jinja: chat template line 2" in text, text
    (tmp / "model.gguf").write_bytes(b"GGUF")
    text = refused(coordinator, str(tmp / "model.gguf"), *local)
    assert "model.gguf: the file ends within the header" in text, text
    text = refused(coordinator, cluster.MODEL, *local, "--host", "0.0.0.0")
    assert "--cluster-token-file" in text, text
    (tmp / "config.yaml").write_text("log-level: loud\n")
    text = refused(coordinator, cluster.MODEL, *local, "--config", str(tmp / "config.yaml"))
    assert "config.yaml: log-level" in text and "loud" in text, text
    (tmp / "config.yaml").write_text("no_such_key: 5\n")
    text = refused(coordinator, cluster.MODEL, *local, "--config", str(tmp / "config.yaml"))
    assert "no_such_key" in text and "config.yaml" in text, text
    text = refused(worker, "--listen", "0.0.0.0:0")
    assert "--cluster-token-file" in text, text
    assert "--cpus" in refused(worker, "--cpus", "9999")
    assert "--cpu-isa" in refused(worker, "--cpu-isa", "mmx")
    with running(workers=0) as c:
        for flag, port in (("--port", c.port), ("--grpc-port", c.grpc.split(":")[1])):
            other = "--grpc-port" if flag == "--port" else "--port"
            text = refused(coordinator, cluster.MODEL, flag, str(port), other, "0")
            assert str(port) in text and flag in text, text
