// Linear and GroupedLinear through Ops: packed weights against what they unpack to.
#include <algorithm>
#include <catch2/catch.hpp>

#include "kernels/cuda/emulation/runtime.h"
#include "tests/kernels/conformance/path.h"
#include "tests/kernels/device_under_test.h"
#include "tests/kernels/random_bytes.h"
#include "tests/kernels/random_int4.h"

namespace tessera::kernels::conformance {
namespace {

// Weights packed on a path, in memory of their own or where they are told to.
struct Packed {
  Packed(Path& path, const LinearSpec& spec, DType source_type, uint64_t seed,
         std::byte* memory = nullptr)
      : path_(path) {
    if (memory == nullptr) {
      auto allocated = path.device().Allocate(path.ops().PackedWeightBytes(spec));
      REQUIRE(allocated.ok());
      buffer_ = *std::move(allocated);
      memory = buffer_.data();
    }
    weights = {.spec = spec, .data = memory};
    // In two parts, as a worker that reads shards would.
    const int64_t half = spec.out_features / 2;
    Pack(0, half, source_type, seed);
    Pack(half, spec.out_features - half, source_type, seed + 1);
  }
  void Pack(int64_t first, int64_t rows, DType source_type, uint64_t seed) {
    const LinearSpec& spec = weights.spec;
    if (spec.weight_dtype == DType::kI4) {
      const auto made = RandomInt4(rows, spec.in_features, spec.group_size, seed, spec.blocks);
      const TensorView source =
          Int4Rows(made, 0, rows, spec.in_features, spec.group_size, spec.blocks);
      REQUIRE(path_.ops().PackWeightRows(weights, first, source).ok());
      return;
    }
    if (source_type == DType::kI8 || spec.weight_dtype == DType::kF8) {
      auto made = RandomBytes(spec.weight_dtype, rows, spec.in_features, spec.group_size, seed);
      if (spec.e2m1) TakeE2m1(made, rows, spec.in_features, spec.group_size);
      const TensorView source = ByteRows(made, 0, rows, spec.in_features, spec.group_size);
      REQUIRE(path_.ops().PackWeightRows(weights, first, source).ok());
      return;
    }
    const Tensor source = Random(Reference(), source_type, {rows, spec.in_features}, seed);
    REQUIRE(path_.ops().PackWeightRows(weights, first, source).ok());
  }
  std::vector<float> Unpack() const {
    const LinearSpec& spec = weights.spec;
    const Tensor out = Zeros(Reference(), DType::kF32, {spec.out_features, spec.in_features});
    REQUIRE(path_.ops().UnpackWeightRows(weights, 0, out).ok());
    return out.Read();
  }

  PackedWeights weights;

 private:
  Path& path_;
  Buffer buffer_;
};

// in * weights^T + bias in double, rounded to floats.
std::vector<float> Product(const std::vector<float>& in, const std::vector<float>& weights,
                           const std::vector<float>& bias, int64_t in_features) {
  const int64_t rows = static_cast<int64_t>(in.size()) / in_features;
  const int64_t columns = static_cast<int64_t>(weights.size()) / in_features;
  std::vector<float> out(rows * columns);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) {
      double sum = bias.empty() ? 0.0 : bias[c];
      for (int64_t i = 0; i < in_features; ++i) {
        sum += double{in[r * in_features + i]} * weights[c * in_features + i];
      }
      out[r * columns + c] = static_cast<float>(sum);
    }
  }
  return out;
}

// f32 activations are held to f32 whatever the weights, unless rounding them was allowed.
double LinearTolerance(DType activation, DType products) {
  return activation == DType::kF32 && products == DType::kF32 ? 1e-5 : 1e-2;
}

std::vector<Path*> AllPaths(const std::string& op) {
  std::vector<Path*> all = PathsWith(op);
  // A run on one device comes beside one on all paths, which has the reference.
  if (cuda::DevicesUnderTest() == cuda::UnderTest::kAllWithoutGpu) all.push_back(&Reference());
  return all;
}

