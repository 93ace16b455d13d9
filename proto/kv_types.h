// The types of keys and values by the names that users give them: --kv-cache-dtype of `tessera up`,
// `tessera plan` and the coordinator. vLLM's and llama.cpp's names for the same are taken too.
// Thread rule: pure functions.
#pragma once

#include <optional>
#include <string_view>

#include "proto/model.pb.h"

namespace tessera {

struct KvTypeName {
  const char* name;
  v1::DataType type;
};
inline constexpr KvTypeName kKvTypeNames[] = {
    {"auto", v1::DATA_TYPE_UNSPECIFIED}, {"float32", v1::DATA_TYPE_FLOAT32},
    {"float16", v1::DATA_TYPE_FLOAT16},  {"bfloat16", v1::DATA_TYPE_BFLOAT16},
    {"int8", v1::DATA_TYPE_INT8},        {"fp8", v1::DATA_TYPE_FP8},
    {"q8_0", v1::DATA_TYPE_INT8},        {"fp8_e4m3", v1::DATA_TYPE_FP8},
};
inline constexpr const char* kKvTypesText =
    "auto (16 bits, or 32 where weights have 32), float32, float16, bfloat16; int8 (or q8_0) and "
    "fp8 (or fp8_e4m3) keep twice the tokens in the same memory";

// Nothing for what is none.
inline std::optional<v1::DataType> KvTypeNamed(std::string_view name) {
  for (const KvTypeName& known : kKvTypeNames) {
    if (name == known.name) return known.type;
  }
  return std::nullopt;
}

}  // namespace tessera
