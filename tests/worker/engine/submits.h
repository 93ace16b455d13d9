// Small options of an engine, and submissions to it.
#pragma once

#include <cstdint>
#include <vector>

#include "proto/worker.pb.h"
#include "worker/engine/engine_admission.h"

namespace tessera::worker {

inline EngineOptions SmallOptions() {
  EngineOptions options;
  options.limits = {32, 8, 8, 4, 64};
  options.vocabulary = 50;
  options.max_model_len_tokens = 200;
  options.max_waiting = 1000;
  return options;
}

inline std::vector<int32_t> Prompt(int64_t length, uint32_t seed, int64_t vocabulary = 50) {
  std::vector<int32_t> tokens(length);
  uint32_t state = seed * 2654435761u + 1;
  for (int32_t& token : tokens) {
    state = state * 1664525u + 1013904223u;
    token = static_cast<int32_t>((state >> 8) % vocabulary);
  }
  return tokens;
}

inline v1::Submit MakeSubmit(uint64_t id, const std::vector<int32_t>& prompt, int32_t max_tokens,
                             int32_t priority = 0) {
  v1::Submit submit;
  submit.set_submission_id(id);
  submit.set_attempt(1);
  submit.mutable_prompt_token_ids()->Add(prompt.begin(), prompt.end());
  submit.set_choice_count(1);
  submit.set_max_tokens(max_tokens);
  submit.set_priority(priority);
  submit.set_top_logprobs(-1);
  submit.set_prompt_logprobs(-1);
  return submit;
}

}  // namespace tessera::worker
