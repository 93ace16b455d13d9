#include "tests/kernels/conformance/sample_batch.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <numeric>

#include "kernels/philox.h"

namespace tessera::kernels::conformance {
namespace {

template <typename T, typename Field>
std::vector<T> Column(const std::vector<SampleRow>& rows, const Field& field) {
  std::vector<T> column;
  for (const SampleRow& row : rows) column.push_back(field(row));
  return column;
}

void Adjust(const SampleRow& row, std::vector<double>& logits) {
  for (const auto& [id, value] : row.bias) logits[id] += value;
  for (const auto& [id, count] : row.history) {
    double& logit = logits[id];
    logit = logit > 0 ? logit / row.repetition : logit * row.repetition;
    if (count > 0) logit -= row.presence + row.frequency * count;
  }
  for (size_t id = 0; !row.allowed.empty() && id < logits.size(); ++id) {
    const auto& allowed = row.allowed;
    const bool is_allowed =
        std::find(allowed.begin(), allowed.end(), static_cast<int32_t>(id)) != allowed.end();
    if (!is_allowed) logits[id] = -INFINITY;
  }
}

struct Masks {
  std::vector<int32_t> words;
  std::vector<int32_t> rows;  // -1: none
};

Masks MasksOf(const std::vector<SampleRow>& rows, int64_t words_each) {
  Masks masks;
  for (const SampleRow& row : rows) {
    masks.rows.push_back(
        row.allowed.empty() ? -1 : static_cast<int32_t>(masks.words.size() / words_each));
    if (row.allowed.empty()) continue;
    const size_t begin = masks.words.size();
    masks.words.resize(begin + words_each);
    for (const int32_t id : row.allowed) masks.words[begin + id / 32] |= 1 << (id % 32);
  }
  return masks;
}

}  // namespace

std::vector<int32_t> RunSample(Path& path, const std::vector<SampleRow>& rows) {
  const auto count = static_cast<int64_t>(rows.size());
  const auto vocabulary = static_cast<int64_t>(rows[0].logits.size());
  std::vector<float> logits;
  std::vector<int32_t> history_offsets = {0}, history_ids, history_counts;
  std::vector<int32_t> bias_offsets = {0}, bias_ids;
  std::vector<float> bias_values;
  for (const SampleRow& row : rows) {
    logits.insert(logits.end(), row.logits.begin(), row.logits.end());
    for (const auto& [id, times] : row.history) {
      history_ids.push_back(id);
      history_counts.push_back(times);
    }
    for (const auto& [id, value] : row.bias) {
      bias_ids.push_back(id);
      bias_values.push_back(value);
    }
    history_offsets.push_back(static_cast<int32_t>(history_ids.size()));
    bias_offsets.push_back(static_cast<int32_t>(bias_ids.size()));
  }
  const auto floats = [&](const auto& field) {
    return Tensor(path, DType::kF32, {count}, Column<float>(rows, field));
  };
  const auto ints = [&](const auto& field) {
    return Tensor(path, {count}, Column<int32_t>(rows, field));
  };
  const auto list = [&](const std::vector<int32_t>& values) {
    return Tensor(path, {static_cast<int64_t>(values.size())}, values);
  };
  const Tensor logits_tensor(path, DType::kF32, {count, vocabulary}, logits, 5);
  const Tensor temperature = floats([](const SampleRow& r) { return r.temperature; });
  const Tensor top_p = floats([](const SampleRow& r) { return r.top_p; });
  const Tensor min_p = floats([](const SampleRow& r) { return r.min_p; });
  const Tensor top_k = ints([](const SampleRow& r) { return r.top_k; });
  const Tensor repetition = floats([](const SampleRow& r) { return r.repetition; });
  const Tensor presence = floats([](const SampleRow& r) { return r.presence; });
  const Tensor frequency = floats([](const SampleRow& r) { return r.frequency; });
  const Tensor seeds(path, Column<uint64_t>(rows, [](const SampleRow& r) { return r.seed; }));
  const Tensor choices = ints([](const SampleRow& r) { return r.choice; });
  const Tensor positions = ints([](const SampleRow& r) { return r.position; });
  const Tensor history_starts = list(history_offsets), history = list(history_ids);
  const Tensor counts = list(history_counts);
  const Tensor bias_starts = list(bias_offsets), biased = list(bias_ids);
  const Tensor biases(path, DType::kF32, {static_cast<int64_t>(bias_values.size())}, bias_values);
  const Tensor ids(path, {count}, std::vector<int32_t>(count, -1));
  const int64_t words = (vocabulary + 31) / 32;
  const Masks masks = MasksOf(rows, words);
  const bool is_masked = !masks.words.empty();
  const Tensor mask_words(path, {is_masked ? std::ssize(masks.words) / words : 1, words},
                          is_masked ? masks.words : std::vector<int32_t>(words));
  const Tensor mask_rows = list(masks.rows);
  const absl::Status status = path.ops().Sample(
      {.token_ids = ids,
       .logits = logits_tensor,
       .temperature = temperature,
       .top_p = top_p,
       .min_p = min_p,
       .top_k = top_k,
       .repetition_penalty = repetition,
       .presence_penalty = presence,
       .frequency_penalty = frequency,
       .seeds = seeds,
       .choices = choices,
       .positions = positions,
       .history_offsets = history_starts,
       .history_ids = history,
       .history_counts = counts,
       .bias_offsets = bias_starts,
       .bias_ids = biased,
       .bias_values = biases,
       .masks = is_masked ? TensorView(mask_words) : TensorView(),
       .mask_rows = is_masked ? TensorView(mask_rows) : TensorView(),
       .workspace = path.Workspace(path.ops().SampleWorkspaceBytes(count, vocabulary))},
      path.stream());
  INFO(status.message());
  REQUIRE(status.ok());
  CHECK(logits_tensor.PaddingIntact());
  return ids.ReadInts();
}

std::vector<double> Probabilities(const SampleRow& row) {
  std::vector<double> logits(row.logits.begin(), row.logits.end());
  Adjust(row, logits);
  std::vector<size_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return logits[a] > logits[b]; });
  std::vector<double> weights(logits.size(), 0.0);
  if (row.temperature == 0) {
    weights[order[0]] = 1;
    return weights;
  }
  const double largest = logits[order[0]] / row.temperature;
  double total = 0;
  for (size_t rank = 0; rank < order.size(); ++rank) {
    const double weight = std::exp(logits[order[rank]] / row.temperature - largest);
    const bool out = (row.top_k > 0 && rank >= static_cast<size_t>(row.top_k)) ||
                     (row.min_p > 0 && weight < row.min_p);
    weights[order[rank]] = out ? 0 : weight;
    total += weights[order[rank]];
  }
  double sum = 0, kept = 0;
  for (size_t id : order) {
    const bool enough = row.top_p < 1 && sum >= row.top_p * total;
    sum += weights[id];
    if (enough) weights[id] = 0;
    kept += weights[id];
  }
  for (double& weight : weights) weight /= kept;
  return weights;
}

