"""GGUF files through the whole stack: a model's own tokens, on a CPU, on two ranks and on the emulated GPU; and what
is refused by name."""

import json
import pathlib
import struct
import subprocess

from cluster import running

GOLDEN = pathlib.Path("tests/golden/models")
FLAGS = ("--dtype", "float32", "--max-model-len", "96", "--max-num-batched-tokens", "32", "--max-num-seqs", "2")
EMULATED = ("--device", "cuda-emulated")


def golden(name):
    """[(prompt, tokens that follow)] of what transformers computed with the same values."""
    data = (GOLDEN / name / "expected.safetensors").read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])

    def ints(key):
        begin, end = header[key]["data_offsets"]
        return list(struct.unpack(f"<{(end - begin) // 4}i", data[8 + size + begin:8 + size + end]))

    return [(ints(f"prompt.{n}"), ints(f"tokens.{n}")) for n in (0, 1)]


def check(name, **options):
    with running(*FLAGS, model=str(GOLDEN / name / "model.gguf"), **options) as c:
        for prompt, tokens in golden(name):
            body = {"prompt": prompt, "max_tokens": len(tokens), "temperature": 0, "ignore_eos": True,
                    "return_token_ids": True}
            status, _, text = c.request("POST", "/v1/completions", body)
            assert status == 200, text
            assert json.loads(text)["choices"][0]["token_ids"] == tokens, name


def test_tokens_are_the_models_own():
    for name in ("gguf_llama_q8_0", "gguf_llama_q4", "gguf_llama_k", "gguf_mixtral"):
        check(name, workers=1)


def test_codes_are_kept_on_the_emulated_gpu_too():
    check("gguf_llama_q4", workers=1, worker_flags=EMULATED)


def test_a_damaged_file_ends_the_start_with_its_name(tmp):
    whole = (GOLDEN / "gguf_llama_q4" / "model.gguf").read_bytes()
    for what, data in {"not a GGUF file": b"GGML" + whole[4:], "cut off": whole[:-100],
                       "cut off, or a length": whole[:300]}.items():
        file = tmp / "damaged.gguf"
        file.write_bytes(data)
        done = subprocess.run(["coordinator/tessera-coordinator", str(file), "--port", "0", "--grpc-port", "0"],
                              capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode != 0 and "damaged.gguf" in done.stderr and what in done.stderr, done.stderr
