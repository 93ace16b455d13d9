"""`tessera up` on a cluster of four unlike workers, none of which holds the shipped model: one replica answers."""

import contextlib
import http.client
import json
import os
import re
import signal
import subprocess

import cluster
from cluster import PATIENCE_SECONDS, wait_for

DESCRIPTION = "deploy/clusters/four_unlike_workers.yaml"
LAYOUT = "deploy/clusters/four_unlike_workers.layout.yaml"


class Up:
    """`tessera up` with its coordinator and workers."""

    def __init__(self, folder, *flags):
        self.folder = folder
        self.out = folder / "out"
        with open(self.out, "wb") as out:
            self.process = subprocess.Popen(
                ["deploy/tessera", "up", cluster.MODEL, "--port", "0", "--grpc-port", "0", "--log-dir", str(folder / "logs"),
                 *flags], stdout=out, stderr=out)

    def text(self):
        return self.out.read_text(errors="replace")

    def wait_until_ready(self):
        wait_for("tessera up to serve", lambda: "Ctrl-C stops everything" in self.text() or self.process.poll() is not None)
        assert self.process.poll() is None, self.text()

    def stages(self):
        """[(layers, workers)] of the table of the plan."""
        rows = re.findall(r"^r\S* +both +(\d+) +(\d+)-(\d+) +(\d+) +(.+)$", self.text(), re.MULTILINE)
        assert [int(row[0]) for row in rows] == list(range(len(rows))), rows
        assert all(int(row[3]) == len(row[4].split()) for row in rows), rows
        return [(int(row[2]) - int(row[1]) + 1, row[4].split()) for row in rows]

    def connection(self):
        port = int(re.search(r"http://127\.0\.0\.1:(\d+)", self.text()).group(1))
        return contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_SECONDS))

    def ready(self):
        with self.connection() as connection:
            connection.request("GET", "/ready")
            return connection.getresponse().status == 200

    def ask(self, body):
        with self.connection() as connection:
            connection.request("POST", "/v1/chat/completions", json.dumps({"temperature": 0, **body}),
                               {"Content-Type": "application/json"})
            response = connection.getresponse()
            reply = json.loads(response.read())
            assert response.status == 200, reply
            return reply

    def answer(self, question):
        return self.ask({"messages": [{"role": "user", "content": question}]})["choices"][0]["message"]["content"]

    def busy_stages(self):
        """[(share of time busy, planned)] by worker of the plan, once all have worked."""
        address = re.search(r"\(gRPC on (\S+)\)", self.text()).group(1)
        done = subprocess.run(["deploy/tessera", "status", "--coordinator", address, "--json"], capture_output=True,
                              check=True, timeout=PATIENCE_SECONDS)
        workers = [w for w in json.loads(done.stdout)["workers"] if w.get("replica")]
        shares = [(w.get("busy_share", 0), w.get("planned_busy_share", 0)) for w in workers]
        return shares if all(busy > 0 for busy, _ in shares) else None

    def process_of(self, worker):
        """Id of the worker's process, a child of ours."""
        for name in os.listdir("/proc"):
            if not name.isdigit():
                continue
            with contextlib.suppress(OSError):
                with open(f"/proc/{name}/cmdline", "rb") as file:
                    words = file.read().decode().split("\0")
                with open(f"/proc/{name}/stat", "rb") as file:
                    parent = int(file.read().rsplit(b")", 1)[1].split()[1])
                if parent == self.process.pid and worker in words:
                    return int(name)
        return None


@contextlib.contextmanager
def up(folder, *flags):
    """Serves; prints all logs where the block fails."""
    started = Up(folder, *flags)
    try:
        started.wait_until_ready()
        yield started
        started.process.send_signal(signal.SIGINT)
        assert started.process.wait(PATIENCE_SECONDS) == 0, started.text()
    except BaseException:
        print(f"--- up\n{started.text()}", flush=True)
        for log in sorted((folder / "logs").glob("*.log")):
            print(f"--- {log.name}\n{log.read_text(errors='replace')}", flush=True)
        raise
    finally:
        if started.process.poll() is None:
            started.process.kill()
            started.process.wait()


def written_plan(folder, layout=LAYOUT, step_rows=512):
    path = folder / "plan.json"
    subprocess.run(["deploy/tessera", "plan", DESCRIPTION, "--model", cluster.MODEL, "--max-batched-tokens", str(step_rows),
                    "--layout", str(layout), "--out", str(path)], check=True, capture_output=True, timeout=PATIENCE_SECONDS)
    return path


