#!/bin/bash
# gpu_check on a bundle whose programs are scripts: what passes, fails, takes too long or is not run any more.
set -u
bundle=$TEST_TMPDIR/bundle
out=$TEST_TMPDIR/out
failed=0

check() {  # what, command...
  local what=$1
  shift
  if "$@"; then echo "ok: $what"; else echo "FAILED: $what"; failed=1; fi
}

mkdir -p "$bundle/bin"
cp -L deploy/gpu_check "$bundle/bin/"
"$bundle/bin/gpu_check" > "$out" 2>&1
check "without the other programs it says where it belongs" grep -q "//deploy:gpu_bundle" "$out"

program() { printf '#!/bin/bash\n%s\n' "$2" > "$bundle/bin/$1"; chmod +x "$bundle/bin/$1"; }
program tessera-worker 'echo "cuda:0 is here"'
for test in warp_ops cuda_device cuda_graphs mapped_sums device_hops plain_kernels linear_kernels tensor_attention kv_kernels; do program "${test}_gpu_test" 'echo "All tests passed (3)"'; done
for test in rows positions linear experts attention delta_net float16 sample model_golden; do
  program "${test}_test" '[ "$CUDA_TEST_DEVICE" = cuda:0 ] && echo "All tests passed (4)"'
done
program tessera '[ "$*" = "${*/cuda:0/}" ] && exit 3; [ -d "$PWD/bin" ] && echo "answer: 142"'
program gpu_bench '[ "$*" = "--device cuda:0 --only served --measure-only" ] && echo "tokens/s over HTTP: 0.9"'
mkdir -p "$bundle/deploy/demo_model"
program ../deploy/demo_model/count_answers '[ "$*" = "bin 100 --devices cuda:0 --ready-timeout 60" ] && echo "sum 99 of 100 exact"'
results() { PATH=$TEST_TMPDIR/tools:/usr/bin:/bin "$bundle/bin/gpu_check" --out "$TEST_TMPDIR/results" "$@" > "$out" 2>&1; }

mkdir -p "$TEST_TMPDIR/tools"
sanitizer() { printf '#!/bin/bash\n%s\n' "$1" > "$TEST_TMPDIR/tools/compute-sanitizer"; chmod +x "$TEST_TMPDIR/tools/compute-sanitizer"; }
sanitizer 'shift 4; exec "$@"'
results
check "all pass: 0" [ $? -eq 0 ]
check "with a line for each" [ "$(grep -c ' passed ' "$out")" -eq 30 ]
check "and JSON" python3 -c "
import json
got = json.load(open('$TEST_TMPDIR/results/results.json'))
assert [r['outcome'] for r in got] == ['passed'] * 30, got
assert got[0]['detail'] == 'cuda:0 is here' and got[27]['detail'] == 'answer: 142', got"

sanitizer 'echo "ERROR SUMMARY: 1 error"; exit 9'
results
check "what compute-sanitizer finds: 1" [ $? -eq 1 ]
check "by both tools, of every kind of kernel" [ "$(grep -cE '^(mem|race)check: [a-z_]+ +FAILED .*1 error' "$out")" -eq 8 ]
rm "$TEST_TMPDIR/tools/compute-sanitizer"
if ! [ -e /usr/local/cuda/bin/compute-sanitizer ]; then
  results
  check "without it the rest passes" [ $? -eq 0 ]
  check "and the table says what was left out, and why" grep -qE '^memcheck: plain_kernels +left out .*no compute-sanitizer' "$out"
fi
sanitizer 'shift 4; exec "$@"'

program warp_ops_gpu_test 'case $LD_LIBRARY_PATH in */bundle/lib:/driver) echo "All tests passed (5)";; esac'
LD_LIBRARY_PATH=/driver results
check "libraries are looked for where the machine says, behind the bundle's" [ $? -eq 0 ]
program warp_ops_gpu_test 'echo "All tests passed (3)"'

program cuda_device_gpu_test 'echo "test.cc:7 \"quoted\""; exit 4'
results
check "one fails: 1" [ $? -eq 1 ]
check "named, with its code and last line" grep -qE '^cuda_device +FAILED .*code 4: test.cc:7 "quoted"' "$out"
check "and the next ones run" grep -qE '^shipped model +passed' "$out"
check "the JSON stays JSON" python3 -c "import json; json.load(open('$TEST_TMPDIR/results/results.json'))"

program cuda_device_gpu_test 'echo "skipped: no GPU"'
results
check "a test that skips is no pass" grep -qE '^cuda_device +FAILED' "$out"

program cuda_device_gpu_test 'sleep 60'
results --limit 2
check "one takes too long: 1" [ $? -eq 1 ]
check "it is killed" grep -qE '^cuda_device +TOO LONG .*killed after' "$out"
check "and what would come behind the limit is not run" grep -qE '^shipped model +not run' "$out"
exit "$failed"
