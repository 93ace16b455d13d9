// The header of a safetensors file: which tensors it holds, of which type and shape, and where.
//
// Format (https://github.com/huggingface/safetensors): 8 bytes of header length, little endian; the
// header, a JSON object {name: {dtype, shape, data_offsets: [begin, end)}, "__metadata__": {...}};
// then the data, to which offsets are relative. The data must be covered without holes or overlaps.
//
// Files come from strangers: everything is checked before it is believed, memory stays proportional
// to the number of tensors, and errors (InvalidArgument) name file and tensor. Pure, thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace tessera {

struct SafetensorsEntry {
  std::string name;
  std::string dtype;  // as written: "F32", "BF16", "I64", ...
  std::vector<int64_t> shape;
  int64_t begin = 0;  // of its bytes, from the start of the file
  int64_t end = 0;
};

inline constexpr int64_t kSafetensorsPrefixBytes = 8;
inline constexpr int64_t kMaxSafetensorsHeaderBytes = int64_t{100} << 20;  // the format's own limit

// What the prefix says; the largest number there is where it is not whole.
uint64_t SafetensorsHeaderBytes(std::string_view prefix);

// `bytes` is the file's beginning (at least its header, if it is long enough), file_bytes its size.
// Entries come in the order of their places.
absl::StatusOr<std::vector<SafetensorsEntry>> ParseSafetensorsHeader(std::string_view bytes,
                                                                     int64_t file_bytes,
                                                                     std::string_view file);

}  // namespace tessera
