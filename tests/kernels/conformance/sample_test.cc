// Sampling: the random numbers, the distributions, and every path against the reference.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <random>

#include "kernels/philox.h"
#include "tests/kernels/conformance/sample_batch.h"

namespace tessera::kernels::conformance {
namespace {

constexpr float kBanned = -std::numeric_limits<float>::infinity();

// GPUs have an exponential of their own: a number this near to the boundary between two ids may
// fall on its other side there. CPUs' paths always draw the reference's token.
constexpr double kDrawTolerance = 1e-5;

std::vector<Path*> AllPaths() {
  std::vector<Path*> all = PathsWith("Sample");
  all.push_back(&Reference());
  return all;
}

TEST_CASE("Philox4x32-10 gives the known answers of Random123") {
  using Words = std::array<uint32_t, 4>;
  CHECK(Philox4x32({0, 0, 0, 0}, {0, 0}) == Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  CHECK(Philox4x32({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}) ==
        Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  CHECK(Philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}) ==
        Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("a uniform number depends on seed, choice and position, each") {
  const double base = SamplingUniform(1, 2, 3);
  CHECK(base == SamplingUniform(1, 2, 3));
  CHECK(base != SamplingUniform(uint64_t{1} << 32 | 1, 2, 3));
  CHECK(base != SamplingUniform(1, 3, 3));
  CHECK(base != SamplingUniform(1, 2, 4));
  CHECK((base >= 0 && base < 1));
}

// Draws `count` times, each with a position of its own, and tests the frequencies against
// `expected` (Pearson's chi-square; 6 standard deviations above its mean: never by chance on a
// fixed seed).
void CheckDistribution(Path& path, const SampleRow& row, const std::vector<double>& expected,
                       int count = 20000) {
  std::vector<SampleRow> rows(count, row);
  for (int i = 0; i < count; ++i) rows[i].position = i;
  std::vector<int64_t> seen(expected.size());
  for (int32_t id : RunSample(path, rows)) ++seen[id];
  double chi_square = 0;
  int degrees = -1;
  for (size_t id = 0; id < expected.size(); ++id) {
    CAPTURE(id, seen[id], expected[id]);
    if (expected[id] == 0) {
      REQUIRE(seen[id] == 0);
      continue;
    }
    const double mean = count * expected[id];
    chi_square += (seen[id] - mean) * (seen[id] - mean) / mean;
    ++degrees;
  }
  CHECK(chi_square <= degrees + 6 * std::sqrt(2.0 * std::max(degrees, 1)));
}

TEST_CASE("draws follow the distribution that the parameters describe") {
  const SampleRow plain = {.logits = {1.0f, 0.2f, -0.5f, 2.0f, 0.9f, -3.0f, 1.9f, 0.0f}};
  std::vector<SampleRow> cases(10, plain);
  cases[1].temperature = 0.5f;
  cases[2].temperature = 2.0f;
  cases[3].top_k = 3;
  cases[4].top_p = 0.7f;
  cases[5].min_p = 0.3f;
  cases[6].repetition = 1.5f;
  cases[6].history = {{3, 0}, {2, 1}};
  cases[7].presence = 0.6f;
  cases[7].frequency = 0.4f;
  cases[7].history = {{3, 3}, {6, 0}, {0, 1}};
  cases[8].bias = {{5, 4.0f}, {3, kBanned}};
  cases[9] = {.logits = plain.logits,
              .temperature = 1.3f,
              .top_p = 0.8f,
              .min_p = 0.05f,
              .top_k = 6,
              .repetition = 1.2f,
              .presence = 0.1f,
              .frequency = 0.2f,
              .history = {{0, 2}, {3, 0}},
              .bias = {{7, 1.5f}}};
  for (size_t i = 0; i < cases.size(); ++i) {
    for (Path* path : AllPaths()) {
      if (path == CudaEmulated()) continue;  // slow, and it draws the reference's tokens, see below
      INFO("case " << i << ", path " << path->name());
      cases[i].seed = 1000 + i;
      CheckDistribution(*path, cases[i], Probabilities(cases[i]));
    }
  }
}

TEST_CASE("draws of CUDA's kernels follow the distribution, in a short list and in a whole row") {
  Path* const path = CudaEmulated();
  if (path == nullptr) return;
  // More ids than a short list has; some have all but 10^-5 of the weight.
  SampleRow row = {.logits = std::vector<float>(2100, -16.0f), .seed = 77};
  for (int i = 0; i < 12; ++i) row.logits[i * 190] = static_cast<float>(i % 5) * 0.4f;
  const auto check = [&](const SampleRow& tried) {
    std::vector<double> expected = Probabilities(tried);
    for (double& probability : expected) {
      if (probability < 1e-5) probability = 0;
    }
    CheckDistribution(*path, tried, expected, 400);
  };
  check(row);
  row.top_p = 0.9f;
  check(row);
}

// `rows` of one vocabulary on all paths: the reference's token, or on CUDA one that the tolerance
// lets through.
void CheckDraws(const std::vector<SampleRow>& rows) {
  const std::vector<int32_t> expected = RunSample(Reference(), rows);
  for (Path* path : PathsWith("Sample")) {
    INFO("path " << path->name());
    const std::vector<int32_t> drawn = RunSample(*path, rows);
    for (size_t i = 0; i < rows.size(); ++i) {
      CAPTURE(i, rows[i].top_k, rows[i].top_p, rows[i].min_p, rows[i].temperature);
      const bool tolerated = drawn[i] != expected[i] && path->name().starts_with("cuda") &&
                             MayDraw(rows[i], drawn[i], kDrawTolerance);
      CHECK((drawn[i] == expected[i] || tolerated));
    }
  }
}

TEST_CASE("cuts among few and among thousands of candidates, and at the ends of the parameters") {
  // Not a multiple of four; more than a GPU's block holds in shared memory.
  const int32_t vocabulary = GENERATE(2047, 4099);
  const bool flat = GENERATE(false, true);
  CAPTURE(vocabulary, flat);
  std::mt19937_64 random(vocabulary);
  std::vector<SampleRow> rows;
  for (const float temperature : {1e-4f, 1.0f, 100.0f}) {
    for (const float top_p : {1.0f, 0.9f, 0.2f}) {
      for (const int32_t top_k : {0, 1, 129, 3000}) {
        SampleRow row = {.logits = RandomFloats(vocabulary, random()),
                         .temperature = temperature,
                         .top_p = top_p,
                         .min_p = random() % 3 == 0 ? 0.02f : 0.0f,
                         .top_k = top_k,
                         .seed = random()};
        for (float& logit : row.logits) logit *= flat ? 1.0f : 8.0f;
        rows.push_back(std::move(row));
      }
    }
  }
  CheckDraws(rows);
}

TEST_CASE("equal logits at the cut: the lower ids stay") {
  const int32_t vocabulary = GENERATE(1500, 4501);
  CAPTURE(vocabulary);
  // Higher ones in front of the equal ones, lower ones behind; all equal.
  SampleRow mixed = {.logits = std::vector<float>(vocabulary, 0.5f), .seed = 5};
  for (int32_t id = 0; id < vocabulary; id += 100) mixed.logits[id] = 1;
  for (int32_t id = 50; id < vocabulary; id += 100) mixed.logits[id] = -1;
  const SampleRow equal = {.logits = std::vector<float>(vocabulary, -0.0f), .seed = 6};
  // The best are zeros, and the cut lies below.
  SampleRow zeros = {.logits = std::vector<float>(vocabulary, -1.0f), .seed = 7};
  for (int32_t id = 3; id < vocabulary; id += 16) zeros.logits[id] = 0;
  std::vector<SampleRow> rows;
  for (const SampleRow& row : {mixed, equal, zeros}) {
    for (const auto& [top_k, top_p] : std::vector<std::pair<int32_t, float>>{
             {0, 0.3f}, {0, 0.75f}, {40, 1}, {700, 1}, {4000, 1}, {700, 0.5f}, {4000, 0.5f}}) {
      rows.push_back(row);
      rows.back().top_k = top_k;
      rows.back().top_p = top_p;
      // The last of those that stay, and one in the middle.
      for (const double number : {0.9995, 0.5}) {
        while (std::fabs(SamplingUniform(rows.back().seed, 0, 0) - number) > 5e-4) {
          ++rows.back().seed;
        }
        if (number > 0.9) rows.push_back(rows.back());
      }
    }
  }
  CheckDraws(rows);
}

TEST_CASE("one candidate is left: by bans, by min_p, by top_p 0") {
  const int32_t vocabulary = GENERATE(5, 4099);
  std::vector<SampleRow> rows(3, {.logits = RandomFloats(vocabulary, 9)});
  for (int32_t id = 0; id < vocabulary; ++id) {
    if (id != 3) rows[0].bias.push_back({id, kBanned});
  }
  rows[1].logits[4] = rows[2].logits[4] = 2;
  rows[1].min_p = 1;
  rows[2].top_p = 0;
  const bool cut = GENERATE(false, true);
  if (cut) rows[0].top_p = 0.5f;
  for (Path* path : AllPaths()) CHECK(RunSample(*path, rows) == std::vector<int32_t>{3, 4, 4});
}

TEST_CASE("temperature 0 takes the best, the lowest among equals") {
  std::vector<SampleRow> rows(4, {.logits = std::vector<float>(100, 0.5f), .temperature = 0});
  rows[0].logits[70] = rows[0].logits[31] = 2.0f;
  rows[1].logits[99] = 1.0f;
  rows[2].bias = {{5, 1.0f}, {6, 1.0f}};
  for (int32_t id = 0; id < 99; ++id) rows[3].bias.push_back({id, kBanned});
  for (Path* path : AllPaths()) {
    CHECK(RunSample(*path, rows) == std::vector<int32_t>{31, 99, 5, 99});
  }
}

TEST_CASE("a row with a logit that is no finite number gets no token; its neighbours do") {
  const int64_t vocabulary = GENERATE(1, 15, 100, 1025);
  const float temperature = GENERATE(0.0f, 0.8f);
  const SampleRow plain = {.logits = RandomFloats(vocabulary, 7), .temperature = temperature};
  std::vector<SampleRow> rows(5, plain);
  rows[0].logits[0] = std::numeric_limits<float>::quiet_NaN();
  rows[2].logits[vocabulary - 1] = std::numeric_limits<float>::infinity();
  rows[4].logits[vocabulary / 2] = -std::numeric_limits<float>::infinity();
  rows[4].bias = {{static_cast<int32_t>(vocabulary / 2), kBanned}};
  for (Path* path : AllPaths()) {
    INFO("path " << path->name());
    const int32_t clean = RunSample(*path, {plain})[0];
    CHECK(clean >= 0);
    CHECK(RunSample(*path, rows) ==
          std::vector<int32_t>{kLogitsNotFinite, clean, kLogitsNotFinite, clean, kLogitsNotFinite});
  }
}

TEST_CASE("a row of which every id is banned gets no token") {
  const int64_t vocabulary = GENERATE(1, 33);
  const bool filtered = GENERATE(false, true);
  SampleRow row = {.logits = RandomFloats(vocabulary, 3), .temperature = filtered ? 0.7f : 0.0f};
  if (filtered) row.top_p = 0.5f;
  for (int32_t id = 0; id < vocabulary; ++id) row.bias.push_back({id, kBanned});
  row.bias.push_back({0, std::numeric_limits<float>::infinity()});
  for (Path* path : AllPaths())
    CHECK(RunSample(*path, {row}) == std::vector<int32_t>{kNothingToPick});
}

TEST_CASE("a masked row draws from its mask alone, whatever bias and penalties say") {
  const int64_t vocabulary = GENERATE(1, 31, 32, 33, 1025);
  const float temperature = GENERATE(0.0f, 0.9f);
  const float top_p = GENERATE(1.0f, 0.5f);
  CAPTURE(vocabulary, temperature, top_p);
  const auto last = static_cast<int32_t>(vocabulary - 1);
  std::vector<SampleRow> rows(24, {.logits = RandomFloats(vocabulary, 11)});
  for (size_t i = 0; i < rows.size(); ++i) {
    rows[i].temperature = temperature;
    rows[i].top_p = top_p;
    rows[i].seed = i;
    if (i % 3 == 0) continue;  // without a mask
    rows[i].allowed = i % 3 == 1 ? std::vector<int32_t>{last} : std::vector<int32_t>{0, last / 2};
    rows[i].bias = {{last / 3, 50.0f}};
  }
  std::vector<SampleRow> plain;
  for (size_t i = 0; i < rows.size(); i += 3) plain.push_back(rows[i]);
  for (Path* path : AllPaths()) {
    INFO("path " << path->name());
    const std::vector<int32_t> drawn = RunSample(*path, rows);
    for (size_t i = 0; i < rows.size(); ++i) {
      const auto& allowed = rows[i].allowed;
      CHECK((allowed.empty() || std::count(allowed.begin(), allowed.end(), drawn[i]) > 0));
    }
    std::vector<int32_t> unmasked;
    for (size_t i = 0; i < rows.size(); i += 3) unmasked.push_back(drawn[i]);
    CHECK(unmasked == RunSample(*path, plain));
  }
  CheckDraws(rows);
}

TEST_CASE("a mask and bans that leave nothing give no token") {
  SampleRow row = {.logits = RandomFloats(40, 3), .bias = {{7, kBanned}}, .allowed = {7}};
  for (Path* path : AllPaths())
    CHECK(RunSample(*path, {row}) == std::vector<int32_t>{kNothingToPick});
}

TEST_CASE("extreme penalties, biases and temperatures never leave the finite numbers") {
  const float extreme =
      GENERATE(0.0f, 1e-40f, 1e-30f, 1e30f, std::numeric_limits<float>::infinity());
  const float temperature = GENERATE(0.0f, 1e-45f, 1e-6f, 1.0f, 1e6f);
  CAPTURE(extreme, temperature);
  SampleRow row = {.logits = RandomFloats(40, 5), .temperature = temperature};
  row.repetition = extreme;
  row.presence = 2;
  row.history = {{3, 1}, {4, 0}, {5, 1}, {6, 2}, {7, 1}};
  row.bias = {{8, 3e38f}, {9, -3e38f}, {10, kBanned}, {10, 3e38f}, {3, kBanned}};
  std::vector<SampleRow> rows(50, row);
  for (int i = 0; i < 50; ++i) {
    rows[i].position = i;
    if (i % 2 == 0) rows[i].top_p = 0.9f;
  }
  const std::vector<int32_t> expected = RunSample(Reference(), rows);
  for (const int32_t id : expected) CHECK((id >= 0 && id < 40 && id != 10 && id != 3));
  for (Path* path : PathsWith("Sample")) CHECK(RunSample(*path, rows) == expected);
}

TEST_CASE("ids outside the vocabulary are padding") {
  const SampleRow row = {.logits = {0, 1, 0},
                         .temperature = 0,
                         .history = {{-1, 4}, {3, 4}},
                         .bias = {{-1, 50.0f}, {3, 50.0f}}};
  for (Path* path : AllPaths()) CHECK(RunSample(*path, {row}) == std::vector<int32_t>{1});
}

TEST_CASE("a number more than the tolerance from a boundary draws the same token on every path") {
  const int32_t vocabulary = GENERATE(2, 100, 1025, 32000);
  const double distance = GENERATE(1.1, -1.1) * kDrawTolerance;
  const float temperature = GENERATE(0.7f, 1.0f);
  CAPTURE(vocabulary, distance, temperature);
  std::mt19937_64 random(vocabulary);
  std::vector<SampleRow> rows;
  std::vector<int32_t> expected;
  while (rows.size() < 20) {
    const auto id = static_cast<int32_t>(random() % (vocabulary - 1));
    SampleRow row = {.logits = RandomFloats(vocabulary, random()),
                     .temperature = temperature,
                     .seed = random(),
                     .position = static_cast<int32_t>(rows.size())};
    row.logits[id] = row.logits[id + 1] = 7;
    const double number = SamplingUniform(row.seed, row.choice, row.position);
    if (number < 0.05 || number > 0.95) continue;
    rows.push_back(WithBoundary(std::move(row), id, distance));
    REQUIRE(BoundaryDistance(rows.back()) > kDrawTolerance);
    REQUIRE(BoundaryDistance(rows.back()) < 1.2 * kDrawTolerance);
    expected.push_back(distance > 0 ? id : id + 1);
    REQUIRE(MayDraw(rows.back(), expected.back(), 0));
    // A tolerance of twice as much would let the other one through.
    REQUIRE_FALSE(MayDraw(rows.back(), 2 * id + 1 - expected.back(), kDrawTolerance));
  }
  for (Path* path : AllPaths()) {
    INFO("path " << path->name());
    CHECK(RunSample(*path, rows) == expected);
  }
}

TEST_CASE("every path draws the reference's token, CUDA's within the tolerance of a boundary") {
  const int64_t vocabulary = GENERATE(1, 5, 1000, 1025, 50257);
  CAPTURE(vocabulary);
  std::mt19937_64 random(vocabulary);
  const auto pick = [&](std::vector<float> values) { return values[random() % values.size()]; };
  std::vector<SampleRow> rows(vocabulary > 2000 ? 40 : 200);
  for (SampleRow& row : rows) {
    row.logits = RandomFloats(vocabulary, random());
    const float spread = pick({0.01f, 1.0f, 10.0f, 40.0f});
    for (float& value : row.logits) value *= spread;
    row.temperature = pick({0, 0.3f, 1, 1, 1.7f});
    row.top_p = pick({1, 1, 0.999f, 0.9f, 0.3f, 0});
    row.min_p = pick({0, 0, 0.01f, 0.5f, 1});
    row.top_k = static_cast<int32_t>(pick({0, 0, 1, 5, 300, 100000}));
    row.seed = random();
    row.choice = static_cast<int32_t>(random() % 4);
    row.position = static_cast<int32_t>(random() % 5000);
    if (random() % 2 == 0) {
      row.repetition = 1.3f;
      row.presence = 0.5f;
      row.frequency = 0.25f;
      row.history = {{0, 1}, {static_cast<int32_t>(vocabulary / 2), 3}};
      row.bias = {{static_cast<int32_t>(vocabulary - 1), 3.0f}};
    }
  }
  CheckDraws(rows);
}

TEST_CASE("LogSoftmax, in place too, far from zero and with banned values") {
  const int64_t width = GENERATE(1, 17, 1000, 50257);
  const float shift = GENERATE(0.0f, 300.0f);
  CheckAgainstReference("LogSoftmax", DType::kF32, [&](Path& path) {
    std::vector<float> values = RandomFloats(3 * width, 1);
    for (float& value : values) value = value * 12 + shift;
    if (width > 1) values[1] = kBanned;
    const Tensor x(path, DType::kF32, {3, width}, values, 4);
    REQUIRE(path.ops().LogSoftmax({.out = x, .in = x}, path.stream()).ok());
    CHECK(x.PaddingIntact());
    return x.Read();
  });
}

TEST_CASE("TopK: descending, ties to the lower index") {
  const auto [width, k] =
      GENERATE(table<int64_t, int64_t>({{1, 1}, {17, 17}, {100, 7}, {1000, 20}, {50257, 20}}));
  const bool ties = GENERATE(false, true);
  CAPTURE(width, k, ties);
  const auto run = [&, width = width, k = k](Path& path) {
    std::vector<float> values = RandomFloats(4 * width, 1);
    if (ties) {
      for (float& value : values) value = std::round(value * 4);
    }
    const Tensor in(path, DType::kF32, {4, width}, values, 2);
    const Tensor largest = Zeros(path, DType::kF32, {4, k});
    const Tensor indices(path, {4, k}, std::vector<int32_t>(4 * k, -1));
    REQUIRE(path.ops().TopK({.values = largest, .indices = indices, .in = in}, path.stream()).ok());
    std::vector<float> result = largest.Read();
    for (int32_t index : indices.ReadInts()) result.push_back(static_cast<float>(index));
    return result;
  };
  CheckAgainstReference("TopK", 0.0, run);
  // The reference against a sort.
  const std::vector<float> result = run(Reference());
  std::vector<float> first_row = RandomFloats(4 * width, 1);
  first_row.resize(width);
  if (ties) {
    for (float& value : first_row) value = std::round(value * 4);
  }
  std::vector<int32_t> order(width);
  for (int64_t i = 0; i < width; ++i) order[i] = static_cast<int32_t>(i);
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return first_row[a] > first_row[b]; });
  for (int64_t j = 0; j < k; ++j) REQUIRE(result[4 * k + j] == static_cast<float>(order[j]));
}

}  // namespace
}  // namespace tessera::kernels::conformance
