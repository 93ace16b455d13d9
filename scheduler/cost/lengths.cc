#include "scheduler/cost/lengths.h"

#include <algorithm>

namespace tessera::scheduler {

LengthMoments MomentsOf(std::span<const RequestLengths> samples) {
  LengthMoments m;
  double weight = 0;
  for (const RequestLengths& s : samples) {
    const double in = s.prompt_tokens;
    const double q = in * (1 - s.prefix_hit_rate);
    const double o = std::max(0.0, s.output_tokens - 1);
    m.prompt_tokens += s.weight * in;
    m.uncached_prompt_tokens += s.weight * q;
    m.prefill_pairs += s.weight * (q * (in - q) + q * q / 2);
    m.output_tokens += s.weight * s.output_tokens;
    m.decode_steps += s.weight * o;
    m.decode_context_sum += s.weight * (in * o + o * o / 2);
    if (s.weight > 0) m.max_sequence_tokens = std::max(m.max_sequence_tokens, in + s.output_tokens);
    weight += s.weight;
  }
  if (weight <= 0) return {};
  for (double* sum : {&m.prompt_tokens, &m.uncached_prompt_tokens, &m.prefill_pairs,
                      &m.output_tokens, &m.decode_steps, &m.decode_context_sum}) {
    *sum /= weight;
  }
  return m;
}

LengthMoments Mix(const LengthMoments& a, double weight_a, const LengthMoments& b,
                  double weight_b) {
  const double sum = weight_a + weight_b;
  if (sum <= 0) return {};
  const double p = weight_a / sum, r = weight_b / sum;
  LengthMoments m;
  m.prompt_tokens = p * a.prompt_tokens + r * b.prompt_tokens;
  m.uncached_prompt_tokens = p * a.uncached_prompt_tokens + r * b.uncached_prompt_tokens;
  m.prefill_pairs = p * a.prefill_pairs + r * b.prefill_pairs;
  m.output_tokens = p * a.output_tokens + r * b.output_tokens;
  m.decode_steps = p * a.decode_steps + r * b.decode_steps;
  m.decode_context_sum = p * a.decode_context_sum + r * b.decode_context_sum;
  m.max_sequence_tokens = std::max(weight_a > 0 ? a.max_sequence_tokens : 0.0,
                                   weight_b > 0 ? b.max_sequence_tokens : 0.0);
  return m;
}

}  // namespace tessera::scheduler
