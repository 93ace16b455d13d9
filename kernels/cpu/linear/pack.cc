#include "kernels/cpu/linear/pack.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/byte_rows.h"
#include "kernels/cpu/linear/geometry.h"
#include "kernels/cpu/linear/sign_magnitude.h"
#include "kernels/cpu/linear/weight_rows.h"
#include "kernels/half_floats.h"
#include "kernels/int4_rows.h"

namespace tessera::kernels::cpu::linear {
namespace {

constexpr int64_t kMaxSegmentInputs = 2 * kBlockWords;
constexpr int64_t kTurnedInputs = 32;  // a cache line of a row

// The weights of one output column in one segment.
struct ColumnSegment {
  DType dtype;
  bool sign_magnitude;
  std::byte* segment;
  int64_t column;
  // i4: bytes before the codes; with offsets: pairs of the segment's block, and whether the segment
  // has steps.
  int64_t header_bytes = kPanelColumns * sizeof(uint32_t);
  std::byte* pairs = nullptr;
  bool has_steps = false;

  float& F32(int64_t input) const {
    return reinterpret_cast<float*>(segment)[input * kPanelColumns + column];
  }
  BFloat16& Bf16(int64_t input) const {
    const int64_t pair = input / 2 * kPanelColumns + column;
    return reinterpret_cast<BFloat16*>(segment)[pair * 2 + input % 2];
  }
  float& Scale() const { return reinterpret_cast<float*>(segment)[column]; }
  uint8_t& Code(int64_t input) const {
    const int64_t within =
        sign_magnitude ? SignMagnitudeByte(column, input % 2) : input % 2 * kPanelColumns + column;
    uint8_t* codes = reinterpret_cast<uint8_t*>(segment) + kPanelColumns * sizeof(float);
    return codes[input / 2 * (2 * kPanelColumns) + within];
  }
  uint32_t& Word() const { return reinterpret_cast<uint32_t*>(segment)[column]; }
  Float16& PairScale() const { return reinterpret_cast<Float16*>(pairs)[column]; }
  Float16& PairOffset() const { return reinterpret_cast<Float16*>(pairs)[kPanelColumns + column]; }
  int8_t& ScaleStep() const { return reinterpret_cast<int8_t*>(segment)[column]; }
  int8_t& OffsetStep() const { return reinterpret_cast<int8_t*>(segment)[kPanelColumns + column]; }
  // Whether the other half of the codes belongs to the next pair's input, not to this pair's.
  bool in_fours() const { return sign_magnitude && pairs != nullptr; }
  // The byte that has an input's code, and which half.
  uint8_t& Nibbles(int64_t input) const {
    uint8_t* codes = reinterpret_cast<uint8_t*>(segment) + header_bytes;
    if (in_fours()) {
      return codes[input / 4 * (2 * kPanelColumns) + SignMagnitudeByte(column, input % 2)];
    }
    const int64_t within = sign_magnitude ? SignMagnitudeByte(column, 0) / 2 : column;
    return codes[input / 2 * kPanelColumns + within];
  }
  int64_t Half(int64_t input) const { return in_fours() ? input % 4 / 2 : input % 2; }
};

ColumnSegment ColumnOf(const Kernel& kernel, const Geometry& g, const PackedWeights& weights,
                       int64_t row, int64_t segment) {
  std::byte* const panel = weights.data + row / kPanelColumns * g.panel_bytes;
  ColumnSegment column = {weights.spec.weight_dtype, kernel.sign_magnitude,
                          panel + SegmentOffset(g, segment), row % kPanelColumns};
  if (g.pair_segments > 0) {
    column.pairs = panel + PairsOffset(g, segment);
    column.has_steps = g.pair_segments > 1;
    column.header_bytes = column.has_steps ? 2 * kPanelColumns : 0;
  }
  return column;
}

void WriteF32(const ColumnSegment& to, const float* weights, int64_t count) {
  float* place = &to.F32(0);
  for (int64_t i = 0; i < count; ++i) place[i * kPanelColumns] = weights[i];
}

// Whole pairs: `padded` is even, and weights behind `count` are zero.
void WriteBf16(const ColumnSegment& to, const float* weights, int64_t padded) {
  BFloat16* place = &to.Bf16(0);
  for (int64_t i = 0; i < padded; i += 2) {
    place[0] = FromFloat<BFloat16>(weights[i]);
    place[1] = FromFloat<BFloat16>(weights[i + 1]);
    place += 2 * kPanelColumns;
  }
}

void WriteCodes(const ColumnSegment& to, const int8_t* codes, int64_t padded) {
  uint8_t coded[kMaxSegmentInputs];
  if (to.sign_magnitude && to.dtype == DType::kI8) {
    for (int64_t i = 0; i < padded; ++i) coded[i] = ToSignMagnitude(codes[i]);
  } else {
    std::memcpy(coded, codes, padded);
  }
  uint8_t* even = &to.Code(0);
  uint8_t* odd = &to.Code(1);
  for (int64_t i = 0; i < padded; i += 2) {
    *even = coded[i];
    *odd = coded[i + 1];
    even += 2 * kPanelColumns;
    odd += 2 * kPanelColumns;
  }
}

// Writes `count` weights and the zeros that stand behind them, up to `padded`. False where they
// cannot be quantised.
bool WriteColumn(const ColumnSegment& to, const float* weights, int64_t count, int64_t padded) {
  if (to.dtype == DType::kF32) {
    WriteF32(to, weights, count);
  } else if (to.dtype == DType::kBF16) {
    WriteBf16(to, weights, padded);
  } else {
    int8_t codes[kMaxSegmentInputs] = {};
    const float scale = Quantise(weights, count, codes);
    if (scale < 0.0f) return false;
    to.Scale() = scale;
    WriteCodes(to, codes, padded);
  }
  return true;
}

// Codes [first, first + count) of an int4 row. Inputs that fill the last pair, or the last two, get
// the code `filler`.
void WriteNibbles(const ColumnSegment& to, const std::byte* row, int64_t first, int64_t count,
                  uint32_t filler) {
  const auto code = [&](int64_t i) { return i < count ? Int4Code(row, first + i) : filler; };
  if (to.in_fours()) {
    for (int64_t i = 0; i < count; i += 4) {
      to.Nibbles(i) = static_cast<uint8_t>(code(i) | code(i + 2) << 4);
      to.Nibbles(i + 1) = static_cast<uint8_t>(code(i + 1) | code(i + 3) << 4);
    }
    return;
  }
  uint8_t* place = &to.Nibbles(0);
  for (int64_t i = 0; i < count; i += 2) {
    *place = static_cast<uint8_t>(code(i) | code(i + 1) << 4);
    place += kPanelColumns;
  }
}

// Scale and zero, or scale and offset, of an int4 row's group number `segment`. Returns the code of
// an input that is not there: it weighs nothing.
uint32_t WriteScales(const ColumnSegment& to, const LinearSpec& spec, const std::byte* row,
                     int64_t segment) {
  const std::byte* const words = row + Int4CodeBytes(spec.in_features);
  if (to.pairs == nullptr) {
    to.Word() = Int4WordAt(words, segment);
    return Int4Zero(to.Word());
  }
  const int64_t first_input = segment * spec.group_size;
  const Int4Place place =
      Int4PlaceOf(words, spec.in_features, spec.group_size, spec.blocks, first_input);
  to.PairScale() = place.pair.scale;
  to.PairOffset() = place.pair.offset;
  if (to.has_steps) {
    to.ScaleStep() = place.steps.scale;
    to.OffsetStep() = place.steps.offset;
  }
  return 0;  // activations there are zero
}

float NibbleWeight(const ColumnSegment& from, int64_t input) {
  const uint32_t code = from.Nibbles(input) >> (from.Half(input) * 4) & 0xfu;
  if (from.pairs == nullptr) return Int4Weight(code, from.Word());
  Int4Place place = {{from.PairScale(), from.PairOffset()}, {}};
  if (from.has_steps) place.steps = {from.ScaleStep(), from.OffsetStep()};
  return place.Weight(code);
}

void ReadColumn(const ColumnSegment& from, float* out, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    if (from.dtype == DType::kF32) {
      out[i] = from.F32(i);
    } else if (from.dtype == DType::kBF16) {
      out[i] = ToFloat(from.Bf16(i));
    } else if (from.dtype == DType::kI4) {
      out[i] = NibbleWeight(from, i);
    } else if (from.dtype == DType::kF8) {
      out[i] = from.Scale() * F8ToFloat(from.Code(i));
    } else {
      const uint8_t code = from.Code(i);
      const int8_t value =
          from.sign_magnitude ? FromSignMagnitude(code) : static_cast<int8_t>(code);
      out[i] = from.Scale() * static_cast<float>(value);
    }
  }
}

using Words4 __attribute__((vector_size(16))) = uint32_t;

Words4 LoadWords(const uint16_t* from) {
  Words4 words;
  std::memcpy(&words, from, sizeof(words));
  return words;
}

// bf16 that stays bf16 is only turned, a word of two inputs at a time: 32 columns' words of one
// pair of inputs stand side by side. A cache line of every row in turn, so that what is written
// stays in the first cache until its lines are whole. Loading time is spent here. `inputs` is a
// multiple of 32.
void TurnBf16(const TensorView& source, int64_t row, int64_t inputs, std::byte* panel) {
  constexpr int64_t kAheadInputs = 256;  // rows are too many for the processor to foresee each
  const Words4 low = {0, 4, 1, 5}, high = {2, 6, 3, 7}, first = {0, 1, 4, 5}, last = {2, 3, 6, 7};
  for (int64_t begin = 0; begin < inputs; begin += kTurnedInputs) {
    for (int64_t column = 0; column < kPanelColumns; column += 4) {
      const uint16_t* in[4];
      for (int64_t i = 0; i < 4; ++i) {
        in[i] = source.Row<const uint16_t>(row + column + i) + begin;
        __builtin_prefetch(in[i] + kAheadInputs);
      }
      for (int64_t i = 0; i < kTurnedInputs; i += 8) {
        const Words4 a = LoadWords(in[0] + i), b = LoadWords(in[1] + i);
        const Words4 c = LoadWords(in[2] + i), d = LoadWords(in[3] + i);
        const Words4 ab_low = __builtin_shuffle(a, b, low), cd_low = __builtin_shuffle(c, d, low);
        const Words4 ab_high = __builtin_shuffle(a, b, high);
        const Words4 cd_high = __builtin_shuffle(c, d, high);
        const Words4 turned[4] = {
            __builtin_shuffle(ab_low, cd_low, first), __builtin_shuffle(ab_low, cd_low, last),
            __builtin_shuffle(ab_high, cd_high, first), __builtin_shuffle(ab_high, cd_high, last)};
        std::byte* out = panel + ((begin + i) / 2 * kPanelColumns + column) * 4;
        for (int64_t pair = 0; pair < 4; ++pair) {
          std::memcpy(out + pair * kPanelColumns * 4, &turned[pair], sizeof(Words4));
        }
      }
    }
  }
}

// Whole panels of bf16 that stay bf16, inputs without padding.
void TurnRows(const Kernel& kernel, const Geometry& g, const TensorView& source, int64_t row,
              std::byte* panel, bool read_soon) {
  if (kernel.turn != nullptr && reinterpret_cast<uintptr_t>(panel) % 64 == 0) {
    kernel.turn(panel, source.Row<const uint16_t>(row), source.row_stride, g.in_features,
                read_soon);
  } else {
    TurnBf16(source, row, g.in_features, panel);
  }
}

const UnpackedRows::Block& BlockOf(const UnpackedRows& rows, int64_t row) {
  auto block = rows.blocks.begin();
  while (row >= block->first_row + block->rows.rows()) ++block;
  return *block;
}

// Segment `segment` of a row of bytes (byte_rows.h).
void WriteByteSegment(const ColumnSegment& to, const Geometry& g, const std::byte* row,
                      int64_t segment) {
  int8_t codes[kMaxSegmentInputs] = {};
  std::memcpy(codes, row + segment * g.segment_inputs, SegmentInputs(g, segment));
  to.Scale() = ByteScaleAt(row + ByteCodeBytes(g.in_features), segment);
  WriteCodes(to, codes, SegmentSteps(g, segment) * 2);
}

int64_t CodedRowBytes(const LinearSpec& spec) {
  return spec.weight_dtype == DType::kI4
             ? Int4RowBytes(spec.in_features, spec.group_size, spec.blocks)
             : ByteRowBytes(spec.in_features, spec.group_size);
}

// Rows that are codes already. Behind the matrix's last row all is 0.
void PackCodes(const Kernel& kernel, const Geometry& g, const PackedWeights& weights,
               int64_t first_row, const TensorView& source) {
  const int64_t end = first_row + source.rows();
  const int64_t padded_end = end == g.out_features ? g.panels * kPanelColumns : end;
  const LinearSpec& spec = weights.spec;
  const std::vector<std::byte> nothing(CodedRowBytes(spec));
  for (int64_t begin = first_row; begin < padded_end;) {
    const int64_t stop = std::min(padded_end, (begin / kPanelColumns + 1) * kPanelColumns);
    for (int64_t segment = 0; segment < g.segments; ++segment) {
      for (int64_t row = begin; row < stop; ++row) {
        const std::byte* from = row < end ? source.Row<std::byte>(row - first_row) : nothing.data();
        const ColumnSegment to = ColumnOf(kernel, g, weights, row, segment);
        if (spec.weight_dtype != DType::kI4) {
          WriteByteSegment(to, g, from, segment);
          continue;
        }
        const uint32_t filler = WriteScales(to, spec, from, segment);
        WriteNibbles(to, from, segment * g.segment_inputs, SegmentInputs(g, segment), filler);
      }
    }
    begin = stop;
  }
}

}  // namespace

