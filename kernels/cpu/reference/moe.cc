// Choosing experts for rows, and adding up what the experts made of them.
#include <algorithm>
#include <cmath>

#include "kernels/cpu/expert_slots.h"
#include "kernels/cpu/reference/element.h"
#include "kernels/cpu/reference/reference_kernels.h"

namespace tessera::kernels::reference {
namespace {

// The k most likely experts of a row, ties to the lower index, into `slots` for now. Weights are
// their softmax probabilities.
void ChooseExperts(const MoeRouteArgs& args, int64_t row) {
  const float* logits = args.logits.Row<float>(row);
  const int64_t experts = args.logits.shape[1], k = args.weights.shape[1];
  float* weights = args.weights.Row<float>(row);
  int32_t* chosen = args.slots.Row<int32_t>(row);

  const double largest = *std::max_element(logits, logits + experts);
  double total = 0;
  for (int64_t e = 0; e < experts; ++e) total += std::exp(logits[e] - largest);
  double chosen_total = 0;
  for (int64_t j = 0; j < k; ++j) {
    int64_t best = -1;
    for (int64_t e = 0; e < experts; ++e) {
      if (std::find(chosen, chosen + j, e) != chosen + j) continue;
      if (best < 0 || logits[e] > logits[best]) best = e;
    }
    chosen[j] = static_cast<int32_t>(best);
    const double probability = std::exp(logits[best] - largest) / total;
    weights[j] = static_cast<float>(probability);
    chosen_total += probability;
  }
  if (!args.renormalise) return;
  for (int64_t j = 0; j < k; ++j) {
    weights[j] = static_cast<float>(std::exp(logits[chosen[j]] - largest) / total / chosen_total);
  }
}

}  // namespace

void MoeRoute(const MoeRouteArgs& args, ThreadPool&) {
  for (int64_t row = 0; row < args.weights.rows(); ++row) ChooseExperts(args, row);
  SortByExpert(args);
}

void MoeCombine(const MoeCombineArgs& args, ThreadPool&) {
  const int64_t k = args.weights.shape[1];
  const int32_t* held = args.held.empty() ? nullptr : args.held.As<int32_t>();
  const int32_t first = held == nullptr ? 0 : held[0];
  const int32_t end =
      held == nullptr ? static_cast<int32_t>(args.in.rows()) : held[args.held.rows() - 1];
  for (int64_t row = 0; row < args.out.rows(); ++row) {
    for (int64_t i = 0; i < args.out.shape[1]; ++i) {
      double sum = 0;
      for (int64_t j = 0; j < k; ++j) {
        const int32_t slot = args.slots.Row<int32_t>(row)[j];
        if (slot < first || slot >= end) continue;
        sum += static_cast<double>(args.weights.Row<float>(row)[j]) * Get(args.in, slot, i);
      }
      Set(args.out, row, i, sum);
    }
  }
}

}  // namespace tessera::kernels::reference
