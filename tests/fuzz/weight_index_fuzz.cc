// Any text as model.safetensors.index.json: an error that says something, or names of files that
// lie beside it.

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "proto/model/weight_files.h"

namespace {

void Require(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto files =
      tessera::ParseWeightIndex({reinterpret_cast<const char*>(data), size}, "fuzzed");
  if (!files.ok()) {
    Require(files.status().code() == absl::StatusCode::kInvalidArgument);
    Require(files.status().message().find("fuzzed") == 0);
    return 0;
  }
  Require(!files->empty());
  for (const auto& [tensor, name] : *files) {
    Require(name.ends_with(".safetensors") && name.find('/') == std::string::npos);
  }
  return 0;
}
