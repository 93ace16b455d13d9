// What is counted about requests, under vLLM's metric names where the meaning is equal (label
// model_name), and tessera_ names elsewhere. One registry per process. Thread rule: thread-safe.
// The registry must outlive it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "proto/worker.pb.h"

namespace prometheus {
class Registry;
}

namespace tessera::coordinator {

class RequestMetrics {
 public:
  RequestMetrics(prometheus::Registry& registry, const std::string& model_name);
  ~RequestMetrics();

  void OnFirstToken(double since_arrival_seconds, double queue_seconds, double prefill_seconds);
  void OnLaterToken(double gap_seconds);
  // `finished_reason`: stop, length, abort, error. Once per choice.
  void OnChoiceEnd(const std::string& finished_reason);
  void OnRequestEnd(double since_arrival_seconds, double since_first_token_seconds);
  void OnMigration();
  // The engine's own counters, as its newest reply tells them. `engine` is the replica.
  void OnEngineLoad(const std::string& engine, const v1::EngineLoad& load);
  void OnReplicaReady(const std::string& engine, int32_t block_tokens, int32_t kv_blocks);
  void OnReplicaLost(const std::string& engine);

 private:
  struct Families;
  std::unique_ptr<Families> families_;
};

}  // namespace tessera::coordinator
