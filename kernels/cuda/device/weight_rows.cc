#include "kernels/cuda/device/weight_rows.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/cpu/linear/weight_rows.h"
#include "kernels/half_floats.h"
#include "kernels/int4_rows.h"

namespace tessera::kernels::cuda {
namespace {

int64_t Aligned(int64_t bytes) { return (bytes + 15) / 16 * 16; }

int64_t Groups(const LinearSpec& spec) {
  return (spec.in_features + spec.group_size - 1) / spec.group_size;
}

absl::Status QuantiseRow(const LinearSpec& spec, int64_t number, const std::vector<float>& values,
                         std::byte* row) {
  auto* codes = reinterpret_cast<int8_t*>(row);
  auto* scales = reinterpret_cast<float*>(row + ScalesOffsetBytes(spec));
  for (int64_t group = 0; group < Groups(spec); ++group) {
    const int64_t begin = group * spec.group_size;
    const int64_t count = std::min(spec.group_size, spec.in_features - begin);
    scales[group] = cpu::linear::Quantise(values.data() + begin, count, codes + begin);
    if (scales[group] < 0) return cpu::linear::NotFinite(number, begin);
  }
  return absl::OkStatus();
}

// To another type than the checkpoint's. `number` of the row is for errors.
absl::Status ConvertRow(const LinearSpec& spec, int64_t number, const std::vector<float>& values,
                        std::byte* row) {
  if (spec.weight_dtype == DType::kI8) return QuantiseRow(spec, number, values, row);
  for (int64_t i = 0; i < spec.in_features; ++i) {
    if (spec.weight_dtype == DType::kF16) {
      if (!cpu::linear::FitsFloat16(values[i])) {
        return cpu::linear::BeyondFloat16(number, i, values[i]);
      }
      reinterpret_cast<Float16*>(row)[i] = FromFloat<Float16>(values[i]);
    } else if (spec.weight_dtype == DType::kBF16) {
      reinterpret_cast<BFloat16*>(row)[i] = FromFloat<BFloat16>(values[i]);
    } else {
      reinterpret_cast<float*>(row)[i] = values[i];
    }
  }
  return absl::OkStatus();
}

}  // namespace

int64_t ScalesOffsetBytes(const LinearSpec& spec) {
  if (spec.weight_dtype == DType::kI4) return Aligned(Int4CodeBytes(spec.in_features));
  return Aligned(spec.in_features * SizeInBytes(spec.weight_dtype));
}

int64_t WeightRowBytes(const LinearSpec& spec) {
  const bool groups = spec.weight_dtype == DType::kI8 || spec.weight_dtype == DType::kI4;
  const int64_t scales = groups ? Groups(spec) : 0;
  return ScalesOffsetBytes(spec) + Aligned(scales * static_cast<int64_t>(sizeof(float)));
}

absl::Status PackRows(const LinearSpec& spec, int64_t first_row, const TensorView& source,
                      std::byte* packed) {
  const int64_t row_bytes = WeightRowBytes(spec);
  const int64_t source_bytes = spec.in_features * SizeInBytes(source.dtype);
  std::memset(packed, 0, source.rows() * row_bytes);
  std::vector<float> values(spec.in_features);
  for (int64_t r = 0; r < source.rows(); ++r) {
    std::byte* row = packed + r * row_bytes;
    if (spec.weight_dtype == DType::kI4) {
      const auto* from = source.Row<std::byte>(r);
      const int64_t code_bytes = Int4CodeBytes(spec.in_features);
      std::memcpy(row, from, code_bytes);
      std::memcpy(row + ScalesOffsetBytes(spec), from + code_bytes, Groups(spec) * 4);
      continue;
    }
    if (source.dtype == spec.weight_dtype) {
      std::memcpy(row, source.Row<std::byte>(0) + r * source.row_stride * SizeInBytes(source.dtype),
                  source_bytes);
      continue;
    }
    cpu::linear::ReadRow(source, r, 0, spec.in_features, values.data());
    absl::Status status = ConvertRow(spec, first_row + r, values, row);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

void UnpackRows(const LinearSpec& spec, const std::byte* packed, const TensorView& out_f32) {
  for (int64_t r = 0; r < out_f32.rows(); ++r) {
    const std::byte* row = packed + r * WeightRowBytes(spec);
    const auto* scales = reinterpret_cast<const float*>(row + ScalesOffsetBytes(spec));
    float* out = out_f32.Row<float>(r);
    for (int64_t i = 0; i < spec.in_features; ++i) {
      switch (spec.weight_dtype) {
        case DType::kI4:
          out[i] = Int4Weight(Int4Code(row, i),
                              Int4WordAt(row + ScalesOffsetBytes(spec), i / spec.group_size));
          break;
        case DType::kI8:
          out[i] = static_cast<float>(reinterpret_cast<const int8_t*>(row)[i]) *
                   scales[i / spec.group_size];
          break;
        case DType::kBF16: out[i] = ToFloat(reinterpret_cast<const BFloat16*>(row)[i]); break;
        case DType::kF16: out[i] = ToFloat(reinterpret_cast<const Float16*>(row)[i]); break;
        default: out[i] = reinterpret_cast<const float*>(row)[i];
      }
    }
  }
}

}  // namespace tessera::kernels::cuda
