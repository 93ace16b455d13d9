"""Clients that share the replicas: a light one is served beside one that floods them, within each key's limits."""

import json
import threading

import cluster
from cluster import running, wait_for

HEAVY, LIGHT, LIMITED = "heavy-key", "light-key", "limited-key"


def keys(tmp):
    path = tmp / "keys"
    path.write_text(f"{HEAVY} name=heavy\n{LIGHT} name=light\n{LIMITED} name=limited requests-per-minute=2\n")
    path.chmod(0o600)
    return ("--api-key-file", str(path))


def bearer(key):
    return {"Authorization": "Bearer " + key}


def body(tokens):
    return {"prompt": "count from 1 to 50:", "max_tokens": tokens, "ignore_eos": True, "temperature": 0}


class Flood:
    """Requests of the heavy client, all at once; `ended` counts those that have been answered."""

    def __init__(self, c, count, tokens):
        self.lock, self.ended, self.failed = threading.Lock(), 0, []
        self.threads = [threading.Thread(target=self.ask, args=(c, tokens)) for _ in range(count)]
        for thread in self.threads:
            thread.start()

    def ask(self, c, tokens):
        status, _, text = c.request("POST", "/v1/completions", body(tokens), bearer(HEAVY))
        with self.lock:
            self.ended += 1
            if status != 200:
                self.failed.append((status, text))

    def join(self):
        for thread in self.threads:
            thread.join(cluster.PATIENCE_SECONDS)
        assert not self.failed, self.failed[:3]


def waiting(c, client):
    return c.metrics().get(f'tessera_client_requests_waiting{{client="{client}",model_name="tessera-demo"}}', 0)


def test_a_light_client_does_not_wait_behind_a_heavy_one(tmp):
    places = 2
    with running(*keys(tmp), "--max-num-seqs", str(places), workers=1) as c:
        flood = Flood(c, 60, 400)
        wait_for("the flood", lambda: waiting(c, "heavy") >= 50)
        for _ in range(3):
            before = flood.ended
            status, _, text = c.request("POST", "/v1/completions", body(60), bearer(LIGHT))
            assert status == 200, text
            # It waits for a place, then runs beside others.
            assert flood.ended - before <= 4 * places, (before, flood.ended)
        assert waiting(c, "heavy") > 10  # it was still a flood
        flood.join()
        metrics = c.metrics()
        assert metrics['tessera_client_requests_total{client="heavy",model_name="tessera-demo"}'] == 60
        assert metrics['tessera_client_requests_total{client="light",model_name="tessera-demo"}'] == 3
        assert metrics['tessera_client_tokens_total{client="light",model_name="tessera-demo"}'] >= 180


def test_users_of_one_key_share_it(tmp):
    with running(*keys(tmp), "--max-num-seqs", "2", workers=1) as c:
        flood = Flood(c, 60, 400)
        wait_for("the flood", lambda: waiting(c, "heavy") >= 50)
        before = flood.ended
        status, _, text = c.request("POST", "/v1/completions", {**body(60), "user": "somebody"}, bearer(HEAVY))
        assert status == 200 and flood.ended - before <= 8, (before, flood.ended, text)
        flood.join()


def test_a_limit_is_told_with_when_to_come_again(tmp):
    with running(*keys(tmp), workers=1) as c:
        for left in ("1", "0"):
            status, headers, text = c.request("POST", "/v1/completions", body(4), bearer(LIMITED))
            assert status == 200, text
            assert headers["x-ratelimit-limit-requests"] == "2" and headers["x-ratelimit-remaining-requests"] == left, headers
            assert "x-ratelimit-limit-tokens" not in headers, headers
        status, headers, text = c.request("POST", "/v1/completions", body(4), bearer(LIMITED))
        error = json.loads(text)["error"]
        assert status == 429 and "2 requests a minute" in error["message"], text
        assert 20 <= int(headers["Retry-After"]) <= 30, headers
        status, headers, _ = c.request("POST", "/v1/completions", body(4), bearer(LIGHT))
        assert status == 200 and "x-ratelimit-limit-requests" not in headers, headers
        assert c.metrics()['tessera_client_refused_total{client="limited",model_name="tessera-demo"}'] == 1


def test_an_urgent_request_goes_before_those_that_have_time(tmp):
    with running(*keys(tmp), "--max-num-seqs", "2", workers=1) as c:
        done, lock = [], threading.Lock()

        def ask(name, tokens, deadline):
            status, _, text = c.request("POST", "/v1/completions", body(tokens),
                                        {**bearer(HEAVY), "x-request-deadline": deadline})
            assert status == 200, text
            with lock:
                done.append(name)

        patient = [threading.Thread(target=ask, args=("patient", 400, "3000s")) for _ in range(40)]
        for thread in patient:
            thread.start()
        wait_for("the patient ones", lambda: waiting(c, "heavy") >= 30)
        before = len(done)
        ask("urgent", 20, "60s")
        assert done.index("urgent") - before <= 8, (before, done)
        for thread in patient:
            thread.join(cluster.PATIENCE_SECONDS)
        assert done.count("patient") == 40
        metrics = c.metrics()
        assert metrics['tessera_client_deadlines_total{client="heavy",model_name="tessera-demo"}'] == 41
        assert metrics['tessera_client_deadlines_missed_total{client="heavy",model_name="tessera-demo"}'] == 0