// One linear of `rows` rows on a path, against products in double.
void CheckLinear(Path& path, const LinearSpec& spec, DType activation, DType products, int64_t rows,
                 DType source = DType::kF32) {
  INFO("path " << path.name());
  CAPTURE(Name(spec.weight_dtype), spec.group_size, spec.blocks.size, spec.blocks.skipped,
          Name(activation), Name(products), spec.in_features, spec.out_features, rows);
  const Packed packed(path, spec, source, 1);
  const Tensor in = Random(path, activation, {rows, spec.in_features}, 5, 3);
  const Tensor bias = Random(path, DType::kF32, {spec.out_features}, 6);
  const Tensor out = Zeros(path, activation, {rows, spec.out_features}, 2);
  LinearArgs args = {.out = out, .in = in, .weights = &packed.weights};
  args.products = products;
  const bool biased = rows % 2 == 1;
  if (biased) args.bias = bias;
  args.workspace = path.Workspace(path.ops().LinearWorkspaceBytes(spec, rows, activation));
  REQUIRE(path.ops().Linear(args, path.stream()).ok());
  const std::vector<float> expected = Product(
      in.Read(), packed.Unpack(), biased ? bias.Read() : std::vector<float>(), spec.in_features);
  CHECK(Difference(out.Read(), expected, LinearTolerance(activation, products)) == "");
  CHECK(out.PaddingIntact());
}

TEST_CASE("Linear: shapes, weight and activation types, bias") {
  const DType weight = GENERATE(DType::kF32, DType::kBF16, DType::kI8, DType::kF8, DType::kI4);
  const DType activation = GENERATE(DType::kF32, DType::kBF16);
  const DType products = GENERATE(DType::kF32, DType::kBF16);
  const auto [in_features, out_features] =
      GENERATE(table<int64_t, int64_t>({{1, 1}, {64, 96}, {130, 33}, {257, 64}, {512, 100}}));
  const int64_t rows = GENERATE(0, 1, 2, 7, 40);
  for (Path* path : AllPaths("Linear")) {
    CheckLinear(*path,
                {.in_features = in_features,
                 .out_features = out_features,
                 .weight_dtype = weight,
                 .group_size = 64},
                activation, products, rows);
  }
}

TEST_CASE("Linear: a gate by SiLU has the bits of the product and of GatedActivate") {
  const DType weight = GENERATE(DType::kBF16, DType::kI8, DType::kF8, DType::kI4);
  const int64_t half = GENERATE(1, 3, 64, 101), rows = GENERATE(1, 2, 3, 9);
  CAPTURE(Name(weight), half, rows);
  const LinearSpec spec = {
      .in_features = 96, .out_features = 2 * half, .weight_dtype = weight, .group_size = 32};
  for (Path* path : AllPaths("Linear")) {
    INFO("path " << path->name());
    Ops& ops = path->ops();
    const Packed packed(*path, spec, DType::kF32, 1);
    const Tensor in = Random(*path, DType::kF32, {rows, 96}, 5, 3);
    const Tensor bias = Random(*path, DType::kF32, {2 * half}, 6);
    const Tensor wide = Zeros(*path, DType::kF32, {rows, 2 * half});
    const Tensor apart = Zeros(*path, DType::kF32, {rows, half});
    const Tensor fused = Zeros(*path, DType::kF32, {rows, half}, 2);
    LinearArgs args = {.out = wide, .in = in, .weights = &packed.weights, .bias = bias};
    args.products = DType::kBF16;
    args.workspace = path->Workspace(ops.LinearWorkspaceBytes(spec, rows, DType::kF32));
    REQUIRE(ops.Linear(args, path->stream()).ok());
    REQUIRE(ops.GatedActivate({.out = apart, .gate_up = wide}, path->stream()).ok());
    args.out = fused;
    args.silu_gate = true;
    const bool fuses = ops.FusesSiluGate(spec, rows, args.products);
    const bool few = rows <= (weight == DType::kBF16 ? 4 : 2);
    // Where tensor cores do not take the type, GEMV computes any number of rows.
    const bool on_gpu = path == CudaEmulated() || path == Gpu();
    CHECK((on_gpu ? fuses || !few : !fuses));
    CHECK(ops.Linear(args, path->stream()).ok() == fuses);
    path->Synchronize();
    if (!fuses) continue;
    CHECK(fused.Read() == apart.Read());
    CHECK(fused.PaddingIntact());
  }
}

