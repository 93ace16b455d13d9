// What the refusal of a class says: which served class is near, and what a wrapper holds.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "proto/model/model_config.h"
#include "third_party/absl/str_cat.h"

namespace tessera {
namespace {

constexpr size_t kMaxShown = 60;

// "qwen3moe" of Qwen3MoeForCausalLM and of the model_type qwen3_moe_text.
std::string StemOf(std::string_view name) {
  for (const std::string_view end :
       {"ForCausalLM", "ForConditionalGeneration", "_text", "Model", "ForSequenceClassification"}) {
    if (name.ends_with(end)) name.remove_suffix(end.size());
  }
  std::string stem;
  for (const char c : name.substr(0, kMaxShown)) {
    if (absl::ascii_isalnum(static_cast<unsigned char>(c))) stem += absl::ascii_tolower(c);
  }
  return stem;
}

// Levenshtein's distance. O(one x other).
size_t EditDistance(std::string_view one, std::string_view other) {
  std::vector<size_t> row(other.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < one.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < other.size(); ++j) {
      const size_t replaced = diagonal + (one[i] == other[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, diagonal + 1, row[j] + 1});
    }
  }
  return row.back();
}

// Names of one family begin alike, so the longest common beginning decides before the distance.
std::string_view NearestClass(std::string_view name, absl::Span<const std::string_view> known) {
  const std::string stem = StemOf(name);
  const auto rank = [&stem](std::string_view candidate) {
    const std::string other = StemOf(candidate);
    const auto [end, unused] = std::mismatch(stem.begin(), stem.end(), other.begin(), other.end());
    return std::pair(stem.begin() - end, EditDistance(stem, other));
  };
  return *std::min_element(known.begin(), known.end(),
                           [&rank](auto one, auto other) { return rank(one) < rank(other); });
}

// The class of the text part of a wrapper around images or sound, "" where there is none.
std::string TextPart(JsonReader& config, absl::Span<const std::string_view> known) {
  for (const char* key : {"text_config", "llm_config", "language_config"}) {
    if (!config.Has(key) || !config.At(key).is_object()) continue;
    JsonReader text(config.At(key), config.file(), StrCat(key, "."));
    const std::vector<std::string> classes = text.Strings("architectures");
    const std::string type = text.StringOr("model_type", "");
    const std::string name = (classes.size() == 1 ? classes[0] : type).substr(0, kMaxShown);
    const std::string_view nearest = NearestClass(name, known);
    if (name.empty() || !text.ok()) continue;
    return StemOf(nearest) == StemOf(name)
               ? StrCat("; it wraps a text model (", key, ") of the class ", nearest,
                        ", which is supported alone: use a checkpoint of the text model")
               : StrCat("; it wraps a text model (", key, ") '", name,
                        "', which is not supported either; the nearest class by name is ", nearest);
  }
  return "";
}

}  // namespace

void RefuseClass(JsonReader& config, std::string_view name,
                 absl::Span<const std::string_view> known) {
  std::string all;
  for (const std::string_view known_name : known) {
    all = StrCat(all, all.empty() ? "" : ", ", known_name);
  }
  std::string hint = TextPart(config, known);
  if (hint.empty()) hint = StrCat("; the nearest class by name is ", NearestClass(name, known));
  config.Fail("architectures", StrCat("'", name.substr(0, kMaxShown), "' is not supported", hint,
                                      "; known are ", all));
}

}  // namespace tessera