absl::Status PackPanels(const Kernel& kernel, const PackedWeights& weights, int64_t first_row,
                        const TensorView& source) {
  const Geometry g = MakeGeometry(weights.spec, kernel);
  const DType dtype = weights.spec.weight_dtype;
  if (source.dtype == DType::kI8) {
    PackCodes(kernel, g, weights, first_row, source);
    return absl::OkStatus();
  }
  const int64_t inputs_per_step = dtype == DType::kF32 ? 1 : 2;
  const int64_t end = first_row + source.rows();
  const int64_t padded_end = end == g.out_features ? g.panels * kPanelColumns : end;
  const bool turns =
      dtype == DType::kBF16 && source.dtype == DType::kBF16 && g.in_features % kTurnedInputs == 0;
  float values[kMaxSegmentInputs];
  // A panel's segment at a time: its lines stay in cache while the columns are written one by one.
  for (int64_t begin = first_row; begin < padded_end;) {
    const int64_t stop = std::min(padded_end, (begin / kPanelColumns + 1) * kPanelColumns);
    if (turns && stop - begin == kPanelColumns && stop <= end) {
      TurnRows(kernel, g, source, begin - first_row,
               weights.data + begin / kPanelColumns * g.panel_bytes, false);
      begin = stop;
      continue;
    }
    for (int64_t segment = 0; segment < g.segments; ++segment) {
      const int64_t count = SegmentInputs(g, segment);
      const int64_t padded = SegmentSteps(g, segment) * inputs_per_step;
      for (int64_t row = begin; row < stop; ++row) {
        if (row < end) {
          ReadRow(source, row - first_row, segment * g.segment_inputs, count, values);
        } else {
          std::fill(values, values + count, 0.0f);
        }
        std::fill(values + count, values + padded, 0.0f);
        const ColumnSegment to = ColumnOf(kernel, g, weights, row, segment);
        if (!WriteColumn(to, values, count, padded))
          return NotFinite(row, segment * g.segment_inputs);
      }
    }
    begin = stop;
  }
  return absl::OkStatus();
}

