"""The Debian packages: made by one command, installed in a folder with this system's list of packages as the base, run with
the configuration that they bring, changed, upgraded and purged. No root is needed."""

import configparser
import os
import pathlib
import re
import shutil
import socket
import subprocess
import tempfile
import time

PROGRAMS = ("tessera", "tessera-coordinator", "tessera-worker")
UNITS = {"tessera-coordinator": "tessera-coordinator.service", "tessera-worker": "tessera-worker@.service"}
MODEL = pathlib.Path("deploy/demo_model/tessera-demo").resolve()
PATIENCE_SECONDS = 60

packages = {}


def new_folder():
    return pathlib.Path(tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR")))


def prepare():
    folder = new_folder()
    subprocess.run(["deploy/packaging/make_packages", "--programs", ".", "--fast", str(folder)], check=True)
    for file in folder.glob("*.deb"):
        packages[file.name.split("_")[0]] = file
    assert sorted(packages) == sorted(PROGRAMS), packages


class Root:
    """A file system of its own, with dpkg's records of what this machine has installed: dependencies count."""

    def __init__(self):
        self.path = new_folder()
        for part in ("var/lib/dpkg/info", "var/lib/dpkg/updates", "etc"):
            (self.path / part).mkdir(parents=True)
        shutil.copy("/var/lib/dpkg/status", self.path / "var/lib/dpkg/status")

    def dpkg(self, *arguments):
        done = subprocess.run(
            ["dpkg", f"--root={self.path}", f"--log={self.path}/log", "--force-not-root", "--force-script-chrootless",
             "--no-triggers", *map(str, arguments)], capture_output=True, text=True,
            env={**os.environ, "PATH": os.environ["PATH"] + ":/usr/sbin:/sbin"})
        return done.returncode, done.stdout + done.stderr

    def install(self, *files):
        code, said = self.dpkg("--install", *files)
        assert code == 0, said

    def files(self):
        """What is there, without folders and the records of dpkg, sysusers and logs."""
        found = (str(path.relative_to(self.path)) for path in self.path.rglob("*") if not path.is_dir())
        return {name for name in found if not re.match(r"var/lib/dpkg/|log$|etc/(passwd|group|g?shadow|\.pwd\.lock)-?$", name)}

    def text(self, name):
        return (self.path / name).read_text()


def unit(root, package):
    """{section: {key: value of its last line}} of a package's unit."""
    parser = configparser.ConfigParser(strict=False, interpolation=None, delimiters=("=",), comment_prefixes=("#",))
    parser.optionxform = str
    parser.read_string(root.text("usr/lib/systemd/system/" + UNITS[package]))
    return parser


def flags_of(program):
    text = subprocess.run([program, "--help"], capture_output=True, text=True, check=True).stdout
    return set(re.findall(r"--([a-z][a-z-]*)", text))


def test_what_they_hold():
    root = Root()
    root.install(*packages.values())
    files = root.files()
    for program in PROGRAMS:
        assert {f"usr/bin/{program}", f"usr/lib/tessera/{program}", f"usr/share/doc/{program}/copyright"} <= files, files
        shown = subprocess.run([root.path / "usr/bin" / program, "--version"], capture_output=True, text=True, check=True)
        assert shown.stdout.strip() in packages[program].name, (shown.stdout, packages[program].name)
    assert {"etc/tessera/coordinator.yaml", "etc/tessera/worker.yaml", "usr/lib/tessera/libtessera_spiece.so"} <= files
    assert re.search(r"^tessera:.*:/var/lib/tessera:/usr/sbin/nologin$", root.text("etc/passwd"), re.M)
    for name, file in packages.items():
        listing = subprocess.run(["dpkg-deb", "--contents", file], capture_output=True, text=True, check=True).stdout
        for line in listing.splitlines():
            assert line.split()[1] == "root/root" and (line[0] == "l" or line[5] != "w" and line[8] != "w"), line
        conffiles = subprocess.run(["dpkg-deb", "--info", file, "conffiles"], capture_output=True, text=True).stdout.split()
        assert conffiles == ([] if name == "tessera" else [f"/etc/tessera/{name.removeprefix('tessera-')}.yaml"])


def documented():
    """{program: packages that docs name for it} on this release; None where they name none for it."""
    running = pathlib.Path("docs/running.md").read_text()
    column = {"12": 0, "13": 1}.get(re.search(r'VERSION_ID="?(\d+)', pathlib.Path("/etc/os-release").read_text())[1])
    named = {}
    for who, *releases in re.findall(r"^\| ([^|]+) \| (`[^|]+) \| (`[^|]+) \|$", running, re.M):
        named[who] = re.findall(r"[a-z][a-z0-9+.-]+", releases[column or 0])
    rows = {"tessera": "`tessera` also", "tessera-coordinator": "the coordinator also", "tessera-worker": "the worker also"}
    assert {"all three", *rows.values()} <= set(named), named
    return None if column is None else {name: {*named["all three"], *named[row]} for name, row in rows.items()}


def test_dependencies_are_those_that_docs_name_and_no_build_folder_is_in_the_programs():
    wanted = documented()
    for name, file in packages.items():
        needs = subprocess.run(["dpkg-deb", "--field", file, "Depends"], capture_output=True, text=True, check=True).stdout
        needs = set(re.findall(r"(?:^|, |\| )([a-z][a-z0-9+.-]+)", needs))
        if wanted is not None:
            assert wanted[name] <= needs, (name, wanted[name] - needs)
    root = Root()
    root.install(*packages.values())
    for file in (root.path / "usr/lib/tessera").iterdir():
        content = file.read_bytes()
        for word in (b"/execroot/", b"/.cache/bazel", os.fsencode(MODEL.parents[2])):
            assert word not in content, (file.name, word)


def test_units_name_what_is_there():
    root = Root()
    root.install(*packages.values())
    for package, file in UNITS.items():
        parsed = unit(root, package)
        service = parsed["Service"]
        program, *arguments = service["ExecStart"].split()
        assert program.lstrip("/") in root.files()
        flags = flags_of(root.path / program.lstrip("/"))
        assert {word[2:] for word in arguments if word.startswith("--")} <= flags, arguments
        assert arguments[arguments.index("--config") + 1].lstrip("/") in root.files()
        assert service["Type"] == "notify" and service["User"] == service["Group"] == "tessera"
        assert service["NoNewPrivileges"] == service["PrivateTmp"] == "yes" and service["ProtectSystem"] in ("full", "strict")
        # A worker's GPU and CUDA's compiler need what these would take.
        if package == "tessera-worker":
            for lost in ("PrivateDevices", "MemoryDenyWriteExecute", "ProcSubset", "DeviceAllow", "SystemCallFilter"):
                assert lost not in service, lost
        # Requests end before the service manager's patience does.
        drain = "shutdown-timeout" if package == "tessera-coordinator" else "drain-seconds"
        text = subprocess.run([root.path / program.lstrip("/"), "--help"], capture_output=True, text=True, check=True).stdout
        assert int(service["TimeoutStopSec"]) > 2 * int(re.search(rf"--{drain} .*=(\d+)", text)[1])
        # Every key of the configuration is a flag, those that are commented out too.
        config = root.text(arguments[arguments.index("--config") + 1].lstrip("/"))
        keys = re.findall(r"^#?([a-z][a-z-]*):(?: |$)", config, re.M)
        assert len(keys) > 3 and set(keys) - {"model"} <= flags, set(keys) - flags


# Of systemd.unit, systemd.service, systemd.exec, systemd.kill and systemd.resource-control (252).
DIRECTIVES = {
    "Unit": {"Description", "Documentation", "Wants", "After", "StartLimitIntervalSec"},
    "Service": {
        "Type", "User", "Group", "EnvironmentFile", "ExecStart", "Restart", "RestartSec", "RestartPreventExitStatus",
        "TimeoutStartSec", "TimeoutStopSec", "KillMode", "StateDirectory", "StateDirectoryMode", "UMask",
        "NoNewPrivileges", "CapabilityBoundingSet", "ProtectSystem", "ProtectHome", "PrivateTmp", "PrivateDevices",
        "ProtectClock", "ProtectControlGroups", "ProtectHostname", "ProtectKernelLogs", "ProtectKernelModules",
        "ProtectKernelTunables", "ProtectProc", "RestrictAddressFamilies", "RestrictNamespaces", "RestrictRealtime",
        "RestrictSUIDSGID", "LockPersonality", "RemoveIPC", "SystemCallArchitectures", "SystemCallFilter",
        "SystemCallErrorNumber"},
    "Install": {"WantedBy"}}


def test_systemd_takes_the_units():
    root = Root()
    root.install(*packages.values())
    for package in UNITS:
        parsed = unit(root, package)
        assert parsed.sections() == list(DIRECTIVES)
        for section in parsed.sections():
            assert set(parsed[section]) <= DIRECTIVES[section], set(parsed[section]) - DIRECTIVES[section]
    if shutil.which("systemd-analyze") is None:
        print("no systemd-analyze here: the units were held against a list of directives alone", flush=True)
        return
    units = root.path / "usr/lib/systemd/system"
    for target in pathlib.Path("/usr/lib/systemd/system").glob("*.target"):
        shutil.copy(target, units / target.name)

    def verify():
        done = subprocess.run(["systemd-analyze", "verify", f"--root={root.path}", "tessera-coordinator.service",
                               "tessera-worker@cpu.service"], capture_output=True, text=True)
        return done.returncode, [line for line in (done.stdout + done.stderr).splitlines() if "tessera-" in line]

    assert verify() == (0, [])
    # It would have noticed.
    planted = units / UNITS["tessera-worker"]
    planted.write_text(planted.read_text().replace("PrivateTmp=", "PrivateTemp="))
    assert any("PrivateTemp" in line for line in verify()[1])


class Service:
    """A unit's program with the unit's arguments, below `root`, and the socket on which it notifies."""

    def __init__(self, root, package, folder, **replaced):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        address = tempfile.mktemp(dir="/tmp")
        self.socket.bind(address)
        self.socket.settimeout(PATIENCE_SECONDS)
        words = unit(root, package)["Service"]["ExecStart"].split()
        words = [str(root.path) + word if word.startswith("/") else replaced.get(word, word) for word in words]
        self.log = folder / f"{package}.log"
        environment = {name: value for name, value in os.environ.items() if name != "XDG_STATE_HOME"}
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(words, stdout=log, stderr=log,
                                            env={**environment, "HOME": str(folder), "NOTIFY_SOCKET": address})
        self.address, self.stopping = address, False

    def said(self):
        return self.socket.recv(4096).decode()

    def stop(self):
        """Asks it to end, once: a second signal ends it without order."""
        if not self.stopping:
            self.process.terminate()
        self.stopping = True

    def end(self):
        self.stop()
        try:
            return self.process.wait(PATIENCE_SECONDS)
        finally:
            self.process.kill()
            self.socket.close()
            os.unlink(self.address)


def test_services_start_notify_and_end():
    root = Root()
    root.install(packages["tessera-coordinator"], packages["tessera-worker"])
    config = root.path / "etc/tessera/coordinator.yaml"
    # The names of sockets below the state folder are short.
    home = pathlib.Path(tempfile.mkdtemp(dir="/tmp"))
    try:
        # As it is installed it says what is missing, with the exit code that systemd does not try again.
        refused = subprocess.run([root.path / "usr/bin/tessera-coordinator", "--config", config], capture_output=True, text=True)
        assert refused.returncode == 2 and "no model is named" in refused.stderr, refused
        assert unit(root, "tessera-coordinator")["Service"]["RestartPreventExitStatus"] == "2"

        ports = home / "ports"
        text = config.read_text().replace("#model: /var/lib/tessera/models/Qwen2.5-0.5B-Instruct", f"model: {MODEL}")
        text = re.sub(r"^(port|grpc-port): \d+$", r"\1: 0", text, flags=re.M)
        config.write_text(text + f"port-file: {ports}\n")
        coordinator = Service(root, "tessera-coordinator", home)
        worker = None
        try:
            assert coordinator.said() == "READY=1"
            grpc = re.search(r"grpc=(\d+)", ports.read_text())[1]
            http = re.search(r"http=(\d+)", ports.read_text())[1]
            workers = root.path / "etc/tessera/worker.yaml"
            workers.write_text(workers.read_text().replace("127.0.0.1:8001", f"127.0.0.1:{grpc}"))
            worker = Service(root, "tessera-worker", home, **{"%i": "cpu"})
            assert worker.said() == "READY=1"
            deadline = time.monotonic() + PATIENCE_SECONDS
            while subprocess.run(["curl", "-sf", f"http://127.0.0.1:{http}/ready"], capture_output=True).returncode != 0:
                assert time.monotonic() < deadline, worker.log.read_text()
                time.sleep(0.1)
            worker.stop()
            assert worker.said() == "STOPPING=1"
            coordinator.stop()
            assert coordinator.said() == "STOPPING=1"
        finally:
            codes = [service.end() for service in (worker, coordinator) if service is not None]
            print(coordinator.log.read_text())
        assert codes == [0, 0], codes
    finally:
        shutil.rmtree(home, ignore_errors=True)


def test_upgrades_keep_what_was_configured_and_a_purge_leaves_nothing():
    root = Root()
    root.install(*packages.values())
    config = root.path / "etc/tessera/coordinator.yaml"
    config.write_text(config.read_text() + "log-level: debug\n")

    newer = new_folder() / "newer"
    subprocess.run(["dpkg-deb", "--raw-extract", packages["tessera-coordinator"], newer], check=True)
    control = newer / "DEBIAN/control"
    control.write_text(re.sub(r"^Version: ", "Version: 1:", control.read_text(), flags=re.M))
    (newer / "etc/tessera/coordinator.yaml").write_text("log-level: warning\n")
    subprocess.run(["dpkg-deb", "--root-owner-group", "-Zgzip", "-z1", "--build", newer, newer.with_suffix(".deb")], check=True)
    code, said = root.dpkg("--force-confold", "--install", newer.with_suffix(".deb"))
    assert code == 0, said
    assert config.read_text().endswith("log-level: debug\n")
    assert root.text("etc/tessera/coordinator.yaml.dpkg-dist") == "log-level: warning\n"

    state = root.path / "var/lib/tessera/.local/state"
    state.mkdir(parents=True)
    code, said = root.dpkg("--remove", *PROGRAMS)
    assert code == 0, said
    assert root.files() == {"etc/tessera/coordinator.yaml", "etc/tessera/worker.yaml", "etc/tessera/coordinator.yaml.dpkg-dist"}
    code, said = root.dpkg("--purge", *PROGRAMS)
    assert code == 0, said
    assert root.files() == set() and not state.exists() and not (root.path / "etc/tessera").exists(), root.files()
    root.install(packages["tessera-worker"])


def test_a_package_that_is_missing_is_named():
    root = Root()
    status = root.path / "var/lib/dpkg/status"
    kept = [record for record in status.read_text().split("\n\n") if not re.match(r"Package: libprotobuf\d", record)]
    status.write_text("\n\n".join(kept))
    code, said = root.dpkg("--install", packages["tessera-worker"])
    assert code != 0 and re.search(r"depends on libprotobuf\d", said), said
