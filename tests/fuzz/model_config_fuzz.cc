// Any text as config.json: an error that says something, or a shape that can be computed with.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "proto/layers/layers.h"
#include "proto/model/model_config.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto model =
      tessera::ParseModelConfig({reinterpret_cast<const char*>(data), size}, "fuzzed");
  if (!model.ok()) {
    if (model.status().message().empty()) std::abort();
    return 0;
  }
  bool sound = tessera::CheckLayers(*model).ok();
  for (const auto& kind : model->kinds()) {
    const auto& attention = kind.attention();
    sound = sound && attention.window() >= 0 &&
            (!attention.has_rope() || attention.rope().theta() >= 1);
  }
  sound = sound && model->hidden() > 0 && model->vocabulary() > 0 && model->max_positions() > 0 &&
          model->quantization().group_size() >= 0 && model->quantization().group_size() % 8 == 0;
  if (!sound) std::abort();
  return 0;
}
