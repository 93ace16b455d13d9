// Rows of sampling parameters, and the straightforward mathematics of what they mean.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "tests/kernels/conformance/path.h"

namespace tessera::kernels::conformance {

struct SampleRow {
  std::vector<float> logits;
  float temperature = 1, top_p = 1, min_p = 0;
  int32_t top_k = 0;
  float repetition = 1, presence = 0, frequency = 0;
  uint64_t seed = 0;
  int32_t choice = 0, position = 0;
  std::vector<std::pair<int32_t, int32_t>> history = {};  // id, how often in the output
  std::vector<std::pair<int32_t, float>> bias = {};
  std::vector<int32_t> allowed = {};  // ids of its mask; empty: it has none
};

// The token drawn for each row. All rows have the same vocabulary.
std::vector<int32_t> RunSample(Path& path, const std::vector<SampleRow>& rows);

// Probability of each id, from the definition in kernels/ops.h, by sorting everything.
std::vector<double> Probabilities(const SampleRow& row);

// Ids divide [0, 1) by their probabilities, in their order: the row's number from SamplingUniform
// picks the id in whose part it falls.
//
// How far the number is from the nearest boundary between two parts.
double BoundaryDistance(const SampleRow& row);
// Whether the number falls in the part of `id`, or within `tolerance` of it.
bool MayDraw(const SampleRow& row, int32_t id, double tolerance);
// The row with the ids above `id` made as likely as puts the boundary behind `id` `distance` above
// the row's number. Without bias, history, top-k, top-p or min-p.
SampleRow WithBoundary(SampleRow row, int32_t id, double distance);

}  // namespace tessera::kernels::conformance
