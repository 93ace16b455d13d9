#include "coordinator/served_model.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/model_folder.h"
#include "proto/model_tensors.h"
#include "third_party/spdlog/log.h"

namespace tessera::coordinator {
namespace {

v1::DataType ToDataType(const std::string& name) {
  if (name == "float32") return v1::DATA_TYPE_FLOAT32;
  if (name == "float16") return v1::DATA_TYPE_FLOAT16;
  if (name == "bfloat16") return v1::DATA_TYPE_BFLOAT16;
  if (name == "int8") return v1::DATA_TYPE_INT8;
  return v1::DATA_TYPE_UNSPECIFIED;
}

void FillConfigure(const CoordinatorOptions& options, const Tokenizer& tokenizer,
                   v1::ConfigureRequest& c) {
  c.set_weight_dtype(
      ToDataType(options.quantization.empty() ? options.dtype : options.quantization));
  c.set_kv_dtype(ToDataType(options.kv_cache_dtype));
  c.set_kv_cache_bytes(options.kv_cache_bytes);
  c.set_block_tokens(options.block_tokens);
  c.set_max_sequences(options.max_sequences);
  c.set_max_batched_tokens(options.max_batched_tokens);
  c.set_max_waiting(options.max_waiting);
  c.set_prefix_cache(options.prefix_cache);
  *c.mutable_eos_token_ids() = c.model().eos_token_ids();
  for (int32_t id = 0; id < tokenizer.vocabulary_size(); ++id)
    c.add_vocabulary(tokenizer.TokenBytes(id));
}

}  // namespace

absl::StatusOr<LoadedModel> LoadModel(const CoordinatorOptions& options, int64_t now_unix_seconds) {
  absl::StatusOr<std::filesystem::path> folder = ResolveModelFolder(options.model);
  if (!folder.ok()) return folder.status();
  const std::filesystem::path absolute = std::filesystem::absolute(*folder).lexically_normal();
  absl::StatusOr<CheckedModel> checked = ReadCheckedModel(absolute.string());
  if (!checked.ok()) return checked.status();
  for (const std::string& warning : checked->warnings) Logger("coordinator").warn("{}", warning);
  const v1::Model& model = checked->model;
  absl::StatusOr<std::string> fingerprint = Fingerprint(absolute);
  if (!fingerprint.ok()) return fingerprint.status();
  absl::StatusOr<GenerationDefaults> defaults = ReadGenerationDefaults(absolute);
  if (!defaults.ok()) return defaults.status();
  absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer = Tokenizer::Load(absolute);
  if (!tokenizer.ok()) return tokenizer.status();

  LoadedModel loaded;
  loaded.served = std::make_shared<ServedModel>();
  ServedModel& served = *loaded.served;
  std::filesystem::path named = absolute;
  if (named.filename().empty()) named = named.parent_path();  // a trailing slash
  const bool is_folder = std::filesystem::is_directory(options.model);
  const std::vector<std::string>& names = options.served_model_names;
  served.name = !names.empty() ? names.front()
                : is_folder    ? named.filename().string()
                               : options.model;
  if (!names.empty()) served.other_names.assign(names.begin() + 1, names.end());
  served.folder = absolute.string();
  served.created_unix_seconds = now_unix_seconds;
  served.tokenizer = *std::move(tokenizer);
  served.defaults = *defaults;
  served.max_model_len_tokens = model.max_positions();
  if (options.max_model_len_tokens > 0) {
    if (options.max_model_len_tokens > model.max_positions()) {
      return absl::InvalidArgumentError(
          absl::StrCat("--max-model-len is ", options.max_model_len_tokens, ", ", served.folder,
                       " supports ", model.max_positions(), " positions"));
    }
    served.max_model_len_tokens = options.max_model_len_tokens;
  }
  absl::StatusOr<ChatTemplate> chat_template = ChatTemplate::Load(absolute);
  if (chat_template.ok()) {
    served.chat_template = *std::move(chat_template);
  } else if (absl::IsNotFound(chat_template.status())) {
    Logger("coordinator")
        .info("{} has no chat template: /v1/chat/completions is refused", served.folder);
  } else {
    return chat_template.status();
  }
  loaded.configure.set_model_folder(served.folder);
  loaded.configure.set_model_fingerprint(*fingerprint);
  *loaded.configure.mutable_model() = model;
  loaded.configure.mutable_model()->set_name(served.name);
  loaded.configure.set_max_model_len_tokens(served.max_model_len_tokens);
  FillConfigure(options, *served.tokenizer, loaded.configure);
  return loaded;
}

}  // namespace tessera::coordinator
