// From a Submit message to a checked Submission: what a request may ask of this engine.
//
// Thread rule: pure functions. Errors (InvalidArgument) name the field, its value and the limit.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "proto/worker.pb.h"
#include "scheduler/batcher.h"
#include "worker/drafts/draft_source.h"
#include "worker/engine/sequence.h"

namespace tessera::worker {

// Choices of one submission; more are refused.
inline constexpr int32_t kMaxChoices = 128;

// Layers that see only the last `tokens` tokens, where they keep those in blocks of their own
// (proto/layers/kv_sizes.h). tokens 0: they do not, or there are none.
struct WindowLimits {
  int64_t tokens = 0;
  // The size of the window pool: WindowBlocksFor one sequence at least, or as many as there are
  // others.
  int64_t total_blocks = 0;
};

struct EngineOptions {
  scheduler::BatchLimits limits;
  int64_t vocabulary = 0;
  int64_t max_model_len_tokens = 0;  // longest sequence, prompt and output
  int64_t max_waiting = 1024;        // submissions queued; more are refused
  bool prefix_cache = true;
  WindowLimits window;
  // Where layers keep a state of each sequence (proto/layers/kv_sizes.h); 0: none does.
  int64_t seats = 0;
  // As many of these states as may be kept for later prompts (kvcache/snapshot_index.h). 0:
  // nothing of a prompt is shared where layers keep states, because blocks are of no use without
  // the state behind them.
  int64_t snapshots = 0;
  // Places for states on their way between replicas (worker/step/state_exchange.h).
  int64_t exchanges = 0;
  // Models with dynamic rope scaling: length up to which a token's rotation does not depend on the
  // length of its sequence, so that blocks may be shared; 0: the model has no such scaling.
  int64_t dynamic_rope_original_tokens = 0;
  std::vector<int32_t> eos_token_ids;
  // Makes the source of drafts: max_drafts (kMaxDrafts at most) of a sequence in a step. Null:
  // nothing is drafted.
  DraftSourceFactory draft_source;
  int64_t max_drafts = kMaxDrafts;
  // The model's own head, or a draft model, proposes max_drafts behind each step at most.
  bool head_drafts = false;
  bool all_drafts = false;  // try as many as are proposed, not as many as pay (draft_lengths.h)
};

// Longest sequence that can be held: the context or the whole pool, whichever is shorter.
int64_t LongestSequence(const EngineOptions& options);

absl::Status CheckSubmit(const v1::Submit& submit, const EngineOptions& options);
absl::Status CheckReserve(const v1::Reserve& reserve, const EngineOptions& options);

// Where blocks of a prompt may be shared: how many of its tokens, from the start, and under which
// salt of the prefix index. KV that was rounded on its way has a salt of its own.
struct Sharing {
  int64_t indexed_tokens = 0;  // 0: none
  std::string salt;
};
Sharing SharingOf(const EngineOptions& options, int64_t prompt_tokens,
                  const std::string& cache_salt, v1::KvCodec codec);

// `submit` has passed CheckSubmit. `arrival` counts submissions, so it names this one within the
// engine's life.
std::shared_ptr<Submission> MakeSubmission(v1::Submit submit, const EngineOptions& options,
                                           uint64_t arrival, uint64_t turn, double now_seconds);

// One choice of it, ready to wait.
std::unique_ptr<Sequence> MakeSequence(const std::shared_ptr<Submission>& submission,
                                       int32_t choice, const KvPools& pools);

}  // namespace tessera::worker
