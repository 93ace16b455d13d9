#!/bin/bash
# third_party/bazel keeps a disk cache by default, lets others choose it, and bounds its size.
#
#   disk_cache_test.sh third_party/bazel third_party/trim_disk_cache
set -u
mkdir -p "$TEST_TMPDIR/checkout/third_party" "$TEST_TMPDIR/bin" "$TEST_TMPDIR/home"
cp "$1" "$2" "$TEST_TMPDIR/checkout/third_party/" || exit 1
cd "$TEST_TMPDIR" || exit 1

# Bazel that prints its arguments.
printf '#!/bin/bash\necho "$*"\n' > bin/bazel
chmod +x bin/bazel
export PATH=$PWD/bin:$PATH HOME=$PWD/home
unset XDG_CACHE_HOME BAZEL_DISK_CACHE BAZEL_DISK_CACHE_GB

# expect NAME PATTERN ARGUMENT...: what Bazel gets for these arguments.
expect() {
  local name=$1 pattern=$2 got
  shift 2
  got=$(./checkout/third_party/bazel "$@")
  if ! [[ "$got" =~ $pattern ]]; then
    echo "FAILED: $name: bazel gets \"$got\", expected $pattern"
    touch failed
  fi
}

cache="--disk_cache=$PWD/home/.cache/tessera-bazel-disk/[0-9a-f]{16}"
expect "a cache by default" "^build $cache //a //b\$" build //a //b
expect "behind startup options" "^--batch test $cache //a\$" --batch test //a
expect "not for a query" '^query //a$' query //a
expect "no arguments" '^$'
expect "one on the command line wins" '^build //a --disk_cache=/x$' build //a --disk_cache=/x
BAZEL_DISK_CACHE=off expect "switched off" '^build //a$' build //a
BAZEL_DISK_CACHE=$PWD/moved expect "moved" "^build --disk_cache=$PWD/moved/[0-9a-f]{16} //a\$" build //a
echo 'build --disk_cache=/mine' > checkout/.bazelrc.user
expect "one in .bazelrc.user wins" '^build //a$' build //a
echo '# build --disk_cache=/mine' > checkout/.bazelrc.user
expect "unless it is a comment" "^build $cache //a\$" build //a
rm checkout/.bazelrc.user

# file NAME HOURS: 400 MB that nobody read for so long.
file() {
  truncate -s 400MB "cache/cas/$1" && touch -d "$2 hours ago" "cache/cas/$1"
}
mkdir -p cache/cas
file oldest 90
file old 60
file recent 30
truncate -s 400MB cache/cas/being_written
./checkout/third_party/trim_disk_cache cache 2
[ "$(ls cache/cas | wc -l)" -eq 4 ] || { echo "FAILED: trimmed below its size"; touch failed; }
./checkout/third_party/trim_disk_cache cache 1
[ "$(ls cache/cas | wc -l)" -eq 4 ] || { echo "FAILED: trimmed twice in an hour"; touch failed; }
touch -d "61 minutes ago" cache/trimmed
./checkout/third_party/trim_disk_cache cache 1
if [ "$(ls cache/cas | tr '\n' ' ')" != "being_written recent " ]; then
  echo "FAILED: of 1.6 GB, what was read last should stay within 0.8 GB: $(ls cache/cas)"
  touch failed
fi
touch -d "61 minutes ago" cache/trimmed
./checkout/third_party/trim_disk_cache cache 0
[ "$(ls cache/cas)" = being_written ] || { echo "FAILED: a new file was deleted"; touch failed; }
./checkout/third_party/trim_disk_cache cache 1.5 2> /dev/null && { echo "FAILED: 1.5 GB"; touch failed; }

[ ! -e failed ]
