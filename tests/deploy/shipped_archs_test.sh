#!/bin/bash
# What is compiled for all GPUs: each that a worker takes has code of its own or PTX that its driver compiles, and those
# that many have wait for no compiler.
set -u
archs=$(sed -n 's/^_DEFAULT_ARCHS = "\(.*\)"$/\1/p' third_party/cuda/configure.bzl)
ptx=$(sed -n 's/^_PTX_ARCH = "\(.*\)"$/\1/p' third_party/cuda/defs.bzl)
known=$(sed -n 's/^known="\(.*\)"$/\1/p' deploy/cuda_archs)
failed=0

check() {  # what, wanted, got
  if [ "$2" = "$3" ]; then echo "ok: $1"; else echo "FAILED: $1: $3, not $2"; failed=1; fi
}

# Code runs on the GPUs of its major version that are no older; PTX on all that are no older.
what_runs_on() {
  local arch
  for arch in ${archs//,/ }; do
    if [ $((arch / 10)) -eq $(($1 / 10)) ] && [ "$arch" -le "$1" ]; then echo code; return; fi
  done
  if [ "$ptx" -le "$1" ]; then echo PTX; else echo nothing; fi
}

[ -n "$archs" ] && [ -n "$ptx" ] && [ -n "$known" ] || { echo "FAILED: what is compiled is not found"; exit 1; }
for capability in 75 80 86 89 90 100 103 120 121; do
  check "$capability" code "$(what_runs_on "$capability")"
done
for capability in $known; do
  check "$capability, which the compiler knows, has something" "" "$(what_runs_on "$capability" | grep nothing)"
done
check "what comes after them" PTX "$(what_runs_on 130)"
check "what no worker takes" nothing "$(what_runs_on 70)"
exit "$failed"
