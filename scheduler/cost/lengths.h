// What the cost model needs to know of the lengths of requests: expectations over their joint
// distribution.
//
// A request of `prompt` tokens and `output` tokens decodes o = output - 1 steps (its first token
// comes from prefill), at contexts that grow from prompt by one per step. Thread rule: pure
// functions. Units: tokens.
#pragma once

#include <cstdint>
#include <span>

namespace tessera::scheduler {

struct RequestLengths {
  double prompt_tokens = 0;
  double output_tokens = 1;
  double weight = 1;           // relative frequency
  double prefix_hit_rate = 0;  // part of the prompt that a prefix cache has
};

struct LengthMoments {
  double prompt_tokens = 0;           // E[in]
  double uncached_prompt_tokens = 0;  // E[q], q = in * (1 - prefix_hit_rate)
  double prefill_pairs = 0;           // E[q*c + q^2/2], c = in - q: attention work of a prompt
  double output_tokens = 0;           // E[out]
  double decode_steps = 0;            // E[o]
  double decode_context_sum = 0;   // E[in*o + o^2/2]: KV tokens read over a request's decode steps
  double max_sequence_tokens = 0;  // longest in + out

  // The mean context of a decode row in steady state. Long outputs are seen more often than short
  // ones.
  double mean_decode_context() const {
    return decode_steps > 0 ? decode_context_sum / decode_steps : prompt_tokens;
  }
};

// All zero for no samples or no weight.
LengthMoments MomentsOf(std::span<const RequestLengths> samples);

// Moments of a mixture of two populations with these weights (rates).
LengthMoments Mix(const LengthMoments& a, double weight_a, const LengthMoments& b, double weight_b);

}  // namespace tessera::scheduler
