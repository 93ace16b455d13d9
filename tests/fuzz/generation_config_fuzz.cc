// Any text as generation_config.json: an error that names the file, or defaults within their ranges
// and eos ids that are ids.

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "proto/model/model_folder.h"
#include "tests/fuzz/folder_under_test.h"

namespace {

constexpr std::string_view kConfig = R"({
  "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64,
  "intermediate_size": 128, "num_attention_heads": 4, "num_hidden_layers": 2, "vocab_size": 99,
  "max_position_embeddings": 128, "rms_norm_eps": 1e-5, "hidden_act": "silu", "eos_token_id": 2
})";

void Require(bool holds) {
  if (!holds) std::abort();
}

template <typename Number>
void RequireWithin(const std::optional<Number>& value, double least, double most) {
  Require(!value || (static_cast<double>(*value) >= least && static_cast<double>(*value) <= most));
}

const tessera::tests::FolderUnderTest& Folder() {
  static const tessera::tests::FolderUnderTest folder;
  static const bool written = [] {
    folder.Write("config.json", kConfig);
    return true;
  }();
  (void)written;
  return folder;
}

bool Refused(const absl::Status& status) {
  if (status.ok()) return false;
  Require(status.code() == absl::StatusCode::kInvalidArgument);
  Require(status.message().find("generation_config.json") != absl::string_view::npos);
  return true;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto& folder = Folder();
  folder.Write("generation_config.json", {reinterpret_cast<const char*>(data), size});
  const auto defaults = tessera::ReadGenerationDefaults(folder.path());
  if (!Refused(defaults.status())) {
    RequireWithin(defaults->temperature, 0, 100);
    RequireWithin(defaults->top_p, 1e-6, 1);
    RequireWithin(defaults->min_p, 0, 1);
    RequireWithin(defaults->top_k, 0, INT32_MAX);
    RequireWithin(defaults->repetition_penalty, 1e-6, 100);
  }
  const auto model = tessera::ReadModelFolder(folder.path().string());
  if (Refused(model.status())) return 0;
  Require(model->eos_token_ids_size() >= 1);
  for (const std::int32_t id : model->eos_token_ids()) Require(id >= 0);
  return 0;
}
