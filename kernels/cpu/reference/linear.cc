// Linear over a trivial layout: row-major weights as they are, float8, int8 and int4 rows as
// PackWeightRows takes them.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/byte_rows.h"
#include "kernels/cpu/linear/weight_rows.h"
#include "kernels/cpu/packed_embedding.h"
#include "kernels/cpu/reference/element.h"
#include "kernels/cpu/reference/reference_kernels.h"
#include "kernels/int4_rows.h"
#include "third_party/absl/str_cat.h"

namespace tessera::kernels::reference {
namespace {

int64_t Groups(const LinearSpec& spec) {
  return (spec.in_features + spec.group_size - 1) / spec.group_size;
}

int64_t RowBytes(const LinearSpec& spec) {
  if (spec.weight_dtype == DType::kI4) {
    return Int4RowBytes(spec.in_features, spec.group_size, spec.blocks);
  }
  const bool bytes = spec.weight_dtype == DType::kI8 || spec.weight_dtype == DType::kF8;
  return bytes ? ByteRowBytes(spec.in_features, spec.group_size)
               : spec.in_features * SizeInBytes(spec.weight_dtype);
}

struct WeightRow {
  WeightRow(const PackedWeights& weights, int64_t row)
      : spec(weights.spec), data(weights.data + row * RowBytes(weights.spec)) {}

  float* scales() const { return reinterpret_cast<float*>(data + RowBytes(spec)) - Groups(spec); }
  // Weights [first, first + count).
  void Read(int64_t first, int64_t count, float* out) const {
    const auto put = [&](const auto& at) {
      for (int64_t i = 0; i < count; ++i) out[i] = at(first + i);
    };
    switch (spec.weight_dtype) {
      case DType::kI4:
        return put([&](int64_t i) {
          return Int4WeightAt(data + Int4CodeBytes(spec.in_features), Int4Code(data, i),
                              spec.in_features, spec.group_size, spec.blocks, i);
        });
      case DType::kI8:
        return put([codes = reinterpret_cast<int8_t*>(data), scales = scales(),
                    group = spec.group_size](int64_t i) {
          return static_cast<float>(codes[i]) * scales[i / group];
        });
      case DType::kF8:
        return put([&, scales = scales(), group = spec.group_size](int64_t i) {
          return F8ToFloat(std::to_integer<uint8_t>(data[i])) * scales[i / group];
        });
      case DType::kBF16: return ReadAs(reinterpret_cast<BFloat16*>(data) + first, count, out);
      case DType::kF16: return ReadAs(reinterpret_cast<Float16*>(data) + first, count, out);
      default: std::copy_n(reinterpret_cast<float*>(data) + first, count, out);
    }
  }

