"""The Debian packages in a bare system of this machine's release, in a chroot: apt installs them with what they need, they serve
there as the packages' user, and a purge leaves nothing. Needs root and a mirror."""

import contextlib
import os
import pathlib
import re
import shutil
import subprocess
import time

import packages_test
from packages_test import MODEL, PATIENCE_SECONDS, PROGRAMS, new_folder, packages
from run_tests import Skip

FETCH_SECONDS = 600  # for a base system, and for what the packages need
# A process inside sees itself in /proc, which goes with it.
ENTER = 'mount -t proc proc "$0/proc" && root=$0 && exec /usr/sbin/chroot --userspec="$1" "$root" "${@:2}"'

base = []  # its folder, once it is made


def fetched(command, folder):
    """What it printed, or None where it failed, as without a network."""
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=FETCH_SECONDS,
                              env={**os.environ, "PATH": os.environ["PATH"] + ":/usr/sbin:/sbin"})
        print(done.stdout[-500:] + done.stderr[-500:], flush=True)
        return done.stdout if done.returncode == 0 else None
    return None


def debootstrap(folder):
    """The command, without installing it, and where its scripts are."""
    found = shutil.which("debootstrap")
    if found is not None:
        return [found]
    if fetched(["sh", "-c", "apt-get -qq download debootstrap && dpkg-deb -x debootstrap_*.deb ."], folder) is None:
        raise Skip("no chroot: debootstrap is not installed, and apt cannot download it")
    return ["env", f"DEBOOTSTRAP_DIR={folder}/usr/share/debootstrap", f"{folder}/usr/sbin/debootstrap"]


def prepare():
    if os.geteuid() != 0:
        raise Skip("no chroot: only root may make one")
    packages_test.prepare()
    folder = new_folder()
    command = debootstrap(folder)
    codename = re.search(r"^VERSION_CODENAME=(\S+)", pathlib.Path("/etc/os-release").read_text(), re.M)[1]
    places = fetched(["apt-get", "indextargets", "--format", "$(CODENAME) $(REPO_URI)"], folder) or ""
    # The release with its updates, and nobody else's packages.
    suites = {codename, f"{codename}-updates", f"{codename}-security"}
    sources = sorted({tuple(line.split()) for line in places.splitlines() if line.split()[0] in suites})
    mirrors = [uri for suite, uri in sources if suite == codename]
    root = folder / "root"
    if not mirrors or fetched([*command, "--variant=minbase", codename, str(root), mirrors[0]], folder) is None:
        raise Skip("no chroot: debootstrap can make no base system here")
    (root / "etc/apt/sources.list").write_text("".join(f"deb {uri} {suite} main\n" for suite, uri in sources))
    (root / "usr/sbin/policy-rc.d").write_text("#!/bin/sh\nexit 101\n")
    (root / "usr/sbin/policy-rc.d").chmod(0o755)
    base.append(root)


def inside(*command, user="root:root"):
    """A command line that runs `command` in the base system."""
    environment = ["env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C", "DEBIAN_FRONTEND=noninteractive",
                   f"HOME={'/root' if user == 'root:root' else '/var/lib/tessera'}"]
    return ["unshare", "--mount", "bash", "-c", ENTER, str(base[0]), user, *environment, *command]


def run(*command, user="root:root"):
    done = subprocess.run(inside(*command, user=user), capture_output=True, text=True, timeout=FETCH_SECONDS)
    assert done.returncode == 0, (command, done.stdout[-2000:], done.stderr[-2000:])
    return done.stdout


def installed():
    return set(run("dpkg-query", "--show", "--showformat", "${Package}\n").split())


def wait_for(what, condition):
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


@contextlib.contextmanager
def service(name, log, *flags):
    """A package's program as its unit starts it, by the packages' user; it must end well."""
    with open(log, "wb") as said:
        process = subprocess.Popen(
            inside(f"/usr/bin/{name}", "--config", f"/etc/tessera/{name.removeprefix('tessera-')}.yaml", *flags,
                   user="tessera:tessera"), stdout=said, stderr=said)
    try:
        yield process
        process.terminate()
        assert process.wait(PATIENCE_SECONDS) == 0, log.read_text()
    finally:
        process.kill()
        print(log.read_text(), flush=True)


def test_docs_name_the_packages_that_programs_need():
    named = packages_test.documented()
    if named is None:
        print("docs name no packages of this release", flush=True)
        return
    run("apt-get", "-qq", "update")
    before = installed()
    run("apt-get", "-qq", "install", "--no-install-recommends", *set().union(*named.values()))
    for name, file in packages.items():
        subprocess.run(["dpkg-deb", "--extract", file, base[0] / "opt" / name], check=True)
        missing = [line for line in run("ldd", f"/opt/{name}/usr/lib/tessera/{name}").splitlines() if "not found" in line]
        assert not missing, (name, missing)
    # The next test's packages bring them by themselves.
    run("apt-get", "-qq", "purge", *(installed() - before))


def test_packages_bring_what_they_need_serve_and_leave_nothing():
    root, logs = base[0], new_folder()
    before = installed()
    for file in packages.values():
        shutil.copy(file, root / "tmp")
    run("apt-get", "-qq", "update")
    run("apt-get", "-qq", "install", "--no-install-recommends", *(f"/tmp/{file.name}" for file in packages.values()))
    assert run("dpkg", "--audit") == ""
    for program in PROGRAMS:
        assert run(program, "--version").strip() in packages[program].name
        assert "not found" not in run("ldd", f"/usr/lib/tessera/{program}")

    state = root / "var/lib/tessera"
    shutil.copytree(MODEL, state / "demo")
    config = root / "etc/tessera/coordinator.yaml"
    config.write_text(re.sub(r"^(port|grpc-port): \d+$", r"\1: 0", config.read_text(), flags=re.M)
                      + "model: /var/lib/tessera/demo\nport-file: /var/lib/tessera/ports\n")
    run("chown", "-R", "tessera:tessera", "/var/lib/tessera")
    with service("tessera-coordinator", logs / "coordinator"):
        wait_for("the coordinator's ports", (state / "ports").exists)
        ports = dict(part.split("=") for part in (state / "ports").read_text().split())
        with service("tessera-worker", logs / "worker", "--coordinator", f"127.0.0.1:{ports['grpc']}", "--name", "cpu",
                     "--kv-cache-memory-bytes", "64MiB"):
            ready = ["curl", "-sf", f"http://127.0.0.1:{ports['http']}/ready"]
            wait_for("a replica", lambda: subprocess.run(ready, capture_output=True).returncode == 0)
            said = run("tessera", "complete", "What is 57 + 85?", "--url", f"http://127.0.0.1:{ports['http']}")
            assert "142" in said, said

    run("apt-get", "-qq", "purge", *PROGRAMS)
    assert not (root / "etc/tessera").exists() and not (root / "usr/lib/tessera").exists()
    assert not (installed() - before) & set(PROGRAMS)
    assert run("dpkg", "--audit") == ""