TEST_CASE("Linear: codes of which four bits are kept have the weights that bytes have") {
  const auto [in_features, out_features] =
      GENERATE(table<int64_t, int64_t>({{1, 1}, {130, 33}, {512, 100}}));
  const DType products = GENERATE(DType::kF32, DType::kF16, DType::kBF16);
  const int64_t group_size = GENERATE(16, 32, 64);
  const LinearSpec spec = {.in_features = in_features,
                           .out_features = out_features,
                           .weight_dtype = DType::kI8,
                           .group_size = group_size,
                           .e2m1 = true};
  const std::vector<float> bytes = Packed(Reference(), spec, DType::kI8, 1).Unpack();
  for (Path* path : AllPaths("Linear")) {
    INFO("path " << path->name());
    if (products == DType::kF16 && !path->ops().ComputesIn(DType::kF16)) continue;
    CHECK(Packed(*path, spec, DType::kI8, 1).Unpack() == bytes);
    for (const int64_t rows : {1, 2, 40}) {
      CheckLinear(*path, spec, DType::kF32, products, rows, DType::kI8);
    }
  }
}

TEST_CASE("Linear: int4 with offsets, in blocks of a group and of several") {
  const DType activation = GENERATE(DType::kF32, DType::kBF16);
  const DType products = GENERATE(DType::kF32, DType::kBF16);
  const auto [in_features, out_features] =
      GENERATE(table<int64_t, int64_t>({{1, 1}, {330, 33}, {1088, 100}}));
  const int64_t rows = GENERATE(1, 2, 7, 70);
  std::vector<Int4Form> forms(std::begin(kInt4Offsets), std::end(kInt4Offsets));
  forms.push_back({16, {.size = 256, .skipped = 16}});  // no tensor cores
  for (const auto& [group, blocks] : forms) {
    for (Path* path : AllPaths("Linear")) {
      CheckLinear(*path,
                  {.in_features = in_features,
                   .out_features = out_features,
                   .weight_dtype = DType::kI4,
                   .group_size = group,
                   .blocks = blocks},
                  activation, products, rows);
    }
  }
}

TEST_CASE("packing: what comes back is the conversion asked for, from every source type") {
  const DType source = GENERATE(DType::kF32, DType::kF16, DType::kBF16);
  for (Path* path : AllPaths("Linear")) {
    INFO("path " << path->name());
    const LinearSpec spec = {.in_features = 100, .out_features = 40};
    // Random() made these two halves; the tensor rounds them to the source's type.
    Tensor first = Random(Reference(), source, {20, 100}, 1);
    std::vector<float> given = RandomFloats(20 * 100, 1);
    const std::vector<float> second = RandomFloats(20 * 100, 2);
    given.insert(given.end(), second.begin(), second.end());
    const double rounding = source == DType::kF32 ? 0 : source == DType::kF16 ? 0x1p-11 : 0x1p-8;
    CHECK(Difference(Packed(*path, spec, source, 1).Unpack(), given, rounding) == "");
    LinearSpec halved = spec;
    halved.weight_dtype = DType::kBF16;
    CHECK(Difference(Packed(*path, halved, source, 1).Unpack(), given, 0x1p-8) == "");
    LinearSpec quantised = spec;
    quantised.weight_dtype = DType::kI8;
    quantised.group_size = 32;
    // Half a step of a group whose largest weight is at most 1, and what the source lost.
    CHECK(Difference(Packed(*path, quantised, source, 1).Unpack(), given, 0.51 / 127 + rounding) ==
          "");
  }
}

