#include "kernels/cpu/expert_slots.h"

#include <algorithm>

namespace tessera::kernels {

void SortByExpert(const MoeRouteArgs& args) {
  const int64_t rows = args.weights.rows(), k = args.weights.shape[1];
  const int64_t experts = args.logits.shape[1];
  // Counting sort: offsets[e + 1] counts, then offsets[e] is where e starts, then where it ends.
  int32_t* offsets = args.expert_offsets.As<int32_t>();
  int32_t* slots = args.slots.As<int32_t>();
  std::fill(offsets, offsets + experts + 1, 0);
  for (int64_t i = 0; i < rows * k; ++i) ++offsets[slots[i] + 1];
  for (int64_t e = 0; e < experts; ++e) offsets[e + 1] += offsets[e];
  for (int64_t i = 0; i < rows * k; ++i) {
    const int32_t slot = offsets[slots[i]]++;
    args.source_rows.As<int32_t>()[slot] = static_cast<int32_t>(i / k);
    slots[i] = slot;
  }
  std::copy_backward(offsets, offsets + experts, offsets + experts + 1);
  offsets[0] = 0;
}

}  // namespace tessera::kernels
