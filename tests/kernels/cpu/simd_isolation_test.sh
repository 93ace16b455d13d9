#!/bin/bash
# No function compiled for a wide instruction set may be shared with code that every processor runs: the
# libraries that come with this test must define no weak symbol, because a linker keeps any one copy of
# those. Only optimised builds are judged: elsewhere even what is meant to be inlined gets a copy.
set -euo pipefail

if [ "${1:-}" = --unoptimised ]; then
  echo "not an optimised build: nothing to judge"
  exit 0
fi

weak='^[0-9a-f]+ [WuV] '
failed=0
count=0
while IFS= read -r library; do
  count=$((count + 1))
  listing=$(nm -C --defined-only "$library")
  if ! grep -qE ' [TDR] .*tessera' <<< "$listing"; then
    echo "$library defines nothing of ours: is it what this test thinks it is?"
    failed=1
  fi
  if grep -E "$weak" <<< "$listing"; then
    echo "$library: the symbols above are weak; give them internal linkage or always inline them"
    failed=1
  fi
done < <(find -L . -name '*.a')

if [ "$count" -ne 7 ]; then
  echo "found $count libraries instead of 7"
  failed=1
fi
exit $failed
