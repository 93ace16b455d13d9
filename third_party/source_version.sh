#!/bin/sh
# Bazel runs this before every build (--workspace_status_command in .bazelrc). It names the sources
# that decide what our programs do by a hash of their content, so that two builds have the same
# version exactly when they come from the same sources: of a clone, of a tarball without git, with
# or without changes that nobody committed. Only the action that reads stable-status.txt
# (//proto:build_version) runs again when it changes.
set -eu

cd "$(dirname "$0")/.."
hash=$({
  find coordinator deploy kernels kvcache proto scheduler third_party worker -type f \
    \( -name '*.cc' -o -name '*.h' -o -name '*.cu' -o -name '*.cuh' -o -name '*.proto' \
    -o -name '*.bzl' -o -name 'BUILD.bazel' \) -print0
  printf '.bazelrc\0WORKSPACE\0'
} | LC_ALL=C sort -z | xargs -0 sha256sum | sha256sum | cut -c1-12)
echo "STABLE_TESSERA_SOURCES $hash"