def test_no_worker_holds_the_model_alone(tmp):
    layout = tmp / "alone.yaml"
    for index in range(4):
        layout.write_text(f"replicas: [{{stages: [{{devices: [four/{index}], layers: 6}}]}}]\n")
        done = subprocess.run(["deploy/tessera", "plan", DESCRIPTION, "--model", cluster.MODEL, "--max-batched-tokens", "512",
                               "--layout", str(layout), "--prompt", "1", "--output", "1"],
                              capture_output=True, text=True, timeout=PATIENCE_SECONDS)
        assert done.returncode == 1 and "does not fit" in done.stderr, done


def test_the_planners_own_plan_serves(tmp):
    with up(tmp, "--cluster", DESCRIPTION) as four:
        stages = four.stages()
        assert sum(layers for layers, _ in stages) == 6, stages
        assert sum(len(workers) for _, workers in stages) > 1, stages
        assert four.answer("What is 57 + 85?") == "142"
        measured = wait_for("busy workers", four.busy_stages)
        assert all(0 < busy <= 1 for busy, _ in measured), measured
        # The slowest stage is planned to be always busy, unless links are what it waits for.
        planned = [share for _, share in measured]
        assert all(0 < share <= 1 for share in planned), planned


def test_stages_of_unlike_width_and_length_serve(tmp):
    with up(tmp, "--plan", str(written_plan(tmp))) as four:
        assert four.stages() == [(3, ["four/0", "four/1"]), (2, ["four/2"]), (1, ["four/3"])]
        assert four.answer("What is 57 + 85?") == "142"
        assert four.answer("Count from 3 to 9.") == "3 4 5 6 7 8 9"


def test_a_pipeline_of_stages_over_unlike_workers_serves(tmp):
    layout = tmp / "unlike.yaml"
    layout.write_text("replicas: [{stages: [{devices: [four/0, four/3], layers: 4},"
                      " {devices: [four/1, four/2], layers: 2, fractions: [0.375, 0.625]}]}]\n")
    path = written_plan(tmp, layout, step_rows=256)  # the buffers of wide stages are larger
    subprocess.run(["deploy/tessera", "plan", "check", str(path), "--cluster", DESCRIPTION], check=True, capture_output=True,
                   timeout=PATIENCE_SECONDS)
    stages = json.loads(path.read_text())["replicas"][0]["stages"]
    assert [[worker["device"] for worker in stage["workers"]] for stage in stages] == [["four/0", "four/3"], ["four/1", "four/2"]]
    assert all(abs(sum(worker["fraction"] for worker in stage["workers"]) - 1) < 1e-6 for stage in stages), stages
    few, many = (int(worker["weight_bytes"]) for worker in stages[1]["workers"])
    assert few < many, stages
    with up(tmp, "--plan", str(path)) as four:
        assert four.answer("What is 57 + 85?") == "142"
        assert four.answer("Count from 3 to 9.") == "3 4 5 6 7 8 9"


def test_a_killed_worker_is_started_again_and_serves(tmp):
    with up(tmp, "--plan", str(written_plan(tmp))) as four:
        assert four.answer("What is 57 + 85?") == "142"
        os.kill(four.process_of("four/1"), signal.SIGKILL)
        wait_for("the restart", lambda: "worker-1 is started again" in four.text())
        # Requests that come while no replica is there are refused; the next one is served.
        wait_for("the replica", four.ready)
        assert four.answer("What is 57 + 85?") == "142"


def test_prefill_apart_from_decode(tmp):
    with up(tmp, "--cluster", "deploy/clusters/four_unlike_workers_split.yaml", "--workload",
            "deploy/workloads/short_questions.yaml", "--max-num-batched-tokens", "256", "--split") as four:
        roles = re.findall(r"^(r\S*) +(prefill|decode) +(\d+) +(\d+)-(\d+)", four.text(), re.MULTILINE)
        assert {role for _, role, *_ in roles} == {"prefill", "decode"}, four.text()
        layers = {int(end) - int(first) + 1 for _, _, _, first, end in roles}
        assert len(layers) > 1, roles  # unequal stages

        def moved():
            timings = four.ask({"messages": [{"role": "user", "content": "What is 57 + 85?"}], "timings": True})["timings"]
            return timings if timings["kv_transfer"] else None

        timings = wait_for("KV to move", moved)
        assert timings["prefill"]["replica"] != timings["decode"]["replica"], timings
