// The header of a GGUF file: its keys, and which tensors it holds, of which type and shape, where.
//
// Format (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, versions 2 and 3): "GGUF", u32
// version, u64 tensors, u64 keys; each key a string, a type and a value; each tensor a string, its
// sizes (the length of a row first), a type and an offset; then, from the next multiple of
// general.alignment on, the data, to which offsets are relative. Numbers are little endian.
//
// Files come from strangers: lengths and counts are held against what is left of the file before
// anything is allocated, memory is bounded, and errors (InvalidArgument) name file and key or
// tensor. Pure, thread-safe.
#pragma once

#include <cstdint>
#include <filesystem>
#include <istream>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"

namespace tessera {

// A type of elements, stored in blocks of some values of one row.
struct GgufType {
  int32_t id = 0;
  std::string_view name;  // "F32", "Q4_K", ...
  int64_t values = 1;     // of a block
  int64_t bytes = 0;      // of a block
};

// Null for names that are no type of a GGUF file.
const GgufType* FindGgufType(std::string_view name);

struct GgufTensor {
  std::string name;
  const GgufType* type = nullptr;  // static
  std::vector<int64_t> shape;      // the length of a row last
  int64_t begin = 0;               // of its bytes, from the start of the file
  int64_t end = 0;
  size_t file = 0;  // of the model's files (gguf_parts.h)
};

// Integers and truth values of any width are int64_t; what is beyond it is its largest number.
using GgufValue = std::variant<int64_t, double, std::string, std::vector<int64_t>,
                               std::vector<double>, std::vector<std::string>>;

struct GgufHeader {
  std::map<std::string, GgufValue, std::less<>> keys;
  std::vector<GgufTensor> tensors;  // in the order of their places
  int64_t data_begin = 0;

  // Null where there is no such key, or its value is of another type.
  template <typename T>
  const T* Find(std::string_view key) const {
    const auto found = keys.find(key);
    return found == keys.end() ? nullptr : std::get_if<T>(&found->second);
  }
  const GgufTensor* FindTensor(std::string_view name) const;
};

// The limit of the header: far above any published one.
inline constexpr int64_t kMaxGgufHeaderBytes = int64_t{256} << 20;

// `in` stands at the file's first byte, `file_bytes` is the file's size; `file` names it.
absl::StatusOr<GgufHeader> ParseGgufHeader(std::istream& in, int64_t file_bytes,
                                           std::string_view file);

// NotFound where the file cannot be read.
absl::StatusOr<GgufHeader> ReadGgufHeader(const std::filesystem::path& path);

// Whether the name ends in ".gguf", in letters of any case.
bool HasGgufName(std::string_view path);

}  // namespace tessera
