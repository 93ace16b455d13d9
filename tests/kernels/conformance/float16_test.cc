// float16 as the type of weights, activations and caches: the reference and CUDA's kernels compute
// in it, the CPU's fast paths refuse it. Ops of rows are in rows_test.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <string>

#include "tests/kernels/conformance/attention_case.h"
#include "tests/kernels/conformance/path.h"

namespace tessera::kernels::conformance {
namespace {

constexpr DType kF16 = DType::kF16;

std::vector<Path*> Takers(const std::string& op) {
  std::vector<Path*> takers = {&Reference()};
  for (Path* path : PathsWith(op)) {
    if (path->Takes(kF16)) takers.push_back(path);
  }
  return takers;
}

struct Weights {
  Weights(Path& path, const LinearSpec& spec, const TensorView& rows) {
    auto allocated = path.device().Allocate(path.ops().PackedWeightBytes(spec));
    REQUIRE(allocated.ok());
    memory = *std::move(allocated);
    packed = {.spec = spec, .data = memory.data()};
    status = path.ops().PackWeightRows(packed, 0, rows);
  }
  Buffer memory;
  PackedWeights packed;
  absl::Status status;
};

constexpr LinearSpec kSpec = {.in_features = 70, .out_features = 33, .weight_dtype = kF16};

TEST_CASE(
    "Linear and GroupedLinear with float16 weights, activations and products of either type") {
  const DType activation = GENERATE(DType::kF32, kF16), products = GENERATE(DType::kF32, kF16);
  const bool grouped = GENERATE(false, true);
  const int64_t count = GENERATE(5, 40);
  CAPTURE(Name(activation), Name(products), grouped, count);
  const auto run = [&](Path& path) {
    const Tensor rows = Random(Reference(), DType::kF32, {33, 70}, 1);
    const Weights weights(path, kSpec, rows);
    REQUIRE(weights.status.message() == "");
    const Tensor in = Random(path, activation, {count, 70}, 2, 3);
    const Tensor out = Zeros(path, activation, {count, 33}, 2);
    const PackedWeights experts[] = {weights.packed, weights.packed};
    const Tensor offsets(path, {3}, std::vector<int32_t>{0, 2, static_cast<int32_t>(count)});
    Ops& ops = path.ops();
    const TensorView workspace =
        path.Workspace(std::max(ops.LinearWorkspaceBytes(kSpec, count, activation),
                                ops.GroupedLinearWorkspaceBytes(kSpec, count, 2, activation)));
    LinearArgs one = {.out = out, .in = in, .weights = &weights.packed};
    one.workspace = workspace;
    one.products = products;
    GroupedLinearArgs several = {
        .out = out, .in = in, .experts = experts, .expert_offsets = offsets};
    several.workspace = workspace;
    several.products = products;
    const auto status =
        grouped ? ops.GroupedLinear(several, path.stream()) : ops.Linear(one, path.stream());
    REQUIRE(status.message() == "");
    path.Synchronize();
    CHECK(out.PaddingIntact());
    return out.Read();
  };
  const std::vector<float> expected = run(Reference());
  for (Path* path : Takers("Linear")) {
    INFO("path " << path->name());
    const double tolerance = std::max(Tolerance(activation), Tolerance(products));
    CHECK(Difference(run(*path), expected, tolerance) == "");
  }
}

TEST_CASE("float16 weights come back as they are, and one beyond it is refused by place") {
  for (Path* path : Takers("Linear")) {
    INFO("path " << path->name());
    std::vector<float> values = RandomFloats(33 * 70, 1);
    const Tensor rows(Reference(), kF16, {33, 70}, values);
    const Weights weights(*path, kSpec, rows);
    REQUIRE(weights.status.ok());
    const Tensor back = Zeros(Reference(), DType::kF32, {33, 70});
    REQUIRE(path->ops().UnpackWeightRows(weights.packed, 0, back).ok());
    CHECK(back.Read() == rows.Read());
    values[2 * 70 + 3] = 65519;  // rounds to 65504
    CHECK(Weights(*path, kSpec, Tensor(Reference(), DType::kF32, {33, 70}, values)).status.ok());
    values[2 * 70 + 3] = -65520;
    const absl::Status beyond =
        Weights(*path, kSpec, Tensor(Reference(), DType::kF32, {33, 70}, values)).status;
    CHECK_THAT(std::string(beyond.message()),
               Catch::Contains("row 2, input 3 is -65520") && Catch::Contains("--dtype bfloat16"));
  }
}

TEST_CASE("KvWrite to and from float16") {
  const auto [type, cached] = GENERATE(table<DType, DType>(
      {{kF16, kF16}, {DType::kF32, kF16}, {kF16, DType::kF32}, {kF16, DType::kBF16}}));
  CAPTURE(Name(type), Name(cached));
  const auto run = [type = type, cached = cached](Path& path) {
    const Tensor k = Random(path, type, {3, 2, 20}, 1, 4), v = Random(path, type, {3, 2, 20}, 2, 4);
    const Tensor keys = Zeros(path, cached, {2, 2, 4, 20});
    const Tensor values = Zeros(path, cached, {2, 2, 4, 20});
    const Tensor slots(path, {3}, std::vector<int32_t>{5, -1, 2});
    KvWriteArgs args = {.k = k, .v = v, .slots = slots};
    args.cache.keys = keys;
    args.cache.values = values;
    REQUIRE(path.ops().KvWrite(args, path.stream()).message() == "");
    path.Synchronize();
    return keys.Read();
  };
  const std::vector<float> expected = run(Reference());
  for (Path* path : Takers("KvWrite")) CHECK(Difference(run(*path), expected, 0) == "");
}

TEST_CASE("attention with a float16 cache, queries and products of either type") {
  const DType activation = GENERATE(DType::kF32, kF16);
  const DType products = GENERATE(DType::kF32, kF16);
  const int64_t head_dim = GENERATE(20, 64, 128);
  CAPTURE(Name(activation), Name(products), head_dim);
  const AttentionCase c = {.sequences = {{1, 37, 1}, {5, 5, 2}, {0, 20, 3}, {9, 40, 4}},
                           .heads = 4,
                           .kv_heads = 2,
                           .head_dim = head_dim,
                           .activation = activation,
                           .cache = kF16,
                           .products = products};
  const std::vector<float> expected = RunAttention(Reference(), c);
  for (Path* path : Takers("Attention")) {
    INFO("path " << path->name());
    const double tolerance = std::max(Tolerance(activation), Tolerance(products));
    CHECK(Difference(RunAttention(*path, c), expected, tolerance) == "");
  }
}

constexpr float kLargest = 65504;

TEST_CASE("what is beyond float16 is kept as its largest number, and NaN as NaN") {
  const auto run = [](Path& path) {
    std::vector<float> numbers = RandomFloats(3 * 2 * 20, 1);
    for (float& number : numbers) number *= 200000;
    numbers[3] = std::numeric_limits<float>::infinity();
    numbers[5] = std::numeric_limits<float>::quiet_NaN();
    const Tensor k(path, DType::kF32, {3, 2, 20}, numbers);
    const Tensor keys = Zeros(path, kF16, {2, 2, 4, 20}), values = Zeros(path, kF16, {2, 2, 4, 20});
    const Tensor slots(path, {3}, std::vector<int32_t>{5, -1, 2});
    KvWriteArgs args;
    args.cache.keys = keys;
    args.cache.values = values;
    args.k = args.v = k;
    args.slots = slots;
    REQUIRE(path.ops().KvWrite(args, path.stream()).message() == "");
    path.Synchronize();
    std::vector<float> written = values.Read();
    CHECK(std::count_if(written.begin(), written.end(), [](float x) { return x == kLargest; }) > 3);
    CHECK(std::count_if(written.begin(), written.end(), [](float x) { return x == -kLargest; }) >
          3);
    CHECK(std::count_if(written.begin(), written.end(), [](float x) { return x != x; }) == 1);
    for (float& x : written) x = x != x ? 0 : x;
    return written;
  };
  const std::vector<float> expected = run(Reference());
  for (Path* path : Takers("KvWrite")) CHECK(Difference(run(*path), expected, 0) == "");
}

// Their weights are rounded, and may be more than one in all.
TEST_CASE("means of float16's largest number are that number, of contexts split and whole") {
  const DType cache = GENERATE(DType::kF16, DType::kI8, DType::kF8);
  const int64_t head_dim = GENERATE(64, 128);
  CAPTURE(Name(cache), head_dim);
  const AttentionCase c = {.sequences = {{1, 37, 1}, {12, 30, 2}, {1, 600, 3}, {3, 41, 4}},
                           .heads = 4,
                           .kv_heads = 2,
                           .head_dim = head_dim,
                           .activation = kF16,
                           .cache = cache,
                           .products = kF16,
                           .value_scale = kLargest,
                           .equal_values = true};
  for (Path* path : Takers("Attention")) {
    INFO("path " << path->name());
    const std::vector<float> means = RunAttention(*path, c);
    const auto [least, most] = std::minmax_element(means.begin(), means.end());
    CHECK(*least > 0.998f * kLargest);
    CHECK(*most <= kLargest);
  }
}

TEST_CASE("attention in float16 of values in 8 bits, as large as float16 is") {
  const DType cache = GENERATE(DType::kI8, DType::kF8);
  CAPTURE(Name(cache));
  AttentionCase c = {.sequences = {{1, 37, 1}, {12, 30, 2}, {1, 600, 3}},
                     .heads = 4,
                     .kv_heads = 2,
                     .activation = DType::kF32,
                     .cache = cache,
                     .products = kF16};
  for (const float scale : {1.0f, 40000.0f, 65000.0f}) {
    CAPTURE(scale);
    c.value_scale = scale;
    const std::vector<float> expected = RunAttention(Reference(), c);
    for (Path* path : Takers("Attention")) {
      INFO("path " << path->name());
      CHECK(Difference(RunAttention(*path, c), expected, Tolerance(kF16)) == "");
    }
  }
}

TEST_CASE("queries beyond float16 are its largest number: what they attend to is a number") {
  const DType cache = GENERATE(DType::kF16, DType::kI8);
  const AttentionCase c = {.sequences = {{1, 37, 1}, {12, 30, 2}},
                           .cache = cache,
                           .products = kF16,
                           .query_scale = 1e6f};
  for (Path* path : Takers("Attention")) {
    INFO("path " << path->name());
    for (const float x : RunAttention(*path, c)) REQUIRE(std::abs(x) <= 1);
  }
}

TEST_CASE("the CPU's fast paths refuse float16 instead of reading it as another type") {
  for (const auto& path : OtherPaths()) {
    INFO("path " << path->name());
    const Tensor out = Zeros(*path, kF16, {2, 4}), in = Zeros(*path, kF16, {2, 4});
    const absl::Status refused = path->ops().Add({.out = out, .in = in}, path->stream());
    CHECK(absl::IsUnimplemented(refused));
    CHECK_THAT(std::string(refused.message()), Catch::Contains("not in float16"));
    std::vector<std::byte> memory(kSpec.in_features * kSpec.out_features * 8);
    const PackedWeights weights = {.spec = kSpec, .data = memory.data()};
    const Tensor rows = Zeros(*path, DType::kF32, {33, 70});
    CHECK(absl::IsUnimplemented(path->ops().PackWeightRows(weights, 0, rows)));
    CHECK(absl::IsUnimplemented(path->ops().UnpackWeightRows(weights, 0, rows)));
    CHECK_FALSE(path->ops().ComputesIn(kF16));
  }
}

}  // namespace
}  // namespace tessera::kernels::conformance
