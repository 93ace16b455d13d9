#include "proto/model/model_config.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "proto/layers/layers.h"
#include "proto/model/families/config_parts.h"
#include "proto/model/families/families.h"
#include "third_party/absl/str_cat.h"

namespace tessera {
namespace {

constexpr int64_t kMaxTokenId = INT32_MAX;

// What every family has, under the same keys.
void ReadCommon(ConfigDraft& draft) {
  JsonReader& config = draft.config;
  const Family& family = draft.family;
  v1::Model* model = draft.model;
  draft.layers = config.Integer("num_hidden_layers", 1, kMaxLayers);
  model->set_hidden(config.Integer("hidden_size", 1, kMaxWidth));
  model->set_vocabulary(config.Integer("vocab_size", 1, kMaxWidth));
  model->set_max_positions(
      family.max_positions == 0
          ? config.Integer("max_position_embeddings", 1, kMaxPositions)
          : config.IntegerOr("max_position_embeddings", family.max_positions, 1, kMaxPositions));
  model->set_tied_embeddings(config.BoolOr("tie_word_embeddings", family.tied_embeddings));
  model->set_embedding_width(model->hidden());
  model->set_dtype(ReadDataType(config, config.Has("dtype") ? "dtype" : "torch_dtype"));
  model->set_bos_token_id(config.IntegerOr("bos_token_id", -1, -1, kMaxTokenId));
  for (int64_t id : config.Integers("eos_token_id", 0, kMaxTokenId)) model->add_eos_token_ids(id);
  config.Adopt(CheckEosIds(*model, config.file()));
  ReadQuantization(config, model);
}

}  // namespace

v1::DataType ReadDataType(JsonReader& config, const char* key) {
  std::string name = config.StringOr(key, "");
  if (name.starts_with("torch.")) name = name.substr(6);
  if (name.empty()) return v1::DATA_TYPE_UNSPECIFIED;
  if (name == "float32") return v1::DATA_TYPE_FLOAT32;
  if (name == "float16") return v1::DATA_TYPE_FLOAT16;
  if (name == "bfloat16") return v1::DATA_TYPE_BFLOAT16;
  config.Fail(key, StrCat("'", name, "' is not supported; known are float32, float16, bfloat16"));
  return v1::DATA_TYPE_UNSPECIFIED;
}

absl::Status CheckEosIds(const v1::Model& model, std::string_view file) {
  for (const int64_t id : model.eos_token_ids()) {
    if (id >= 0 && id < model.vocabulary()) continue;
    return absl::InvalidArgumentError(StrCat(file, ": eos_token_id names the token ", id,
                                             ", but the vocabulary (vocab_size) has ",
                                             "the ids 0 to ", model.vocabulary() - 1));
  }
  return absl::OkStatus();
}

absl::StatusOr<v1::Model> ParseModelConfig(std::string_view text, std::string_view file) {
  absl::StatusOr<nlohmann::json> document = ParseJsonObject(text, file);
  if (!document.ok()) return document.status();
  JsonReader config(*document, file);

  std::vector<std::string> names = config.Strings("architectures");
  if (names.size() != 1) config.Fail("architectures", "must name one architecture");
  if (!config.ok()) return config.status();
  const Family* family = FindFamily(names[0]);
  if (family == nullptr) {
    std::vector<std::string_view> known;
    for (const Family* one : Families()) known.push_back(one->architecture);
    RefuseClass(config, names[0], known);
    return config.status();
  }
  v1::Model model;
  model.set_architecture(names[0]);
  ConfigDraft draft = {.config = config, .family = *family, .layers = 0, .model = &model};
  ReadCommon(draft);
  if (config.ok()) family->read(draft);
  if (!config.ok()) return config.status();
  if (absl::Status layers = CheckLayers(model); !layers.ok()) {
    return absl::InvalidArgumentError(StrCat(file, ": ", std::string(layers.message())));
  }
  return model;
}

}  // namespace tessera