TEST_CASE("packing int4: what comes back is what the codes say, and floats are refused") {
  std::vector<Int4Form> forms(std::begin(kInt4Offsets), std::end(kInt4Offsets));
  forms.push_back({32, {}});
  for (const auto& [group, blocks] : forms) {
    const LinearSpec spec = {.in_features = 100,
                             .out_features = 40,
                             .weight_dtype = DType::kI4,
                             .group_size = group,
                             .blocks = blocks};
    std::vector<float> given;
    for (const uint64_t seed : {1, 2}) {
      const auto half = Int4Weights(RandomInt4(20, 100, group, seed, blocks), 100, group, blocks);
      given.insert(given.end(), half.begin(), half.end());
    }
    for (Path* path : AllPaths("Linear")) {
      INFO("path " << path->name());
      const Packed packed(*path, spec, DType::kF32, 1);
      CHECK(packed.Unpack() == given);
      const Tensor floats = Random(Reference(), DType::kF32, {20, 100}, 1);
      const absl::Status refused = path->ops().PackWeightRows(packed.weights, 0, floats);
      CHECK(refused.code() == absl::StatusCode::kInvalidArgument);
      // Looked up as an embedding.
      const Tensor ids(*path, {3}, std::vector<int32_t>{39, 0, 40});
      const Tensor out = Zeros(*path, DType::kF32, {3, 100});
      EmbeddingArgs args = {.out = out, .packed = &packed.weights, .ids = ids};
      REQUIRE(path->ops().Embedding(args, path->stream()).ok());
      std::vector<float> expected(given.end() - 100, given.end());
      expected.insert(expected.end(), given.begin(), given.begin() + 100);
      expected.resize(300);
      CHECK(out.Read() == expected);
    }
  }
}

TEST_CASE("packing int8 and float8 codes: what comes back is scale * code") {
  const DType type = GENERATE(DType::kI8, DType::kF8);
  const LinearSpec spec = {
      .in_features = 100, .out_features = 40, .weight_dtype = type, .group_size = 16};
  std::vector<float> given;
  for (const uint64_t seed : {1, 2}) {
    const auto half = ByteWeights(type, RandomBytes(type, 20, 100, 16, seed), 100, 16);
    given.insert(given.end(), half.begin(), half.end());
  }
  for (Path* path : AllPaths("Linear")) {
    INFO("path " << path->name());
    const Packed packed(*path, spec, DType::kI8, 1);
    CHECK(packed.Unpack() == given);
    const Tensor ids(*path, {2}, std::vector<int32_t>{39, 40});
    const Tensor out = Zeros(*path, DType::kF32, {2, 100});
    EmbeddingArgs args = {.out = out, .packed = &packed.weights, .ids = ids};
    REQUIRE(path->ops().Embedding(args, path->stream()).ok());
    std::vector<float> expected(given.end() - 100, given.end());
    expected.resize(200);
    CHECK(out.Read() == expected);
  }
}

TEST_CASE("Linear: offsets that no kernel has are refused") {
  Path& path = Reference();
  const auto refusal = [&](LinearSpec spec) {
    const Tensor bytes = Zeros(path, DType::kF32, {64, 64});
    const PackedWeights weights = {.spec = spec, .data = bytes.view().data};
    return std::string(path.ops().PackWeightRows(weights, 0, bytes).message());
  };
  const LinearSpec good = {.in_features = 64,
                           .out_features = 64,
                           .weight_dtype = DType::kI4,
                           .group_size = 32,
                           .blocks = {.size = 64, .skipped = 32}};
  CHECK_THAT(refusal(good), !Catch::Contains("blocks"));
  LinearSpec bad = good;
  bad.blocks.size = 48;
  CHECK_THAT(refusal(bad), Catch::Contains("have blocks of whole groups"));
  bad.blocks = {.size = 64, .skipped = 64};
  CHECK_THAT(refusal(bad), Catch::Contains("have blocks of whole groups"));
  bad.blocks = {.size = 64, .skipped = 16};
  CHECK_THAT(refusal(bad), Catch::Contains("have blocks of whole groups"));
  bad = good;
  bad.weight_dtype = DType::kI8;
  CHECK_THAT(refusal(bad), Catch::Contains("have blocks of whole groups"));
}

struct ExpertRows {
  std::vector<int32_t> offsets, sources;
  int64_t in_rows = 0;  // where they are read by index
};

