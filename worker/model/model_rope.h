// Frequencies of rotary position embeddings. Pure, thread-safe.
#pragma once

#include <vector>

#include "proto/model.pb.h"

namespace tessera::worker {

// The unlike ropes of a model's layers, and for each of its kinds an index into them; -1: none.
struct Ropes {
  std::vector<v1::Rope> ropes;
  std::vector<int> of_kind;
};
Ropes RopesOf(const v1::Model& model);

// rotary_dim / 2 values: theta^(-2i / rotary_dim), scaled as rope.scaling says.
//   linear: divided by factor, which is the same as dividing positions (kaiokendev, 2023).
//   llama3: wavelengths beyond original / low_frequency_factor are divided by factor, those below
//     original / high_frequency_factor stay, those between are interpolated (Llama 3.1 release).
//   dynamic: unscaled; RopeTable scales by length.
std::vector<float> InverseFrequencies(const v1::Rope& rope);

}  // namespace tessera::worker
