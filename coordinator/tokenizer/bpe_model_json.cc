#include "coordinator/tokenizer/bpe_model_json.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "coordinator/tokenizer/text/byte_alphabet.h"
#include "coordinator/tokenizer/text/json_fields.h"
#include "coordinator/tokenizer/text/utf8.h"
#include "coordinator/tokenizer/token_limits.h"
#include "third_party/absl/str_cat.h"

namespace tessera::coordinator {
namespace {

constexpr std::string_view kWhere = "tokenizer.json: model";

absl::Status Invalid(std::string_view what) {
  return absl::InvalidArgumentError(StrCat(kWhere, ": ", what));
}

absl::Status CheckType(const nlohmann::json& model) {
  if (auto status = OnlyFields(
          model, kWhere,
          {"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix",
           "fuse_unk", "byte_fallback", "ignore_merges", "vocab", "merges"});
      !status.ok() && FieldOrNull(model, "type") == "BPE") {
    return status;
  }
  auto type = StringField(model, kWhere, "type", model.contains("merges") ? "BPE" : "");
  if (!type.ok()) return type.status();
  if (*type != "BPE")
    return Invalid(StrCat("type \"", *type, "\" is not supported; BPE and Unigram are"));
  const nlohmann::json& dropout = FieldOrNull(model, "dropout");
  if (!dropout.is_null() && dropout != 0) return Invalid("\"dropout\" is not supported");
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    auto affix = StringField(model, kWhere, key, "");
    if (!affix.ok()) return affix.status();
    if (!affix->empty()) return Invalid(StrCat("\"", key, "\" is not supported"));
  }
  return absl::OkStatus();
}

absl::Status ReadVocabulary(const nlohmann::json& model, Vocabulary* vocabulary) {
  const nlohmann::json& vocab = FieldOrNull(model, "vocab");
  if (!vocab.is_object()) return Invalid("\"vocab\" must be an object of token: id");
  vocabulary->Announce(vocab.size());
  for (const auto& item : vocab.items()) {
    if (!item.value().is_number_integer()) {
      return Invalid(StrCat("vocab: token ", Excerpt(item.key()), " must have an integer id"));
    }
    const bool huge = item.value().is_number_unsigned() &&
                      item.value().get<uint64_t>() > static_cast<uint64_t>(kMaxTokenId);
    const int64_t value = huge ? int64_t{kMaxTokenId} + 1 : item.value().get<int64_t>();
    if (auto status = vocabulary->AddModelToken(item.key(), value); !status.ok()) {
      return Invalid(StrCat("vocab: ", StdView(status.message())));
    }
  }
  return absl::OkStatus();
}

// The two halves of a merge: "a b", or ["a", "b"] where tokens may hold spaces.
bool SplitMerge(const nlohmann::json& merge, std::string_view* left, std::string_view* right) {
  if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
    *left = merge[0].get_ref<const std::string&>();
    *right = merge[1].get_ref<const std::string&>();
    return true;
  }
  if (!merge.is_string()) return false;
  const std::string_view text = merge.get_ref<const std::string&>();
  const size_t space = text.find(' ');
  if (space == std::string_view::npos || text.find(' ', space + 1) != std::string_view::npos) {
    return false;
  }
  *left = text.substr(0, space);
  *right = text.substr(space + 1);
  return true;
}

absl::Status ReadMerges(const nlohmann::json& model, const Vocabulary& vocabulary,
                        std::vector<BpeSpec::Merge>* merges) {
  const nlohmann::json& list = FieldOrNull(model, "merges");
  if (!list.is_array()) return Invalid("\"merges\" must be a list");
  merges->reserve(list.size());
  for (size_t i = 0; i < list.size(); ++i) {
    std::string_view left;
    std::string_view right;
    if (!SplitMerge(list[i], &left, &right) || left.empty() || right.empty()) {
      return Invalid(StrCat("merge ", i, " is not two tokens"));
    }
    const auto left_id = vocabulary.Find(left);
    const auto right_id = vocabulary.Find(right);
    const auto result = vocabulary.Find(StrCat(left, right));
    if (!left_id || !right_id || !result) {
      const std::string missing =
          !left_id ? std::string(left) : (!right_id ? std::string(right) : StrCat(left, right));
      return Invalid(
          StrCat("merge ", i, " names ", Excerpt(missing), ", which is not in the vocabulary"));
    }
    merges->push_back({*left_id, *right_id, *result});
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<BpeModelSpec> ReadBpeModel(const nlohmann::json& model, Vocabulary* vocabulary) {
  if (!model.is_object()) return Invalid("must be an object");
  if (auto status = CheckType(model); !status.ok()) return status;
  BpeModelSpec spec;
  for (const auto& [key, flag] : {std::pair("ignore_merges", &spec.ignore_merges),
                                  std::pair("byte_fallback", &spec.byte_fallback),
                                  std::pair("fuse_unk", &spec.fuse_unknown)}) {
    auto value = BoolField(model, kWhere, key, false);
    if (!value.ok()) return value.status();
    *flag = *value;
  }
  auto unknown = StringField(model, kWhere, "unk_token", "");
  if (!unknown.ok()) return unknown.status();
  if (!unknown->empty()) spec.unknown_token = *std::move(unknown);
  if (auto status = ReadVocabulary(model, vocabulary); !status.ok()) return status;
  if (auto status = ReadMerges(model, *vocabulary, &spec.merges); !status.ok()) return status;
  return spec;
}

absl::StatusOr<Bpe> BuildBpe(BpeModelSpec model, bool byte_level, const Vocabulary& vocabulary) {
  BpeSpec spec;
  spec.tokens = vocabulary.model_tokens();
  spec.special = vocabulary.SpecialModelTokens();
  spec.merges = std::move(model.merges);
  spec.byte_level = byte_level;
  spec.ignore_merges = model.ignore_merges;
  spec.byte_fallback = model.byte_fallback;
  spec.fuse_unknown = model.fuse_unknown;
  const auto in_model = [&](std::string_view text) -> std::optional<int32_t> {
    const auto id = vocabulary.Find(text);
    if (!id || static_cast<size_t>(*id) >= spec.tokens.size()) return std::nullopt;
    return vocabulary.model_tokens()[*id] == text ? id : std::nullopt;
  };
  if (model.unknown_token.has_value()) {
    spec.unknown = in_model(*model.unknown_token);
    if (!spec.unknown && !byte_level) {
      return Invalid(StrCat("unk_token \"", *model.unknown_token, "\" is not in the vocabulary"));
    }
  }
  if (model.byte_fallback) {
    for (int byte = 0; byte < 256; ++byte) {
      spec.byte_ids.push_back(in_model(FallbackToken(static_cast<uint8_t>(byte))).value_or(-1));
    }
  }
  if (byte_level) {
    for (std::string& token : spec.tokens) token = BytesOfSpelling(token).value_or("");
  }
  return Bpe::Build(std::move(spec));
}

}  // namespace tessera::coordinator