double BoundaryDistance(const SampleRow& row) {
  const double number = SamplingUniform(row.seed, row.choice, row.position);
  double nearest = 1, sum = 0;
  for (const double probability : Probabilities(row)) {
    sum += probability;
    if (probability > 0 && sum < 1 - 1e-12) nearest = std::min(nearest, std::fabs(number - sum));
  }
  return nearest;
}

bool MayDraw(const SampleRow& row, int32_t id, double tolerance) {
  const std::vector<double> probabilities = Probabilities(row);
  if (id < 0 || id >= static_cast<int32_t>(probabilities.size()) || probabilities[id] == 0) {
    return false;
  }
  const double number = SamplingUniform(row.seed, row.choice, row.position);
  const double begin =
      std::accumulate(probabilities.begin(), probabilities.begin() + id, double{0});
  return number >= begin - tolerance && number < begin + probabilities[id] + tolerance;
}

SampleRow WithBoundary(SampleRow row, int32_t id, double distance) {
  const double boundary = SamplingUniform(row.seed, row.choice, row.position) + distance;
  double below = 0, above = 0;
  for (size_t i = 0; i < row.logits.size(); ++i) {
    const double weight = std::exp(double{row.logits[i]} / row.temperature);
    (i <= static_cast<size_t>(id) ? below : above) += weight;
  }
  const double shift = row.temperature * std::log(below * (1 - boundary) / (boundary * above));
  for (size_t i = id + 1; i < row.logits.size(); ++i) {
    row.logits[i] = static_cast<float>(row.logits[i] + shift);
  }
  return row;
}

}  // namespace tessera::kernels::conformance
