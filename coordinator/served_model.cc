#include "coordinator/served_model.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/answer/call_formats.h"
#include "coordinator/api/answer_formats.h"
#include "coordinator/pooling_config.h"
#include "coordinator/speculation.h"
#include "proto/data_types.h"
#include "proto/emulated_kind.h"
#include "proto/json_message.h"
#include "proto/model/model_folder.h"
#include "proto/model/model_tensors.h"
#include "third_party/spdlog/log.h"

namespace tessera::coordinator {
namespace {

// Control tokens are in no answer that has a form, but those that mark what may stand before it:
// thinking and calls.
std::set<std::string> MarksOf(const ServedModel& model) {
  std::set<std::string> marks = {model.thinking.opening, model.thinking.closing};
  if (model.call_format != nullptr)
    marks.insert(model.call_format->markers.begin(), model.call_format->markers.end());
  return marks;
}

void FillConfigure(const CoordinatorOptions& options, const ServedModel& served,
                   v1::ConfigureRequest& c) {
  c.set_weight_dtype(
      WeightTypeNamed(options.quantization.empty() ? options.dtype : options.quantization)
          .value_or(v1::DATA_TYPE_UNSPECIFIED));
  c.set_kv_dtype(KvTypeNamed(options.kv_cache_dtype).value_or(v1::DATA_TYPE_UNSPECIFIED));
  c.set_kv_cache_bytes(options.kv_cache_bytes);
  c.set_block_tokens(options.block_tokens);
  c.set_max_sequences(options.max_sequences);
  c.set_max_batched_tokens(options.max_batched_tokens);
  c.set_max_waiting(options.max_waiting);
  c.set_prefix_cache(options.prefix_cache);
  *c.mutable_eos_token_ids() = c.model().eos_token_ids();
  const std::set<std::string> marks = MarksOf(served);
  const Tokenizer& tokenizer = *served.tokenizer;
  for (int32_t id = 0; id < tokenizer.vocabulary_size(); ++id) {
    const bool is_left_out = tokenizer.IsSpecial(id) && !marks.contains(tokenizer.TokenText(id));
    c.add_vocabulary(is_left_out ? "" : tokenizer.TokenBytes(id));
  }
}

// The template of --chat-template.
absl::StatusOr<ChatTemplate> ReadChatTemplate(const std::string& file, const std::string& folder) {
  absl::StatusOr<ChatTemplate> read = ChatTemplate::LoadFile(file, folder);
  if (read.ok()) return read;
  if (absl::IsNotFound(read.status()) && file.find_first_of("{\n") != std::string::npos) {
    return absl::InvalidArgumentError(
        "--chat-template takes the name of a file, not a template's text: write it to a file");
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--chat-template ", std::string(read.status().message())));
}

// A folder's template that cannot be used costs chat alone; one that a flag names ends the start.
absl::Status LoadChatTemplate(const std::string& file, ServedModel& served) {
  absl::StatusOr<ChatTemplate> read =
      file.empty() ? ChatTemplate::Load(served.folder) : ReadChatTemplate(file, served.folder);
  if (read.ok()) {
    served.chat_template = *std::move(read);
    if (served.chat_template->forms.Of(MessageKind::kUser).form == ContentForm::kNeither) {
      Logger("coordinator")
          .warn("the chat template of {} writes no message's content: chat is refused",
                served.name);
    }
    return absl::OkStatus();
  }
  if (!file.empty()) return read.status();
  const std::string why(read.status().message());
  if (absl::IsNotFound(read.status())) {
    Logger("coordinator").info("{} has no chat template: chat is refused", served.folder);
  } else {
    served.chat_refusal = why;
    Logger("coordinator")
        .warn(
            "the chat template cannot be used, so chat is refused: {}; --chat-template FILE gives "
            "another",
            why);
  }
  return absl::OkStatus();
}

struct ReadModel {
  CheckedModel checked;
  std::string fingerprint;
};

// A rehearsal has no checkpoint, only a shape.
absl::StatusOr<ReadModel> Read(const std::filesystem::path& folder, bool rehearsal) {
  ReadModel read;
  if (rehearsal) {
    const std::string file = (folder / std::string(kRehearsedModelFile)).string();
    if (absl::Status s = ReadJsonMessage(file, &read.checked.model); !s.ok()) return s;
    read.fingerprint = std::string(kRehearsalFingerprint);
    return read;
  }
  absl::StatusOr<CheckedModel> checked = ReadCheckedModel(folder.string());
  if (!checked.ok()) return checked.status();
  read.checked = *std::move(checked);
  absl::StatusOr<std::string> fingerprint = Fingerprint(folder);
  if (!fingerprint.ok()) return fingerprint.status();
  read.fingerprint = *std::move(fingerprint);
  return read;
}

}  // namespace

absl::StatusOr<LoadedModel> LoadModel(const CoordinatorOptions& options, int64_t now_unix_seconds) {
  absl::StatusOr<std::filesystem::path> folder = ResolveModelFolder(options.model);
  if (!folder.ok()) return folder.status();
  const std::filesystem::path absolute = std::filesystem::absolute(*folder).lexically_normal();
  const absl::StatusOr<ReadModel> read = Read(absolute, options.rehearsal);
  if (!read.ok()) return read.status();
  for (const std::string& warning : read->checked.warnings)
    Logger("coordinator").warn("{}", warning);
  const v1::Model& model = read->checked.model;
  absl::StatusOr<GenerationDefaults> defaults = ReadGenerationDefaults(absolute);
  if (!defaults.ok()) return defaults.status();
  absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer = Tokenizer::Load(absolute);
  if (!tokenizer.ok()) return tokenizer.status();

  LoadedModel loaded;
  loaded.served = std::make_shared<ServedModel>();
  ServedModel& served = *loaded.served;
  const std::vector<std::string>& names = options.served_model_names;
  served.name = names.empty() ? model.name() : names.front();
  if (options.rehearsal) served.name = absl::StrCat(std::string(kRehearsedModel), model.name());
  if (!names.empty()) served.other_names.assign(names.begin() + 1, names.end());
  served.folder = absolute.string();
  served.created_unix_seconds = now_unix_seconds;
  served.tokenizer = *std::move(tokenizer);
  served.defaults = *defaults;
  served.max_model_len_tokens = model.max_positions();
  served.embedding_width = model.embedding_width();
  absl::StatusOr<EmbeddingRecipe> embedding = ReadEmbeddingRecipe(served.folder, options.pooling);
  if (!embedding.ok()) return embedding.status();
  served.embedding = *std::move(embedding);
  if (options.max_model_len_tokens > 0) {
    if (options.max_model_len_tokens > model.max_positions()) {
      return absl::InvalidArgumentError(
          absl::StrCat("--max-model-len is ", options.max_model_len_tokens, ", ", served.folder,
                       " supports ", model.max_positions(), " positions"));
    }
    served.max_model_len_tokens = options.max_model_len_tokens;
  }
  if (absl::Status s = LoadChatTemplate(options.chat_template_file, served); !s.ok()) return s;
  if (absl::Status s = FindAnswerFormats(options.tool_call_parser, served); !s.ok()) return s;
  loaded.configure.set_model_folder(served.folder);
  loaded.configure.set_model_fingerprint(read->fingerprint);
  *loaded.configure.mutable_model() = model;
  loaded.configure.mutable_model()->set_name(served.name);
  loaded.configure.set_max_model_len_tokens(served.max_model_len_tokens);
  FillConfigure(options, served, loaded.configure);
  absl::StatusOr<std::string> drafts =
      ChooseSpeculation(options, served.folder, *served.tokenizer, &loaded.configure);
  if (!drafts.ok()) return drafts.status();
  loaded.speculation = *std::move(drafts);
  if (!loaded.speculation.empty())
    Logger("coordinator").info("speculation: {}", loaded.speculation);
  return loaded;
}

}  // namespace tessera::coordinator
