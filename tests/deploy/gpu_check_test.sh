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
for test in warp_ops cuda_device plain_kernels; do program "${test}_gpu_test" 'echo "All tests passed (3)"'; done
program tessera '[ "$*" = "${*/cuda:0/}" ] && exit 3; [ -d "$PWD/bin" ] && echo "answer: 142"'
results() { "$bundle/bin/gpu_check" --out "$TEST_TMPDIR/results" "$@" > "$out" 2>&1; }

results
check "all pass: 0" [ $? -eq 0 ]
check "with a line for each" [ "$(grep -c ' passed ' "$out")" -eq 5 ]
check "and JSON" python3 -c "
import json
got = json.load(open('$TEST_TMPDIR/results/results.json'))
assert [r['outcome'] for r in got] == ['passed'] * 5, got
assert got[0]['detail'] == 'cuda:0 is here' and got[4]['detail'] == 'answer: 142', got"

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
