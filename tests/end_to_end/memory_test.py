"""What a whole worker holds at its peak: one copy of its weights, the KV pool, and little beside them.

The system counts (VmHWM: private and file-mapped), from the process's start, over loading, a long prompt with the logits
of every row, and steps of full size. tests/bench/run cpu has the same for a 1.1B model.
"""

import pathlib
import sys

import cluster

sys.path.insert(0, "tests/bench")
import random_model  # noqa: E402

BESIDE_BYTES = 300_000_000
KV_BYTES = 3 << 20  # nearly all of it gets used
LAYERS, HIDDEN, HEADS, KV_HEADS, FFN, VOCABULARY = 2, 1024, 16, 4, 8192, 163840
STEP_ROWS = 512
PROMPT = [10 + 7 * i % 400 for i in range(1300)]
TABLE_NUMBERS = VOCABULARY * HIDDEN
LAYER_NUMBERS = HIDDEN * (2 * HIDDEN + 2 * HIDDEN * KV_HEADS // HEADS + 3 * FFN)
STEP_LOGITS_BYTES = 4 * STEP_ROWS * VOCABULARY
KV_OF_PROMPT_BYTES = 2 * 2 * LAYERS * HIDDEN * KV_HEADS // HEADS * len(PROMPT)
INT8_BYTES = 1 + 4 / 128  # a number and its part of a scale


def peak_bytes(process):
    lines = pathlib.Path(f"/proc/{process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))


def check(folder, weight_bytes, *flags, tied=False, files=1):
    file_bytes = random_model.write(folder, layers=LAYERS, hidden=HIDDEN, heads=HEADS, kv_heads=KV_HEADS, ffn=FFN,
                                    context=4096, vocabulary=VOCABULARY, tied=tied, files=files, zeros=True)
    assert len(list(folder.glob("*.safetensors"))) == files
    # A second copy, the files themselves or the logits of a whole step at once would be found out.
    assert min(weight_bytes, file_bytes, STEP_LOGITS_BYTES) > BESIDE_BYTES
    assert KV_OF_PROMPT_BYTES > KV_BYTES * 3 / 4
    with cluster.running("--max-model-len", "1400", "--max-num-batched-tokens", str(STEP_ROWS), *flags, workers=0, model=str(folder)) as c:
        c.start("w0", "worker/tessera-worker", "--coordinator", c.grpc, "--name", "w0/0",
                "--kv-cache-memory-bytes", str(KV_BYTES))
        c.wait_until_ready(1)
        loaded = peak_bytes(c.processes["w0"])
        for more in ({"logprobs": 1, "echo": True}, {"ignore_eos": True}):
            status, _, text = c.request("POST", "/v1/completions", {"prompt": PROMPT, "max_tokens": 1, **more})
            assert status == 200, text
        peak = peak_bytes(c.processes["w0"])
    beside = peak - weight_bytes - KV_BYTES
    print(f"{loaded / 1e6:.0f} MB when ready, {peak / 1e6:.0f} MB at most: {beside / 1e6:.0f} MB beside "
          f"{weight_bytes / 1e6:.0f} MB of weights and {KV_BYTES / 1e6:.0f} MB of KV", flush=True)
    assert loaded > weight_bytes, "the weights are not in what was counted"
    assert beside <= BESIDE_BYTES


def test_bfloat16_in_several_files(tmp):
    check(tmp, 2 * (LAYERS * LAYER_NUMBERS + 2 * TABLE_NUMBERS), files=3)


def test_bfloat16_with_tied_embeddings_is_kept_once(tmp):
    check(tmp, 2 * (LAYERS * LAYER_NUMBERS + TABLE_NUMBERS), tied=True)


def test_int8_with_tied_embeddings_in_several_files(tmp):
    # As a head the embedding is another matrix, of int8.
    weights = INT8_BYTES * (LAYERS * LAYER_NUMBERS + TABLE_NUMBERS) + 2 * TABLE_NUMBERS
    check(tmp, weights, "--quantization", "int8", tied=True, files=2)
