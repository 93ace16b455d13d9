#!/bin/bash
# Whatever is wrong with a command line: exit code 2, and a first line that begins with "tessera: ";
# faults of anything else end with 1.
set -u
failed=0

check() {  # exit code, part of the message, arguments...
  local code=$1 part=$2 said got
  shift 2
  said=$(deploy/tessera "$@" 2>&1 >/dev/null)
  got=$?
  if [ "$got" = "$code" ] && [[ $said == "tessera: "*"$part"* ]]; then
    echo "ok: $*"
  else
    echo "FAILED: tessera $*: $got, not $code, or without \"$part\": $said"
    failed=1
  fi
}

check 2 "a subcommand is needed"
check 2 "no subcommand" foo
check 2 "no flag of tessera plan" plan --foo
check 2 '"-1" is no number from 0 up; see tessera plan --help' plan cluster.yaml --model M --rate -1
check 2 "to is required; see tessera plan diff --help" plan diff a.json
check 2 "plan is required; see tessera simulate --help" simulate
check 2 "see tessera status --help" status --coordinator
check 2 "plan needs a cluster description" plan
check 2 '--max-tpot: "150" has no unit' plan deploy/clusters/one_gpu.yaml --model Llama-3-8B --max-tpot 150
check 2 "no model is named" up
check 1 "nowhere.yaml" plan nowhere.yaml --model Llama-3-8B
check 1 "are asked" plan deploy/clusters/one_gpu.yaml --model Llama-3-8B --objective price --rate 1000
deploy/tessera plan --help > /dev/null && deploy/tessera --version > /dev/null ||
  { echo "FAILED: --help and --version end with 0"; failed=1; }
exit "$failed"
