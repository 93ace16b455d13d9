// Types of numbers by the names that users give and read: --dtype, --quantization and
// --kv-cache-dtype of `tessera up`, `tessera plan` and the coordinator, and texts. Thread rule:
// pure functions.
#pragma once

#include <initializer_list>
#include <optional>
#include <string_view>

#include "proto/model.pb.h"

namespace tessera {

struct DataTypeName {
  std::string_view name;
  v1::DataType type;
};
inline constexpr DataTypeName kDataTypeNames[] = {
    {"auto", v1::DATA_TYPE_UNSPECIFIED}, {"float32", v1::DATA_TYPE_FLOAT32},
    {"float16", v1::DATA_TYPE_FLOAT16},  {"bfloat16", v1::DATA_TYPE_BFLOAT16},
    {"int8", v1::DATA_TYPE_INT8},        {"fp8", v1::DATA_TYPE_FP8},
};

constexpr std::string_view NameOf(v1::DataType type) {
  for (const DataTypeName& known : kDataTypeNames) {
    if (known.type == type) return known.name;
  }
  return "unknown";
}

// Nothing for what is none.
constexpr std::optional<v1::DataType> DataTypeNamed(std::string_view name) {
  for (const DataTypeName& known : kDataTypeNames) {
    if (known.name == name) return known.type;
  }
  return std::nullopt;
}

// What --dtype and --kv-cache-dtype take.
inline constexpr std::initializer_list<const char*> kStoredTypeNames = {"auto", "float32",
                                                                        "float16", "bfloat16"};
inline constexpr std::initializer_list<const char*> kKvTypeNames = {
    "auto", "float32", "float16", "bfloat16", "int8", "q8_0", "fp8", "fp8_e4m3"};
inline constexpr const char* kKvTypesText =
    "auto (16 bits, or 32 where weights have 32), float32, float16, bfloat16; int8 (or q8_0) and "
    "fp8 (or fp8_e4m3) keep twice the tokens in the same memory";

// Likewise for keys and values; vLLM's and llama.cpp's names for the same are taken too.
constexpr std::optional<v1::DataType> KvTypeNamed(std::string_view name) {
  if (name == "q8_0") return v1::DATA_TYPE_INT8;
  if (name == "fp8_e4m3") return v1::DATA_TYPE_FP8;
  return DataTypeNamed(name);
}

// Nothing for what weights are not computed as.
constexpr std::optional<v1::DataType> WeightTypeNamed(std::string_view name) {
  const std::optional<v1::DataType> type = DataTypeNamed(name);
  return type == v1::DATA_TYPE_FP8 ? std::nullopt : type;
}

}  // namespace tessera
