#include "coordinator/tokenizer/unigram_model_json.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "coordinator/tokenizer/text/byte_alphabet.h"
#include "coordinator/tokenizer/text/json_fields.h"
#include "coordinator/tokenizer/text/utf8.h"
#include "third_party/absl/str_cat.h"

namespace tessera::coordinator {
namespace {

constexpr std::string_view kWhere = "tokenizer.json: Unigram model";

absl::Status Invalid(std::string_view what) {
  return absl::InvalidArgumentError(StrCat(kWhere, ": ", what));
}

}  // namespace

bool IsUnigramModel(const nlohmann::json& model) {
  return model.is_object() && FieldOrNull(model, "type") == "Unigram";
}

absl::StatusOr<UnigramModelSpec> ReadUnigramModel(const nlohmann::json& model,
                                                  Vocabulary* vocabulary) {
  if (auto s = OnlyFields(model, kWhere, {"type", "unk_id", "vocab", "byte_fallback"}); !s.ok()) {
    return s;
  }
  const nlohmann::json& pieces = FieldOrNull(model, "vocab");
  if (!pieces.is_array() || pieces.empty()) {
    return Invalid("\"vocab\" must be a list of pieces with their scores");
  }
  UnigramModelSpec spec;
  vocabulary->Announce(pieces.size());
  for (size_t id = 0; id < pieces.size(); ++id) {
    const nlohmann::json& piece = pieces[id];
    if (!piece.is_array() || piece.size() != 2 || !piece[0].is_string() || !piece[1].is_number()) {
      return Invalid(StrCat("piece ", id, " of \"vocab\" is no text with a score"));
    }
    const auto& text = piece[0].get_ref<const std::string&>();
    if (vocabulary->Find(text)) return Invalid(StrCat("piece ", Excerpt(text), " is there twice"));
    const absl::Status added = vocabulary->AddModelToken(text, static_cast<int64_t>(id));
    if (!added.ok()) return Invalid(StrCat("vocab: ", StdView(added.message())));
    spec.scores.push_back(piece[1].get<double>());
  }
  auto unknown = RequiredInteger(model, kWhere, "unk_id", 0, std::ssize(pieces) - 1);
  if (!unknown.ok()) return unknown.status();
  spec.unknown = static_cast<int32_t>(*unknown);
  auto fallback = BoolField(model, kWhere, "byte_fallback", false);
  if (!fallback.ok()) return fallback.status();
  spec.byte_fallback = *fallback;
  return spec;
}

absl::StatusOr<Unigram> BuildUnigram(UnigramModelSpec model, const Vocabulary& vocabulary) {
  UnigramSpec spec;
  spec.pieces = vocabulary.model_tokens();
  spec.special = vocabulary.SpecialModelTokens();
  spec.scores = std::move(model.scores);
  spec.unknown = model.unknown;
  for (int byte = 0; model.byte_fallback && byte < 256; ++byte) {
    const auto id = vocabulary.Find(FallbackToken(static_cast<uint8_t>(byte)));
    if (!id || static_cast<size_t>(*id) >= spec.pieces.size()) {
      return Invalid(
          StrCat("\"byte_fallback\" needs the piece ", FallbackToken(static_cast<uint8_t>(byte))));
    }
    spec.byte_ids.push_back(*id);
  }
  auto built = Unigram::Build(std::move(spec));
  if (!built.ok()) return Invalid(StdView(built.status().message()));
  return built;
}

}  // namespace tessera::coordinator
