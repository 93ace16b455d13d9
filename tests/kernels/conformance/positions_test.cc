// Rotary positions and KV writes against the reference, and the reference against the formula.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "tests/kernels/conformance/path.h"

namespace tessera::kernels::conformance {
namespace {

std::vector<float> Frequencies(int64_t half, double theta) {
  std::vector<float> values(half);
  for (int64_t i = 0; i < half; ++i) {
    values[i] = static_cast<float>(std::pow(theta, -static_cast<double>(i) / half));
  }
  return values;
}

TEST_CASE("RopeTable: cosines then sines, scaled; padding turns nothing") {
  for (Path* path : [] {
         std::vector<Path*> all = {&Reference()};
         for (Path* other : PathsWith("RopeTable")) all.push_back(other);
         return all;
       }()) {
    INFO("path " << path->name());
    const int64_t half = 24;
    const std::vector<float> frequencies = Frequencies(half, 10000);
    const std::vector<int32_t> positions = {0, 5, -1, 131071};
    const Tensor table = Zeros(*path, DType::kF32, {4, 2 * half});
    const Tensor positions_tensor(*path, {4}, positions);
    const Tensor frequency(*path, DType::kF32, {half}, frequencies);
    REQUIRE(path->ops()
                .RopeTable({.cos_sin = table,
                            .positions = positions_tensor,
                            .inverse_frequencies = frequency,
                            .attention_factor = 1.25f},
                           path->stream())
                .ok());
    const std::vector<float> result = table.Read();
    for (int64_t t = 0; t < 4; ++t) {
      for (int64_t i = 0; i < half; ++i) {
        const double angle = static_cast<float>(positions[t]) * frequencies[i];
        const bool padded = positions[t] < 0;
        const double cosine = padded ? 1 : 1.25 * std::cos(angle);
        const double sine = padded ? 0 : 1.25 * std::sin(angle);
        REQUIRE(result[t * 2 * half + i] == Approx(cosine).margin(1e-6));
        REQUIRE(result[t * 2 * half + half + i] == Approx(sine).margin(1e-6));
      }
    }
  }
}

TEST_CASE("RopeTable: dynamic scaling starts beyond the original length") {
  const int64_t half = 16, original = 64;
  const float factor = 2.0f, theta = 10000.0f;
  const std::vector<int32_t> positions = {63, 100, 100}, lengths = {64, 64, 128};
  const auto run = [&](Path& path) {
    const Tensor table = Zeros(path, DType::kF32, {3, 2 * half});
    const Tensor positions_tensor(path, {3}, positions), lengths_tensor(path, {3}, lengths);
    const Tensor frequency(path, DType::kF32, {half}, Frequencies(half, theta));
    REQUIRE(path.ops()
                .RopeTable({.cos_sin = table,
                            .positions = positions_tensor,
                            .inverse_frequencies = frequency,
                            .dynamic_factor = factor,
                            .theta = theta,
                            .original_max_position = original,
                            .lengths = lengths_tensor},
                           path.stream())
                .ok());
    return table.Read();
  };
  const std::vector<float> result = run(Reference());
  const double d = 2 * half;
  const double grown = theta * std::pow(factor * 128 / original - (factor - 1), d / (d - 2));
  for (int64_t i = 0; i < half; ++i) {
    const double plain = std::cos(100 * std::pow(double{theta}, -2.0 * i / d));
    const double scaled = std::cos(100 * std::pow(grown, -2.0 * i / d));
    CHECK(result[d + i] == Approx(plain).margin(2e-5));
    CHECK(result[2 * d + i] == Approx(scaled).margin(2e-5));
  }
  CheckAgainstReference("RopeTable", DType::kF32, run);
}

TEST_CASE("Rope turns the first rotary dimensions of strided q and k") {
  const DType type = GENERATE(DType::kF32, DType::kBF16, DType::kF16);
  const auto [head_dim, rotary] = GENERATE(table<int64_t, int64_t>(
      {{64, 64}, {128, 128}, {96, 96}, {80, 32}, {16, 16}, {20, 10}, {256, 64}}));
  CAPTURE(Name(type), head_dim, rotary);
  CheckAgainstReference("Rope", type, [&, head_dim = head_dim, rotary = rotary](Path& path) {
    const Tensor q = Random(path, type, {7, 6, head_dim}, 1, 2 * head_dim);
    const Tensor k = Random(path, type, {7, 2, head_dim}, 2, 6 * head_dim);
    const Tensor cos_sin = Random(path, DType::kF32, {7, rotary}, 3);
    REQUIRE(path.ops().Rope({.q = q, .k = k, .cos_sin = cos_sin}, path.stream()).ok());
    CHECK(q.PaddingIntact());
    CHECK(k.PaddingIntact());
    std::vector<float> result = q.Read();
    const std::vector<float> more = k.Read();
    result.insert(result.end(), more.begin(), more.end());
    return result;
  });
}

TEST_CASE("KvWrite: slots in any order, slot -1 writes nothing, types convert") {
  const DType type = GENERATE(DType::kF32, DType::kBF16);
  const DType cached = GENERATE(DType::kF32, DType::kBF16);
  const int64_t head_dim = GENERATE(16, 64, 80, 20);
  CAPTURE(Name(type), Name(cached), head_dim);
  CheckAgainstReference("KvWrite", 0.0, [&](Path& path) {
    const Tensor k = Random(path, type, {5, 3, head_dim}, 1, 4 * head_dim);
    const Tensor v = Random(path, type, {5, 3, head_dim}, 2, 1);
    const Tensor keys = Random(path, cached, {3, 4, 8, head_dim}, 3, 16);
    const Tensor values = Random(path, cached, {3, 4, 8, head_dim}, 4, 16);
    const Tensor slots(path, {5}, std::vector<int32_t>{31, -1, 0, 9, 16});
    REQUIRE(
        path.ops()
            .KvWrite({.cache = {.keys = keys, .values = values}, .k = k, .v = v, .slots = slots},
                     path.stream())
            .ok());
    CHECK(keys.PaddingIntact());
    CHECK(values.PaddingIntact());
    std::vector<float> result = keys.Read();
    const std::vector<float> more = values.Read();
    result.insert(result.end(), more.begin(), more.end());
    return result;
  });
}

// Half a step of codes beside an element, which is how far the nearest is off at most.
double HalfStep(double element, double largest, DType type) {
  const double most = type == DType::kI8 ? 127 : 448;
  if (largest == 0 || element == 0) return 0;
  const int exponent = std::ilogb(std::abs(element) * most / largest);
  const double step = type == DType::kI8 ? 1 : std::ldexp(1, std::max(exponent, -6) - 3);
  return 0.5001 * step * largest / most;
}

TEST_CASE("KvWrite: codes of 8 bits are the nearest, with a scale of each row alone") {
  const DType type = GENERATE(DType::kF32, DType::kBF16);
  const DType cached = GENERATE(DType::kI8, DType::kF8);
  const int64_t head_dim = GENERATE(1, 20, 64, 33);
  CAPTURE(Name(type), Name(cached), head_dim);
  const int64_t row_bytes = KvRowElements(cached, head_dim);
  // Rows of unlike sizes, from 2^-130 (zeros) to 2^120; one of zeros, and one with an infinity.
  std::vector<float> k = RandomFloats(5 * 3 * head_dim, 1), v = RandomFloats(5 * 3 * head_dim, 2);
  constexpr int kSizes[] = {0, -130, 120, -20, 3};
  for (size_t i = 0; i < k.size(); ++i) {
    k[i] = std::ldexp(k[i], kSizes[i / head_dim % 5]);
    if (i % 7 == 0) v[i] /= 1000;  // small ones beside large ones
  }
  std::fill_n(v.begin(), head_dim, 0.0f);
  v[5 * head_dim] = INFINITY;
  const std::vector<int32_t> slots = {31, 4, 0, -1, 16};
  std::vector<std::vector<float>> all;
  const auto run = [&](Path& path) {
    const Tensor k_tensor(path, type, {5, 3, head_dim}, k, 8);
    const Tensor v_tensor(path, type, {5, 3, head_dim}, v, 8);
    const Tensor keys = Zeros(path, cached, {3, 4, 8, row_bytes}, 16);
    const Tensor values = Zeros(path, cached, {3, 4, 8, row_bytes}, 16);
    const Tensor slots_tensor(path, {5}, slots);
    REQUIRE(path.ops()
                .KvWrite({.cache = {.keys = keys, .values = values},
                          .k = k_tensor,
                          .v = v_tensor,
                          .slots = slots_tensor},
                         path.stream())
                .message() == "");
    CHECK(keys.PaddingIntact());
    CHECK(values.PaddingIntact());
    all = {k_tensor.Read(), v_tensor.Read(), keys.Read(), values.Read()};
    std::vector<float> result = all[2];
    result.insert(result.end(), all[3].begin(), all[3].end());
    return result;
  };
  CheckAgainstReference("KvWrite", 0.0, run);

  run(Reference());
  for (const int plane : {0, 1}) {
    for (int64_t token = 0; token < 5; ++token) {
      for (int64_t head = 0; head < 3 && slots[token] >= 0; ++head) {
        CAPTURE(plane, token, head);
        const float* from = all[plane].data() + (token * 3 + head) * head_dim;
        double largest = 0;
        for (int64_t d = 0; d < head_dim; ++d)
          largest = std::max(largest, std::abs(double{from[d]}));
        std::vector<std::byte> row;
        for (int64_t i = 0; i < row_bytes; ++i) {
          const float byte = all[2 + plane][(head * 32 + slots[token]) * row_bytes + i];
          row.push_back(static_cast<std::byte>(static_cast<uint8_t>(byte)));
        }
        for (int64_t d = 0; d < head_dim; ++d) {
          const double actual = KvRowValue(row.data(), d, head_dim, cached);
          if (std::isinf(largest)) {
            REQUIRE(std::isnan(actual));
          } else if (largest < 0x1p-120) {
            REQUIRE(actual == 0);
          } else {
            REQUIRE(std::abs(actual - from[d]) <= HalfStep(from[d], largest, cached));
          }
        }
      }
    }
  }
}

// Queries, keys of the tensor and of the cache, values of the cache.
std::vector<float> Prepare(Path& path, DType type, DType cached, int64_t head_dim, int64_t rotary,
                           bool normed, bool fused) {
  const Tensor q = Random(path, type, {5, 6, head_dim}, 1, 4 * head_dim);
  const Tensor k = Random(path, type, {5, 2, head_dim}, 2, 8 * head_dim);
  const Tensor v = Random(path, type, {5, 2, head_dim}, 3, 8 * head_dim);
  const Tensor q_norm = Random(path, DType::kF32, {head_dim}, 4);
  const Tensor k_norm = Random(path, DType::kF32, {head_dim}, 5);
  const Tensor cos_sin = Random(path, DType::kF32, {5, std::max<int64_t>(rotary, 2)}, 6);
  const int64_t row = KvRowElements(cached, head_dim);
  const Tensor keys = HasKvScales(cached) ? Zeros(path, cached, {2, 4, 8, row}, 16)
                                          : Random(path, cached, {2, 4, 8, row}, 7, 16);
  const Tensor values = HasKvScales(cached) ? Zeros(path, cached, {2, 4, 8, row}, 16)
                                            : Random(path, cached, {2, 4, 8, row}, 8, 16);
  const Tensor slots(path, {5}, std::vector<int32_t>{31, -1, 0, 9, 16});
  PrepareAttentionArgs args = {.q = q,
                               .k = k,
                               .v = v,
                               .epsilon = 1e-3f,
                               .cache = {.keys = keys, .values = values},
                               .slots = slots};
  if (normed) {
    args.q_norm = q_norm;
    args.k_norm = k_norm;
  }
  if (rotary > 0) args.cos_sin = cos_sin;
  const absl::Status status = fused ? path.ops().PrepareAttention(args, path.stream())
                                    : path.ops().Ops::PrepareAttention(args, path.stream());
  REQUIRE(status.message() == "");
  std::vector<float> result;
  for (const Tensor* tensor : {&q, &k, &v, &keys, &values}) {
    CHECK(tensor->PaddingIntact());
    const std::vector<float> read = tensor->Read();
    result.insert(result.end(), read.begin(), read.end());
  }
  return result;
}

TEST_CASE("PrepareAttention: with and without norm, rotated wholly, in part or not at all") {
  const auto [head_dim, rotary] = GENERATE(table<int64_t, int64_t>(
      {{16, 16}, {64, 0}, {64, 64}, {80, 32}, {128, 128}, {256, 256}, {20, 10}}));
  const auto [type, cached] = GENERATE(table<DType, DType>({{DType::kF32, DType::kF32},
                                                            {DType::kF32, DType::kBF16},
                                                            {DType::kBF16, DType::kBF16},
                                                            {DType::kBF16, DType::kI8},
                                                            {DType::kF32, DType::kF8}}));
  const bool normed = GENERATE(false, true);
  CAPTURE(Name(type), Name(cached), head_dim, rotary, normed);
  // Bytes of codes and scales differ by anything where what they are made of differs a little: they
  // are held against the three ops alone.
  const double tolerance = HasKvScales(cached) ? 1 : std::max(Tolerance(type), Tolerance(cached));
  CheckAgainstReference("PrepareAttention", tolerance, [&](Path& path) {
    const std::vector<float> result = Prepare(path, type, cached, head_dim, rotary, normed, true);
    // A pass that does all of it has the bits of the three ops.
    CHECK(result == Prepare(path, type, cached, head_dim, rotary, normed, false));
    return result;
  });
}

}  // namespace
}  // namespace tessera::kernels::conformance
