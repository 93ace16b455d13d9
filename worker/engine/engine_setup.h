// From a Configure message to a running engine, or to a member of another's replica: check, load
// this worker's share, size and allocate the KV pool, join the other workers, warm up.
//
// Thread rule: one call at a time, on the thread of the caller; blocks for as long as loading and
// joining take. Errors name what does not fit: the checkpoint (fingerprint), a data type, memory
// (bytes wanted and there), or the member that did not join.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/device.h"
#include "proto/worker.pb.h"
#include "worker/engine/engine.h"
#include "worker/engine/kv_mover.h"
#include "worker/formation/formation.h"
#include "worker/formation/member.h"
#include "worker/model/loaded_share.h"
#include "worker/model/model.h"
#include "worker/model/model_dtypes.h"
#include "worker/step/stage.h"

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
  std::string kernel_path;   // for WorkerReady
  std::string model_folder;  // of the checkpoint on this machine; empty: as Configure says
  ModelLoader load_model;
  FingerprintReader fingerprint;
  Engine::Clock clock;
  int64_t kv_cache_bytes =
      0;  // --kv-cache-memory-bytes, where Configure does not say; 0: see KvPoolBytes (kv_pool.h)
  int64_t state_cache_bytes = 0;  // of host memory, for states of prompts (state_cache_size.h)
  // Bytes that the machine can still give to anybody, for a pool whose size nobody gave. Null: all.
  std::function<int64_t()> memory_left;
  // The device's memory is nobody else's: such a pool takes all that weights, activations and steps
  // (MeasureStepMemory) leave of it, instead of half.
  bool pool_takes_rest = false;
  double max_stall_seconds = 30;
  // Joins the other workers of a replica (Formation::Join); `kv`: blocks and seats of this worker's
  // pool. Null: a replica of several workers is refused.
  std::function<absl::StatusOr<std::unique_ptr<Formation>>(const v1::ConfigureRequest& request,
                                                           KvBlocks kv, const FormationTimes& times,
                                                           const JoinWatch& watch)>
      join;
  FormationTimes formation_times;
  StageMaker make_stage;            // of a device that computes nothing; null: StageRunner
  DraftSourceFactory draft_source;  // in place of the request's, which must name one; null: that
  KvPortOpener open_kv_port;        // null: KV goes to no other replica, and comes from none
  // What KV on its way has taken of the device's memory already.
  int64_t kv_staging_bytes = 0;
};

// What one call of SetUpEngine is given beside the request.
struct SetupCall {
  SetupProgress progress;
  // True ends the wait for other workers. Null: never.
  std::function<bool()> cancelled;
  // Called once, from a thread of the engine or member, when the replica's workers can run no more
  // steps together. May be empty.
  std::function<void(const absl::Status& reason)> on_broken;
  // What an earlier call loaded for a request of equal ShareTerms; its user has ended. Null: load.
  std::shared_ptr<LoadedShare> loaded;
  // Hears of the share as soon as it is loaded, also where joining fails later. May be empty.
  std::function<void(std::shared_ptr<LoadedShare>)> on_loaded;
  // As in StageOptions, of every step of what is set up. Null: not counted.
  std::atomic<int64_t>* busy_nanoseconds = nullptr;
};

// Either `engine` (a leader, or a worker alone) or `member` is there.
struct ConfiguredEngine {
  std::shared_ptr<Engine> engine;
  std::unique_ptr<Member> member;
  v1::WorkerReady ready;
};

absl::StatusOr<ConfiguredEngine> SetUpEngine(const v1::ConfigureRequest& request,
                                             const SetupOptions& options, const SetupCall& call);

// The part of a request that decides what is loaded: a LoadedShare serves every request of equal
// terms, whatever the plan around it.
v1::ConfigureRequest ShareTerms(const v1::ConfigureRequest& request);

// Limits and sizes of the request, zeros replaced by defaults: 64 tokens per block, 256 sequences,
// 2048 rows of a step, 1024 waiting, the model's own context. Blocks are not known yet.
// InvalidArgument for impossible values.
absl::StatusOr<EngineOptions> ReadEngineOptions(const v1::ConfigureRequest& request);

// Stored and computed types: asked ones, or those that the checkpoint suggests, of those that the
// device computes in (see ResolveDTypes). InvalidArgument for a type that is not supported there.
absl::StatusOr<ModelOptions> ReadModelOptions(const v1::ConfigureRequest& request,
                                              const HalfTypes& computed = {});

}  // namespace tessera::worker
