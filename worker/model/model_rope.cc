#include "worker/model/model_rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace tessera::worker {
namespace {

double Llama3(const v1::Rope& rope, double frequency) {
  const auto original = static_cast<double>(rope.original_max_positions());
  const double wavelength = 2 * std::numbers::pi / frequency;
  if (wavelength > original / rope.low_frequency_factor()) return frequency / rope.factor();
  // Where both factors are one (Llama 4 Scout) there is no band between.
  if (wavelength <= original / rope.high_frequency_factor()) return frequency;
  const double smooth = (original / wavelength - rope.low_frequency_factor()) /
                        (rope.high_frequency_factor() - rope.low_frequency_factor());
  return (1 - smooth) * frequency / rope.factor() + smooth * frequency;
}

// 1 where a pair of dimensions keeps its frequency, 0 where it is divided by the factor.
double YarnKept(const v1::Rope& rope, int64_t pair) {
  const auto rotary = static_cast<double>(rope.rotary_dim());
  const auto original = static_cast<double>(rope.original_max_positions());
  // The dimension that turns so often within the original length.
  const auto dimension = [&](double turns) {
    return rotary * std::log(original / (turns * 2 * std::numbers::pi)) /
           (2 * std::log(rope.theta()));
  };
  double low = dimension(rope.beta_fast()), high = dimension(rope.beta_slow());
  if (!rope.ramp_not_truncated()) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, rotary - 1);
  if (low == high) high += 0.001;
  return 1 - std::clamp((static_cast<double>(pair) - low) / (high - low), 0.0, 1.0);
}

}  // namespace

Ropes RopesOf(const v1::Model& model) {
  Ropes ropes;
  for (const v1::LayerKind& kind : model.kinds()) {
    if (!kind.attention().has_rope()) {
      ropes.of_kind.push_back(-1);
      continue;
    }
    const v1::Rope& rope = kind.attention().rope();
    const auto same = [&](const v1::Rope& other) {
      return other.SerializeAsString() == rope.SerializeAsString();
    };
    const auto found = std::find_if(ropes.ropes.begin(), ropes.ropes.end(), same);
    ropes.of_kind.push_back(static_cast<int>(found - ropes.ropes.begin()));
    if (found == ropes.ropes.end()) ropes.ropes.push_back(rope);
  }
  return ropes;
}

std::vector<float> InverseFrequencies(const v1::Rope& rope, int64_t max_model_len_tokens) {
  const auto& factors = max_model_len_tokens > rope.original_max_positions() ? rope.long_factors()
                                                                             : rope.short_factors();
  std::vector<float> frequencies(rope.rotary_dim() / 2);
  for (size_t i = 0; i < frequencies.size(); ++i) {
    // Rounded to float first, as the models were trained.
    double frequency = static_cast<float>(
        1.0 / std::pow(rope.theta(), 2.0 * static_cast<double>(i) / rope.rotary_dim()));
    if (rope.scaling() == v1::ROPE_SCALING_KIND_LINEAR) frequency /= rope.factor();
    if (rope.scaling() == v1::ROPE_SCALING_KIND_LLAMA3) frequency = Llama3(rope, frequency);
    if (rope.scaling() == v1::ROPE_SCALING_KIND_YARN) {
      const double kept = YarnKept(rope, static_cast<int64_t>(i));
      frequency = frequency / rope.factor() * (1 - kept) + frequency * kept;
    }
    if (rope.scaling() == v1::ROPE_SCALING_KIND_PROPORTIONAL) {
      frequency = static_cast<int>(i) < rope.turning_pairs() ? frequency / rope.factor() : 0;
    }
    if (rope.scaling() == v1::ROPE_SCALING_KIND_LONGROPE) {
      frequency /= factors[static_cast<int>(i)];
    }
    frequencies[i] = static_cast<float>(frequency);
  }
  return frequencies;
}

}  // namespace tessera::worker
