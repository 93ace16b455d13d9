#include "kernels/cpu/scan_kernels.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "kernels/cpu/expert_slots.h"
#include "kernels/cpu/logit_adjust.h"
#include "kernels/philox.h"

namespace tessera::kernels {
namespace {

constexpr int64_t kDrawBlock = 1024;  // the sum of each is kept, then one is searched

int64_t DrawBlocks(int64_t vocabulary) { return (vocabulary + kDrawBlock - 1) / kDrawBlock; }

int64_t MemberWorkspaceBytes(int64_t vocabulary) {
  const int64_t bytes = DrawBlocks(vocabulary) * static_cast<int64_t>(sizeof(double)) +
                        vocabulary * static_cast<int64_t>(sizeof(int32_t));
  return (bytes + 63) / 64 * 64;
}

// One row of a SampleArgs on its way to a token.
class RowSampler {
 public:
  RowSampler(const RowScan& scan, const SampleArgs& args, int64_t row, std::byte* workspace)
      : scan_(scan),
        logits_(args.logits.Row<float>(row)),
        vocabulary_(args.logits.shape[1]),
        temperature_(args.temperature.As<float>()[row]),
        top_p_(args.top_p.As<float>()[row]),
        min_p_(args.min_p.As<float>()[row]),
        top_k_(args.top_k.As<int32_t>()[row]),
        uniform_(SamplingUniform(args.seeds.As<uint64_t>()[row], args.choices.As<int32_t>()[row],
                                 args.positions.As<int32_t>()[row])),
        block_sums_(reinterpret_cast<double*>(workspace)),
        ids_(reinterpret_cast<int32_t*>(block_sums_ + DrawBlocks(vocabulary_))) {}

  int32_t Sample() {
    const float largest = scan_.max(logits_, vocabulary_);
    if (largest == -INFINITY) return kNothingToPick;
    const auto likeliest = static_cast<int32_t>(scan_.find(logits_, vocabulary_, largest));
    if (temperature_ < kMinTemperature) return likeliest;
    largest_ = largest / temperature_;
    const bool filtered = top_k_ > 0 || top_p_ < 1 || min_p_ > 0;
    if (!filtered) return DrawFromAll(largest);
    int64_t count = CollectCandidates(largest);
    count = KeepLikeliest(count);
    return DrawFromCandidates(count);
  }

 private:
  double Scaled(int32_t id) const { return logits_[id] / temperature_; }
  double Weight(int32_t id) const { return std::exp(Scaled(id) - largest_); }
  bool MoreLikely(int32_t a, int32_t b) const {
    return logits_[a] != logits_[b] ? logits_[a] > logits_[b] : a < b;
  }
  double TotalWeight(int64_t count) const {
    double total = 0;
    for (int64_t i = 0; i < count; ++i) total += Weight(ids_[i]);
    return total;
  }

  // All ids whose scaled logit is at least `least`, in id order.
  int64_t CollectFrom(double least) {
    // A little below, so that rounding to float loses nobody; then exactly.
    const double limit = least * temperature_;
    const float below = static_cast<float>(limit - 1e-6 * std::fabs(limit) - 1e-30);
    const int64_t near = scan_.collect(logits_, vocabulary_, below, ids_);
    int64_t count = 0;
    for (int64_t i = 0; i < near; ++i) {
      const double scaled = Scaled(ids_[i]);
      if (scaled >= least && scaled > -INFINITY) ids_[count++] = ids_[i];
    }
    return count;
  }

  // A superset of what top_k and top_p keep, as small as it is cheap to find.
  int64_t CollectCandidates(float largest) {
    if (min_p_ > 0) return CollectFrom(largest_ + std::log(min_p_));
    const double total = top_k_ > 0 ? 0
                                    : scan_.sum_exp(logits_, vocabulary_, largest,
                                                    static_cast<float>(1.0 / temperature_));
    total_weight_ = total;
    for (double window : {4.0, 8.0, 16.0, 32.0}) {
      const int64_t count = CollectFrom(largest_ - window);
      if (top_k_ > 0 && count >= top_k_) return count;
      // Rounding of `total` must not make an unreachable share out of one that is reached.
      if (top_k_ <= 0 && TotalWeight(count) >= top_p_ * total * (1 + 1e-5)) return count;
    }
    return CollectFrom(-INFINITY);
  }

