// A request as the simulator sees it, and what became of it.
//
// Thread rule: plain values. Units: seconds since the start of the simulation, tokens.
#pragma once

#include <cstdint>

namespace tessera::scheduler {

struct SimulatedRequest {
  double arrival_seconds = 0;
  int64_t prompt_tokens = 1;         // >= 1
  int64_t output_tokens = 1;         // that it will get, >= 1; the router does not know them
  int64_t max_tokens = 0;            // that it asks for, which the router knows; 0: output_tokens
  int64_t cached_prompt_tokens = 0;  // found in a prefix cache; only whole blocks count
  double rank = 0;                   // a replica serves lower ones first; equal ones by arrival
  int32_t request_class = 0;         // of the workload
  int64_t workflow = -1;             // of which it is a call; -1: none
  int32_t stage = 0;                 // of the workflow
  // The simulation's, when a replica is chosen for it.
  int32_t attempts = 0;        // submissions so far
  int64_t emitted_tokens = 0;  // by these

  int64_t asked_tokens() const { return max_tokens > 0 ? max_tokens : output_tokens; }
};

enum class Fate { kOpen, kFinished, kFailed };

struct RequestOutcome {
  Fate fate = Fate::kOpen;
  double started_seconds = -1;      // admitted to its first step; -1: not yet
  double first_token_seconds = -1;  // -1: not yet
  double finished_seconds = -1;     // last token, or the failure; -1: open
  // When the setup's limits passed before its first token, and before its last; -1: they did not.
  double first_token_missed_seconds = -1;
  double last_token_missed_seconds = -1;
  int64_t output_tokens = 0;     // emitted
  int32_t prefill_replica = -1;  // of the last attempt
  int32_t decode_replica = -1;
  int32_t attempts = 0;     // submissions; more than one after a loss
  int32_t preemptions = 0;  // times its blocks were taken and its tokens computed again

  double ttft_seconds(const SimulatedRequest& r) const {
    return first_token_seconds - r.arrival_seconds;
  }
  // Mean gap between its tokens; 0 for a single token.
  double tpot_seconds() const {
    return output_tokens > 1
               ? (finished_seconds - first_token_seconds) / static_cast<double>(output_tokens - 1)
               : 0;
  }
  double end_to_end_seconds(const SimulatedRequest& r) const {
    return finished_seconds - r.arrival_seconds;
  }
};

}  // namespace tessera::scheduler
