#include "proto/model/model_config.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "proto/data_types.h"
#include "proto/layers/layers.h"
#include "proto/model/config_keys.h"
#include "proto/model/families/config_parts.h"
#include "proto/model/families/families.h"
#include "proto/model/formats/formats.h"
#include "third_party/absl/str_cat.h"

namespace tessera {
namespace {

constexpr int64_t kMaxTokenId = INT32_MAX;

// Where a key stands that a wrapper may have inside or outside of text_config; inside wins.
JsonReader& Holding(ConfigDraft& draft, const char* key) {
  return draft.config.Has(key) ? draft.config : draft.outer;
}

void ReadTokenIds(ConfigDraft& draft) {
  v1::Model* model = draft.model;
  JsonReader& eos = Holding(draft, "eos_token_id");
  for (int64_t id : eos.Integers("eos_token_id", 0, kMaxTokenId)) model->add_eos_token_ids(id);
  draft.config.Adopt(CheckEosIds(*model, draft.config.file()));
}

// What every family has, under the same keys.
void ReadCommon(ConfigDraft& draft) {
  JsonReader& config = draft.config;
  const Family& family = draft.family;
  v1::Model* model = draft.model;
  draft.layers = config.Integer("num_hidden_layers", 1, kMaxLayers);
  model->set_hidden(config.Integer("hidden_size", 1, kMaxWidth));
  model->set_vocabulary(family.vocabulary == 0
                            ? config.Integer("vocab_size", 1, kMaxWidth)
                            : config.IntegerOr("vocab_size", family.vocabulary, 1, kMaxWidth));
  model->set_max_positions(
      family.max_positions == 0
          ? config.Integer("max_position_embeddings", 1, kMaxPositions)
          : config.IntegerOr("max_position_embeddings", family.max_positions, 1, kMaxPositions));
  // A wrapper has the head, so its own key wins.
  constexpr const char* kTied = "tie_word_embeddings";
  const bool inside = config.BoolOr(kTied, family.tied_embeddings);
  model->set_tied_embeddings(draft.outer.BoolOr(kTied, inside));
  model->set_embedding_width(model->hidden());
  const bool old = !config.Has("dtype") && !draft.outer.Has("dtype");
  const char* dtype = old ? "torch_dtype" : "dtype";
  model->set_dtype(ReadDataType(Holding(draft, dtype), dtype));
  ReadTokenIds(draft);
  constexpr const char* kMlx = "quantization";
  if (JsonReader& holder = Holding(draft, kMlx); holder.Has(kMlx)) {
    holder.Fail(kMlx,
                "says that weights are quantised by MLX, which is not read: use the original "
                "checkpoint, an AWQ, GPTQ or FP8 one, or a GGUF file");
  }
  ReadQuantization(Holding(draft, "quantization_config"), model);
  config.Adopt(draft.outer.status());
}

v1::Model ReadFamily(JsonReader& config, JsonReader& outer, const Family& family,
                     std::vector<std::string>* notes) {
  v1::Model model;
  model.set_architecture(std::string(family.architecture));
  ConfigDraft draft = {
      .config = config, .outer = outer, .family = family, .layers = 0, .model = &model};
  ReadCommon(draft);
  if (config.ok()) family.read(draft);
  if (!config.ok()) return model;
  if (absl::Status layers = CheckLayers(model); !layers.ok()) {
    config.Adopt(
        absl::InvalidArgumentError(StrCat(config.file(), ": ", std::string(layers.message()))));
  }
  std::string note = CheckUnreadKeys(config, family.architecture);
  if (notes != nullptr && !note.empty()) notes->push_back(std::move(note));
  return model;
}

}  // namespace

v1::DataType ReadDataType(JsonReader& config, const char* key) {
  std::string name = config.StringOr(key, "");
  if (name.starts_with("torch.")) name = name.substr(6);
  if (name.empty()) return v1::DATA_TYPE_UNSPECIFIED;
  for (const v1::DataType type :
       {v1::DATA_TYPE_FLOAT32, v1::DATA_TYPE_FLOAT16, v1::DATA_TYPE_BFLOAT16}) {
    if (name == NameOf(type)) return type;
  }
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

absl::StatusOr<v1::Model> ParseModelConfig(std::string_view text, std::string_view file,
                                           std::vector<std::string>* notes) {
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
  constexpr const char* kText = "text_config";
  const bool beside = family->text_beside_towers && !config.Has(kText);
  if (!family->wrapped || beside) {
    if (beside) config.Pass("vision_config");
    CheckModelType(config, family->architecture);
    if (!config.ok()) return config.status();
    v1::Model model = ReadFamily(config, config, *family, notes);
    if (!config.ok()) return config.status();
    return model;
  }
  if (!config.Has(kText) || !config.At(kText).is_object()) {
    config.Fail(kText, "must be an object: the configuration of the model's text part");
    return config.status();
  }
  JsonReader inner = config.Nested(kText);
  v1::Model model = ReadFamily(inner, config, *family, notes);
  if (!inner.ok()) return inner.status();
  return model;
}

}  // namespace tessera
