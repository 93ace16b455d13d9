// Blocks of GGUF types: consecutive values of a row, with what they share (a scale, a minimum).
// The codes of most types are such as a form of kernels/int4_rows.h or kernels/byte_rows.h holds
// exactly; those of five bits with an offset fit none.
//
// Source of layouts and formulas: ggml-common.h and the dequantize_row_* functions of ggml-quants.c
// (llama.cpp). A scale is an f16; codes of 4 bits have value i of a block of 32 in the low half of
// byte i, value i + 16 in its high half. Pure functions, thread-safe; sizes in values and bytes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "kernels/dtype.h"
#include "kernels/int4_rows.h"

namespace tessera::worker {

inline constexpr int kMaxGgufBlockValues = 256;

// One block.
struct GgufCodes {
  std::array<int8_t, kMaxGgufBlockValues> codes;
  std::array<float, 16> scales;              // of each group, unless there are pairs
  kernels::Int4Pair pair;                    // of the block
  std::array<kernels::Int4Steps, 16> steps;  // of each group; ones, where a block has one
};

struct GgufCodeType {
  kernels::DType dtype;  // that holds the codes: kI4, kI8; kF32: none does
  int group;             // values that share a scale
  int pair_values = 0;   // values that share a scale and an offset in f16; 0: no offsets
  uint8_t zero = 0;      // kI4 without an offset: the code that stands for 0
  void (*read)(const std::byte* block, GgufCodes* codes);
};

// Null for types that are not read (GgufType::name), and for those whose values stand one by one.
const GgufCodeType* FindGgufCodeType(std::string_view name);

// Value i of a block: the formula's result, rounded to f32 where its terms are.
float GgufValue(const GgufCodeType& type, const GgufCodes& codes, int i);
bool HasFiniteScales(const GgufCodeType& type, const GgufCodes& codes, int group);

}  // namespace tessera::worker
