#!/bin/bash
# fuzz_main runs its corpus, finds a planted fault and saves the input, which shows it again.
set -eu
fuzzer=$1
export TEST_UNDECLARED_OUTPUTS_DIR=$TEST_TMPDIR

fail() { echo "FAILED: $1" >&2; cat "$TEST_TMPDIR/log" >&2; exit 1; }

mkdir "$TEST_TMPDIR/corpus"
printf 'a[b' > "$TEST_TMPDIR/corpus/one"

"$fuzzer" "$TEST_TMPDIR/corpus" > "$TEST_TMPDIR/log" 2>&1 || fail "a harmless corpus must pass"
grep -q '1 corpus files and 0 mutations' "$TEST_TMPDIR/log" || fail "the corpus was not run"

"$fuzzer" -runs=20 -max_total_time=60 -seed=3 > "$TEST_TMPDIR/log" 2>&1 || fail "few runs must pass"
grep -q ' 20 mutations' "$TEST_TMPDIR/log" || fail "-runs was not kept"

if "$fuzzer" -max_total_time=30 -seed=1 "$TEST_TMPDIR/corpus" > "$TEST_TMPDIR/log" 2>&1; then
  fail "the planted fault was not found"
fi
crash=$(ls "$TEST_TMPDIR"/crash-*) || fail "no input was saved"
grep -qF '[[[[' "$crash" || fail "the saved input is not the one that crashed"
if "$fuzzer" "$crash" > "$TEST_TMPDIR/log" 2>&1; then fail "the saved input does not crash"; fi

if "$fuzzer" "$TEST_TMPDIR/nowhere" > "$TEST_TMPDIR/log" 2>&1; then fail "no corpus, no error"; fi
grep -q 'does not exist' "$TEST_TMPDIR/log" || fail "the missing corpus is not named"