int64_t PackedRowsOf(const PackedWeights& weights) {
  return weights.unpacked == nullptr
             ? weights.spec.out_features
             : weights.unpacked->packed_rows.load(std::memory_order_acquire);
}

bool TurnsPanels(const LinearSpec& spec, const UnpackedRows& rows) {
  if (spec.weight_dtype != DType::kBF16 || spec.in_features % kTurnedInputs != 0) return false;
  int64_t next = 0;
  for (const UnpackedRows::Block& block : rows.blocks) {
    if (block.first_row != next || block.rows.dtype != DType::kBF16 || block.rows.rank != 2 ||
        block.rows.shape[1] != spec.in_features || block.rows.rows() % kPanelColumns != 0) {
      return false;
    }
    next += block.rows.rows();
  }
  return next == spec.out_features;
}

void TurnPanel(const Kernel& kernel, const Geometry& geometry, const UnpackedRows& rows,
               int64_t panel, std::byte* out) {
  const int64_t row = panel * kPanelColumns;
  const UnpackedRows::Block& block = BlockOf(rows, row);
  TurnRows(kernel, geometry, block.rows, row - block.first_row, out, true);
}

void UnpackPanels(const Kernel& kernel, const PackedWeights& weights, int64_t first_row,
                  const TensorView& out_f32) {
  const Geometry g = MakeGeometry(weights.spec, kernel);
  const int64_t packed_rows = PackedRowsOf(weights);
  for (int64_t i = 0; i < out_f32.rows(); ++i) {
    const int64_t row = first_row + i;
    if (row >= packed_rows) {
      const UnpackedRows::Block& block = BlockOf(*weights.unpacked, row);
      ReadRow(block.rows, row - block.first_row, 0, g.in_features, out_f32.Row<float>(i));
      continue;
    }
    for (int64_t segment = 0; segment < g.segments; ++segment) {
      const ColumnSegment from = ColumnOf(kernel, g, weights, row, segment);
      ReadColumn(from, out_f32.Row<float>(i) + segment * g.segment_inputs,
                 SegmentInputs(g, segment));
    }
  }
}

}  // namespace tessera::kernels::cpu::linear
