// Any bytes as a safetensors file: an error or entries that lie within the file, never a crash.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "proto/model/safetensors_header.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = static_cast<int64_t>(size);
  const auto entries =
      tessera::ParseSafetensorsHeader({reinterpret_cast<const char*>(data), size}, bytes, "fuzzed");
  if (!entries.ok()) {
    if (entries.status().message().empty()) std::abort();
    return 0;
  }
  int64_t end = 8;
  for (const auto& entry : *entries) {
    if (entry.begin < end || entry.end < entry.begin || entry.end > bytes) std::abort();
    end = entry.end;
  }
  return 0;
}
