// Embedding, gather, add, norms and activations against the reference.
#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cpu/isa.h"
#include "kernels/half_floats.h"
#include "tests/kernels/conformance/path.h"

namespace tessera::kernels::conformance {
namespace {

// Paths that the processor lacks are not among those that the cases of this suite run; what AMX
// adds runs everywhere with its tiles emulated (tests/kernels/linear_emulated_tiles.h).
TEST_CASE("every path that this processor can run is run, and named") {
  std::vector<std::string> expected, ran;
  for (const Isa isa : SupportedIsas(DetectCpuFeatures())) expected.emplace_back(Name(isa));
  ran.push_back(Reference().name());
  for (const auto& path : OtherPaths()) ran.push_back(path->name());
  CHECK(ran == expected);
  if (CudaEmulated() != nullptr) ran.push_back(CudaEmulated()->name());
  std::string line = "paths that ran:";
  for (const std::string& name : ran) line += " " + name;
  WARN(line << (MissingPaths().empty() ? "" : "; " + MissingPaths()));
}

// What linears read: where a device says which type that is, ops write it, with the bits that
// rounding their f32 outputs gives; elsewhere they refuse it.
TEST_CASE("norms and activations write the inputs of linears, beyond float16 its largest number") {
  const DType half = GENERATE(DType::kBF16, DType::kF16);
  const int64_t width = GENERATE(8, 72, 1024, 5000);
  CAPTURE(Name(half), width);
  constexpr int64_t kRows = 9;
  for (Path* path : PathsWith("RmsNorm")) {
    INFO("path " << path->name());
    Ops& ops = path->ops();
    const LinearSpec spec = {.in_features = width, .out_features = 64, .weight_dtype = half};
    const bool narrows = ops.LinearInputs(spec, kRows, half) == half;
    CHECK(ops.LinearInputs(spec, 1, half) == DType::kF32);  // nothing is rounded for one row
    CHECK(ops.LinearInputs(spec, kRows, DType::kF32) == DType::kF32);
    std::vector<float> numbers = RandomFloats(kRows * 2 * width, 1);
    numbers[3] = numbers[width + 3] = 7000;  // their product is too large for float16
    const Tensor in(*path, DType::kF32, {kRows, 2 * width}, numbers);
    const Tensor weight = Random(*path, DType::kF32, {2 * width}, 2);
    const auto check = [&](int64_t columns, const auto& op) {
      const Tensor exact = Zeros(*path, DType::kF32, {kRows, columns}, 4);
      const Tensor rounded = Zeros(*path, half, {kRows, columns}, 4);
      REQUIRE(op(exact).ok());
      CHECK(op(rounded).ok() == narrows);
      path->Synchronize();
      if (!narrows) return;
      std::vector<float> expected = exact.Read();
      for (float& value : expected) {
        if (half == DType::kF16) value = std::clamp(value, -65504.0f, 65504.0f);
        value = half == DType::kF16 ? ToFloat(FromFloat<Float16>(value))
                                    : ToFloat(FromFloat<BFloat16>(value));
      }
      CHECK(rounded.Read() == expected);
      CHECK(rounded.PaddingIntact());
    };
    check(2 * width, [&](const Tensor& out) {
      return ops.RmsNorm({.out = out, .in = in, .weight = weight}, path->stream());
    });
    check(2 * width, [&](const Tensor& out) {
      return ops.LayerNorm({.out = out, .in = in, .weight = weight}, path->stream());
    });
    check(2 * width, [&](const Tensor& out) {
      return ops.Activate({.out = out, .in = in, .kind = Activation::kRelu2}, path->stream());
    });
    check(width, [&](const Tensor& out) {
      return ops.GatedActivate({.out = out, .gate_up = in}, path->stream());
    });
    check(width, [&](const Tensor& out) {
      return ops.ClampedGate({.out = out, .gate_up = in, .limit = 1e4f}, path->stream());
    });
  }
}

TEST_CASE("Embedding: padding, shards, accumulation, every table type") {
  const DType out = GENERATE(DType::kF32, DType::kBF16, DType::kF16);
  const DType table = GENERATE(DType::kF32, DType::kF16, DType::kBF16);
  const int64_t hidden = GENERATE(1, 7, 64, 100, 1027);
  const bool accumulate = GENERATE(false, true);
  CAPTURE(Name(out), Name(table), hidden, accumulate);
  CheckAgainstReference("Embedding", out, [&](Path& path) {
    const Tensor rows = Random(path, table, {10, hidden}, 1, 5);
    const Tensor ids(path, {6}, std::vector<int32_t>{-1, 20, 29, 30, 19, 25});
    const Tensor result = Random(path, out, {6, hidden}, 2, 3);
    REQUIRE(path.ops()
                .Embedding({.out = result,
                            .table = rows,
                            .ids = ids,
                            .vocabulary_begin = 20,
                            .accumulate = accumulate},
                           path.stream())
                .ok());
    CHECK(result.PaddingIntact());
    return result.Read();
  });
}

TEST_CASE("Embedding: rows of packed weights are what unpacking them gives") {
  const DType weight = GENERATE(DType::kF32, DType::kBF16, DType::kI8);
  const int64_t hidden = GENERATE(1, 64, 300);
  CAPTURE(Name(weight), hidden);
  constexpr int64_t kRows = 70;
  const std::vector<float> source = RandomFloats(kRows * hidden, 1);
  const auto run = [&](Path& path) {
    PackedWeights packed;
    packed.spec = {.in_features = hidden, .out_features = kRows, .weight_dtype = weight};
    auto memory = path.device().Allocate(path.ops().PackedWeightBytes(packed.spec));
    REQUIRE(memory.ok());
    packed.data = memory->data();
    const TensorView view(const_cast<float*>(source.data()), DType::kF32, {kRows, hidden});
    REQUIRE(path.ops().PackWeightRows(packed, 0, view).ok());
    const Tensor ids(path, {6}, std::vector<int32_t>{-1, 20, 89, 90, 19, 55});
    const Tensor result = Random(path, DType::kF32, {6, hidden}, 2, 3);
    REQUIRE(path.ops()
                .Embedding({.out = result, .packed = &packed, .ids = ids, .vocabulary_begin = 20},
                           path.stream())
                .ok());
    CHECK(result.PaddingIntact());
    const std::vector<float> rows = result.Read();
    std::vector<float> unpacked(kRows * hidden);
    const TensorView all(unpacked.data(), DType::kF32, {kRows, hidden});
    REQUIRE(path.ops().UnpackWeightRows(packed, 0, all).ok());
    for (const auto& [i, row] : {std::pair{1, 0}, {2, 69}, {5, 35}}) {
      CHECK(std::equal(rows.begin() + i * hidden, rows.begin() + (i + 1) * hidden,
                       unpacked.begin() + row * hidden));
    }
    for (const int i : {0, 3, 4}) {
      CHECK(std::all_of(rows.begin() + i * hidden, rows.begin() + (i + 1) * hidden,
                        [](float x) { return x == 0.0f; }));
    }
  };
  run(Reference());
  for (Path* path : PathsWith("Embedding")) run(*path);
}

TEST_CASE("norms: residual, bias, strided rows and heads") {
  const DType type = GENERATE(DType::kF32, DType::kBF16, DType::kF16);
  // Fours of elements stay fours where the padding behind rows is one, too.
  using Extents = std::pair<int64_t, int64_t>;
  const auto [width, padding] = GENERATE(values<Extents>(
      {{1, 1}, {15, 1}, {16, 1}, {96, 1}, {130, 1}, {2048, 1}, {516, 4}, {2048, 4}, {9000, 8}}));
  const bool layer = GENERATE(false, true);
  const bool residual = GENERATE(false, true);
  const int64_t heads = GENERATE(0, 3);
  CAPTURE(Name(type), width, padding, layer, residual, heads);
  CheckAgainstReference(layer ? "LayerNorm" : "RmsNorm", type, [&](Path& path) {
    const auto shape =
        heads == 0 ? std::vector<int64_t>{9, width} : std::vector<int64_t>{9, heads, width};
    const Tensor in = Random(path, type, shape, 1, 16);
    const Tensor weight = Random(path, DType::kF32, {width}, 2);
    const Tensor bias = Random(path, DType::kF32, {width}, 3);
    const Tensor sum = Random(path, type, shape, 4, padding);
    const Tensor out = Zeros(path, type, shape, 2 * padding);
    NormArgs args = {.out = out, .in = in, .weight = weight, .epsilon = 1e-3f};
    if (residual) args.residual = sum;
    if (layer) args.bias = bias;
    REQUIRE((layer ? path.ops().LayerNorm(args, path.stream())
                   : path.ops().RmsNorm(args, path.stream()))
                .ok());
    CHECK(out.PaddingIntact());
    CHECK(sum.PaddingIntact());
    std::vector<float> result = out.Read();
    const std::vector<float> sums = sum.Read();
    result.insert(result.end(), sums.begin(), sums.end());
    return result;
  });
}

TEST_CASE("norms in place, and LayerNorm without bias") {
  const bool layer = GENERATE(false, true);
  CheckAgainstReference(layer ? "LayerNorm" : "RmsNorm", DType::kF32, [&](Path& path) {
    const Tensor x = Random(path, DType::kF32, {5, 70}, 1);
    const Tensor weight = Random(path, DType::kF32, {70}, 2);
    const NormArgs args = {.out = x, .in = x, .weight = weight};
    REQUIRE((layer ? path.ops().LayerNorm(args, path.stream())
                   : path.ops().RmsNorm(args, path.stream()))
                .ok());
    return x.Read();
  });
}

TEST_CASE("GatherRows: any order, repeats, padding") {
  const DType type = GENERATE(DType::kF32, DType::kBF16, DType::kF16);
  const int64_t width = GENERATE(3, 64, 257);
  CheckAgainstReference("GatherRows", type, [&](Path& path) {
    const Tensor in = Random(path, type, {8, width}, 1, 4);
    const Tensor rows(path, {5}, std::vector<int32_t>{7, -1, 0, 7, 3});
    const Tensor out = Random(path, type, {5, width}, 2, 1);
    REQUIRE(path.ops().GatherRows({.out = out, .in = in, .rows = rows}, path.stream()).ok());
    CHECK(out.PaddingIntact());
    return out.Read();
  });
}

TEST_CASE("FeedTokens: drawn tokens, known ones, padding, rows that drew none") {
  CheckAgainstReference("FeedTokens", 0.0, [&](Path& path) {
    std::vector<int32_t> ids(300, 7);  // more than one block of threads
    ids[0] = -1;
    for (const auto& [at, row] : {std::pair(1, 0), {2, 3}, {5, 3}, {290, 1}, {299, 2}, {9, 4}}) {
      ids[at] = kFedToken - row;
    }
    const Tensor fed(path, {300}, ids);
    const Tensor drawn(path, {4}, std::vector<int32_t>{31, 0, kNothingToPick, 99});
    REQUIRE(path.ops().FeedTokens({.ids = fed, .drawn = drawn}, path.stream()).ok());
    path.Synchronize();
    const std::vector<int32_t> got = fed.ReadInts();
    CHECK(std::vector<int32_t>(got.begin(), got.begin() + 6) ==
          std::vector<int32_t>{-1, 31, 99, 7, 7, 99});
    CHECK(got[290] == 0);
    CHECK(got[299] == -1);
    CHECK(got[9] == -1);
    return std::vector<float>(got.begin(), got.end());
  });
}

TEST_CASE("Add in place") {
  const DType type = GENERATE(DType::kF32, DType::kBF16, DType::kF16);
  const int64_t rows = GENERATE(0, 1, 33), width = GENERATE(5, 1024);
  CheckAgainstReference("Add", type, [&](Path& path) {
    const Tensor in = Random(path, type, {rows, width}, 1, 4);
    const Tensor out = Random(path, type, {rows, width}, 2, 1);
    REQUIRE(path.ops().Add({.out = out, .in = in}, path.stream()).ok());
    CHECK(out.PaddingIntact());
    return out.Read();
  });
}

TEST_CASE("norms with weights of each head's own") {
  const DType type = GENERATE(DType::kF32, DType::kBF16);
  const bool layer = GENERATE(false, true);
  const int64_t width = GENERATE(20, 64, 516);
  CAPTURE(Name(type), layer, width);
  CheckAgainstReference(layer ? "LayerNorm" : "RmsNorm", type, [&](Path& path) {
    const Tensor x = Random(path, type, {5, 3, width}, 1, 4);
    const Tensor weight = Random(path, DType::kF32, {3, width}, 2);
    const NormArgs args = {.out = x, .in = x, .weight = weight};
    REQUIRE((layer ? path.ops().LayerNorm(args, path.stream())
                   : path.ops().RmsNorm(args, path.stream()))
                .ok());
    CHECK(x.PaddingIntact());
    return x.Read();
  });
}

// The parts of a row that ranks hold, normalised as the row is.
TEST_CASE("RmsNorm of parts of rows by the squares of all") {
  const DType type = GENERATE(DType::kF32, DType::kBF16);
  const int64_t first = GENERATE(7, 256), second = GENERATE(24, 1040);
  CAPTURE(Name(type), first, second);
  CheckAgainstReference("SumSquares", type, [&](Path& path) {
    const int64_t width = first + second;
    const Tensor rows = Random(path, type, {6, width}, 1, 3);
    const Tensor weight = Random(path, DType::kF32, {width}, 2);
    const Tensor sums = Zeros(path, DType::kF32, {6, 3}, 0);
    std::vector<float> result;
    const auto part_of = [&](const TensorView& view, int64_t begin, int64_t count) {
      TensorView part(view.data + begin * SizeInBytes(view.dtype), view.dtype, {6, count});
      part.row_stride = view.row_stride;
      return part;
    };
    const TensorView a = part_of(rows, 0, first), b = part_of(rows, first, second);
    const TensorView of_a = part_of(sums, 0, 1), of_b = part_of(sums, 1, 1);
    const TensorView all = part_of(sums, 2, 1);
    REQUIRE(path.ops().SumSquares({.out = of_a, .in = a}, path.stream()).ok());
    REQUIRE(path.ops().SumSquares({.out = of_b, .in = b}, path.stream()).ok());
    REQUIRE(path.ops().Add({.out = all, .in = of_a}, path.stream()).ok());
    REQUIRE(path.ops().Add({.out = all, .in = of_b}, path.stream()).ok());
    for (const auto& [part, begin] : {std::pair(a, int64_t{0}), std::pair(b, first)}) {
      const TensorView weights(weight.view().data + begin * 4, DType::kF32, {part.shape[1]});
      REQUIRE(path.ops()
                  .RmsNorm({.out = part,
                            .in = part,
                            .weight = weights,
                            .squares = all,
                            .whole_width = width},
                           path.stream())
                  .ok());
    }
    CHECK(rows.PaddingIntact());
    return rows.Read();
  });
}

TEST_CASE("Scale: factors, soft caps, limits, factors by position") {
  const DType type = GENERATE(DType::kF32, DType::kBF16, DType::kF16);
  const float soft_cap = GENERATE(0.0f, 0.5f, 30.0f);
  const float limit = GENERATE(0.0f, 0.4f);
  const bool by_position = GENERATE(false, true);
  const int64_t width = GENERATE(9, 300);
  CAPTURE(Name(type), soft_cap, limit, by_position, width);
  CheckAgainstReference("Scale", type, [&](Path& path) {
    std::vector<float> values = RandomFloats(7 * width, 1);
    for (size_t i = 0; i < values.size(); i += 3) values[i] *= 100;
    const Tensor rows(path, type, {7, width}, values, 4);
    const Tensor positions(path, {7}, std::vector<int32_t>{-1, 0, 6, 7, 8, 4000, 1 << 30});
    ScaleArgs args = {.rows = rows, .factor = 1.25f, .soft_cap = soft_cap, .limit = limit};
    if (by_position) {
      args.positions = positions;
      args.position_gain = 0.1f;
      args.position_period = 8;
      args.position_offset = 1;
    }
    REQUIRE(path.ops().Scale(args, path.stream()).ok());
    CHECK(rows.PaddingIntact());
    return rows.Read();
  });
}

const auto kAllActivations = {
    Activation::kSilu,        Activation::kGeluErf,   Activation::kGeluTanh,
    Activation::kRelu,        Activation::kRelu2,     Activation::kRelu6,
    Activation::kLeakyRelu,   Activation::kSigmoid,   Activation::kTanh,
    Activation::kLinear,      Activation::kHardSwish, Activation::kMish,
    Activation::kLaplace,     Activation::kQuickGelu, Activation::kGelu10,
    Activation::kSqrtSoftplus};

TEST_CASE("activations, from tiny to saturated arguments") {
  const DType type = GENERATE(DType::kF32, DType::kBF16, DType::kF16);
  const Activation kind = GENERATE(values(kAllActivations));
  const float reach = GENERATE(1e-3f, 4.0f, 200.0f);
  const int64_t width = GENERATE(9, 512);
  CAPTURE(Name(type), static_cast<int>(kind), reach, width);
  CheckAgainstReference("Activate", type, [&](Path& path) {
    std::vector<float> values = RandomFloats(7 * width, 1);
    for (float& value : values) value *= reach;
    const Tensor in(path, type, {7, width}, values, 8);
    const Tensor out = Zeros(path, type, {7, width}, 8);
    REQUIRE(path.ops().Activate({.out = out, .in = in, .kind = kind}, path.stream()).ok());
    CHECK(out.PaddingIntact());
    return out.Read();
  });
}

TEST_CASE("gated activations") {
  const DType type = GENERATE(DType::kF32, DType::kBF16, DType::kF16);
  const Activation kind = GENERATE(values(kAllActivations));
  const int64_t width = GENERATE(9, 512, 1365);
  CAPTURE(Name(type), static_cast<int>(kind), width);
  CheckAgainstReference("GatedActivate", type, [&](Path& path) {
    std::vector<float> values = RandomFloats(7 * 2 * width, 1);
    for (float& value : values) value *= 5;
    const Tensor gate_up(path, type, {7, 2 * width}, values, 4);
    const Tensor out = Zeros(path, type, {7, width}, 8);
    REQUIRE(path.ops()
                .GatedActivate({.out = out, .gate_up = gate_up, .kind = kind}, path.stream())
                .ok());
    CHECK(out.PaddingIntact());
    return out.Read();
  });
}

}  // namespace
}  // namespace tessera::kernels::conformance
