// MoeRoute and MoeCombine against the reference, and the reference against its own promises.
#include <catch2/catch.hpp>
#include <cmath>

#include "tests/kernels/conformance/path.h"

namespace tessera::kernels::conformance {
namespace {

struct Routing {
  std::vector<float> weights;
  std::vector<int32_t> slots, source_rows, offsets;
};

// Experts 0, 1, ...: 0.5, 0.625, ...
std::vector<float> ScalesOf(int64_t experts) {
  std::vector<float> scales(experts);
  for (int64_t e = 0; e < experts; ++e) scales[e] = 0.5f + 0.125f * static_cast<float>(e);
  return scales;
}

Routing Route(Path& path, const std::vector<float>& logits, int64_t experts, int64_t k,
              bool renormalise, bool scaled = false) {
  const int64_t rows = static_cast<int64_t>(logits.size()) / experts;
  const Tensor in(path, DType::kF32, {rows, experts}, logits, 3);
  const Tensor weights = Zeros(path, DType::kF32, {rows, k});
  const Tensor slots(path, {rows, k}, std::vector<int32_t>(rows * k));
  const Tensor source_rows(path, {rows * k}, std::vector<int32_t>(rows * k, -7));
  const Tensor offsets(path, {experts + 1}, std::vector<int32_t>(experts + 1, -7));
  const Tensor scales(path, DType::kF32, {experts}, ScalesOf(experts));
  REQUIRE(path.ops()
              .MoeRoute({.logits = in,
                         .weights = weights,
                         .slots = slots,
                         .source_rows = source_rows,
                         .expert_offsets = offsets,
                         .renormalise = renormalise,
                         .expert_scales = scaled ? TensorView(scales) : TensorView()},
                        path.stream())
              .ok());
  return {weights.Read(), slots.ReadInts(), source_rows.ReadInts(), offsets.ReadInts()};
}

TEST_CASE("MoeRoute equals the reference") {
  const auto [experts, k] =
      GENERATE(table<int64_t, int64_t>({{1, 1}, {8, 2}, {8, 8}, {60, 4}, {128, 8}}));
  const int64_t rows = GENERATE(0, 1, 5, 100);
  const bool renormalise = GENERATE(false, true), scaled = GENERATE(false, true);
  CAPTURE(experts, k, rows, renormalise, scaled);
  std::vector<float> logits = RandomFloats(rows * experts, 1);
  for (float& value : logits) value = std::round(value * 20) / 4;  // with ties
  const Routing expected = Route(Reference(), logits, experts, k, renormalise, scaled);
  for (Path* path : PathsWith("MoeRoute")) {
    INFO("path " << path->name());
    const Routing actual = Route(*path, logits, experts, k, renormalise, scaled);
    CHECK(Difference(actual.weights, expected.weights, 1e-5) == "");
    CHECK(actual.slots == expected.slots);
    CHECK(actual.source_rows == expected.source_rows);
    CHECK(actual.offsets == expected.offsets);
  }
}

TEST_CASE("MoeRoute of many rows and experts equals the reference") {
  const auto [experts, k, rows] = GENERATE(
      table<int64_t, int64_t, int64_t>({{128, 8, 300}, {3, 2, 1100}, {2000, 3, 90}, {33, 33, 40}}));
  CAPTURE(experts, k, rows);
  std::vector<float> logits = RandomFloats(rows * experts, 3);
  for (float& value : logits) value = std::round(value * 20) / 4 * (value < 0 ? 1.0f : 0.5f);
  const Routing expected = Route(Reference(), logits, experts, k, true);
  for (Path* path : PathsWith("MoeRoute")) {
    INFO("path " << path->name());
    const Routing actual = Route(*path, logits, experts, k, true);
    CHECK(Difference(actual.weights, expected.weights, 1e-5) == "");
    CHECK(actual.slots == expected.slots);
    CHECK(actual.source_rows == expected.source_rows);
    CHECK(actual.offsets == expected.offsets);
  }
}

// How scores are routed.
struct Rule {
  bool renormalise = true;
  bool bias = false;
  int64_t groups = 1, groups_per_row = 1;
  float factor = 1;
  bool scaled = false;  // by ScalesOf
  bool by_best = false;
};

Routing RouteScores(Path& path, const std::vector<float>& scores, int64_t experts, int64_t k,
                    const Rule& rule) {
  const int64_t rows = static_cast<int64_t>(scores.size()) / experts;
  const Tensor in(path, DType::kF32, {rows, experts}, scores, 3);
  std::vector<float> biases = RandomFloats(experts, 5);
  for (float& bias : biases) bias = std::round(bias * 4) / 16;
  const Tensor bias(path, DType::kF32, {experts}, biases);
  const Tensor scales(path, DType::kF32, {experts}, ScalesOf(experts));
  const Tensor weights = Zeros(path, DType::kF32, {rows, k});
  const Tensor slots(path, {rows, k}, std::vector<int32_t>(rows * k));
  const Tensor source_rows(path, {rows * k}, std::vector<int32_t>(rows * k, -7));
  const Tensor offsets(path, {experts + 1}, std::vector<int32_t>(experts + 1, -7));
  REQUIRE(path.ops()
              .MoeRoute({.logits = in,
                         .weights = weights,
                         .slots = slots,
                         .source_rows = source_rows,
                         .expert_offsets = offsets,
                         .renormalise = rule.renormalise,
                         .scored = true,
                         .choice_bias = rule.bias ? TensorView(bias) : TensorView(),
                         .groups = rule.groups,
                         .groups_per_row = rule.groups_per_row,
                         .groups_by_best = rule.by_best,
                         .factor = rule.factor,
                         .expert_scales = rule.scaled ? TensorView(scales) : TensorView()},
                        path.stream())
              .ok());
  return {weights.Read(), slots.ReadInts(), source_rows.ReadInts(), offsets.ReadInts()};
}

TEST_CASE("MoeRoute of scores chooses as the reference, whatever the bias, the groups and ties") {
  const auto [experts, k, groups, kept] = GENERATE(table<int64_t, int64_t, int64_t, int64_t>(
      {{8, 2, 1, 1}, {8, 2, 4, 2}, {128, 8, 8, 4}, {60, 6, 20, 3}, {128, 4, 64, 7}}));
  const Rule rule = {.renormalise = GENERATE(false, true),
                     .bias = GENERATE(false, true),
                     .groups = groups,
                     .groups_per_row = kept,
                     .factor = 2.5f,
                     .scaled = GENERATE(false, true),
                     .by_best = GENERATE(false, true)};
  const int64_t rows = GENERATE(0, 1, 37);
  CAPTURE(experts, k, rows, groups, rule.bias, rule.renormalise, rule.by_best);
  std::vector<float> scores = RandomFloats(rows * experts, 1);
  // With ties, which all paths must break alike.
  for (float& score : scores) score = std::round(std::abs(score) * 8) / 16 + 0.0625f;
  const Routing expected = RouteScores(Reference(), scores, experts, k, rule);
  for (Path* path : PathsWith("MoeRoute")) {
    INFO("path " << path->name());
    const Routing actual = RouteScores(*path, scores, experts, k, rule);
    CHECK(Difference(actual.weights, expected.weights, 1e-5) == "");
    CHECK(actual.slots == expected.slots);
    CHECK(actual.source_rows == expected.source_rows);
    CHECK(actual.offsets == expected.offsets);
  }
}

TEST_CASE("the reference routes scores: groups by their two best, weights without the bias") {
  // Groups of 3: the first has the best expert, the second the two best together.
  const std::vector<float> scores = {0.9f, 0.1f, 0.1f, 0.6f, 0.5f, 0.1f};
  const Routing routing = RouteScores(
      Reference(), scores, 6, 2,
      {.renormalise = false, .bias = false, .groups = 2, .groups_per_row = 1, .factor = 2});
  CHECK(routing.offsets == std::vector<int32_t>{0, 0, 0, 0, 1, 2, 2});
  CHECK(routing.weights[0] == Approx(1.2));
  CHECK(routing.weights[1] == Approx(1.0));
  const Routing by_best =
      RouteScores(Reference(), scores, 6, 2,
                  {.renormalise = false, .groups = 2, .groups_per_row = 1, .by_best = true});
  CHECK(by_best.offsets == std::vector<int32_t>{0, 1, 2, 2, 2, 2, 2});
  const Routing normal = RouteScores(Reference(), scores, 6, 2, {.renormalise = true});
  CHECK(normal.weights[0] == Approx(0.9 / 1.5));
  const Routing scaled = RouteScores(Reference(), scores, 6, 2, {.scaled = true});
  CHECK(scaled.weights[0] == Approx(0.9 / 1.5 * 0.5));
  CHECK(scaled.weights[1] == Approx(0.6 / 1.5 * 0.875));
}

TEST_CASE("MoeScores equals the reference") {
  const RouterScores kind = GENERATE(RouterScores::kSoftmax, RouterScores::kSigmoid);
  const int64_t experts = GENERATE(1, 8, 160);
  CheckAgainstReference("MoeScores", DType::kF32, [&](Path& path) {
    std::vector<float> logits = RandomFloats(5 * experts, 1);
    for (float& logit : logits) logit *= 20;
    const Tensor scores(path, DType::kF32, {5, experts}, logits, 3);
    REQUIRE(path.ops().MoeScores({.scores = scores, .kind = kind}, path.stream()).ok());
    CHECK(scores.PaddingIntact());
    const std::vector<float> read = scores.Read();
    double total = 0;
    for (int64_t e = 0; e < experts; ++e) total += read[e];
    CHECK((std::abs(total - 1) < 1e-5) == (kind == RouterScores::kSoftmax));
    return read;
  });
}

TEST_CASE("MoeScores of the sparse mixer equals the reference: two experts, the rest 0") {
  const int64_t experts = GENERATE(2, 8, 16);
  CheckAgainstReference("MoeScores", DType::kF32, [&](Path& path) {
    std::vector<float> logits = RandomFloats(9 * experts, 1);
    for (float& logit : logits) logit = std::round(logit * 16) / 4;  // with ties, and zeros
    const Tensor scores(path, DType::kF32, {9, experts}, logits, 3);
    REQUIRE(path.ops()
                .MoeScores({.scores = scores, .kind = RouterScores::kSparseMixer, .jitter = 0.25f},
                           path.stream())
                .ok());
    CHECK(scores.PaddingIntact());
    const std::vector<float> read = scores.Read();
    CHECK(std::count_if(read.begin(), read.end(), [](float s) { return s > 0; }) == 9 * 2);
    return read;
  });
}

TEST_CASE("the reference mixes sparsely: softmaxes among the logits near to the best two") {
  Path& path = Reference();
  // Within 2 * 0.1 of 4 is 3.5, of 3.5 itself 2.9; 1 and -4 are far.
  const Tensor scores(path, DType::kF32, {1, 5}, {4.0f, 1.0f, 2.9f, 3.5f, -4.0f});
  REQUIRE(path.ops()
              .MoeScores({.scores = scores, .kind = RouterScores::kSparseMixer, .jitter = 0.1f},
                         path.stream())
              .ok());
  const std::vector<float> read = scores.Read();
  CHECK(read[0] == Approx(1 / (1 + std::exp(-0.5))));
  CHECK(read[3] == Approx(1 / (1 + std::exp(-0.6))));
  CHECK((read[1] == 0 && read[2] == 0 && read[4] == 0));
}

TEST_CASE("the reference routes: best first, ties to the lower expert, slots by expert") {
  // Row 0: experts 1 and 3 tie behind 2. Row 1: expert 0 alone stands out.
  const std::vector<float> logits = {0, 1, 2, 1, 3, 0, 0, 0};
  const Routing routing = Route(Reference(), logits, 4, 2, false);
  CHECK(routing.offsets == std::vector<int32_t>{0, 1, 3, 4, 4});
  // Slots: expert 0: row 1; expert 1: rows 0 and 1; expert 2: row 0.
  CHECK(routing.source_rows == std::vector<int32_t>{1, 0, 1, 0});
  CHECK(routing.slots == std::vector<int32_t>{3, 1, 0, 2});
  const double total = 1 + 2 * std::exp(1.0) + std::exp(2.0);
  CHECK(routing.weights[0] == Approx(std::exp(2.0) / total));
  CHECK(routing.weights[1] == Approx(std::exp(1.0) / total));
  const Routing renormalised = Route(Reference(), logits, 4, 2, true);
  CHECK(renormalised.weights[0] + renormalised.weights[1] == Approx(1.0));
  CHECK(renormalised.weights[0] / renormalised.weights[1] == Approx(std::exp(1.0)));
}

TEST_CASE("ExpertBias adds to each slot its expert's, and leaves other ranks' slots alone") {
  const DType type = GENERATE(DType::kF32, DType::kBF16, DType::kF16);
  const int64_t width = GENERATE(5, 64, 300);
  CheckAgainstReference("ExpertBias", type, [&](Path& path) {
    const Tensor out = Random(path, type, {9, width}, 1, 2);
    const Tensor biases = Random(path, DType::kF32, {4, width}, 2);
    // Slots 0 and 8 are of others; the second and the fourth expert have none.
    const Tensor offsets(path, {5}, std::vector<int32_t>{1, 3, 3, 8, 8});
    REQUIRE(
        path.ops()
            .ExpertBias({.out = out, .biases = biases, .expert_offsets = offsets}, path.stream())
            .ok());
    CHECK(out.PaddingIntact());
    const std::vector<float> added = out.Read();
    const std::vector<float> before = Random(path, type, {9, width}, 1, 2).Read();
    CHECK(std::equal(added.begin(), added.begin() + width, before.begin()));
    CHECK(std::equal(added.end() - width, added.end(), before.end() - width));
    return added;
  });
}

TEST_CASE("ClampedGate limits gate and up, on every path") {
  const DType type = GENERATE(DType::kF32, DType::kBF16, DType::kF16);
  const int64_t width = GENERATE(5, 64, 300);
  CheckAgainstReference("ClampedGate", type, [&](Path& path) {
    std::vector<float> values = RandomFloats(4 * 2 * width, 1);
    for (float& value : values) value *= 12;
    const Tensor in(path, type, {4, 2 * width}, values, 6);
    const Tensor out = Zeros(path, type, {4, width}, 4);
    REQUIRE(path.ops().ClampedGate({.out = out, .gate_up = in}, path.stream()).ok());
    CHECK(out.PaddingIntact());
    return out.Read();
  });
}

TEST_CASE("the reference clamps: gate from above, up on both sides") {
  Path& path = Reference();
  const Tensor in(path, DType::kF32, {1, 6}, {9, -9, 1, 9, -9, 0.5f});
  const Tensor out = Zeros(path, DType::kF32, {1, 3});
  REQUIRE(path.ops()
              .ClampedGate({.out = out, .gate_up = in, .limit = 2, .alpha = 1.5f}, path.stream())
              .ok());
  const auto expected = [](double gate, double up) {
    return (up + 1) * gate / (1 + std::exp(-1.5 * gate));
  };
  CHECK(out.Read()[0] == Approx(expected(2, 2)));
  CHECK(out.Read()[1] == Approx(expected(-9, -2)));
  CHECK(out.Read()[2] == Approx(expected(1, 0.5)));
}

TEST_CASE("MoeCombine adds up what the experts made of a row") {
  const DType type = GENERATE(DType::kF32, DType::kBF16, DType::kF16);
  const int64_t width = GENERATE(5, 64, 300);
  CheckAgainstReference("MoeCombine", type, [&](Path& path) {
    const Tensor in = Random(path, type, {6, width}, 1, 2);
    const Tensor weights = Random(path, DType::kF32, {3, 2}, 2);
    const Tensor slots(path, {3, 2}, std::vector<int32_t>{5, 0, 1, 3, 4, 2});
    const Tensor out = Zeros(path, type, {3, width}, 4);
    REQUIRE(
        path.ops()
            .MoeCombine({.out = out, .in = in, .weights = weights, .slots = slots}, path.stream())
            .ok());
    CHECK(out.PaddingIntact());
    return out.Read();
  });
}

TEST_CASE("MoeCombine adds what a shared expert made, by its gate, in place") {
  const DType type = GENERATE(DType::kF32, DType::kBF16, DType::kF16);
  const bool gated = GENERATE(false, true), in_place = GENERATE(false, true);
  const int64_t width = GENERATE(5, 64, 300);
  CheckAgainstReference("MoeCombine", type, [&](Path& path) {
    const Tensor in = Random(path, type, {6, width}, 1);
    const Tensor weights = Random(path, DType::kF32, {3, 2}, 2);
    const Tensor slots(path, {3, 2}, std::vector<int32_t>{5, 0, 1, 3, 4, 2});
    const Tensor shared = Random(path, type, {3, width}, 3);
    const Tensor gate = Random(path, DType::kF32, {3, 1}, 4);
    const Tensor out = Zeros(path, type, {3, width});
    const TensorView target = in_place ? TensorView(shared) : TensorView(out);
    REQUIRE(path.ops()
                .MoeCombine({.out = target,
                             .in = in,
                             .weights = weights,
                             .slots = slots,
                             .shared = shared,
                             .shared_gate = gated ? TensorView(gate) : TensorView()},
                            path.stream())
                .ok());
    return (in_place ? shared : out).Read();
  });
}

TEST_CASE("MoeCombine leaves out the slots of experts that another rank has") {
  const int64_t width = GENERATE(5, 64);
  const auto combine = [width](Path& path, const std::vector<int32_t>& held) {
    const Tensor in = Random(path, DType::kF32, {6, width}, 1, 2);
    const Tensor weights = Random(path, DType::kF32, {3, 2}, 2);
    const Tensor slots(path, {3, 2}, std::vector<int32_t>{5, 0, 1, 3, 4, 2});
    const Tensor offsets(path, {static_cast<int64_t>(held.size())}, held);
    const Tensor out = Zeros(path, DType::kF32, {3, width}, 4);
    REQUIRE(
        path.ops()
            .MoeCombine({.out = out, .in = in, .weights = weights, .slots = slots, .held = offsets},
                        path.stream())
            .ok());
    return out.Read();
  };
  const std::vector<float> all = combine(Reference(), {0, 6});
  for (Path* path : PathsWith("MoeCombine")) {
    INFO("path " << path->name());
    const std::vector<float> low = combine(*path, {0, 2, 3}), high = combine(*path, {3, 3, 6});
    std::vector<float> sum(low.size());
    for (size_t i = 0; i < sum.size(); ++i) sum[i] = low[i] + high[i];
    CHECK(Difference(sum, all, 1e-5) == "");
    // Row 0 takes slots 5 and 0, so each half has a part of it.
    CHECK(low[0] != all[0]);
    CHECK(high[0] != all[0]);
  }
}

}  // namespace
}  // namespace tessera::kernels::conformance