  // Cuts ids_ to top_k, then to the nucleus of top_p; in order of likelihood afterwards.
  int64_t KeepLikeliest(int64_t count) {
    const auto order = [this](int32_t a, int32_t b) { return MoreLikely(a, b); };
    if (top_k_ > 0 && top_k_ < count) {
      std::nth_element(ids_, ids_ + top_k_ - 1, ids_ + count, order);
      count = top_k_;
    }
    if (top_p_ >= 1) return count;
    std::sort(ids_, ids_ + count, order);
    const bool all_collected = top_k_ > 0 || min_p_ > 0;
    const double enough = top_p_ * (all_collected ? TotalWeight(count) : total_weight_);
    double sum = 0;
    for (int64_t i = 0; i < count; ++i) {
      sum += Weight(ids_[i]);
      if (sum >= enough) return i + 1;
    }
    return count;
  }

  int32_t DrawFromCandidates(int64_t count) {
    std::sort(ids_, ids_ + count);
    const double target = uniform_ * TotalWeight(count);
    double sum = 0;
    for (int64_t i = 0; i < count; ++i) {
      sum += Weight(ids_[i]);
      if (sum > target) return ids_[i];
    }
    return ids_[count - 1];
  }

  int32_t DrawFromAll(float largest) {
    const auto factor = static_cast<float>(1.0 / temperature_);
    double total = 0;
    for (int64_t block = 0; block < DrawBlocks(vocabulary_); ++block) {
      const int64_t begin = block * kDrawBlock;
      const int64_t size = std::min(kDrawBlock, vocabulary_ - begin);
      block_sums_[block] = scan_.sum_exp(logits_ + begin, size, largest, factor);
      total += block_sums_[block];
    }
    const double target = uniform_ * total;
    double sum = 0;
    int64_t block = 0;
    while (block + 1 < DrawBlocks(vocabulary_) && sum + block_sums_[block] <= target) {
      sum += block_sums_[block++];
    }
    const int64_t end = std::min((block + 1) * kDrawBlock, vocabulary_);
    int32_t last = 0;  // with any weight: where rounding lets the sum end below the target
    for (int64_t id = block * kDrawBlock; id < end; ++id) {
      const double weight = Weight(static_cast<int32_t>(id));
      if (!(weight > 0)) continue;
      last = static_cast<int32_t>(id);
      sum += weight;
      if (sum > target) break;
    }
    return last;
  }

