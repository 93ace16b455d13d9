// What is counted about requests, under vLLM's metric names where the meaning is equal (label
// model_name), and tessera_ names elsewhere. An engine's series have the label `engine`, which is
// the replica; their sums over all engines, without that label, have tessera_ names of their own,
// so that a sum over a name counts nothing twice. One registry per process. Thread rule:
// thread-safe. The registry must outlive it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "coordinator/flow/draft_counts.h"
#include "proto/worker.pb.h"

namespace prometheus {
class Registry;
struct MetricFamily;
}  // namespace prometheus

namespace tessera::coordinator {

// One request that was answered.
struct AnsweredRequest {
  double since_arrival_seconds = 0;
  double since_first_token_seconds = 0;
  double prefill_seconds = 0;  // from the first step to the first token
  int64_t prompt_tokens = 0;
  int32_t choice_count = 1;
  int32_t max_tokens = 0;
};

// One choice that ended.
struct EndedChoice {
  const char* finished_reason = "stop";  // stop, length, abort, error
  int64_t tokens = 0;                    // generated
  double decode_seconds = 0;             // from its first to its last token
};

class RequestMetrics {
 public:
  // `max_model_len_tokens` bounds the buckets of token counts.
  RequestMetrics(prometheus::Registry& registry, const std::string& model_name,
                 int64_t max_model_len_tokens);
  ~RequestMetrics();

  void OnFirstToken(double since_arrival_seconds, double queue_seconds, double prefill_seconds);
  void OnLaterToken(double gap_seconds);
  void OnChoiceEnd(const EndedChoice& choice);
  void OnRequestEnd(const AnsweredRequest& request);
  // A request that no generation was started for, that every queue had no room for, or
  // (DEADLINE_EXCEEDED) that no replica began in time.
  void OnRefused(absl::StatusCode code);
  void OnMigration();
  // Makes the series of an engine, with zeros, where there are none yet.
  void OnReplicaKnown(const std::string& engine);
  // The engine's own counters, as its newest reply tells them.
  void OnEngineLoad(const std::string& engine, const v1::EngineLoad& load);
  // Drafts of all engines, from what OnEngineLoad was given.
  DraftCounts draft_counts() const;
  // The families of times to first tokens, between tokens and of whole requests, which a collection
  // of the registry has among those of every engine.
  void AddLatencies(std::vector<prometheus::MetricFamily>* families) const;
  // How many sequences the engine has now that have not ended: the newest reply may be from before
  // some of them came or went. Those that waited then are taken to wait still.
  void OnSequences(const std::string& engine, int64_t open);
  void OnReplicaReady(const std::string& engine, int32_t block_tokens, int32_t kv_blocks);
  void OnReplicaLost(const std::string& engine);

 private:
  struct Families;
  std::unique_ptr<Families> families_;
};

}  // namespace tessera::coordinator
