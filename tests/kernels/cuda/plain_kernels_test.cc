// The plain kernels against the reference ops of the CPU.
#include "kernels/cuda/plain/plain_kernels.h"

#include <catch2/catch.hpp>
#include <cstdint>
#include <vector>

#include "kernels/half_floats.h"
#include "tests/kernels/conformance/path.h"
#include "tests/kernels/cuda/test_device.h"

namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM {
namespace {

using conformance::Difference;
using conformance::RandomFloats;
using conformance::Reference;
using conformance::Tensor;
using conformance::Tolerance;

// Elements between rows that a kernel must leave as they are.
constexpr int64_t kPadding = 3;
constexpr float kPaddingValue = 77;

// Rows of `width` with padding behind each, and back.
std::vector<float> Padded(const std::vector<float>& dense, int64_t width) {
  std::vector<float> padded;
  for (size_t begin = 0; begin < dense.size(); begin += width) {
    padded.insert(padded.end(), dense.begin() + begin, dense.begin() + begin + width);
    padded.insert(padded.end(), kPadding, kPaddingValue);
  }
  return padded;
}

std::vector<float> Dense(const std::vector<float>& padded, int64_t width) {
  std::vector<float> dense;
  for (size_t begin = 0; begin < padded.size(); begin += width + kPadding) {
    dense.insert(dense.end(), padded.begin() + begin, padded.begin() + begin + width);
    for (int64_t i = 0; i < kPadding; ++i) REQUIRE(padded[begin + width + i] == kPaddingValue);
  }
  return dense;
}

// A result that no kernel has written anything of, but for the padding.
std::vector<float> Unwritten(int64_t rows, int64_t width) {
  return Padded(std::vector<float>(rows * width, NAN), width);
}

void Append(std::vector<float>& to, const std::vector<float>& values) {
  to.insert(to.end(), values.begin(), values.end());
}

void CheckSame(const std::vector<float>& actual, const std::vector<float>& expected) {
  CHECK(Difference(actual, expected, Tolerance(DType::kF32)) == "");
}

TEST_CASE("RmsNorm: rows, heads, residual") {
  TESSERA_SKIP_WITHOUT_DEVICE();
  const int64_t rows = GENERATE(0, 1, 5), vectors = GENERATE(1, 3);
  const int64_t width = GENERATE(1, 33, 64, 513, 1100);
  const bool with_residual = GENERATE(false, true);
  CAPTURE(rows, vectors, width, with_residual);
  const int64_t row_width = vectors * width, stride = row_width + kPadding;
  const std::vector<float> in = RandomFloats(rows * row_width, 1), weight = RandomFloats(width, 2);
  const std::vector<float> residual = RandomFloats(rows * row_width, 3);

  const std::vector<int64_t> shape = {rows, vectors, width};
  const Tensor cpu_out(Reference(), DType::kF32, shape, in);
  const Tensor cpu_residual(Reference(), DType::kF32, shape, residual);
  const Tensor cpu_weight(Reference(), DType::kF32, {width}, weight);
  NormArgs args = {.out = cpu_out, .in = cpu_out, .weight = cpu_weight, .epsilon = 1e-3f};
  if (with_residual) args.residual = cpu_residual;
  REQUIRE(Reference().ops().RmsNorm(args, Reference().stream()).ok());
  std::vector<float> expected = cpu_out.Read();
  if (with_residual) Append(expected, cpu_residual.Read());

  CheckSame(RunEverySchedule<float>([&](TestDevice& device) {
              float* out = device.Upload(Unwritten(rows, row_width));
              float* sum = with_residual ? device.Upload(Padded(residual, row_width)) : nullptr;
              device.Check(LaunchNorm({.out = out,
                                       .in = device.Upload(Padded(in, row_width)),
                                       .residual = sum,
                                       .weight = device.Upload(weight),
                                       .rows = rows,
                                       .vectors = vectors,
                                       .width = width,
                                       .out_stride = stride,
                                       .in_stride = stride,
                                       .residual_stride = stride,
                                       .epsilon = 1e-3f},
                                      device.stream()));
              std::vector<float> result = Dense(device.Download(out, rows * stride), row_width);
              if (with_residual) {
                Append(result, Dense(device.Download(sum, rows * stride), row_width));
              }
              return result;
            }),
            expected);
}

TEST_CASE("launches that begin early see all that earlier ones wrote") {
  TESSERA_SKIP_WITHOUT_DEVICE();
  constexpr int64_t kRows = 16, kWidth = 200, kRounds = 20;
  std::vector<float> values(kRows * kWidth);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 7);
  std::vector<int32_t> reversed(kRows);
  for (int32_t row = 0; row < kRows; ++row) reversed[row] = kRows - 1 - row;

  // Each round: the rows in reverse order, plus the rows.
  std::vector<float> expected = values;
  for (int round = 0; round < kRounds; ++round) {
    const std::vector<float> before = expected;
    for (int64_t i = 0; i < kRows * kWidth; ++i) {
      expected[i] += before[reversed[i / kWidth] * kWidth + i % kWidth];
    }
  }
  CHECK(RunEverySchedule<float>([&](TestDevice& device) {
          float* from = device.Upload(values);
          float* to = device.Upload(values);
          const int32_t* order = device.Upload(reversed);
          for (int round = 0; round < kRounds; ++round, std::swap(from, to)) {
            device.Check(LaunchGather({.out = to,
                                       .in = from,
                                       .source_rows = order,
                                       .rows = kRows,
                                       .width = kWidth,
                                       .in_rows = kRows,
                                       .out_stride = kWidth,
                                       .in_stride = kWidth},
                                      device.stream()));
            device.Check(LaunchAdd({.out = to,
                                    .in = from,
                                    .rows = kRows,
                                    .width = kWidth,
                                    .out_stride = kWidth,
                                    .in_stride = kWidth},
                                   device.stream()));
          }
          return device.Download(from, kRows * kWidth);
        }) == expected);
}

template <typename T>
void CheckEmbedding(DType dtype, int64_t hidden, bool accumulate) {
  CAPTURE(Name(dtype), hidden, accumulate);
  constexpr int64_t kRows = 10, kBegin = 20, kTokens = 6;
  const std::vector<int32_t> ids = {-1, 20, 29, 30, 19, 25};
  const std::vector<float> table = RandomFloats(kRows * hidden, 1);
  const std::vector<float> before = RandomFloats(kTokens * hidden, 2);
  std::vector<T> stored;
  for (const float value : table) stored.push_back(FromFloat<T>(value));

  const Tensor cpu_out(Reference(), DType::kF32, {kTokens, hidden}, before);
  const Tensor cpu_table(Reference(), dtype, {kRows, hidden}, table);
  const Tensor cpu_ids(Reference(), {kTokens}, ids);
  REQUIRE(Reference()
              .ops()
              .Embedding({.out = cpu_out,
                          .table = cpu_table,
                          .ids = cpu_ids,
                          .vocabulary_begin = kBegin,
                          .accumulate = accumulate},
                         Reference().stream())
              .ok());
  CHECK(RunEverySchedule<float>([&](TestDevice& device) {
          float* out =
              device.Upload(accumulate ? Padded(before, hidden) : Unwritten(kTokens, hidden));
          device.Check(LaunchEmbedding({.out = out,
                                        .table = device.Upload(stored),
                                        .ids = device.Upload(ids),
                                        .tokens = kTokens,
                                        .hidden = hidden,
                                        .vocabulary_rows = kRows,
                                        .vocabulary_begin = kBegin,
                                        .out_stride = hidden + kPadding,
                                        .table_row_bytes = hidden * static_cast<int64_t>(sizeof(T)),
                                        .table_dtype = dtype,
                                        .accumulate = accumulate},
                                       device.stream()));
          return Dense(device.Download(out, kTokens * (hidden + kPadding)), hidden);
        }) == cpu_out.Read());
}

TEST_CASE("Embedding: padding, shards, accumulation, every table type") {
  TESSERA_SKIP_WITHOUT_DEVICE();
  const int64_t hidden = GENERATE(1, 64, 300);
  const bool accumulate = GENERATE(false, true);
  CheckEmbedding<float>(DType::kF32, hidden, accumulate);
  CheckEmbedding<Float16>(DType::kF16, hidden, accumulate);
  CheckEmbedding<BFloat16>(DType::kBF16, hidden, accumulate);
}

TEST_CASE("Rope: whole and partial rotation, queries and keys of unlike heads") {
  TESSERA_SKIP_WITHOUT_DEVICE();
  const int64_t tokens = GENERATE(0, 1, 4), heads = GENERATE(1, 6), kv_heads = GENERATE(1, 2);
  const int64_t head_dim = 80, rotary_dim = GENERATE(80, 32, 2);
  CAPTURE(tokens, heads, kv_heads, rotary_dim);
  const int64_t q_width = heads * head_dim, k_width = kv_heads * head_dim;
  const std::vector<float> q = RandomFloats(tokens * q_width, 1);
  const std::vector<float> k = RandomFloats(tokens * k_width, 2);
  const std::vector<float> cos_sin = RandomFloats(tokens * rotary_dim, 3);

  const Tensor cpu_q(Reference(), DType::kF32, {tokens, heads, head_dim}, q);
  const Tensor cpu_k(Reference(), DType::kF32, {tokens, kv_heads, head_dim}, k);
  const Tensor cpu_cos_sin(Reference(), DType::kF32, {tokens, rotary_dim}, cos_sin);
  REQUIRE(Reference()
              .ops()
              .Rope({.q = cpu_q, .k = cpu_k, .cos_sin = cpu_cos_sin}, Reference().stream())
              .ok());
  std::vector<float> expected = cpu_q.Read();
  Append(expected, cpu_k.Read());

  CheckSame(RunEverySchedule<float>([&](TestDevice& device) {
              float* q_out = device.Upload(Padded(q, q_width));
              float* k_out = device.Upload(Padded(k, k_width));
              device.Check(LaunchRope({.q = q_out,
                                       .k = k_out,
                                       .cos_sin = device.Upload(cos_sin),
                                       .tokens = tokens,
                                       .heads = heads,
                                       .kv_heads = kv_heads,
                                       .head_dim = head_dim,
                                       .rotary_dim = rotary_dim,
                                       .q_stride = q_width + kPadding,
                                       .k_stride = k_width + kPadding,
                                       .cos_sin_stride = rotary_dim},
                                      device.stream()));
              std::vector<float> result =
                  Dense(device.Download(q_out, tokens * (q_width + kPadding)), q_width);
              Append(result, Dense(device.Download(k_out, tokens * (k_width + kPadding)), k_width));
              return result;
            }),
            expected);
}

// On the device alone: out[rows, columns] of the first `rows` rows of `in`.
std::vector<float> Multiply(TestDevice& device, const std::vector<float>& in,
                            const std::vector<float>& weights, const std::vector<float>& bias,
                            int64_t rows, int64_t columns, int64_t depth) {
  float* out = device.Upload(Unwritten(rows, columns));
  device.Check(LaunchMatmul({.out = out,
                             .in = device.Upload(Padded(in, depth)),
                             .weights = device.Upload(weights),
                             .bias = bias.empty() ? nullptr : device.Upload(bias),
                             .rows = rows,
                             .columns = columns,
                             .depth = depth,
                             .out_stride = columns + kPadding,
                             .in_stride = depth + kPadding,
                             .weight_row_bytes = depth * 4},
                            device.stream()));
  return Dense(device.Download(out, rows * (columns + kPadding)), columns);
}

TEST_CASE("Matmul: every remainder of the tile, with and without bias") {
  TESSERA_SKIP_WITHOUT_DEVICE();
  const int64_t rows = GENERATE(0, 1, 17), columns = GENERATE(1, 16, 35);
  const int64_t depth = GENERATE(1, 16, 47, 200);
  const bool with_bias = GENERATE(false, true);
  CAPTURE(rows, columns, depth, with_bias);
  const std::vector<float> in = RandomFloats(rows * depth, 1);
  const std::vector<float> weights = RandomFloats(columns * depth, 2);
  const std::vector<float> bias = with_bias ? RandomFloats(columns, 3) : std::vector<float>();

  PackedWeights packed;
  packed.spec = {.in_features = depth, .out_features = columns, .weight_dtype = DType::kF32};
  auto memory = Reference().device().Allocate(Reference().ops().PackedWeightBytes(packed.spec));
  REQUIRE(memory.ok());
  packed.data = memory->data();
  const TensorView rows_view(const_cast<float*>(weights.data()), DType::kF32, {columns, depth});
  REQUIRE(Reference().ops().PackWeightRows(packed, 0, rows_view).ok());
  const Tensor cpu_in(Reference(), DType::kF32, {rows, depth}, in);
  const Tensor cpu_out(Reference(), DType::kF32, {rows, columns},
                       std::vector<float>(rows * columns));
  const Tensor cpu_bias(Reference(), DType::kF32, {columns},
                        with_bias ? bias : std::vector<float>(columns));
  LinearArgs args = {.out = cpu_out, .in = cpu_in, .weights = &packed};
  if (with_bias) args.bias = cpu_bias;
  REQUIRE(Reference().ops().Linear(args, Reference().stream()).ok());

  CheckSame(RunEverySchedule<float>([&](TestDevice& device) {
              return Multiply(device, in, weights, bias, rows, columns, depth);
            }),
            cpu_out.Read());
}

TEST_CASE("a row has the same bits whatever other rows are in the call") {
  TESSERA_SKIP_WITHOUT_DEVICE();
  const int64_t depth = 100, columns = 20;
  const std::vector<float> in = RandomFloats(40 * depth, 1);
  const std::vector<float> weights = RandomFloats(columns * depth, 2);
  TestDevice device;
  const std::vector<float> all = Multiply(device, in, weights, {}, 40, columns, depth);
  for (const int64_t row : {0, 15, 16, 39}) {
    const std::vector<float> alone(in.begin() + row * depth, in.begin() + (row + 1) * depth);
    CHECK(Multiply(device, alone, weights, {}, 1, columns, depth) ==
          std::vector<float>(all.begin() + row * columns, all.begin() + (row + 1) * columns));
  }
}

}  // namespace
}  // namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM
