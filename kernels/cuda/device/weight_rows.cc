#include "kernels/cuda/device/weight_rows.h"

#include <emmintrin.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "kernels/byte_rows.h"
#include "kernels/cpu/linear/weight_rows.h"
#include "kernels/half_floats.h"
#include "kernels/int4_rows.h"
#include "third_party/absl/str_cat.h"

namespace tessera::kernels::cuda {
namespace {

int64_t Aligned(int64_t bytes) { return (bytes + 15) / 16 * 16; }

int64_t Groups(const LinearSpec& spec) {
  return (spec.in_features + spec.group_size - 1) / spec.group_size;
}

bool HasByteCodes(const LinearSpec& spec) {
  return KeptType(spec) == DType::kF8 || KeptType(spec) == DType::kI8;
}

// What stands behind codes.
int64_t ScaleBytes(const LinearSpec& spec) {
  if (spec.weight_dtype == DType::kI4) {
    return Int4ScaleBytes(spec.in_features, spec.group_size, spec.blocks);
  }
  const bool scales = HasByteCodes(spec) || spec.e2m1;
  return scales ? Groups(spec) * static_cast<int64_t>(sizeof(float)) : 0;
}

constexpr int64_t kBlockCodes = 32;  // whose order is the tensor cores'

// Where the code of an input stands.
int64_t CodePlace(int64_t input) {
  return input / 32 * 32 + input % 8 / 2 * 8 + input % 32 / 8 * 2 + input % 2;
}
int64_t NibblePlace(int64_t input) {
  const int64_t place = CodePlace(input);
  return place / 8 * 8 + place % 8 / 2 + place % 2 * 4;
}

// int8 codes in the order of inputs, up to the end of a block. SSE2 is part of x86-64.
void OrderCodes(std::byte* codes, int64_t count) {
  for (int64_t first = 0; first < count; first += kBlockCodes) {
    auto* const block = reinterpret_cast<__m128i*>(codes + first);
    const __m128i front = _mm_loadu_si128(block), back = _mm_loadu_si128(block + 1);
    // The pairs of each t: of c = 0, 1 and of c = 2, 3.
    const __m128i low = _mm_unpacklo_epi16(front, _mm_srli_si128(front, 8));
    const __m128i high = _mm_unpacklo_epi16(back, _mm_srli_si128(back, 8));
    _mm_storeu_si128(block, _mm_unpacklo_epi32(low, high));
    _mm_storeu_si128(block + 1, _mm_unpackhi_epi32(low, high));
  }
}

__m128i OrderInt4Block(__m128i codes) {
  // Words c = 0, 2 and c = 1, 3; a byte t of each has the even code in its lower half.
  const __m128i first = _mm_shuffle_epi32(codes, 0x88), second = _mm_shuffle_epi32(codes, 0xdd);
  const __m128i lower = _mm_set1_epi8(0x0f);
  const __m128i even =
      _mm_or_si128(_mm_and_si128(first, lower), _mm_slli_epi16(_mm_and_si128(second, lower), 4));
  const __m128i odd =
      _mm_or_si128(_mm_and_si128(_mm_srli_epi16(first, 4), lower), _mm_andnot_si128(lower, second));
  // Four words, byte t of each: the words of t one after the other.
  __m128i words = _mm_unpacklo_epi64(even, odd);
  words = _mm_unpacklo_epi8(words, _mm_srli_si128(words, 8));
  return _mm_unpacklo_epi8(words, _mm_srli_si128(words, 8));
}

void CopyInt4Codes(const std::byte* from, int64_t size_bytes, std::byte* to) {
  constexpr int64_t kBlockBytes = kBlockCodes / 2;
  for (int64_t i = 0; i < size_bytes; i += kBlockBytes) {
    __m128i codes = _mm_setzero_si128();
    std::memcpy(&codes, from + i, std::min(kBlockBytes, size_bytes - i));
    codes = OrderInt4Block(codes);
    std::memcpy(to + i, &codes, sizeof codes);
  }
}

// The code of an input in a packed row.
uint32_t PackedInt4Code(const std::byte* row, int64_t input) {
  const int64_t place = NibblePlace(input);
  return std::to_integer<uint32_t>(row[place / 2]) >> (place % 2 * 4) & 0xfu;
}

// Doubles of e2m1's numbers, by their codes. Source: OCP Microscaling Formats (MX)
// specification 1.0 (2023), section 5.3.3.
constexpr std::array<int8_t, 16> kDoubles = {0, 1,  2,  3,  4,  6,  8,  12,
                                             0, -1, -2, -3, -4, -6, -8, -12};
constexpr uint8_t kNoCode = 0xff;

// The code of a double, by its bits.
constexpr std::array<uint8_t, 256> kCodesOfDoubles = [] {
  std::array<uint8_t, 256> codes = {};
  for (uint8_t& code : codes) code = kNoCode;
  for (int code = 15; code >= 0; --code) {
    codes[static_cast<uint8_t>(kDoubles[code])] = static_cast<uint8_t>(code);
  }
  return codes;
}();

// From rows of bytes (kernels/byte_rows.h). `row` holds zeros.
absl::Status PackE2m1Row(const LinearSpec& spec, int64_t number, const std::byte* from,
                         std::byte* row) {
  std::vector<std::byte> codes(Int4CodeBytes(spec.in_features));
  for (int64_t i = 0; i < spec.in_features; ++i) {
    const uint8_t code = kCodesOfDoubles[std::to_integer<uint8_t>(from[i])];
    if (code == kNoCode) {
      return absl::InvalidArgumentError(StrCat("row ", number, " of the weights has the code ",
                                               static_cast<int>(static_cast<int8_t>(from[i])),
                                               " at input ", i, ", which is no double of e2m1"));
    }
    codes[i / 2] |= static_cast<std::byte>(code << i % 2 * 4);
  }
  CopyInt4Codes(codes.data(), static_cast<int64_t>(codes.size()), row);
  std::memcpy(row + ScalesOffsetBytes(spec), from + ByteCodeBytes(spec.in_features),
              ScaleBytes(spec));
  return absl::OkStatus();
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
  OrderCodes(row, spec.in_features);
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
  if (KeptType(spec) == DType::kI4) return Aligned(Int4CodeBytes(spec.in_features));
  if (HasByteCodes(spec)) {
    return (spec.in_features + kBlockCodes - 1) / kBlockCodes * kBlockCodes;
  }
  return Aligned(spec.in_features * SizeInBytes(spec.weight_dtype));
}

int64_t StepsOffsetBytes(const LinearSpec& spec) {
  if (!HasSteps(spec.group_size, spec.blocks)) return 0;
  return ScalesOffsetBytes(spec) + Int4Words(spec.in_features, spec.group_size, spec.blocks) * 4;
}

int64_t WeightRowBytes(const LinearSpec& spec) {
  return ScalesOffsetBytes(spec) + Aligned(ScaleBytes(spec));
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
      CopyInt4Codes(from, code_bytes, row);
      std::memcpy(row + ScalesOffsetBytes(spec), from + code_bytes, ScaleBytes(spec));
      continue;
    }
    if (spec.e2m1) {
      if (source.dtype != DType::kI8) {
        return absl::InvalidArgumentError("weights of e2m1 are packed from rows of bytes alone");
      }
      absl::Status status = PackE2m1Row(spec, first_row + r, source.Row<std::byte>(r), row);
      if (!status.ok()) return status;
      continue;
    }
    if (source.dtype == DType::kI8) {
      const auto* from = source.Row<std::byte>(r);
      std::memcpy(row, from, spec.in_features);
      OrderCodes(row, spec.in_features);
      std::memcpy(row + ScalesOffsetBytes(spec), from + ByteCodeBytes(spec.in_features),
                  ScaleBytes(spec));
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
      switch (KeptType(spec)) {
        case DType::kI4:
          if (spec.e2m1) {
            out[i] =
                static_cast<float>(kDoubles[PackedInt4Code(row, i)]) * scales[i / spec.group_size];
            break;
          }
          out[i] = Int4WeightAt(row + ScalesOffsetBytes(spec), PackedInt4Code(row, i),
                                spec.in_features, spec.group_size, spec.blocks, i);
          break;
        case DType::kI8:
          out[i] = static_cast<float>(reinterpret_cast<const int8_t*>(row)[CodePlace(i)]) *
                   scales[i / spec.group_size];
          break;
        case DType::kF8:
          out[i] =
              F8ToFloat(std::to_integer<uint8_t>(row[CodePlace(i)])) * scales[i / spec.group_size];
          break;
        case DType::kBF16: out[i] = ToFloat(reinterpret_cast<const BFloat16*>(row)[i]); break;
        case DType::kF16: out[i] = ToFloat(reinterpret_cast<const Float16*>(row)[i]); break;
        default: out[i] = reinterpret_cast<const float*>(row)[i];
      }
    }
  }
}

}  // namespace tessera::kernels::cuda
