// Frequencies of rotary position embeddings. Pure, thread-safe.
#pragma once

#include <cstdint>
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
//   yarn: divided by factor where a dimension turns less than beta_slow times within the original
//     length, unscaled where it turns more than beta_fast times, a ramp between (arXiv 2309.00071).
//   longrope: divided by the long factors if sequences of `max_model_len_tokens` pass the original
//     length, else by the short ones (arXiv 2402.13753).
//   proportional: divided by factor, and 0 from the pair turning_pairs on (Gemma 4).
std::vector<float> InverseFrequencies(const v1::Rope& rope, int64_t max_model_len_tokens);

}  // namespace tessera::worker
