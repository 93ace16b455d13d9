"""The Grafana dashboard and the Prometheus alerts ask for what the coordinator exports: names and labels of all queries are held
against the /metrics of running clusters, and a parser of PromQL reads them."""

import http.client
import json
import os
import pathlib
import re
import ssl
import subprocess
import sys
import tempfile

import yaml

sys.path.insert(0, "tests/end_to_end")
import pip_client  # noqa: E402
from cluster import Cluster  # noqa: E402
from handover_test import split  # noqa: E402

DASHBOARD = json.loads(pathlib.Path("deploy/monitoring/grafana_dashboard.json").read_text())
ALERTS = yaml.safe_load(pathlib.Path("deploy/monitoring/prometheus_alerts.yaml").read_text())
# What Prometheus itself adds.
TARGET_LABELS = {"job", "instance"}
OWN_SERIES = {"up": TARGET_LABELS}

series = {}


def add(text):
    """Adds the samples of a /metrics to `series`: {name: labels}."""
    for name, labels in re.findall(r"^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? ", text, re.M):
        series.setdefault(name, set()).update(re.findall(r'(\w+)="', labels))


def prepare():
    folder = pathlib.Path(tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR")))
    # With prefill apart and a prompt that moved, so that the pairs' series are there.
    with split(folder) as cluster:
        status, _, _ = cluster.request("POST", "/v1/completions", {"prompt": "one two three", "max_tokens": 4, "ignore_eos": True})
        assert status == 200
        add(cluster.get("/metrics")[2])
    subprocess.run(["tests/tls/issue", str(folder)], check=True)
    with Cluster("--tls-cert", str(folder / "cert.pem"), "--tls-key", str(folder / "key.pem"), workers=0) as cluster:
        context = ssl.create_default_context(cafile=str(folder / "ca.pem"))
        connection = http.client.HTTPSConnection("127.0.0.1", cluster.port, timeout=60, context=context)
        connection.request("GET", "/metrics")
        add(connection.getresponse().read().decode())
        connection.close()
    subprocess.run(["deploy/tessera", "token", "create", "--out", str(folder / "own")], check=True, capture_output=True)
    with Cluster("--cluster-token-file", str(folder / "own/token"), "--cluster-tls", str(folder / "own/coordinator.pem"),
                 workers=0) as cluster:
        add(cluster.get("/metrics")[2])


def queries():
    """(where, expr, labels that its legend or text shows) of panels and alerts."""
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", []):
            yield panel["title"], target["expr"], set(re.findall(r"\{\{\s*(\w+)\s*\}\}", target["legendFormat"]))
    for group in ALERTS["groups"]:
        for rule in group["rules"]:
            yield rule["alert"], rule["expr"], set(re.findall(r"\$labels\.(\w+)", json.dumps(rule["annotations"])))


def plain(expr):
    """PromQL without Grafana's variables."""
    return re.sub(r"\$__rate_interval", "5m", expr)


def read_query(expr):
    """([(name, labels that its matchers use)], labels of each `by`) of a query."""
    text = re.sub(r'"[^"]*"', '""', plain(expr))
    groups = [set(re.findall(r"\w+", found)) for found in re.findall(r"\bby\s*\(([^)]*)\)", text)]
    text = re.sub(r"\bby\s*\([^)]*\)|\[[^\]]*\]", " ", text)
    selectors = [(name, set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", matchers)))
                 for name, matchers in re.findall(r"(?<![\w:.])([a-zA-Z_:][\w:]*)(?![\w:])(?!\s*\()(?:\{([^}]*)\})?",
                                                  re.sub(r"\b(and|or|unless|bool|offset)\b", " ", text))]
    return selectors, groups


def faults(expr, shown=frozenset()):
    """What is wrong with a query: names and labels that the coordinator does not export."""
    selectors, groups = read_query(expr)
    known = {**series, **OWN_SERIES}
    found = [f"no series {name}" for name, _ in selectors if name not in known]
    if found or not selectors:
        return found or ["asks for nothing"]
    every = set.intersection(*(known[name] | TARGET_LABELS for name, _ in selectors))
    for name, labels in selectors:
        found += [f"{name} has no label {label}" for label in labels - known[name] - TARGET_LABELS]
    for group in groups:
        found += [f"not all series have the label {label}" for label in group - every]
    left = set.intersection(*groups) if groups else every
    found += [f"the result has no label {label}" for label in shown - left]
    if "histogram_quantile" in expr and not all("le" in group for group in groups):
        found.append("a quantile needs le")
    return found


def test_every_query_asks_for_what_is_exported():
    asked = list(queries())
    assert len(asked) > 40
    wrong = {(where, expr): faults(expr, shown) for where, expr, shown in asked}
    wrong = {query: found for query, found in wrong.items() if found}
    assert not wrong, json.dumps([[*query, found] for query, found in wrong.items()], indent=1)


def test_wrong_queries_are_noticed():
    assert faults("sum(rate(tessera_generated_tokens_total[5m]))") == ["no series tessera_generated_tokens_total"]
    assert faults('vllm:num_requests_running{replica="a"}') == ["vllm:num_requests_running has no label replica"]
    assert faults("sum by (worker) (tessera_worker_up)") == ["not all series have the label worker"]
    assert faults("sum by (engine) (tessera_worker_up)", {"worker"}) == ["the result has no label worker"]
    quantile = "histogram_quantile(0.9, sum by (engine) (rate(tessera_step_seconds_bucket[5m])))"
    assert faults(quantile) == ["a quantile needs le"]
    assert not faults("up{job=\"tessera\"} == 0 and time() > 3")


def test_variables_are_there_and_used():
    variables = {variable["name"]: variable for variable in DASHBOARD["templating"]["list"]}
    text = json.dumps(DASHBOARD["panels"])
    used = set(re.findall(r"\$\{?([a-z]\w*)\}?", text))
    assert used == set(variables), used ^ set(variables)
    for variable in variables.values():
        if variable["type"] != "query":
            continue
        selector, label = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["definition"]).groups()
        assert not faults(f"sum by ({label}) ({selector})"), variable
        assert variable["query"]["query"] == variable["definition"]


def test_panels_fill_rows_without_overlap():
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids)
    taken = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        cells = {(x, y) for x in range(place["x"], place["x"] + place["w"]) for y in range(place["y"], place["y"] + place["h"])}
        assert not cells & taken and place["x"] + place["w"] <= 24, panel["title"]
        taken |= cells
        assert panel["type"] == "row" or panel["datasource"]["uid"] == "${datasource}"


def test_alerts_have_what_prometheus_and_people_need():
    names = [rule["alert"] for group in ALERTS["groups"] for rule in group["rules"]]
    assert len(set(names)) == len(names) > 5
    for group in ALERTS["groups"]:
        for rule in group["rules"]:
            assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}, rule
            assert rule["labels"]["severity"] in ("page", "ticket") and rule["annotations"]["summary"].endswith("."), rule
            assert re.fullmatch(r"\d+[smh]", rule.get("for", "1m")), rule


def test_a_parser_of_promql_reads_them():
    python = pip_client.install("promql-parser") / "bin/python"
    program = ("import json, sys, promql_parser\n"
               "for expr in json.load(sys.stdin):\n"
               "    try: promql_parser.parse(expr); print('good')\n"
               "    except Exception as error: print(json.dumps([expr, str(error)]))\n")
    asked = [plain(expr) for _, expr, _ in queries()]
    done = subprocess.run([python, "-c", program], input=json.dumps([*asked, "sum(rate(x[5m])"]), capture_output=True,
                          text=True, check=True)
    *found, noticed = done.stdout.splitlines()
    assert found == ["good"] * len(asked), [line for line in found if line != "good"]
    assert noticed != "good"
