"""The 1.1B Llama of the measurements cpu and engine: its files, and processes that answer for it.

Standard library only. Files stand in $TESSERA_BENCH_DIR, or a temporary folder in memory where there is room.
"""

import contextlib
import os
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
SHAPE = dict(layers=22, hidden=2048, heads=32, kv_heads=4, ffn=5632, context=65536, vocabulary=32000)


def bazel(*arguments):
    return subprocess.run([str(ROOT / "third_party" / "bazel"), *arguments], cwd=ROOT, check=True, text=True,
                          stdout=subprocess.PIPE, stderr=None if arguments[0] == "build" else subprocess.DEVNULL).stdout


def build(*targets):
    """Builds, and returns the folder of the binaries."""
    bazel("build", *targets)
    return pathlib.Path(bazel("info", "bazel-bin").strip())


@contextlib.contextmanager
def files():
    """A folder for the model's files, which stays where the user named it."""
    named = os.environ.get("TESSERA_BENCH_DIR")
    if named:
        pathlib.Path(named).mkdir(parents=True, exist_ok=True)
        yield pathlib.Path(named)
        return
    shared = pathlib.Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=shared if os.access(shared, os.W_OK) else None) as folder:
        yield pathlib.Path(folder)


def checkpoint(folder):
    """The Hugging Face folder."""
    import random_model
    model = folder / "model"
    if not (model / "done").exists():
        size = random_model.write(model, **SHAPE)
        (model / "done").write_text(str(size))
    return model


def gguf(folder, programs, quantised):
    """The file for llama.cpp: bfloat16, or Q8_0 made of it by its own program."""
    import gguf as writer  # gguf.py, not the measurement beside it
    plain, small = folder / "bf16.gguf", folder / "q8_0.gguf"
    if not plain.exists():
        writer.write(checkpoint(folder), folder / "part")
        (folder / "part").rename(plain)
    if quantised and not small.exists():
        subprocess.run([programs / "llama-quantize", plain, folder / "part", "Q8_0"], check=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        (folder / "part").rename(small)
    return small if quantised else plain


def peer_programs(*names, isa="native"):
    """The folder of llama.cpp's programs: those, or all; for this processor, or as for one with AVX2 alone."""
    done = subprocess.run([HERE / "peers" / "llama_cpp", *names], check=True, stdout=subprocess.PIPE, text=True,
                          env={**os.environ, "PEER_ISA": isa})
    return pathlib.Path(done.stdout.split()[-1])


def demand_amx_buffer(log, weight_bytes):
    """Ends the program where llama.cpp holds less than 4/5 of its weights in its AMX buffer.

    The name alone says nothing: "AMX is not ready to be used!" is what it writes where it has none."""
    held = sum(float(size) for size in re.findall(r"\bAMX model buffer size = +([\d.]+) MiB", log)) * 2**20
    if held < 0.8 * weight_bytes:
        sys.exit(f"llama.cpp holds {held / 1e6:.0f} MB of {weight_bytes / 1e6:.0f} MB of weights in its AMX buffer: "
                 "the comparison would flatter us")


def cpu_flags():
    with open("/proc/cpuinfo") as file:
        return set(next(line for line in file if line.startswith("flags")).split())


class Answering:
    """A process that answers commands, one a line (model_rates.cc, peers/llama_rates.cc)."""

    def __init__(self, *command):
        self.errors = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen([str(c) for c in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=self.errors, text=True)
        self.expect("ready")

    def line(self):
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"{self.process.args[0]} ended:\n{self.log()[-2000:]}")
        return line.strip()

    def expect(self, text):
        assert self.line() == text

    def ask(self, command):
        """(seconds, bytes[, products]), or for a profile (seconds, {op: seconds})."""
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        first, *rest = self.line().split()
        if command.startswith("profile"):
            return float(first), {op: float(s) for op, s in (part.split("=") for part in rest)}
        return float(first), *map(int, rest)

    def log(self):
        self.errors.seek(0)
        return self.errors.read()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait()
