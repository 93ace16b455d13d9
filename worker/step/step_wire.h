// Steps and their results as messages: what a leader sends to the other workers of its replica and
// what the worker that samples answers (proto/worker.proto, StepDescriptor and StepResult).
//
// Thread rule: pure functions; a ReceivedStep belongs to one thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "proto/worker.pb.h"
#include "worker/step/step_arrays.h"
#include "worker/step/step_executor.h"

namespace tessera::worker {

// Overwrites `descriptor`, whose memory is reused; its fence and number are the caller's. Where
// masks are not made yet, rows that have one lack it and their bans.
void WriteDescriptor(const StepWork& work, v1::StepDescriptor* descriptor);
// What those rows lack, once the masks are made; `masks` has nothing else but the caller's number.
void WriteMasks(const StepWork& work, v1::StepDescriptor* masks);

// A step that came as a message. Its memory is reused from step to step.
class ReceivedStep {
 public:
  // `kv_blocks`, of `block_tokens` tokens, are what the replica's pool has.
  ReceivedStep(const StepLimits& limits, KvBlocks kv_blocks, int64_t block_tokens)
      : arrays_(limits), kv_blocks_(kv_blocks), block_tokens_(block_tokens) {}

  // To parse into, before Check.
  v1::StepDescriptor* descriptor() { return &descriptor_; }
  // InvalidArgument, naming the field, for a message that is no step of these limits.
  absl::Status Check();
  // Masks and bans of the step in hand, as WriteMasks wrote them. InvalidArgument for other ones.
  absl::Status TakeMasks(const std::string& message);
  // The work of the descriptor that Check accepted; borrows from this object until the next one is
  // parsed.
  StepWork work() const {
    return {&arrays_, samples_, scores_, pushes_, restores_, saves_, descriptor_.draft_tokens()};
  }

 private:
  absl::Status CheckPushes();

  v1::StepDescriptor descriptor_, masks_;
  StepArrays arrays_;
  const KvBlocks kv_blocks_;
  const int64_t block_tokens_;
  std::vector<SampleRequest> samples_;
  std::vector<ScoreRequest> scores_;
  std::vector<KvPush> pushes_;
  std::vector<StateCopy> restores_, saves_;  // places are checked where they are (state_store.h)
};

void WriteResult(uint64_t step, StepOutcome outcome, v1::StepResult* result);
// The outcome of a step of `samples` and `scores` requests; an error that the other worker reports,
// or InvalidArgument where the counts differ.
absl::Status ReadResult(v1::StepResult result, size_t samples, size_t scores, StepOutcome* outcome);

}  // namespace tessera::worker