  const LinearSpec& spec;
  std::byte* data;
};

// False where a weight is not finite.
bool Quantise(const WeightRow& row, const TensorView& source, int64_t source_row) {
  const LinearSpec& spec = row.spec;
  auto* quantised = reinterpret_cast<int8_t*>(row.data);
  for (int64_t group = 0; group < Groups(spec); ++group) {
    const int64_t begin = group * spec.group_size;
    const int64_t end = std::min(begin + spec.group_size, spec.in_features);
    float largest = 0;
    for (int64_t i = begin; i < end; ++i) {
      const float magnitude = std::fabs(Get(source, source_row, i));
      if (!std::isfinite(magnitude)) return false;
      largest = std::max(largest, magnitude);
    }
    const float scale = largest / 127.0f;
    row.scales()[group] = scale;
    for (int64_t i = begin; i < end; ++i) {
      const float steps = scale == 0 ? 0.0f : Get(source, source_row, i) / scale;
      quantised[i] = static_cast<int8_t>(std::clamp(std::nearbyint(steps), -127.0f, 127.0f));
    }
  }
  return true;
}

int64_t PackedWeightBytes(const LinearSpec& spec) { return spec.out_features * RowBytes(spec); }

absl::Status PackWeightRows(const PackedWeights& weights, int64_t first_row,
                            const TensorView& source) {
  for (int64_t r = 0; r < source.rows(); ++r) {
    const WeightRow row(weights, first_row + r);
    if (source.dtype == DType::kI8) {
      std::memcpy(row.data, source.Row<std::byte>(r), RowBytes(weights.spec));
      continue;
    }
    for (int64_t i = 0; i < weights.spec.in_features; ++i) {
      if (weights.spec.weight_dtype == DType::kF32) {
        reinterpret_cast<float*>(row.data)[i] = Get(source, r, i);
      } else if (weights.spec.weight_dtype == DType::kBF16) {
        reinterpret_cast<BFloat16*>(row.data)[i] = FromFloat<BFloat16>(Get(source, r, i));
      } else if (weights.spec.weight_dtype == DType::kF16) {
        const float value = Get(source, r, i);
        if (!cpu::linear::FitsFloat16(value)) {
          return cpu::linear::BeyondFloat16(first_row + r, i, value);
        }
        reinterpret_cast<Float16*>(row.data)[i] = FromFloat<Float16>(value);
      }
    }
    if (weights.spec.weight_dtype == DType::kI8 && !Quantise(row, source, r)) {
      return absl::InvalidArgumentError(
          StrCat("PackWeightRows: rows: row ", first_row + r,
                 " has a weight that is not finite and cannot be quantised to int8"));
    }
  }
  return absl::OkStatus();
}

void UnpackWeightRows(const PackedWeights& weights, int64_t first_row, const TensorView& out_f32) {
  for (int64_t r = 0; r < out_f32.rows(); ++r) {
    const WeightRow row(weights, first_row + r);
    row.Read(0, weights.spec.in_features, out_f32.Row<float>(r));
  }
}

int64_t LinearWorkspaceBytes(const LinearSpec&, int64_t, DType, int) { return 0; }
int64_t GroupedWorkspaceBytes(const LinearSpec&, int64_t, int64_t, DType, int) { return 0; }

// A column of out's rows [first, end) for as many rows of activations: in_row(i) for out's row i.
template <typename InRow>
void LinearColumn(const TensorView& out, int64_t first, int64_t end, const TensorView& in,
                  const InRow& in_row, const PackedWeights& weights, int64_t column, double bias) {
  const WeightRow row(weights, column);
  const int64_t width = weights.spec.in_features;
  float part[kPart], rows[kAtOnce][kPart] = {};
  for (int64_t r = first; r < end; r += kAtOnce) {
    const int64_t count = std::min(kAtOnce, end - r);
    double sums[kAtOnce] = {};
    for (int64_t i = 0; i < width; i += kPart) {
      const int64_t elements = std::min(kPart, width - i);
      row.Read(i, elements, part);
      for (int64_t j = 0; j < count; ++j) ReadPart(in, in_row(r + j), i, elements, rows[j]);
      AddProducts(part, rows, elements, sums);
    }
    for (int64_t j = 0; j < count; ++j) Set(out, r + j, column, sums[j] + bias);
  }
}

void Linear(const LinearArgs& args, ThreadPool& pool) {
  pool.ParallelFor(args.weights->spec.out_features, [&](int64_t column, int) {
    const double bias = args.bias.empty() ? 0.0 : args.bias.As<float>()[column];
    LinearColumn(
        args.out, 0, args.in.rows(), args.in, [](int64_t row) { return row; }, *args.weights,
        column, bias);
  });
}

void GroupedLinear(const GroupedLinearArgs& args, ThreadPool& pool) {
  const int32_t* offsets = args.expert_offsets.As<int32_t>();
  const auto source = [&](int64_t slot) -> int64_t {
    return args.source_rows.empty() ? slot : args.source_rows.As<int32_t>()[slot];
  };
  pool.ParallelFor(args.experts[0].spec.out_features, [&](int64_t column, int) {
    for (size_t e = 0; e < args.experts.size(); ++e) {
      LinearColumn(args.out, offsets[e], offsets[e + 1], args.in, source, args.experts[e], column,
                   0.0);
    }
  });
}

}  // namespace

LinearKernels Linears() {
  return {.packed_weight_bytes = &PackedWeightBytes,
          .computes_unpacked = [](const LinearSpec&, const UnpackedRows&) { return false; },
          .pack_weight_rows = &PackWeightRows,
          .unpack_weight_rows = &UnpackWeightRows,
          .linear_workspace_bytes = &LinearWorkspaceBytes,
          .grouped_workspace_bytes = &GroupedWorkspaceBytes,
          .linear = &Linear,
          .grouped_linear = &GroupedLinear,
          .packed_embedding = &PackedEmbedding<&UnpackWeightRows>};
}

}  // namespace tessera::kernels::reference
