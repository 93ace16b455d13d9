// Blocks of GGUF types: consecutive values of a row, with what they share (a scale, a minimum).
//
// Source of layouts and formulas: ggml-common.h and the dequantize_row_* functions of ggml-quants.c
// (llama.cpp). A scale is an f16; codes of 4 bits have value i of a block of 32 in the low half of
// byte i, value i + 16 in its high half. Pure functions, thread-safe; sizes in values and bytes.
#pragma once

#include <cstddef>
#include <string_view>

namespace tessera::worker {

// Writes a block's values. Each is the formula's result, rounded to f32 where its terms are.
using GgufDecoder = void (*)(const std::byte* block, float* values);

// Null for types that are not read (GgufType::name), and for those whose values stand one by one.
GgufDecoder FindGgufDecoder(std::string_view type);

// The f16 at this place.
float GgufHalf(const std::byte* data);

}  // namespace tessera::worker
