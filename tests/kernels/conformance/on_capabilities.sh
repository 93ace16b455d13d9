#!/bin/bash
# on_capabilities.sh CAPABILITY... -- PROGRAM[=FILTER]...
#
# Runs test programs on the emulated GPU of each capability; FILTER is Catch's.
set -euo pipefail

unset XML_OUTPUT_FILE # each program would write it anew
capabilities=()
while [ "$1" != -- ]; do
  capabilities+=("$1")
  shift
done
shift

for capability in "${capabilities[@]}"; do
  for program in "$@"; do
    filter=()
    [[ $program == *=* ]] && filter=("${program#*=}")
    echo "capability $capability: $program"
    CUDA_TEST_DEVICE=cuda-emulated-$capability "${program%%=*}" --warn NoTests "${filter[@]}"
  done
done
