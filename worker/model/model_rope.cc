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
  if (wavelength < original / rope.high_frequency_factor()) return frequency;
  const double smooth = (original / wavelength - rope.low_frequency_factor()) /
                        (rope.high_frequency_factor() - rope.low_frequency_factor());
  return (1 - smooth) * frequency / rope.factor() + smooth * frequency;
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

std::vector<float> InverseFrequencies(const v1::Rope& rope) {
  std::vector<float> frequencies(rope.rotary_dim() / 2);
  for (size_t i = 0; i < frequencies.size(); ++i) {
    // Rounded to float first, as the models were trained.
    double frequency = static_cast<float>(
        1.0 / std::pow(rope.theta(), 2.0 * static_cast<double>(i) / rope.rotary_dim()));
    if (rope.scaling() == v1::ROPE_SCALING_KIND_LINEAR) frequency /= rope.factor();
    if (rope.scaling() == v1::ROPE_SCALING_KIND_LLAMA3) frequency = Llama3(rope, frequency);
    frequencies[i] = static_cast<float>(frequency);
  }
  return frequencies;
}

}  // namespace tessera::worker