  const RowScan& scan_;
  const float* const logits_;
  const int64_t vocabulary_;
  const double temperature_, top_p_, min_p_;
  const int32_t top_k_;
  const double uniform_;
  double* const block_sums_;
  int32_t* const ids_;
  double largest_ = 0;       // of the scaled logits
  double total_weight_ = 0;  // of the whole row, where top_p alone needs it
};

// Which groups a row chooses from, a bit for each.
uint64_t KeptGroups(const MoeRouteArgs& args, const float* scores, const float* bias) {
  if (args.groups == 1) return 1;
  const int64_t members = args.logits.shape[1] / args.groups;
  std::array<float, kMaxExpertGroups> worth;
  for (int64_t g = 0; g < args.groups; ++g) {
    float best = -std::numeric_limits<float>::infinity(), second = best;
    for (int64_t e = g * members; e < (g + 1) * members; ++e) {
      const float choice = bias == nullptr ? scores[e] : scores[e] + bias[e];
      second = std::max(second, std::min(best, choice));
      best = std::max(best, choice);
    }
    worth[g] = args.groups_by_best ? best : best + second;
  }
  uint64_t kept = 0;
  for (int64_t n = 0; n < args.groups_per_row; ++n) {
    int64_t best = -1;
    for (int64_t g = 0; g < args.groups; ++g) {
      if ((kept >> g & 1) == 0 && (best < 0 || worth[g] > worth[best])) best = g;
    }
    kept |= uint64_t{1} << best;
  }
  return kept;
}

// What the weight of an expert is multiplied by.
double FactorOf(const MoeRouteArgs& args, int32_t expert) {
  const double scale = args.expert_scales.empty() ? 1 : args.expert_scales.As<float>()[expert];
  return args.factor * scale;
}

// Experts and weights of one row from its scores; see MoeRouteArgs.
void ChooseScored(const MoeRouteArgs& args, int64_t row) {
  const int64_t experts = args.logits.shape[1], k = args.weights.shape[1];
  const int64_t members = experts / args.groups;
  const float* scores = args.logits.Row<float>(row);
  const float* bias = args.choice_bias.empty() ? nullptr : args.choice_bias.As<float>();
  float* weights = args.weights.Row<float>(row);
  int32_t* chosen = args.slots.Row<int32_t>(row);
  const uint64_t kept = KeptGroups(args, scores, bias);
  int64_t count = 0;
  // Weights are what they are chosen by until all are known: the best k so far, in order.
  for (int64_t e = 0; e < experts; ++e) {
    if ((kept >> e / members & 1) == 0) continue;
    const float choice = bias == nullptr ? scores[e] : scores[e] + bias[e];
    if (count == k && choice <= weights[k - 1]) continue;
    int64_t at = count < k ? count++ : k - 1;
    for (; at > 0 && choice > weights[at - 1]; --at) {
      weights[at] = weights[at - 1];
      chosen[at] = chosen[at - 1];
    }
    weights[at] = choice;
    chosen[at] = static_cast<int32_t>(e);
  }
  double total = 0;
  for (int64_t j = 0; j < k; ++j) total += scores[chosen[j]];
  for (int64_t j = 0; j < k; ++j) {
    weights[j] = static_cast<float>(scores[chosen[j]] / (args.renormalise ? total : 1) *
                                    FactorOf(args, chosen[j]));
  }
}

}  // namespace

int64_t ScanSampleWorkspaceBytes(int64_t, int64_t vocabulary, int threads) {
  return MemberWorkspaceBytes(vocabulary) * threads;
}

void ScanSample(const RowScan& scan, const SampleArgs& args, ThreadPool& pool) {
  const int64_t member_bytes = MemberWorkspaceBytes(args.logits.shape[1]);
  pool.ParallelFor(args.token_ids.rows(), [&](int64_t row, int member) {
    int32_t& token = args.token_ids.As<int32_t>()[row];
    token = kLogitsNotFinite;
    if (!scan.finite(args.logits.Row<float>(row), args.logits.shape[1])) return;
    AdjustLogits(args, row);
    RowSampler sampler(scan, args, row, args.workspace.data + member * member_bytes);
    token = sampler.Sample();
  });
}

void ScanTopK(const RowScan& scan, const TopKArgs& args, ThreadPool& pool) {
  pool.ParallelFor(args.in.rows(), [&](int64_t row, int) {
    scan.top_k(args.in.Row<float>(row), args.in.shape[1], args.values.shape[1],
               args.values.Row<float>(row), args.indices.Row<int32_t>(row));
  });
}

void ScanMoeRoute(const RowScan& scan, const MoeRouteArgs& args, ThreadPool& pool) {
  constexpr int64_t kRowsPerTask = 16;
  const int64_t rows = args.weights.rows(), k = args.weights.shape[1];
  const int64_t experts = args.logits.shape[1];
  const auto route = [&](int64_t row) {
    if (args.scored) return ChooseScored(args, row);
    const float* logits = args.logits.Row<float>(row);
    float* weights = args.weights.Row<float>(row);
    int32_t* chosen = args.slots.Row<int32_t>(row);
    scan.top_k(logits, experts, k, weights, chosen);
    const float largest = weights[0];
    double total = args.renormalise ? 0 : scan.sum_exp(logits, experts, largest, 1.0f);
    if (args.renormalise) {
      for (int64_t j = 0; j < k; ++j) total += std::exp(static_cast<double>(weights[j]) - largest);
    }
    for (int64_t j = 0; j < k; ++j) {
      const double weight = std::exp(static_cast<double>(weights[j]) - largest);
      weights[j] = static_cast<float>(weight / total * FactorOf(args, chosen[j]));
    }
  };
  pool.ParallelFor((rows + kRowsPerTask - 1) / kRowsPerTask, [&](int64_t task, int) {
    const int64_t end = std::min(rows, (task + 1) * kRowsPerTask);
    for (int64_t row = task * kRowsPerTask; row < end; ++row) route(row);
  });
  SortByExpert(args);
}

}  // namespace tessera::kernels
