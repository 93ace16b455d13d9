// GEMV and the tensor-core GEMM against sums in double precision, under every schedule.
#include "kernels/cuda/linear/linear_kernels.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/cuda/device/weight_rows.h"
#include "kernels/half_floats.h"
#include "tests/kernels/conformance/path.h"
#include "tests/kernels/cuda/test_device.h"
#include "tests/kernels/random_bytes.h"
#include "tests/kernels/random_int4.h"

namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM {
namespace {

using conformance::Difference;
using conformance::RandomFloats;
using conformance::Tolerance;

constexpr float kUnwritten = 77;

// Numbers as a type stores them.
std::vector<std::byte> Stored(DType type, const std::vector<float>& values) {
  std::vector<std::byte> bytes(values.size() * SizeInBytes(type));
  for (size_t i = 0; i < values.size(); ++i) {
    const auto put = [&](auto value) {
      std::memcpy(bytes.data() + i * sizeof value, &value, sizeof value);
    };
    switch (type) {
      case DType::kBF16: put(FromFloat<BFloat16>(values[i])); break;
      case DType::kF16: put(FromFloat<Float16>(values[i])); break;
      default: put(values[i]);
    }
  }
  return bytes;
}

std::vector<float> Loaded(DType type, const std::vector<std::byte>& bytes) {
  std::vector<float> values(bytes.size() / SizeInBytes(type));
  for (size_t i = 0; i < values.size(); ++i) {
    const auto take = [&](auto value) {
      std::memcpy(&value, bytes.data() + i * sizeof value, sizeof value);
      return ToFloat(value);
    };
    values[i] = type == DType::kBF16  ? take(BFloat16{})
                : type == DType::kF16 ? take(Float16{})
                                      : take(float{});
  }
  return values;
}

// Products of some rows with one matrix of weights or several, and what they must give.
struct Problem {
  DType in = DType::kBF16, weights = DType::kBF16, out = DType::kF32;
  int64_t rows = 1, columns = 1, depth = 8;
  int64_t in_stride = 0;    // 0: dense
  int64_t group_size = 64;  // of int8, int4
  OffsetBlocks blocks = {};
  std::vector<int32_t> expert_offsets = {};
  std::vector<int32_t> source_rows = {};
  bool with_bias = false;
  bool split = false;  // of the depth
  GemmChoice choice = {};

  int64_t stride() const { return in_stride == 0 ? depth : in_stride; }
  int64_t experts() const {
    return expert_offsets.empty() ? 1 : static_cast<int64_t>(expert_offsets.size()) - 1;
  }
  LinearSpec spec() const {
    return {.in_features = depth,
            .out_features = columns,
            .weight_dtype = weights,
            .group_size = group_size,
            .blocks = blocks};
  }
  std::vector<float> inputs() const { return RandomFloats(rows * stride(), 1); }
  std::vector<float> bias() const { return RandomFloats(columns, 3); }
  // As the device has them, and as floats.
  std::vector<std::byte> packed() const {
    const int64_t all = experts() * columns;
    if (weights == DType::kI4) {
      const auto rows = RandomInt4(all, depth, group_size, 2, blocks);
      const TensorView view = Int4Rows(rows, 0, all, depth, group_size, blocks);
      std::vector<std::byte> bytes(all * WeightRowBytes(spec()));
      REQUIRE(PackRows(spec(), 0, view, bytes.data()).ok());
      return bytes;
    }
    if (weights == DType::kF8) {
      const auto rows = RandomBytes(weights, all, depth, group_size, 2);
      std::vector<std::byte> bytes(all * WeightRowBytes(spec()));
      REQUIRE(PackRows(spec(), 0, ByteRows(rows, 0, all, depth, group_size), bytes.data()).ok());
      return bytes;
    }
    const std::vector<float> values = RandomFloats(experts() * columns * depth, 2);
    std::vector<std::byte> bytes(experts() * columns * WeightRowBytes(spec()));
    const TensorView view(const_cast<float*>(values.data()), DType::kF32,
                          {experts() * columns, depth});
    REQUIRE(PackRows(spec(), 0, view, bytes.data()).ok());
    return bytes;
  }
  std::vector<float> unpacked() const {
    std::vector<float> values(experts() * columns * depth);
    UnpackRows(spec(), packed().data(),
               TensorView(values.data(), DType::kF32, {experts() * columns, depth}));
    return values;
  }
};

std::vector<float> Expected(const Problem& p) {
  const std::vector<float> in = Loaded(p.in, Stored(p.in, p.inputs()));
  const std::vector<float> weights = p.unpacked(), bias = p.bias();
  std::vector<float> out(p.rows * p.columns, kUnwritten);
  for (int64_t e = 0; e < p.experts(); ++e) {
    const int64_t begin = p.expert_offsets.empty() ? 0 : p.expert_offsets[e];
    const int64_t end = p.expert_offsets.empty() ? p.rows : p.expert_offsets[e + 1];
    for (int64_t row = begin; row < end; ++row) {
      const int64_t source = p.source_rows.empty() ? row : p.source_rows[row];
      for (int64_t c = 0; c < p.columns; ++c) {
        double sum = p.with_bias ? bias[c] : 0.0;
        for (int64_t k = 0; k < p.depth; ++k) {
          sum += double{in[source * p.stride() + k]} * weights[(e * p.columns + c) * p.depth + k];
        }
        out[row * p.columns + c] = static_cast<float>(sum);
      }
    }
  }
  return out;
}

using Launcher = cudaError_t (*)(const LinearParams&, cudaStream_t);

LinearParams ParamsOf(const Problem& p, TestDevice& device, std::byte* out) {
  LinearParams params = {.out = out,
                         .in = device.Upload(Stored(p.in, p.inputs())),
                         .weights = device.Upload(p.packed()),
                         .rows = p.rows,
                         .columns = p.columns,
                         .depth = p.depth,
                         .out_stride = p.columns,
                         .in_stride = p.stride(),
                         .weight_row_bytes = WeightRowBytes(p.spec()),
                         .scales_offset_bytes = ScalesOffsetBytes(p.spec()),
                         .group_size = p.group_size,
                         .steps_offset_bytes = StepsOffsetBytes(p.spec()),
                         .blocks = p.blocks,
                         .experts = p.experts(),
                         .expert_bytes = p.columns * WeightRowBytes(p.spec()),
                         .weight_dtype = p.weights,
                         .in_dtype = p.in,
                         .out_dtype = p.out,
                         .choice = p.choice};
  if (p.with_bias) params.bias = device.Upload(p.bias());
  if (!p.expert_offsets.empty()) params.expert_offsets = device.Upload(p.expert_offsets);
  if (!p.source_rows.empty()) params.source_rows = device.Upload(p.source_rows);
  if (p.split) {
    const GemmSplit split = ChooseGemmSplit(p.columns, p.depth, p.weights);
    REQUIRE(split.parts > 1);
    params.part_sums = reinterpret_cast<float*>(
        device.Allocate<std::byte>(GemmPartBytes(split, p.rows, p.columns)));
    params.arrivals = device.Upload(std::vector<int32_t>(kMaxSplitTiles));
  }
  return params;
}

std::vector<float> Run(Launcher launch, const Problem& p, TestDevice& device) {
  const int64_t count = p.rows * p.columns;
  std::byte* out = device.Upload(Stored(p.out, std::vector<float>(count, kUnwritten)));
  const LinearParams params = ParamsOf(p, device, out);
  device.Check(launch(params, device.stream()));
  if (p.split) {  // zeros, so that the next launch may have them
    const std::vector<int32_t> left = device.Download(params.arrivals, kMaxSplitTiles);
    CHECK(left == std::vector<int32_t>(kMaxSplitTiles));
  }
  return Loaded(p.out, device.Download(out, count * SizeInBytes(p.out)));
}

void CheckProblem(Launcher launch, const Problem& p) {
  CAPTURE(Name(p.in), Name(p.weights), Name(p.out), p.rows, p.columns, p.depth, p.stride(),
          p.group_size, p.blocks.size, p.blocks.skipped, p.with_bias, p.split);
  const double tolerance = std::max(2e-6, p.out == DType::kF32 ? 0 : Tolerance(p.out));
  CHECK(Difference(
            RunEverySchedule<float>([&](TestDevice& device) { return Run(launch, p, device); }),
            Expected(p), tolerance) == "");
}

TEST_CASE("GEMV: every type, number of rows and remainder of columns and depth") {
  TESSERA_SKIP_WITHOUT_DEVICE();
  const DType in = GENERATE(DType::kF32, DType::kBF16, DType::kF16);
  const DType weights = GENERATE(DType::kBF16, DType::kF16, DType::kI8, DType::kF8, DType::kI4);
  const bool half = weights == DType::kBF16 || weights == DType::kF16;
  if (in != DType::kF32 && half && weights != in) return;
  const int64_t rows = GENERATE(1, 2, 3, 8);
  const auto [columns, depth] = GENERATE(table<int64_t, int64_t>({{1, 1}, {35, 130}, {18, 600}}));
  CheckProblem(&LaunchGemv, {.in = in,
                             .weights = weights,
                             .out = in,
                             .rows = rows,
                             .columns = columns,
                             .depth = depth,
                             .with_bias = rows % 2 == 1});
}

TEST_CASE("GEMV: inputs that are not aligned, and scales of small groups") {
  TESSERA_SKIP_WITHOUT_DEVICE();
  for (const int64_t stride : {203, 208}) {
    for (const DType weights : {DType::kI8, DType::kF8, DType::kI4}) {
      CheckProblem(&LaunchGemv, {.in = DType::kBF16,
                                 .weights = weights,
                                 .rows = 5,
                                 .columns = 9,
                                 .depth = 200,
                                 .in_stride = stride,
                                 .group_size = 32});
    }
  }
}

TEST_CASE("GEMM: every type, tile of rows, remainder of columns and depth") {
  TESSERA_SKIP_WITHOUT_DEVICE();
  const DType in = GENERATE(DType::kBF16, DType::kF16);
  const DType codes = GENERATE(DType::kF32, DType::kI8, DType::kF8, DType::kI4);  // f32: none
  const auto [rows, columns, depth] = GENERATE(
      table<int64_t, int64_t, int64_t>({{1, 1, 8}, {17, 130, 40}, {65, 40, 96}, {130, 9, 200}}));
  CheckProblem(&LaunchGemm, {.in = in,
                             .weights = codes == DType::kF32 ? in : codes,
                             .out = rows == 17 ? in : DType::kF32,
                             .rows = rows,
                             .columns = columns,
                             .depth = depth,
                             .in_stride = depth + 8,
                             .with_bias = rows != 1});
}

TEST_CASE("GEMM: the depth in parts, with groups that end within them or not") {
  TESSERA_SKIP_WITHOUT_DEVICE();
  const DType in = GENERATE(DType::kBF16, DType::kF16);
  const DType codes = GENERATE(DType::kF32, DType::kI8, DType::kF8, DType::kI4);  // f32: none
  const auto [rows, columns, group_size] =
      GENERATE(table<int64_t, int64_t, int64_t>({{9, 10, 32}, {17, 130, 1120}, {64, 9, 96}}));
  CheckProblem(&LaunchGemm, {.in = in,
                             .weights = codes == DType::kF32 ? in : codes,
                             .out = rows == 17 ? in : DType::kF32,
                             .rows = rows,
                             .columns = columns,
                             .depth = 1096,
                             .in_stride = 1104,
                             .group_size = group_size,
                             .with_bias = rows != 9,
                             .split = true});
}

TEST_CASE("GEMM of many rows: groups that fill a stage evenly, and those that do not") {
  TESSERA_SKIP_WITHOUT_DEVICE();
  const DType codes = GENERATE(DType::kI8, DType::kF8, DType::kI4);
  const auto [rows, group_size] =
      GENERATE(table<int64_t, int64_t>({{64, 32}, {130, 128}, {130, 96}, {65, 256}}));
  CheckProblem(
      &LaunchGemm,
      {.weights = codes, .rows = rows, .columns = 70, .depth = 712, .group_size = group_size});
}

TEST_CASE("codes become 16-bit weights, rounded, and rows end in zeros") {
  TESSERA_SKIP_WITHOUT_DEVICE();
  const DType type = GENERATE(DType::kBF16, DType::kF16);
  const auto [codes, block] = GENERATE(table<DType, int64_t>(
      {{DType::kI8, 0}, {DType::kF8, 0}, {DType::kI4, 0}, {DType::kI4, 128}}));
  CAPTURE(Name(type), Name(codes), block);
  Problem p = {.weights = codes, .columns = 5, .depth = 163, .group_size = 32};
  p.blocks = {.size = block};
  constexpr int64_t kStride = 168;
  std::vector<float> expected;
  const std::vector<float> weights = p.unpacked();
  for (int64_t column = 0; column < p.columns; ++column) {
    const auto row = weights.begin() + column * p.depth;
    expected.insert(expected.end(), row, row + p.depth);
    expected.resize((column + 1) * kStride);
  }
  const std::vector<float> widened = RunEverySchedule<float>([&](TestDevice& device) {
    const LinearSpec spec = p.spec();
    auto* const out = device.Allocate<uint16_t>(p.columns * kStride);
    const WidenParams params = {.out = out,
                                .weights = device.Upload(p.packed()),
                                .columns = p.columns,
                                .depth = p.depth,
                                .out_stride = kStride,
                                .weight_row_bytes = WeightRowBytes(spec),
                                .scales_offset_bytes = ScalesOffsetBytes(spec),
                                .group_size = p.group_size,
                                .steps_offset_bytes = StepsOffsetBytes(spec),
                                .blocks = p.blocks,
                                .weight_dtype = codes,
                                .out_dtype = type};
    device.Check(LaunchWiden(params, device.stream()));
    std::vector<float> values;
    for (const uint16_t bits : device.Download(out, p.columns * kStride)) {
      values.push_back(type == DType::kBF16 ? ToFloat(BFloat16{bits}) : ToFloat(Float16{bits}));
    }
    return values;
  });
  CHECK(widened == Loaded(type, Stored(type, expected)));
}

TEST_CASE("int4 with offsets: GEMV, GEMM, and GEMM with the depth in parts") {
  TESSERA_SKIP_WITHOUT_DEVICE();
  const DType in = GENERATE(DType::kF32, DType::kBF16, DType::kF16);
  const auto [group_size, blocks] = GENERATE(from_range(kInt4Offsets));
  Problem p = {.in = in, .weights = DType::kI4, .rows = 2, .columns = 35, .depth = 1096};
  p.in_stride = 1104;
  p.group_size = group_size;
  p.blocks = blocks;
  for (const int64_t rows : {1, 2, 3}) {
    p.rows = rows;
    CheckProblem(&LaunchGemv, p);
  }
  if (in == DType::kF32) return;
  for (const auto& [rows, columns] : {std::pair{1, 10}, {17, 130}, {40, 9}, {130, 9}}) {
    p.rows = rows;
    p.columns = columns;
    CheckProblem(&LaunchGemm, p);
  }
  p.rows = 17;
  p.split = true;
  CheckProblem(&LaunchGemm, p);
}

TEST_CASE("experts: rows between offsets, empty experts, rows read by index") {
  TESSERA_SKIP_WITHOUT_DEVICE();
  const DType weights = GENERATE(DType::kBF16, DType::kI8, DType::kF8, DType::kI4);
  const bool indexed = GENERATE(false, true);
  // Rows 0 to 2 and from 25 on belong to other ranks' experts.
  Problem p = {.weights = weights,
               .rows = 28,
               .columns = 20,
               .depth = 72,
               .expert_offsets = {3, 3, 20, 21, 21, 25}};
  p.group_size = 32;
  for (int32_t row = 0; indexed && row < p.rows; ++row) p.source_rows.push_back((row * 5) % 28);
  CAPTURE(indexed);
  CheckProblem(&LaunchGemm, p);
  CheckProblem(&LaunchGemv, p);
}

TEST_CASE("experts: more of them than rows") {
  TESSERA_SKIP_WITHOUT_DEVICE();
  const DType weights = GENERATE(DType::kBF16, DType::kI4);
  Problem p = {.weights = weights, .rows = 5, .columns = 6, .depth = 40};
  // Experts 3 (a row), 31 (two) and 38 (a row) of 40; the last row is another rank's.
  for (int32_t e = 0; e <= 40; ++e) {
    p.expert_offsets.push_back((e > 3 ? 1 : 0) + (e > 31 ? 2 : 0) + (e > 38 ? 1 : 0));
  }
  CheckProblem(&LaunchGemm, p);
  CheckProblem(&LaunchGemv, p);
}

TEST_CASE("a row has the same bits in every tile and beside any other rows") {
  TESSERA_SKIP_WITHOUT_DEVICE();
  const DType weights = GENERATE(DType::kF16, DType::kI8, DType::kF8, DType::kI4);
  const bool offsets = weights == DType::kI4 && GENERATE(false, true);
  const int64_t group_size = offsets ? 32 : GENERATE(64, 128);
  TestDevice device;
  const auto first_row = [&](Launcher launch, int64_t rows, bool split = false) {
    const Problem p = {.in = DType::kF16,
                       .weights = weights,
                       .rows = rows,
                       .columns = 33,
                       .depth = split ? 1320 : 320,
                       .group_size = group_size,
                       .blocks = {.size = offsets ? 256 : 0},
                       .split = split};
    std::vector<float> out = Run(launch, p, device);
    out.resize(p.columns);
    return out;
  };
  const std::vector<float> one_of_many = first_row(&LaunchGemm, 128);
  for (const int64_t rows : {1, 16, 32, 64, 200}) {
    CAPTURE(rows);
    CHECK(first_row(&LaunchGemm, rows) == one_of_many);
  }
  const std::vector<float> in_parts = first_row(&LaunchGemm, 9, true);
  for (const int64_t rows : {16, 17, 40, 64}) {
    CAPTURE(rows);
    CHECK(first_row(&LaunchGemm, rows, true) == in_parts);
  }
  const std::vector<float> alone = first_row(&LaunchGemv, 1);
  for (const int64_t rows : {2, 3, 8}) CHECK(first_row(&LaunchGemv, rows) == alone);
}

TEST_CASE("rounded rows are padded with zeros, and saturate in float16") {
  TESSERA_SKIP_WITHOUT_DEVICE();
  const DType type = GENERATE(DType::kF16, DType::kBF16);
  const std::vector<float> in = {1, -2.5f, 1e6f, -1e6f, NAN, 77, 3, 65519, 65520, 0, INFINITY, 77};
  const std::vector<float> out = RunEverySchedule<float>([&](TestDevice& device) {
    std::byte* rounded = device.Allocate<std::byte>(2 * 8 * 2);
    device.Check(LaunchRoundRows({.out = rounded,
                                  .in = device.Upload(in),
                                  .rows = 2,
                                  .width = 5,
                                  .out_stride = 8,
                                  .in_stride = 6,
                                  .out_dtype = type},
                                 device.stream()));
    std::vector<float> values = Loaded(type, device.Download(rounded, 2 * 8 * 2));
    REQUIRE(std::isnan(values[4]));
    values[4] = 0;
    return values;
  });
  const auto as = [&](float value) {
    return type == DType::kF16 ? std::clamp(value, -65504.0f, 65504.0f)
                               : ToFloat(FromFloat<BFloat16>(value));
  };
  CHECK(out == std::vector<float>{1, -2.5f, as(1e6f), as(-1e6f), 0, 0, 0, 0, 3, as(65519),
                                  as(65520), 0, as(INFINITY), 0, 0, 0});
}

TEST_CASE("what is not aligned, and types of other kernels, are refused before the launch") {
  TESSERA_SKIP_WITHOUT_DEVICE();
  TestDevice device;
  const Problem p = {.rows = 16, .columns = 8, .depth = 16};
  std::byte* out = device.Allocate<std::byte>(16 * 8 * 4);
  const LinearParams good = ParamsOf(p, device, out);
  CHECK(LaunchGemm(good, device.stream()) == cudaSuccess);
  CHECK(LaunchGemv(good, device.stream()) == cudaSuccess);
  const auto refused = [&](Launcher launch, const auto& change) {
    LinearParams bad = good;
    change(bad);
    return launch(bad, device.stream()) == cudaErrorInvalidValue;
  };
  CHECK(refused(&LaunchGemm, [](LinearParams& bad) { bad.in_stride = 17; }));
  CHECK(refused(&LaunchGemm, [](LinearParams& bad) { bad.weight_row_bytes = 40; }));
  CHECK(refused(&LaunchGemv, [](LinearParams& bad) { bad.weight_row_bytes = 40; }));
  CHECK(refused(&LaunchGemm, [](LinearParams& bad) { bad.in_dtype = DType::kF32; }));
  CHECK(refused(&LaunchGemm, [](LinearParams& bad) { bad.weight_dtype = DType::kF16; }));
  CHECK(refused(&LaunchGemv, [](LinearParams& bad) { bad.weight_dtype = DType::kF32; }));
  // Sums of parts, of too many rows or of experts.
  auto* parts = reinterpret_cast<float*>(out);
  CHECK(refused(&LaunchGemm, [&](LinearParams& bad) {
    bad.part_sums = parts;
    bad.rows = kMaxSplitRows + 1;
  }));
  CHECK(refused(&LaunchGemm, [&](LinearParams& bad) {
    bad.part_sums = parts;
    bad.expert_offsets = reinterpret_cast<const int32_t*>(out);
  }));
  for (const DType codes : {DType::kI8, DType::kF8, DType::kI4}) {  // half a window
    CHECK(refused(&LaunchGemm, [&](LinearParams& bad) {
      bad.weight_dtype = codes;
      bad.group_size = 16;
    }));
  }
  device.Synchronize();
}

TEST_CASE("GEMM: every choice that tuning measures gives the same bits, in every schedule") {
  TESSERA_SKIP_WITHOUT_DEVICE();
  const DType weights = GENERATE(DType::kBF16, DType::kI4);
  const auto [rows, group_size, split] =
      GENERATE(table<int64_t, int64_t, bool>({{9, 64, true}, {40, 32, true}, {70, 96, false}}));
  Problem p = {.weights = weights,
               .rows = rows,
               .columns = 70,
               .depth = 576,
               .group_size = group_size,
               .split = split};
  const GemmProblem problem = {.rows = rows, .columns = p.columns, .weights = weights};
  const std::vector<GemmChoice> choices = GemmChoices(problem, p.group_size);
  CHECK(choices.size() >= 2);
  std::vector<float> usual;
  for (const GemmChoice& choice : choices) {
    CAPTURE(Name(weights), rows, int{choice.row_tiles}, int{choice.row_warps}, int{choice.stages});
    p.choice = choice;
    const std::vector<float> sums =
        RunEverySchedule<float>([&](TestDevice& device) { return Run(&LaunchGemm, p, device); });
    if (usual.empty()) usual = sums;
    CHECK(sums == usual);
  }
}

}  // namespace
}  // namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM
