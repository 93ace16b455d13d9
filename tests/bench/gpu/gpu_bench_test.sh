#!/bin/bash
# gpu_bench on the emulated GPU: every figure comes, the model that it writes is served, and what it makes is removed.
set -euo pipefail
bench=$(readlink -f tests/bench/gpu_bench)
json=$TEST_TMPDIR/figures.json

"$bench" --device cuda-emulated --json "$json" &
process=$!
wait $process
[ ! -e "/dev/shm/gpu_bench-$process" ] || { echo "files are left in /dev/shm" >&2; exit 1; }
python3 - "$json" << 'CHECK'
import json, math, sys
figures = json.load(open(sys.argv[1]))
ratios = {line["name"]: line["ratio"] for line in figures["lines"]}
wanted = {"decode attention", "prefill attention", "tokens/s over HTTP"}
wanted |= {"decode attention 3 x 80", "prefill attention 2 x 80", "prefill attention, D 64"}
wanted |= {f"linear, {weights}, 1024x96, rows {rows}" for weights in ("bfloat16", "int8", "int4") for rows in (1, 9)}
wanted |= {f"{step} step, {weights}batch {batch}" for step in ("decode", "predicted") for weights in ("", "int8, ", "int4, ") for batch in (1, 2)}
rules = ("greedy", "temperature 1", "top_p 0.9", "top_k 40, top_p 0.9", "flat, top_p 0.9")
wanted |= {f"route, 2 of 8, rows {rows}" for rows in (1, 9)}
wanted |= {"sum of 2 ranks, 16 KiB", "sum of 2 ranks, 16 KiB, as peers"}
wanted |= {f"attention, last {rows} of 300" for rows in (1, 3, 9)}
wanted |= {f"attention to latents, last {rows} of 40" for rows in (1, 3, 9)}
wanted |= {f"experts, {weights}, 2 of 8, rows {rows}" for weights in ("bfloat16", "int4", "MXFP4") for rows in (1, 33)}
wanted |= {f"decode attention 3 x 80, {codes}" for codes in ("int8", "float8")}
wanted |= {f"linear, {codes} beside bfloat16, rows 9" for codes in ("int8", "int4")}
wanted |= {"decode step, mixture, batch 1", "decode step, 2 ranks, batch 1", "step of 2 ranks, a graph"}
timed = ("decode step, batch 1", "decode step, int4, batch 1", "decode step, mixture, batch 1", "sum of 2 ranks, 16 KiB")
wanted |= {f"{line}, in time" for line in timed}
wanted |= {f"sample, rows {rows}, {rule}" for rows in (1, 2) for rule in rules}
assert set(ratios) == wanted, set(ratios) ^ wanted
assert ratios["step of 2 ranks, a graph"] == 1, ratios
numbers = [*ratios.values(), figures["copy_bytes_per_second"], figures["flops_per_second"]]
assert all(math.isfinite(n) and n > 0 for n in numbers), figures
CHECK
if "$bench" --device cpu 2> "$TEST_TMPDIR/error"; then exit 1; fi
grep -q -- "--device cpu" "$TEST_TMPDIR/error"
if "$bench" --other-device cpu 2> "$TEST_TMPDIR/error"; then exit 1; fi
grep -q -- "--other-device cpu" "$TEST_TMPDIR/error"
if "$bench" --only nothing 2> "$TEST_TMPDIR/error"; then exit 1; fi
grep -q -- "--only nothing" "$TEST_TMPDIR/error"
