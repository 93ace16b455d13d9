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

Routing Route(Path& path, const std::vector<float>& logits, int64_t experts, int64_t k,
              bool renormalise) {
  const int64_t rows = static_cast<int64_t>(logits.size()) / experts;
  const Tensor in(path, DType::kF32, {rows, experts}, logits, 3);
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
                         .renormalise = renormalise},
                        path.stream())
              .ok());
  return {weights.Read(), slots.ReadInts(), source_rows.ReadInts(), offsets.ReadInts()};
}

TEST_CASE("MoeRoute equals the reference") {
  const auto [experts, k] =
      GENERATE(table<int64_t, int64_t>({{1, 1}, {8, 2}, {8, 8}, {60, 4}, {128, 8}}));
  const int64_t rows = GENERATE(0, 1, 5, 100);
  const bool renormalise = GENERATE(false, true);
  CAPTURE(experts, k, rows, renormalise);
  std::vector<float> logits = RandomFloats(rows * experts, 1);
  for (float& value : logits) value = std::round(value * 20) / 4;  // with ties
  const Routing expected = Route(Reference(), logits, experts, k, renormalise);
  for (Path* path : PathsWith("MoeRoute")) {
    INFO("path " << path->name());
    const Routing actual = Route(*path, logits, experts, k, renormalise);
    CHECK(Difference(actual.weights, expected.weights, 1e-5) == "");
    CHECK(actual.slots == expected.slots);
    CHECK(actual.source_rows == expected.source_rows);
    CHECK(actual.offsets == expected.offsets);
  }
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
