// Choosing experts for rows, and adding up what the experts made of them.
#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/cpu/expert_slots.h"
#include "kernels/cpu/reference/element.h"
#include "kernels/cpu/reference/reference_kernels.h"
#include "kernels/cpu/thread_pool.h"

namespace tessera::kernels::reference {
namespace {

// What the weight of an expert is multiplied by.
double FactorOf(const MoeRouteArgs& args, int32_t expert) {
  const double scale = args.expert_scales.empty() ? 1 : args.expert_scales.As<float>()[expert];
  return args.factor * scale;
}

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
    chosen_total += std::exp(logits[best] - largest) / total;
  }
  for (int64_t j = 0; j < k; ++j) {
    const double probability = std::exp(logits[chosen[j]] - largest) / total;
    weights[j] = static_cast<float>(probability / (args.renormalise ? chosen_total : 1) *
                                    FactorOf(args, chosen[j]));
  }
}

// What a scored expert is chosen by, in float: all devices must have the same.
float ChoiceOf(const MoeRouteArgs& args, int64_t row, int64_t expert) {
  const float score = args.logits.Row<float>(row)[expert];
  return args.choice_bias.empty() ? score : score + args.choice_bias.As<float>()[expert];
}

// Whether a row chooses from a group: fewer than groups_per_row others come before it.
bool KeepsGroup(const MoeRouteArgs& args, int64_t row, int64_t group) {
  if (args.groups == 1) return true;
  const int64_t members = args.logits.shape[1] / args.groups;
  const auto worth = [&](int64_t g) {
    float best = -std::numeric_limits<float>::infinity(), second = best;
    for (int64_t e = g * members; e < (g + 1) * members; ++e) {
      const float choice = ChoiceOf(args, row, e);
      second = std::max(second, std::min(best, choice));
      best = std::max(best, choice);
    }
    return args.groups_by_best ? best : best + second;
  };
  int64_t before = 0;
  for (int64_t g = 0; g < args.groups; ++g) {
    const float own = worth(group), other = worth(g);
    before += other > own || (other == own && g < group) ? 1 : 0;
  }
  return before < args.groups_per_row;
}

// The same from scores.
void ChooseScored(const MoeRouteArgs& args, int64_t row) {
  const int64_t experts = args.logits.shape[1], k = args.weights.shape[1];
  float* weights = args.weights.Row<float>(row);
  int32_t* chosen = args.slots.Row<int32_t>(row);
  double total = 0;
  for (int64_t j = 0; j < k; ++j) {
    int64_t best = -1;
    for (int64_t e = 0; e < experts; ++e) {
      if (std::find(chosen, chosen + j, e) != chosen + j) continue;
      if (!KeepsGroup(args, row, e / (experts / args.groups))) continue;
      if (best < 0 || ChoiceOf(args, row, e) > ChoiceOf(args, row, best)) best = e;
    }
    chosen[j] = static_cast<int32_t>(best);
    weights[j] = args.logits.Row<float>(row)[best];
    total += weights[j];
  }
  for (int64_t j = 0; j < k; ++j) {
    weights[j] =
        static_cast<float>(weights[j] / (args.renormalise ? total : 1) * FactorOf(args, chosen[j]));
  }
}

// The largest logit but for the one at `without`.
int64_t BestOf(const float* logits, int64_t experts, int64_t without) {
  int64_t best = without == 0 ? 1 : 0;
  for (int64_t e = best + 1; e < experts; ++e) {
    if (e != without && logits[e] > logits[best]) best = e;
  }
  return best;
}

// Its softmax among those near to it; see MoeScoresArgs.
float NearSoftmax(const MoeScoresArgs& args, const float* logits, int64_t best, int64_t without) {
  const float most = logits[best];
  double total = 0;
  for (int64_t e = 0; e < args.scores.shape[1]; ++e) {
    // In float: all paths must find the same ones near.
    const bool far = (most - logits[e]) / std::max(std::abs(logits[e]), most) > 2 * args.jitter;
    if (e != without && !far) total += std::exp(static_cast<double>(logits[e]) - most);
  }
  return static_cast<float>(1 / total);
}

void MixSparsely(const MoeScoresArgs& args, float* scores) {
  const int64_t experts = args.scores.shape[1];
  const int64_t first = BestOf(scores, experts, -1), second = BestOf(scores, experts, first);
  const float of_first = NearSoftmax(args, scores, first, -1);
  const float of_second = NearSoftmax(args, scores, second, first);
  std::fill(scores, scores + experts, 0.0f);
  scores[first] = of_first;
  scores[second] = of_second;
}

}  // namespace

void ExpertBias(const ExpertBiasArgs& args, ThreadPool&) {
  const int32_t* offsets = args.expert_offsets.As<int32_t>();
  for (int64_t e = 0; e < args.biases.rows(); ++e) {
    for (int64_t slot = offsets[e]; slot < offsets[e + 1]; ++slot) {
      for (int64_t i = 0; i < args.out.shape[1]; ++i) {
        Set(args.out, slot, i, Get(args.out, slot, i) + Get(args.biases, e, i));
      }
    }
  }
}

void MoeScores(const MoeScoresArgs& args, ThreadPool& pool) {
  const int64_t experts = args.scores.shape[1];
  // Other paths use this too: exponentials of a router are few.
  pool.ParallelFor(args.scores.rows(), [&](int64_t row, int) {
    float* scores = args.scores.Row<float>(row);
    if (args.kind == RouterScores::kSparseMixer) return MixSparsely(args, scores);
    const bool softmax = args.kind == RouterScores::kSoftmax;
    const double largest = softmax ? *std::max_element(scores, scores + experts) : 0;
    double total = 0;
    for (int64_t e = 0; softmax && e < experts; ++e) total += std::exp(scores[e] - largest);
    for (int64_t e = 0; e < experts; ++e) {
      const double score = softmax ? std::exp(scores[e] - largest) / total
                                   : 1.0 / (1.0 + std::exp(-static_cast<double>(scores[e])));
      scores[e] = static_cast<float>(score);
    }
  });
}

void MoeRoute(const MoeRouteArgs& args, ThreadPool&) {
  const auto choose = args.scored ? &ChooseScored : &ChooseExperts;
  for (int64_t row = 0; row < args.weights.rows(); ++row) choose(args, row);
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
      double sum = args.shared.empty() ? 0 : Get(args.shared, row, i);
      if (!args.shared_gate.empty()) {
        sum /= 1 + std::exp(-static_cast<double>(*args.shared_gate.Row<float>(row)));
      }
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
