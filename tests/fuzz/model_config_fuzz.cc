// Any text as config.json: an error that says something, or a shape that can be computed with.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "proto/model_config.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto model =
      tessera::ParseModelConfig({reinterpret_cast<const char*>(data), size}, "fuzzed");
  if (!model.ok()) {
    if (model.status().message().empty()) std::abort();
    return 0;
  }
  const bool sound =
      model->layers() > 0 && model->hidden() > 0 && model->kv_heads() > 0 &&
      model->heads() % model->kv_heads() == 0 && model->head_dim() > 0 && model->vocabulary() > 0 &&
      model->ffn_width() > 0 && model->max_positions() > 0 && model->sliding_window() >= 0 &&
      (!model->has_rope() || model->rope().theta() >= 1) &&
      (!model->has_experts() || model->experts().per_token() <= model->experts().count()) &&
      model->quantization().group_size() >= 0 && model->quantization().group_size() % 8 == 0;
  if (!sound) std::abort();
  return 0;
}