// The first have a row or few on average, the second many.
ExpertRows FewOrMany(bool many) {
  if (!many) return {{0, 3, 3, 4, 9}, {4, 0, 2, 1, 3, 4, 0, 1, 2}, 5};
  ExpertRows rows = {{0, 21, 21, 22, 53}, {}, 20};
  for (int32_t slot = 0; slot < 53; ++slot) rows.sources.push_back(slot * 7 % 20);
  return rows;
}

TEST_CASE("GroupedLinear: rows by expert, empty experts, rows read by index") {
  const DType weight = GENERATE(DType::kF32, DType::kBF16, DType::kI8, DType::kF8, DType::kI4);
  const DType activation = GENERATE(DType::kF32, DType::kBF16);
  const DType products = GENERATE(DType::kF32, DType::kBF16);
  const bool indexed = GENERATE(false, true);
  // Many rows; and experts whose weights lie at equal distances, as a model's do.
  const bool many = GENERATE(false, true);
  // int4 twice, with zeros and with offsets.
  const bool offsets_of_codes = weight == DType::kI4 && GENERATE(false, true);
  CAPTURE(Name(weight), offsets_of_codes, Name(activation), Name(products), indexed, many);
  const int64_t width = 96, columns = 70;
  const auto [offsets, sources, in_rows] = FewOrMany(many);
  const auto slots = static_cast<int64_t>(sources.size());
  for (Path* path : AllPaths("GroupedLinear")) {
    INFO("path " << path->name());
    LinearSpec spec = {
        .in_features = width, .out_features = columns, .weight_dtype = weight, .group_size = 32};
    if (offsets_of_codes) spec.blocks = {.size = 64, .skipped = 32};
    const int64_t distance = (path->ops().PackedWeightBytes(spec) + 191) / 64 * 64;
    auto together = path->device().Allocate(4 * distance);
    REQUIRE(together.ok());
    std::vector<std::unique_ptr<Packed>> experts;
    std::vector<PackedWeights> weights;
    for (uint64_t e = 0; e < 4; ++e) {
      std::byte* memory = many ? together->data() + e * distance : nullptr;
      experts.push_back(std::make_unique<Packed>(*path, spec, DType::kF32, 10 * e, memory));
      weights.push_back(experts.back()->weights);
    }
    const Tensor in = Random(*path, activation, {indexed ? in_rows : slots, width}, 5);
    const Tensor out = Zeros(*path, activation, {slots, columns});
    const Tensor source_rows(*path, {slots}, sources), expert_offsets(*path, {5}, offsets);
    GroupedLinearArgs args = {
        .out = out, .in = in, .experts = weights, .expert_offsets = expert_offsets};
    args.products = products;
    if (indexed) args.source_rows = source_rows;
    args.workspace =
        path->Workspace(path->ops().GroupedLinearWorkspaceBytes(spec, slots, 4, activation));
    REQUIRE(path->ops().GroupedLinear(args, path->stream()).ok());

    const std::vector<float> rows = in.Read();
    std::vector<float> expected;
    for (size_t e = 0; e < 4; ++e) {
      for (int32_t slot = offsets[e]; slot < offsets[e + 1]; ++slot) {
        const int64_t row = indexed ? sources[slot] : slot;
        const std::vector<float> one(rows.begin() + row * width, rows.begin() + (row + 1) * width);
        const std::vector<float> product = Product(one, experts[e]->Unpack(), {}, width);
        expected.insert(expected.end(), product.begin(), product.end());
      }
    }
    CHECK(Difference(out.Read(), expected, LinearTolerance(activation, products)) == "");
  }
}

TEST_CASE("Linear in f32: a row's bits depend on nothing beside it") {
  const int64_t in_features = 300, out_features = 80, rows = 50;
  for (Path* path : PathsWith("Linear")) {
    INFO("path " << path->name());
    const LinearSpec spec = {.in_features = in_features, .out_features = out_features};
    const Packed packed(*path, spec, DType::kF32, 1);
    const Tensor in = Random(*path, DType::kF32, {rows, in_features}, 5);
    const auto run = [&](int64_t first, int64_t count) {
      TensorView part = in.view();
      part.data += first * in_features * static_cast<int64_t>(sizeof(float));
      const Tensor out = Zeros(*path, DType::kF32, {count, out_features});
      LinearArgs args = {.out = out, .in = part.Rows(count), .weights = &packed.weights};
      args.workspace = path->Workspace(path->ops().LinearWorkspaceBytes(spec, count, DType::kF32));
      REQUIRE(path->ops().Linear(args, path->stream()).ok());
      return out.Read();
    };
    const std::vector<float> whole = run(0, rows);
    for (int64_t count : {1, 2, 3, 5, 13, 31}) {
      for (int64_t first = 0; first + count <= rows; first += 7) {
        const std::vector<float> part = run(first, count);
        CAPTURE(first, count);
        REQUIRE(std::equal(part.begin(), part.end(), whole.begin() + first * out_features));
      }
    }
  }
}

