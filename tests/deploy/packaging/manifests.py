"""Reads the Kubernetes manifests, and says what they mean: which pods a selector takes, who may reach whom. Pure functions
over lists of documents, except read()."""

import pathlib

import yaml

FOLDER = pathlib.Path("deploy/kubernetes")


def read(workers):
    """The documents of the folder, and those of one of workers/."""
    files = sorted(FOLDER.glob("*.yaml")) + [FOLDER / "workers" / workers]
    return [document for file in files for document in yaml.safe_load_all(file.read_text()) if document]


def of_kind(documents, kind):
    return {document["metadata"]["name"]: document for document in documents if document["kind"] == kind}


def pod_templates(documents):
    """{(kind, name): template} of all that makes pods."""
    found = {}
    for document in documents:
        spec = document.get("spec", {})
        name = (document["kind"], document["metadata"]["name"])
        if "leaderWorkerTemplate" in spec:
            for part in ("workerTemplate", "leaderTemplate"):
                if part in spec["leaderWorkerTemplate"]:
                    found[(*name, part)] = spec["leaderWorkerTemplate"][part]
        elif "template" in spec:
            found[name] = spec["template"]
    return found


def container(template):
    (only,) = template["spec"]["containers"]
    return only


def ports(template):
    """{name: number}"""
    return {port["name"]: port["containerPort"] for port in container(template)["ports"]}


def matches(selector, labels):
    """A label selector: {} takes all."""
    assert set(selector) <= {"matchLabels"}, selector
    return all(labels.get(key) == value for key, value in selector.get("matchLabels", {}).items())


def selected(templates, labels):
    """Templates of the pods that a Service's selector takes."""
    return [template for template in templates.values() if matches({"matchLabels": labels}, template["metadata"]["labels"])]


def _admits(rules, side, peer, port):
    """`port` is a name and a number; a rule without peers or ports means all."""
    for rule in rules:
        peers = rule.get(side)
        if peers is not None and not any(matches(each["podSelector"], peer) for each in peers):
            continue
        if "ports" not in rule or any(each["port"] in port for each in rule["ports"]):
            return True
    return False


def may_reach(policies, source, target, port):
    """Whether a pod with the labels `source` may open `port` (name, number) of one with `target`: each side's policies must
    let it, where any selects the pod."""
    def open_on(pod, direction, side, peer):
        rules = [policy["spec"] for policy in policies if matches(policy["spec"]["podSelector"], pod)
                 and direction in policy["spec"]["policyTypes"]]
        return not rules or any(_admits(spec.get(direction.lower(), []), side, peer, port) for spec in rules)

    return open_on(source, "Egress", "to", target) and open_on(target, "Ingress", "from", source)
