#include "kernels/cpu/logit_adjust.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace tessera::kernels {
namespace {

// Extreme parameters (a penalty of 1e-40, a bias of 1e38) may overflow; an infinite logit would
// turn the row's sums into NaN. NaN becomes the least.
float Bounded(float logit) {
  constexpr float kLargest = std::numeric_limits<float>::max();
  return std::fmin(std::fmax(logit, -kLargest), kLargest);
}

void ApplyMask(const int32_t* mask, float* logits, int64_t vocabulary) {
  for (int64_t first = 0; first < vocabulary; first += 32) {
    const auto bits = static_cast<uint32_t>(mask[first / 32]);
    if (bits == ~0u) continue;
    const int64_t count = std::min<int64_t>(32, vocabulary - first);
    for (int64_t i = 0; i < count; ++i) {
      if ((bits >> i & 1) == 0) logits[first + i] = -INFINITY;
    }
  }
}

}  // namespace

void AdjustLogits(const SampleArgs& args, int64_t row) {
  float* logits = args.logits.Row<float>(row);
  const int64_t vocabulary = args.logits.shape[1];
  const auto known = [&](int32_t id) { return id >= 0 && id < vocabulary; };

  const int32_t* bias = args.bias_offsets.As<int32_t>() + row;
  for (int32_t e = bias[0]; e < bias[1]; ++e) {
    const int32_t id = args.bias_ids.As<int32_t>()[e];
    if (!known(id) || logits[id] == -INFINITY) continue;
    const float bias_value = args.bias_values.As<float>()[e];
    logits[id] = bias_value == -INFINITY ? -INFINITY : Bounded(logits[id] + bias_value);
  }
  const float repetition = args.repetition_penalty.As<float>()[row];
  const float presence = args.presence_penalty.As<float>()[row];
  const float frequency = args.frequency_penalty.As<float>()[row];
  const int32_t* history = args.history_offsets.As<int32_t>() + row;
  for (int32_t e = history[0]; e < history[1]; ++e) {
    const int32_t id = args.history_ids.As<int32_t>()[e];
    if (!known(id)) continue;
    float& logit = logits[id];
    if (logit == -INFINITY) continue;
    logit = logit > 0 ? logit / repetition : logit * repetition;
    const int32_t count = args.history_counts.As<int32_t>()[e];
    logit = Bounded(logit);
    if (count > 0) {
      logit = Bounded(logit - (presence + frequency * static_cast<float>(count)));
    }
  }
  const int32_t mask = args.masks.empty() ? -1 : args.mask_rows.As<int32_t>()[row];
  if (mask >= 0 && mask < args.masks.rows()) {
    ApplyMask(args.masks.Row<int32_t>(mask), logits, vocabulary);
  }
}

int32_t ArgMax(const float* values, int64_t count) {
  int64_t best = 0;
  float largest = -INFINITY;
  for (int64_t i = 0; i < count; ++i) {
    if (values[i] > largest) {
      largest = values[i];
      best = i;
    }
  }
  return static_cast<int32_t>(best);
}

}  // namespace tessera::kernels