// Matrices that are alike and lie one behind the other, as a model's experts and heads do.
struct SideBySide {
  SideBySide(Path& path, const LinearSpec& spec, int64_t count) {
    const int64_t step = (path.ops().PackedWeightBytes(spec) + 63) / 64 * 64;
    auto allocated = path.device().Allocate(count * step);
    REQUIRE(allocated.ok());
    memory = *std::move(allocated);
    for (int64_t i = 0; i < count; ++i) {
      weights.push_back({.spec = spec, .data = memory.data() + i * step});
      const Tensor rows =
          Random(Reference(), DType::kF32, {spec.out_features, spec.in_features}, 10 + i);
      REQUIRE(path.ops().PackWeightRows(weights.back(), 0, rows).ok());
    }
  }
  Buffer memory;
  std::vector<PackedWeights> weights;
};

struct Types {
  DType weight, products;
};

TEST_CASE("HeadLinear by one launch has the numbers of a launch a head") {
  const Types types = GENERATE(Types{DType::kBF16, DType::kF32}, Types{DType::kBF16, DType::kBF16});
  const int64_t tokens = GENERATE(1, 3, 40), heads = 5, in = 64, out = 72;
  CAPTURE(Name(types.weight), Name(types.products), tokens);
  const LinearSpec spec = {
      .in_features = in, .out_features = out, .weight_dtype = types.weight, .group_size = 32};
  const auto run = [&](Path& path) {
    const SideBySide matrices(path, spec, heads);
    const Tensor rows = Random(path, DType::kF32, {tokens * heads, in}, 5, 8);
    const Tensor result = Zeros(path, DType::kF32, {tokens * heads, out}, 2);
    HeadLinearArgs args = {.out = result, .in = rows, .heads = matrices.weights};
    args.products = types.products;
    args.workspace =
        path.Workspace(path.ops().LinearWorkspaceBytes(spec, tokens * heads, DType::kF32));
    const int64_t before = cuda::emulated::LaunchesMade();
    REQUIRE(path.ops().HeadLinear(args, path.stream()).message() == "");
    path.Synchronize();
    // One rounds.
    if (&path == CudaEmulated()) CHECK(cuda::emulated::LaunchesMade() - before <= 2);
    CHECK(result.PaddingIntact());
    return result.Read();
  };
  const std::vector<float> expected = run(Reference());
  for (Path* path : PathsWith("HeadLinear")) {
    INFO("path " << path->name());
    const double tolerance = std::max(Tolerance(DType::kF32), Tolerance(types.products));
    CHECK(Difference(run(*path), expected, tolerance) == "");
  }
}

