#!/bin/bash
# deploy/install_cuda in a checkout of its own, with wheels made here: what it shows, installs and refuses. Offline.
set -u
checkout=$TEST_TMPDIR/checkout
wheels=$TEST_TMPDIR/wheels
target=$checkout/.cache/cuda-13.0
failed=0

check() {  # what, command...
  local what=$1
  shift
  if "$@"; then echo "ok: $what"; else echo "FAILED: $what"; failed=1; fi
}

mkdir -p "$checkout/deploy" "$wheels"
cp deploy/install_cuda "$checkout/deploy/"
check "the list names seven wheels with their hashes" \
  [ "$(grep -cE '^nvidia[a-z0-9-]+ +[0-9.]+ +[0-9a-f]{64} +(build|runtime)$' deploy/cuda_wheels.txt)" -eq 7 ]

python3 - "$wheels" "$checkout/deploy/cuda_wheels.txt" << 'MAKE'
import hashlib, pathlib, sys, zipfile
folder, rows = pathlib.Path(sys.argv[1]), []
for package, member, group in (("nvidia-cuda-nvcc", "nvidia/cu13/bin/nvcc", "build"),
                               ("nvidia-nccl-cu13", "nvidia/nccl/lib/libnccl.so.2", "runtime")):
    wheel = folder / f"{package.replace('-', '_')}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        info = zipfile.ZipInfo(member)
        info.external_attr = 0o755 << 16
        archive.writestr(info, "#!/bin/sh\necho compiles\n")
    rows.append(f"{package} 1.0 {hashlib.sha256(wheel.read_bytes()).hexdigest()} {group}")
pathlib.Path(sys.argv[2]).write_text("# made\n" + "\n".join(rows) + "\n")
MAKE
install() { "$checkout/deploy/install_cuda" "$@" > "$TEST_TMPDIR/out" 2> "$TEST_TMPDIR/err"; }

install --dry-run
check "a dry run ends with 0" [ $? -eq 0 ]
check "it shows sizes and free space" grep -qE "104 MB from PyPI, .* [0-9]+ MB are free" "$TEST_TMPDIR/out"
check "and the licence" grep -q "docs.nvidia.com/cuda/eula" "$TEST_TMPDIR/out"
check "and installs nothing" [ ! -e "$checkout/.cache" ]

install --wheels "$wheels"
check "from a folder of wheels: 0" [ $? -eq 0 ]
check "nvcc is there and runs" [ "$("$target/nvidia/cu13/bin/nvcc")" = compiles ]
check "what only running needs is left out" [ ! -e "$target/nvidia/nccl" ]
install --wheels "$wheels" --runtime
check "with --runtime it is there, too" [ -e "$target/nvidia/nccl/lib/libnccl.so.2" ]

echo x >> "$wheels/nvidia_nccl_cu13-1.0-py3-none-any.whl"
install --wheels "$wheels" --runtime
check "another file than the list's is refused" [ $? -eq 1 ]
check "by name and hash" grep -qE "nvidia_nccl_cu13.*SHA-256 is [0-9a-f]{64}, not" "$TEST_TMPDIR/err"
check "and what was installed stays" [ -x "$target/nvidia/cu13/bin/nvcc" ]
rm "$wheels"/nvidia_cuda_nvcc*
install --wheels "$wheels"
check "a wheel that is missing is named" grep -q "no wheel nvidia_cuda_nvcc-1.0-\*.whl" "$TEST_TMPDIR/err"
install --wheels /nowhere
check "a folder that is not there is named" grep -q -- "--wheels /nowhere" "$TEST_TMPDIR/err"
check "nothing half made is left" [ "$(ls "$checkout/.cache")" = cuda-13.0 ]
exit "$failed"
