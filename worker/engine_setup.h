// From a Configure message to a running engine: check, load the model, size and allocate the KV
// pool, warm up.
//
// Thread rule: one call at a time, on the thread of the caller; blocks for as long as loading
// takes. Errors name what does not fit: the checkpoint (fingerprint), a data type, or memory (bytes
// wanted and there).
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/device.h"
#include "proto/worker.pb.h"
#include "worker/engine.h"
#include "worker/model.h"

namespace tessera::worker {

using ModelLoader = std::function<absl::StatusOr<std::unique_ptr<Model>>(
    const ModelOptions&, kernels::Device&, const std::function<void(int64_t, int64_t)>&)>;
using FingerprintReader =
    std::function<absl::StatusOr<std::string>(const std::filesystem::path& folder)>;
// Phase in progress, and how much of it is done where that is known.
using SetupProgress =
    std::function<void(const std::string& phase, int64_t bytes_done, int64_t bytes_total)>;

struct SetupOptions {
  kernels::Device* device = nullptr;
  std::string kernel_path;  // for WorkerReady
  ModelLoader load_model;
  FingerprintReader fingerprint;
  Engine::Clock clock;
  int64_t kv_cache_bytes =
      0;  // --kv-cache-memory-bytes, where Configure does not say; 0: see KvPoolBytes
  // Bytes that the machine can still give to anybody, for a pool whose size nobody gave. Null: all.
  std::function<int64_t()> memory_left;
  double max_stall_seconds = 30;
};

struct ConfiguredEngine {
  std::shared_ptr<Engine> engine;
  v1::WorkerReady ready;
};

absl::StatusOr<ConfiguredEngine> SetUpEngine(const v1::ConfigureRequest& request,
                                             const SetupOptions& options,
                                             const SetupProgress& progress);

// Limits and sizes of the request, zeros replaced by defaults: 64 tokens per block, 256 sequences,
// 2048 rows of a step, 1024 waiting, the model's own context. Blocks are not known yet.
// InvalidArgument for impossible values.
absl::StatusOr<EngineOptions> ReadEngineOptions(const v1::ConfigureRequest& request);

// Stored and computed types: asked ones, or those the checkpoint suggests (float16 is computed in
// float32, which loses nothing). InvalidArgument for a type that is not supported there.
absl::StatusOr<ModelOptions> ReadModelOptions(const v1::ConfigureRequest& request);

// Bytes for KV where nobody said: half of what the device and its machine have left, at most what
// max_sequences sequences of full length need.
int64_t KvPoolBytes(int64_t left_bytes, int64_t block_bytes, const EngineOptions& options);

}  // namespace tessera::worker