TEST_CASE("GroupedLinear where one expert has most of the rows: tensor cores take that one") {
  const Types types = GENERATE(Types{DType::kBF16, DType::kF32}, Types{DType::kBF16, DType::kBF16},
                               Types{DType::kI8, DType::kBF16});
  const bool gathered = GENERATE(false, true);
  CAPTURE(Name(types.weight), Name(types.products), gathered);
  constexpr int64_t kExperts = 16, kHot = 19, kSlots = kHot + 8, kIn = 64, kOut = 72;
  const LinearSpec spec = {
      .in_features = kIn, .out_features = kOut, .weight_dtype = types.weight, .group_size = 32};
  std::vector<int32_t> ends = {0}, sources;
  for (int64_t e = 0; e < kExperts; ++e) {
    ends.push_back(ends.back() + static_cast<int32_t>(e == 5 ? kHot : e % 2 == 0));
  }
  REQUIRE(ends.back() == kSlots);
  for (int32_t slot = 0; slot < kSlots; ++slot) sources.push_back(slot * 7 % kSlots);
  const auto run = [&](Path& path) {
    const SideBySide matrices(path, spec, kExperts);
    const Tensor rows = Random(path, DType::kF32, {kSlots, kIn}, 5, 8);
    const Tensor result = Zeros(path, DType::kF32, {kSlots, kOut}, 2);
    const Tensor offsets(path, {kExperts + 1}, ends), from(path, {kSlots}, sources);
    GroupedLinearArgs args = {
        .out = result, .in = rows, .experts = matrices.weights, .expert_offsets = offsets};
    if (gathered) args.source_rows = from;
    args.products = types.products;
    args.workspace =
        path.Workspace(path.ops().GroupedLinearWorkspaceBytes(spec, kSlots, kExperts, DType::kF32));
    const int64_t gemm = cuda::emulated::LaunchesFrom("gemm.cu");
    const int64_t gemv = cuda::emulated::LaunchesFrom("gemv.cu");
    REQUIRE(path.ops().GroupedLinear(args, path.stream()).message() == "");
    path.Synchronize();
    if (&path == CudaEmulated()) {
      CHECK(cuda::emulated::LaunchesFrom("gemv.cu") == gemv + 1);
      // Else nothing may be rounded.
      const bool multiplies = types.products != DType::kF32 && path.ops().ComputesIn(DType::kBF16);
      CHECK(cuda::emulated::LaunchesFrom("gemm.cu") == gemm + (multiplies ? 1 : 0));
    }
    CHECK(result.PaddingIntact());
    return result.Read();
  };
  const std::vector<float> expected = run(Reference());
  for (Path* path : PathsWith("GroupedLinear")) {
    INFO("path " << path->name());
    const double tolerance = std::max(Tolerance(DType::kF32), Tolerance(types.products));
    CHECK(Difference(run(*path), expected, tolerance) == "");
  }
}

TEST_CASE("HeadLinear multiplies each head's rows by its own matrix") {
  const DType weight = GENERATE(DType::kF32, DType::kBF16, DType::kI8);
  const int64_t tokens = GENERATE(0, 1, 5), heads = GENERATE(1, 3), in = 24, out = 40;
  for (Path* path : AllPaths("HeadLinear")) {
    INFO("path " << path->name());
    CAPTURE(Name(weight), tokens, heads);
    const LinearSpec spec = {
        .in_features = in, .out_features = out, .weight_dtype = weight, .group_size = 8};
    std::vector<Packed> packed;
    std::vector<PackedWeights> weights;
    for (int64_t head = 0; head < heads; ++head) {
      packed.emplace_back(*path, spec, DType::kF32, 1 + 2 * head);
      weights.push_back(packed.back().weights);
    }
    const Tensor rows = Random(*path, DType::kF32, {tokens * heads, in}, 5, 3);
    const Tensor result = Zeros(*path, DType::kF32, {tokens * heads, out}, 2);
    HeadLinearArgs args = {.out = result, .in = rows, .heads = weights};
    args.workspace = path->Workspace(path->ops().LinearWorkspaceBytes(spec, tokens, DType::kF32));
    REQUIRE(path->ops().HeadLinear(args, path->stream()).ok());
    const std::vector<float> given = rows.Read(), made = result.Read();
    for (int64_t row = 0; row < tokens * heads; ++row) {
      const std::vector<float> own(given.begin() + row * in, given.begin() + (row + 1) * in);
      const std::vector<float> expected = Product(own, packed[row % heads].Unpack(), {}, in);
      const std::vector<float> actual(made.begin() + row * out, made.begin() + (row + 1) * out);
      CHECK(Difference(actual, expected, 1e-5) == "");
    }
    CHECK(result.PaddingIntact());
    args.in = Random(*path, DType::kF32, {tokens * heads + 1, in}, 5);
    if (heads > 1) CHECK(!path->ops().HeadLinear(args, path->stream()).ok());
  }
}

}  // namespace
}  // namespace tessera::kernels::conformance
