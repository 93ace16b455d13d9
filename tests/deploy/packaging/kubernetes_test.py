"""The Kubernetes manifests: what they name is there, selectors take what they should, policies let through what the cluster
needs and no more, schemas of Kubernetes hold, and the programs serve when they are started as the pods are."""

import base64
import contextlib
import http.client
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time

import yaml

sys.path.insert(0, "tests/end_to_end")
import manifests  # noqa: E402
import pip_client  # noqa: E402

CHOICES = ("stateful_set.yaml", "leader_worker_set.yaml")
MODEL = pathlib.Path("deploy/demo_model/tessera-demo").resolve()
PATIENCE_SECONDS = 60

secrets = pathlib.Path(tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR"))) / "cluster"


def made_secrets():
    """The documents that make_secrets prints."""
    done = subprocess.run([manifests.FOLDER / "make_secrets", secrets], capture_output=True, text=True, check=True,
                          env={**os.environ, "TESSERA": os.path.abspath("deploy/tessera")})
    return list(yaml.safe_load_all(done.stdout))


def flags_of(program):
    """{flag: its default, or ""} of a program's --help."""
    paths = {"tessera-coordinator": "coordinator/tessera-coordinator", "tessera-worker": "worker/tessera-worker"}
    text = subprocess.run([paths[program], "--help"], capture_output=True, text=True, check=True).stdout
    return {name: default for name, default in re.findall(r"^ *--([a-z][a-z-]*)[^=\n]*(?:=(\S+))?", text, re.M)}


def arguments(documents, template):
    """{flag: value} that a pod's program is started with: its arguments, and the file of --config."""
    given = {}
    words = list(manifests.container(template)["args"])
    while words:
        word = words.pop(0)
        assert word.startswith("--"), word
        name, _, value = word[2:].partition("=")
        given[name] = value or words.pop(0)
    if "config" in given:
        (configured,) = [data for config in manifests.of_kind(documents, "ConfigMap").values()
                         for file, data in config["data"].items() if file == pathlib.Path(given["config"]).name]
        given.update({key: str(value) for key, value in yaml.safe_load(configured).items()})
    return given


def test_what_pods_name_is_there():
    for choice in CHOICES:
        documents = manifests.read(choice) + made_secrets()
        held = {"secret": manifests.of_kind(documents, "Secret"), "configMap": manifests.of_kind(documents, "ConfigMap"),
                "persistentVolumeClaim": manifests.of_kind(documents, "PersistentVolumeClaim"), "emptyDir": None}
        templates = manifests.pod_templates(documents)
        assert len(templates) == 2, templates
        for template in templates.values():
            volumes = {volume["name"]: volume for volume in template["spec"]["volumes"]}
            for mount in manifests.container(template)["volumeMounts"]:
                volume = volumes.pop(mount["name"])
                (kind,) = set(volume) - {"name"}
                if held[kind] is None:
                    continue
                source = volume[kind]
                name = source.get("secretName") or source.get("claimName") or source.get("name")
                assert name in held[kind], (kind, name)
                for item in source.get("items", []):
                    assert item["key"] in held[kind][name]["data"], item
            assert not volumes, f"mounted nowhere: {volumes}"
            # Each path of a flag is below a mount.
            given = arguments(documents, template)
            mounts = [mount["mountPath"] for mount in manifests.container(template)["volumeMounts"]]
            for flag, value in given.items():
                assert not value.startswith("/") or any(value == m or value.startswith(m + "/") for m in mounts), (flag, value)


def test_secrets_are_kept_and_hold_what_the_programs_read():
    first, second = made_secrets(), made_secrets()
    assert first == second
    by_name = manifests.of_kind(first, "Secret")
    assert base64.b64decode(by_name["tessera-cluster"]["data"]["coordinator.pem"]).startswith(b"-----BEGIN PRIVATE KEY-----")
    keys = [base64.b64decode(by_name["tessera-keys"]["data"][name]) for name in ("api_keys", "admin_key")]
    assert all(re.fullmatch(rb"[0-9a-f]{64}", key) for key in keys) and keys[0] != keys[1]
    assert "authority.pem" not in json.dumps(first)
    assert secrets.stat().st_mode & 0o77 == 0


def test_flags_are_those_of_the_programs():
    listed = set(re.findall(r'"([a-z][a-z-]*)"', pathlib.Path("proto/program_flags.h").read_text()))
    for choice in CHOICES:
        documents = manifests.read(choice)
        for template in manifests.pod_templates(documents).values():
            (program,) = manifests.container(template)["command"]
            flags = flags_of(program)
            given = arguments(documents, template)
            assert set(given) - {"model"} <= set(flags) & listed, set(given) - set(flags)
            # Requests end before Kubernetes kills what computes them.
            drain = "shutdown-timeout" if program == "tessera-coordinator" else "drain-seconds"
            assert template["spec"]["terminationGracePeriodSeconds"] >= 2 * int(given[drain])
            named = set(manifests.ports(template).values())
            numbers = {int(given[flag]) for flag in ("port", "grpc-port", "link-port", "kv-port") if flag in given}
            numbers |= {int(given["listen"].rpartition(":")[2])} if "listen" in given else set()
            assert named == numbers, (named, numbers)
            # Kubernetes names variables after Services: tessera's TESSERA_PORT would be the flag --port.
            assert template["spec"]["enableServiceLinks"] is False


def test_pods_have_few_rights():
    user = re.search(r"^USER (\d+):(\d+)$", pathlib.Path("deploy/packaging/Containerfile").read_text(), re.M)
    for choice in CHOICES:
        for template in manifests.pod_templates(manifests.read(choice)).values():
            pod, own = template["spec"]["securityContext"], manifests.container(template)["securityContext"]
            assert (pod["runAsUser"], pod["runAsGroup"]) == (int(user[1]), int(user[2])) and pod["runAsNonRoot"]
            assert own == {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
            assert template["spec"]["automountServiceAccountToken"] is False


def test_selectors_take_their_pods_and_ports():
    for choice in CHOICES:
        documents = manifests.read(choice)
        templates = manifests.pod_templates(documents)
        for document in documents:
            kind, spec = document["kind"], document.get("spec", {})
            if kind in ("Deployment", "StatefulSet"):
                assert manifests.matches(spec["selector"], spec["template"]["metadata"]["labels"])
            if kind == "StatefulSet":
                assert manifests.of_kind(documents, "Service")[spec["serviceName"]]["spec"]["clusterIP"] == "None"
            if kind == "Service":
                (template,) = manifests.selected(templates, spec["selector"])
                for port in spec["ports"]:
                    assert port["targetPort"] in manifests.ports(template)
            if kind == "PodDisruptionBudget":
                assert len(manifests.selected(templates, spec["selector"]["matchLabels"])) == 1
                assert spec["maxUnavailable"] == 1  # 0 would block the emptying of a node for ever
        for template in templates.values():
            container = manifests.container(template)
            for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
                (action,) = [container[probe][name] for name in ("httpGet", "tcpSocket") if name in container[probe]]
                assert action["port"] in manifests.ports(template)


def test_workers_find_a_coordinator_that_is_not_ready():
    for choice in CHOICES:
        documents = manifests.read(choice)
        services = manifests.of_kind(documents, "Service")
        for template in manifests.pod_templates(documents).values():
            given = arguments(documents, template)
            if "coordinator" not in given:
                assert manifests.container(template)["readinessProbe"]["httpGet"]["path"] == "/ready"
                assert manifests.container(template)["livenessProbe"]["httpGet"]["path"] == "/livez"
                continue
            service, port = given["coordinator"].split(":")
            assert services[service]["spec"]["publishNotReadyAddresses"] is True
            assert int(port) in [each["port"] for each in services[service]["spec"]["ports"]]
        assert "publishNotReadyAddresses" not in services["tessera"]["spec"]


def test_a_pod_that_ends_comes_back_alone():
    (lws,) = manifests.of_kind(manifests.read("leader_worker_set.yaml"), "LeaderWorkerSet").values()
    assert lws["spec"]["leaderWorkerTemplate"]["restartPolicy"] == "None"
    assert lws["spec"]["startupPolicy"] == "LeaderCreated"
    # What API version v1 of LeaderWorkerSet has (kubernetes-sigs/lws, api/leaderworkerset/v1).
    assert lws["apiVersion"] == "leaderworkerset.x-k8s.io/v1"
    assert set(lws["spec"]) <= {"replicas", "leaderWorkerTemplate", "rolloutStrategy", "startupPolicy", "networkConfig"}
    assert set(lws["spec"]["leaderWorkerTemplate"]) <= {
        "leaderTemplate", "workerTemplate", "size", "restartPolicy", "subGroupPolicy", "volumeClaimTemplates",
        "persistentVolumeClaimRetentionPolicy"}


def test_policies_let_through_what_is_needed_and_no_more():
    stranger, client = {"app": "other"}, {"app": "other", "tessera-client": "true"}
    for choice in CHOICES:
        documents = manifests.read(choice)
        policies = list(manifests.of_kind(documents, "NetworkPolicy").values())
        pods = {template["metadata"]["labels"]["app.kubernetes.io/component"]: template
                for template in manifests.pod_templates(documents).values()}
        labels = {name: template["metadata"]["labels"] for name, template in pods.items()}

        def reaches(source, target, port):
            return manifests.may_reach(policies, source, labels[target], (port, manifests.ports(pods[target])[port]))

        assert reaches(stranger, "coordinator", "http") and reaches(client, "coordinator", "grpc")
        assert reaches(labels["worker"], "coordinator", "grpc") and reaches(labels["coordinator"], "worker", "worker")
        assert reaches(labels["worker"], "worker", "link") and reaches(labels["worker"], "worker", "kv")
        assert not reaches(stranger, "coordinator", "grpc")
        assert not any(reaches(each, "worker", port) for each in (stranger, client) for port in ("worker", "link", "kv"))
        assert not manifests.may_reach(policies, labels["worker"], stranger, ("x", 443))
        assert manifests.may_reach(policies, labels["worker"], stranger, ("dns", 53))


def test_schemas_of_kubernetes_hold():
    checker = pip_client.install("kubernetes-validate")
    documents = [document for choice in CHOICES for document in manifests.read(choice)] + made_secrets()
    # There is no schema of LeaderWorkerSet: its pods are held as a Deployment's.
    (deployment,) = manifests.of_kind(documents, "Deployment").values()
    for lws in list(manifests.of_kind(documents, "LeaderWorkerSet").values()):
        documents.remove(lws)
        pods = lws["spec"]["leaderWorkerTemplate"]["workerTemplate"]
        documents.append({**deployment, "spec": {**deployment["spec"], "template": pods}})
    planted = {**deployment, "spec": {**deployment["spec"], "replica": 1}}
    program = ("import json, sys, kubernetes_validate as k\n"
               "for document in json.load(sys.stdin):\n"
               "    try: k.validate(document, k.latest_version(), strict=True); print('good')\n"
               "    except Exception as error: print('bad', document['kind'], str(error).splitlines()[0])\n")
    done = subprocess.run([checker / "bin/python", "-c", program], input=json.dumps(documents + [planted]),
                          capture_output=True, text=True, check=True)
    *found, noticed = done.stdout.splitlines()
    assert found == ["good"] * len(documents), found
    assert noticed.startswith("bad Deployment") and "replica" in noticed, noticed


def free_ports(count):
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(contextlib.closing(socket.socket())) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


class Pods:
    """Containers as processes: mounted paths lie below a folder, a pod's address is 127.0.0.1, ports are free ones."""

    def __init__(self, documents):
        self.folder = pathlib.Path(tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR")))
        self.documents = documents
        self.processes = []
        for secret, name in (("cluster", "tessera-cluster"), ("keys", "tessera-keys")):
            (self.folder / "etc/tessera" / secret).mkdir(parents=True)
            for file, text in manifests.of_kind(documents, "Secret")[name]["data"].items():
                path = self.folder / "etc/tessera" / secret / file
                path.write_bytes(base64.b64decode(text))
                path.chmod(0o440)
        self.coordinator_ports = dict(zip(("http", "grpc"), free_ports(2)))

    def adapted(self, text):
        text = text.replace("/etc/tessera", f"{self.folder}/etc/tessera").replace("/models/model", str(MODEL))
        text = text.replace("tessera-coordinator:8001", f"127.0.0.1:{self.coordinator_ports['grpc']}")
        return text.replace("$(POD_IP)", "127.0.0.1").replace("0.0.0.0", "127.0.0.1").replace("cuda:0", "cpu")

    def start(self, template, pod):
        words = [self.adapted(word).replace("$(POD_NAME)", pod) for word in manifests.container(template)["args"]]
        (program,) = manifests.container(template)["command"]
        if program == "tessera-coordinator":
            (config,) = manifests.of_kind(self.documents, "ConfigMap").values()
            text = self.adapted(config["data"]["coordinator.yaml"])
            for flag, port in (("port", "http"), ("grpc-port", "grpc")):
                text = re.sub(rf"^{flag}: \d+$", f"{flag}: {self.coordinator_ports[port]}", text, flags=re.M)
            (self.folder / "etc/tessera/coordinator.yaml").write_text(text)
        else:
            # Pods have addresses of their own, and limits of memory.
            listen, link, kv = free_ports(3)
            words = [word.replace(":9000", f":{listen}").replace("=9001", f"={link}").replace("=9002", f"={kv}") for word in words]
            words.append("--kv-cache-memory-bytes=64MiB")
        log = open(self.folder / f"{pod}.log", "wb")
        with log:
            self.processes.append(subprocess.Popen([f"{program.removeprefix('tessera-')}/{program}", *words],
                                                   stdout=log, stderr=log))

    def get(self, path, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.coordinator_ports["http"], timeout=PATIENCE_SECONDS)
        with contextlib.closing(connection):
            key = (self.folder / "etc/tessera/keys/api_keys").read_text().split()[0]
            try:
                connection.request("GET" if body is None else "POST", path, body and json.dumps(body),
                                   {"Authorization": "Bearer " + key})
                response = connection.getresponse()
            except ConnectionError:
                return 0, ""
            return response.status, response.read().decode()

    def wait_for(self, path, status):
        deadline = time.monotonic() + PATIENCE_SECONDS
        while (got := self.get(path))[0] != status:
            assert time.monotonic() < deadline, (path, got)
            time.sleep(0.1)

    def end(self):
        for process in self.processes:
            process.terminate()
        codes = [process.wait(PATIENCE_SECONDS) for process in self.processes]
        return codes

    def print_logs(self):
        for log in self.folder.glob("*.log"):
            print(f"--- {log.name}\n{log.read_text()}", flush=True)


def test_programs_serve_as_the_pods_start_them():
    for choice in CHOICES:
        documents = manifests.read(choice) + made_secrets()
        pods = Pods(documents)
        try:
            by_program = {manifests.container(t)["command"][0]: t for t in manifests.pod_templates(documents).values()}
            pods.start(by_program["tessera-coordinator"], "tessera-coordinator-x")
            probes = manifests.container(by_program["tessera-coordinator"])
            pods.wait_for(probes["livenessProbe"]["httpGet"]["path"], 200)
            assert pods.get(probes["readinessProbe"]["httpGet"]["path"])[0] == 503
            pods.start(by_program["tessera-worker"], "tessera-worker-0")
            pods.wait_for(probes["readinessProbe"]["httpGet"]["path"], 200)
            status, answer = pods.get("/v1/completions", {"prompt": "one two", "max_tokens": 4, "ignore_eos": True})
            assert status == 200 and json.loads(answer)["usage"]["completion_tokens"] == 4, answer
            assert "tessera-worker-0/0" in pods.get("/metrics")[1]
        except BaseException:
            pods.print_logs()
            raise
        finally:
            codes = pods.end()
        assert codes == [0, 0], codes
        shutil.rmtree(pods.folder)
