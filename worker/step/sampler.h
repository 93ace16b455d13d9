// The end of a step: from logits to one token per asking row, and to logprobs where somebody asked
// for them.
//
// Logit rows come in two runs: rows to sample first (those that want logprobs last among them),
// then rows whose next token is already known (prompt logprobs). Rows without logprobs cost one
// Sample call and a copy of the token ids. Rows with logprobs are handled in groups of
// kLogprobRows, so that memory does not grow with what is asked: log-softmax of the raw logits
// (before bias and penalties), top k, and the rank of the chosen token, which is 1 + the number of
// strictly likelier tokens.
//
// A step without logprobs can also be only enqueued, and read later: kSteps of them by turns.
//
// Thread rule: one thread (the engine's). Ownership: borrows the device, owns staging and device
// memory, all allocated by Create.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/device.h"
#include "kernels/ops.h"
#include "proto/worker.pb.h"

namespace tessera::worker {

// More alternatives per position than this are refused at submission.
inline constexpr int32_t kMaxTopLogprobs = 100;

// Which ids a sequence contains, kept only where a penalty needs it.
class TokenHistory {
 public:
  void AddPrompt(int32_t id) { Entry(id); }
  void AddOutput(int32_t id) { ++counts_[Entry(id)]; }
  const std::vector<int32_t>& ids() const { return ids_; }        // unique
  const std::vector<int32_t>& counts() const { return counts_; }  // in the output

 private:
  size_t Entry(int32_t id);

  std::vector<int32_t> ids_, counts_;
  std::unordered_map<int32_t, size_t> entry_of_id_;
};

// A row to draw a token from. Borrowed pointers live until Run returns.
struct SampleRequest {
  const v1::SamplingParams* params = nullptr;
  int32_t choice = 0;
  int64_t position = 0;                     // absolute, of the token to draw
  std::span<const int32_t> history_ids;     // where a penalty is on: the sequence's, each once
  std::span<const int32_t> history_counts;  // one per id: how often it is in the output
  std::span<const int32_t> banned;          // ids that cannot be drawn, each once
  // Bit id % 32 of word id / 32: may be drawn; words that are missing are 0. Empty: every id.
  std::span<const int32_t> mask;
  int32_t top_logprobs = -1;             // -1: none
  std::span<const int32_t> logprob_ids;  // with top_logprobs >= 0: below the vocabulary's size
  bool final_row = false;                // wanted too; the sampler leaves it to its caller
};

// A row whose next token is known.
struct ScoreRequest {
  int32_t token_id = 0;
  int32_t top_logprobs = 0;
  // Not 0: the row behind the final norm is part of this sum, counted from 1; the sampler leaves it
  // to its caller.
  int32_t sum = 0;
};

struct SampleResult {
  int32_t token_id = -1;          // or kernels::kLogitsNotFinite, kNothingToPick
  v1::PositionLogprobs logprobs;  // when asked for, and there is a token
  std::vector<float> final_row;   // when asked for: [embedding width], behind the final norm
  std::vector<int32_t> drafts;    // what may follow (draft_runner.h)
};

struct SamplerLimits {
  int64_t max_rows = 256;  // SampleRequests of one step
  int64_t vocabulary = 0;
  int64_t max_sequence_tokens = 0;  // longest history
};

class Sampler {
 public:
  static constexpr int64_t kLogprobRows = 16;
  static constexpr int kSteps = 2;

  static absl::StatusOr<std::unique_ptr<Sampler>> Create(const SamplerLimits& limits,
                                                         kernels::Device& device);
  ~Sampler();

  // logits: [sampled.size() + scored.size(), vocabulary], in that order, overwritten. Requests with
  // logprobs stand behind those without. Blocks until the stream is done; both results have one
  // entry per request. A score of a row whose logits are not finite has a logprob that is not.
  absl::Status Run(const kernels::TensorView& logits, std::span<const SampleRequest> sampled,
                   std::span<const ScoreRequest> scored, kernels::Stream& stream,
                   std::vector<SampleResult>* samples, std::vector<v1::PositionLogprobs>* scores);

  // Whether Enqueue of a sampler with these limits takes them: none wants logprobs, and one Sample
  // call takes all.
  static bool DrawsAtOnce(const SamplerLimits& limits, std::span<const SampleRequest> sampled);
  // Enqueues the drawing of one token per row of logits, [sampled.size(), vocabulary], and its way
  // to the host's place for step `step`, below kSteps; `sampled` is not needed any more. What stood
  // in that place was read, or nobody wants it. Without requests nothing is enqueued.
  absl::Status Enqueue(const kernels::TensorView& logits, std::span<const SampleRequest> sampled,
                       int step, kernels::Stream& stream);
  // What Enqueue drew for `count` requests of that step; after the stream has passed it.
  void Read(int step, size_t count, std::vector<SampleResult>* samples);
  // [max_rows] i32, on the device: the tokens of the last Sample call, in the order of its rows.
  kernels::TensorView drawn() const;

  int64_t device_bytes() const;

 private:
  struct State;
  explicit Sampler(std::unique_ptr<State> state);

  absl::Status DrawGroup(const kernels::TensorView& logits, std::span<const SampleRequest> group,
                         kernels::Stream& stream);
  absl::Status DrawPlain(const kernels::TensorView& logits, std::span<const SampleRequest> plain,
                         kernels::Stream& stream, std::vector<SampleResult>* samples);
  absl::Status DrawWithLogprobs(const kernels::TensorView& logits,
                                std::span<const SampleRequest> group, kernels::Stream& stream,
                                std::vector<SampleResult>* samples);
  absl::Status Score(const kernels::TensorView& logits, std::span<const ScoreRequest> group,
                     kernels::Stream& stream, std::vector<v1::PositionLogprobs>* scores);
  absl::Status EnqueueLogprobs(const kernels::TensorView& logits, int32_t top,
                               kernels::Stream& stream);
  void FillLogprobs(int64_t row, int32_t token_id, int32_t top, v1::PositionLogprobs* out) const;

  std::unique_ptr<State> state_;
};

}  // namespace tessera::worker
