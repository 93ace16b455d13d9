#!/bin/bash
# build_with_progress shows done / total and the minutes left; a failure shows the log's end and keeps
# Bazel's exit code.
set -u
mkdir -p "$TEST_TMPDIR/checkout/deploy" "$TEST_TMPDIR/checkout/third_party" || exit 1
cp "$1" "$TEST_TMPDIR/checkout/deploy/build_with_progress" || exit 1
cd "$TEST_TMPDIR/checkout" || exit 1

# Bazel that says what it is given, then what is on stdin.
fake_bazel() {
  { echo '#!/bin/bash'; echo 'echo "INFO: $*"'; cat; } > third_party/bazel
  chmod +x third_party/bazel
}

# expect NAME EXIT_CODE PATTERN: of all that is printed.
expect() {
  local output code
  output=$(PROGRESS_SECONDS=${every:-0} ./deploy/build_with_progress //a //b 2>&1)
  code=$?
  if [ $code -ne "$2" ] || ! [[ "$output" =~ $3 ]]; then
    echo "FAILED: $1: exit code $code (expected $2), output (expected $3):"
    echo "$output"
    touch failed
  fi
}

# The second line comes at least 1 s after the first, so that there is a pace to estimate from.
fake_bazel << 'END'
echo "[100 / 1,290] Compiling a.cc; 3s processwrapper-sandbox ... (2 actions running)" >&2
until [ $SECONDS -ge 2 ]; do read -rt 0.2 < <(:) || true; done
echo "[190 / 1,290] Compiling b.cc; 0s processwrapper-sandbox" >&2
echo "INFO: Build completed successfully, 393 total actions" >&2
END
expect "progress" 0 '^building: 100 / 1290 actions
building: 190 / 1290 actions, [0-9]+ minutes? left$'
every=1000 expect "not at each line" 0 '^building: 100 / 1290 actions$'

fake_bazel << 'END'
echo "[1 / 20] Compiling a.cc; 3s processwrapper-sandbox" >&2
echo "ERROR: a.cc:1: expected ;" >&2
exit 37
END
expect "a failure" 37 'building: 1 / 20 actions
The build failed; its last lines:
INFO: build //a //b
ERROR: a.cc:1: expected ;$'

fake_bazel << 'END'
echo "INFO: Build completed successfully, 1 total action" >&2
END
expect "nothing to do" 0 '^$'

[ ! -e failed ]
