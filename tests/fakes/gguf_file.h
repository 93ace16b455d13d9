// Bytes of GGUF files, written as plainly as possible: what proto/model/gguf_header reads.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::tests {

// Types of values.
inline constexpr uint32_t kGgufU32 = 4, kGgufI32 = 5, kGgufF32 = 6, kGgufBool = 7, kGgufString = 8,
                          kGgufArray = 9;

inline std::string GgufNumber(uint64_t value, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text += static_cast<char>(value >> (8 * i) & 0xff);
  return text;
}
inline std::string GgufText(std::string_view text) {
  return GgufNumber(text.size(), 8) + std::string(text);
}

inline std::string GgufKey(std::string_view name, uint32_t kind, const std::string& value) {
  return GgufText(name) + GgufNumber(kind, 4) + value;
}
inline std::string GgufKey(std::string_view name, uint32_t value) {
  return GgufKey(name, kGgufU32, GgufNumber(value, 4));
}
inline std::string GgufTextKey(std::string_view name, std::string_view value) {
  return GgufKey(name, kGgufString, GgufText(value));
}
// `values` are the bytes of `count` values.
inline std::string GgufListKey(std::string_view name, uint32_t kind, size_t count,
                               const std::string& values) {
  return GgufKey(name, kGgufArray, GgufNumber(kind, 4) + GgufNumber(count, 8) + values);
}

struct GgufTensorAt {
  std::string name;
  std::vector<uint64_t> sizes;  // the length of a row first
  uint32_t type = 0;            // F32
  uint64_t offset = 0;          // in the data
};

// A file of these keys and tensors, with so many bytes of data.
inline std::string GgufBytes(const std::vector<std::string>& keys,
                             const std::vector<GgufTensorAt>& tensors, size_t data_bytes,
                             uint32_t version = 3) {
  std::string bytes =
      "GGUF" + GgufNumber(version, 4) + GgufNumber(tensors.size(), 8) + GgufNumber(keys.size(), 8);
  for (const std::string& key : keys) bytes += key;
  for (const GgufTensorAt& tensor : tensors) {
    bytes += GgufText(tensor.name) + GgufNumber(tensor.sizes.size(), 4);
    for (const uint64_t size : tensor.sizes) bytes += GgufNumber(size, 8);
    bytes += GgufNumber(tensor.type, 4) + GgufNumber(tensor.offset, 8);
  }
  bytes.resize((bytes.size() + 31) / 32 * 32);
  return bytes + std::string(data_bytes, '\0');
}

}  // namespace tessera::tests
