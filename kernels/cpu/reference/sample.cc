// The end of a step: log-softmax, the best k, one sampled token per row.
#include <algorithm>
#include <cmath>

#include "kernels/cpu/logit_adjust.h"
#include "kernels/cpu/reference/reference_kernels.h"
#include "kernels/philox.h"

namespace tessera::kernels::reference {
namespace {

struct Candidate {
  double scaled;  // logit / temperature
  int32_t id;
};

bool MoreLikely(const Candidate& a, const Candidate& b) {
  return a.scaled != b.scaled ? a.scaled > b.scaled : a.id < b.id;
}

double TotalWeight(const Candidate* candidates, int64_t count, double largest) {
  double total = 0;
  for (int64_t i = 0; i < count; ++i) total += std::exp(candidates[i].scaled - largest);
  return total;
}

// Number of leading (sorted) candidates whose share of the weight first reaches top_p.
int64_t Nucleus(const Candidate* candidates, int64_t count, double largest, double top_p) {
  const double enough = top_p * TotalWeight(candidates, count, largest);
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) {
    sum += std::exp(candidates[i].scaled - largest);
    if (sum >= enough) return i + 1;
  }
  return count;
}

int32_t DrawInIdOrder(Candidate* candidates, int64_t count, double largest, double uniform) {
  std::sort(candidates, candidates + count,
            [](const Candidate& a, const Candidate& b) { return a.id < b.id; });
  const double target = uniform * TotalWeight(candidates, count, largest);
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) {
    sum += std::exp(candidates[i].scaled - largest);
    if (sum > target) return candidates[i].id;
  }
  return candidates[count - 1].id;
}

int32_t SampleRow(const SampleArgs& args, int64_t row, Candidate* candidates) {
  const float* logits = args.logits.Row<float>(row);
  const int64_t vocabulary = args.logits.shape[1];
  for (int64_t id = 0; id < vocabulary; ++id) {
    if (!std::isfinite(logits[id])) return kLogitsNotFinite;
  }
  AdjustLogits(args, row);
  const int32_t likeliest = ArgMax(logits, vocabulary);
  const double temperature = args.temperature.As<float>()[row];
  if (logits[likeliest] == -INFINITY) return kNothingToPick;
  if (temperature < kMinTemperature) return likeliest;

  const double largest = logits[likeliest] / temperature;
  const double min_p = args.min_p.As<float>()[row];
  const double least = min_p > 0 ? largest + std::log(min_p) : -INFINITY;
  int64_t count = 0;
  for (int64_t id = 0; id < vocabulary; ++id) {
    const double scaled = logits[id] / temperature;
    if (scaled >= least && scaled > -INFINITY)
      candidates[count++] = {scaled, static_cast<int32_t>(id)};
  }
  std::sort(candidates, candidates + count, MoreLikely);
  const int32_t top_k = args.top_k.As<int32_t>()[row];
  if (top_k > 0) count = std::min<int64_t>(count, top_k);
  const double top_p = args.top_p.As<float>()[row];
  if (top_p < 1) count = Nucleus(candidates, count, largest, top_p);
  const double uniform =
      SamplingUniform(args.seeds.As<uint64_t>()[row], args.choices.As<int32_t>()[row],
                      args.positions.As<int32_t>()[row]);
  return DrawInIdOrder(candidates, count, largest, uniform);
}

}  // namespace

void LogSoftmax(const LogSoftmaxArgs& args, ThreadPool&) {
  for (int64_t r = 0; r < args.in.rows(); ++r) {
    const float* in = args.in.Row<float>(r);
    float* out = args.out.Row<float>(r);
    const int64_t n = args.in.shape[1];
    const double largest = *std::max_element(in, in + n);
    double total = 0;
    for (int64_t i = 0; i < n; ++i) total += std::exp(in[i] - largest);
    const double log_total = largest + std::log(total);
    for (int64_t i = 0; i < n; ++i) out[i] = static_cast<float>(in[i] - log_total);
  }
}

void TopK(const TopKArgs& args, ThreadPool&) {
  const int64_t k = args.values.shape[1], n = args.in.shape[1];
  for (int64_t r = 0; r < args.in.rows(); ++r) {
    const float* in = args.in.Row<float>(r);
    float* values = args.values.Row<float>(r);
    int32_t* indices = args.indices.Row<int32_t>(r);
    int64_t filled = 0;
    for (int64_t i = 0; i < n; ++i) {
      int64_t place = filled;
      while (place > 0 && in[i] > values[place - 1]) --place;
      if (place == k) continue;
      filled = std::min(filled + 1, k);
      std::copy_backward(values + place, values + filled - 1, values + filled);
      std::copy_backward(indices + place, indices + filled - 1, indices + filled);
      values[place] = in[i];
      indices[place] = static_cast<int32_t>(i);
    }
  }
}

int64_t SampleWorkspaceBytes(int64_t, int64_t vocabulary, int) {
  return vocabulary * static_cast<int64_t>(sizeof(Candidate));
}

void Sample(const SampleArgs& args, ThreadPool&) {
  auto* candidates = args.workspace.As<Candidate>();
  for (int64_t row = 0; row < args.token_ids.rows(); ++row) {
    args.token_ids.As<int32_t>()[row] = SampleRow(args, row, candidates);
  }
}

}  // namespace tessera::kernels::reference
