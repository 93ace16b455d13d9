// Any bytes as a GGUF file: an error, or keys and tensors that lie within the file, and a model or
// an error of them; never a crash, never much memory.
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "proto/model/gguf_config.h"
#include "proto/model/gguf_header.h"
#include "proto/model/model_config.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = static_cast<int64_t>(size);
  std::istringstream in(std::string(reinterpret_cast<const char*>(data), size));
  const auto header = tessera::ParseGgufHeader(in, bytes, "fuzzed");
  if (!header.ok()) {
    if (header.status().message().empty()) std::abort();
    return 0;
  }
  int64_t end = 0;
  for (const auto& tensor : header->tensors) {
    if (tensor.begin < end || tensor.end < tensor.begin || tensor.end > bytes) std::abort();
    end = tensor.end;
  }
  const auto config = tessera::GgufConfig(*header, {}, "fuzzed");
  if (!config.ok()) {
    if (config.status().message().empty()) std::abort();
    return 0;
  }
  const auto model = tessera::ParseModelConfig(config->dump(), "fuzzed");
  if (!model.ok() && model.status().message().empty()) std::abort();
  tessera::GgufTokenizerConfig(*header);
  return 0;
}
