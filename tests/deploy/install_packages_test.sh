#!/bin/bash
# What quickstart and tests/run say where packages are missing and the user is not root: one line to
# run, with every missing package and no other; silence where none is missing.
set -u
script=$PWD/deploy/install_packages
bin=$TEST_TMPDIR/bin
failed=0

check() {  # what, command...
  local what=$1
  shift
  if "$@"; then echo "ok: $what"; else echo "FAILED: $what"; failed=1; fi
}

mkdir -p "$bin"
printf '#!/bin/sh\necho 1000\n' > "$bin/id"
# Knows every package that it is asked for, but those named in $MISSING.
cat > "$bin/dpkg-query" << 'STUB'
#!/bin/bash
for package in "$@"; do
  [[ $package == --* || " $MISSING " == *" $package "* ]] || echo "ii  $package ${VERSION:-1.83.0}"
done
STUB
printf '#!/bin/sh\necho "apt-get was run" >&2\nexit 1\n' > "$bin/apt-get"
chmod +x "$bin"/*
export PATH=$bin:$PATH TESSERA_SKIP_INSTALL=0

said=$(MISSING="" "$script" 2>&1)
check "nothing missing: 0" [ $? -eq 0 ]
check "and silence" [ -z "$said" ]

line=$(MISSING="catch2 libpcre2-dev" "$script" 2> "$TEST_TMPDIR/why")
check "something missing: 1" [ $? -eq 1 ]
check "one line to run, with what is missing and no more" \
  grep -qxE "sudo apt-get update && sudo apt-get satisfy .* '(libpcre2-dev, catch2|catch2, libpcre2-dev)'" <<< "$line"
check "and why" grep -q "^2 packages are missing" "$TEST_TMPDIR/why"
check "nothing is installed behind the user's back" bash -c '! grep -q "apt-get was run" "$0"' "$TEST_TMPDIR/why"

own="libboost-context-dev libboost-system-dev libboost-dev"
versioned=${own//-dev/1.81-dev}
check "a Boost with its version in its name is enough" env MISSING="$own" "$script"
check "so is the distribution's own" env MISSING="$versioned" "$script"
wanted="'libboost-context1.81-dev | libboost-context-dev (>= 1.81), libboost-system1.81-dev | "
wanted+="libboost-system-dev (>= 1.81), libboost1.81-dev | libboost-dev (>= 1.81)'"
for missing in "$own $versioned" "$versioned"; do
  line=$(MISSING=$missing VERSION=1.74.0.3 "$script" 2> "$TEST_TMPDIR/why")
  check "where there is none, or an old one, apt chooses" grep -qF "$wanted" <<< "$line"
  check "and each line of the list counts once" grep -q "^3 packages are missing" "$TEST_TMPDIR/why"
done

cat > "$bin/apt-get" << 'STUB'
#!/bin/bash
printf '%s\n' "$@" >> "$ASKED"
STUB
printf '#!/bin/sh\necho 0\n' > "$bin/id"
export ASKED=$TEST_TMPDIR/asked
check "root gets them installed" env MISSING="g++ $own $versioned" "$script"
check "in one go, with the choice" grep -qE "^g\+\+, libboost-context1.81-dev \| libboost-context-dev \\(>= 1.81\\), " "$ASKED"

check "left alone where asked" env TESSERA_SKIP_INSTALL=1 MISSING=catch2 "$script"
exit "$failed"
