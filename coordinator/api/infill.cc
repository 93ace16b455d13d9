#include "coordinator/api/infill.h"

#include <optional>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"

namespace tessera::coordinator {
namespace {

using Ids = std::vector<int32_t>;

constexpr char kField[] = "suffix";

// Before the prefix, between prefix and suffix, and before the answer.
struct Marks {
  std::string_view before, between, behind;
};
constexpr Marks kFamilies[] = {
    {"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"},  // Qwen2.5-Coder, CodeGemma
    {"<fim_prefix>", "<fim_suffix>", "<fim_middle>"},        // StarCoder2, Granite
    {"<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"},  // DeepSeek-Coder
    {"▁<PRE>", "▁<SUF>", "▁<MID>"},                          // CodeLlama
};
constexpr std::string_view kEnds[] = {
    "<|endoftext|>", "<|fim_pad|>", "<|file_sep|>", "<|file_separator|>",
    "<|repo_name|>", "<fim_pad>",   "<file_sep>",   "<repo_name>",
    "▁<EOT>",        "<|EOT|>"};

struct Family {
  int32_t before = 0, between = 0, behind = 0;
};

std::optional<Family> FamilyOf(const Tokenizer& tokenizer) {
  for (const Marks& marks : kFamilies) {
    const auto before = tokenizer.TokenId(marks.before), between = tokenizer.TokenId(marks.between),
               behind = tokenizer.TokenId(marks.behind);
    if (before.has_value() && between.has_value() && behind.has_value())
      return Family{*before, *between, *behind};
  }
  return std::nullopt;
}

std::string SpellingOf(const Tokenizer& tokenizer, const Ids& ids) {
  std::string text;
  for (const int32_t id : ids) text += tokenizer.TokenBytes(id);
  return text;
}

absl::StatusOr<Ids> EncodeText(const Tokenizer& tokenizer, const std::string& text,
                               const char* field) {
  absl::StatusOr<Ids> ids =
      tokenizer.Encode(text, {.add_special_tokens = false, .parse_special_tokens = false});
  if (!ids.ok()) return FieldError(field, std::string(ids.status().message()));
  return ids;
}

}  // namespace

absl::StatusOr<Infill> EncodeInfill(const ServedModel& model, const std::string& prefix,
                                    const std::string& suffix, bool add_special_tokens) {
  const Tokenizer& tokenizer = *model.tokenizer;
  const std::optional<Family> family = FamilyOf(tokenizer);
  if (!family.has_value()) {
    return FieldError(kField, absl::StrCat("suffix: the tokenizer of the model '", model.name,
                                           "' has no tokens for filling in the middle"));
  }
  for (const auto& [text, field] : {std::pair(&prefix, "prompt"), {&suffix, kField}}) {
    if (absl::Status s = CheckMayFit(model, field, *text); !s.ok()) return s;
  }
  const absl::StatusOr<Ids> head = EncodeText(tokenizer, prefix, "prompt");
  if (!head.ok()) return head.status();
  absl::StatusOr<Ids> tail = EncodeText(tokenizer, suffix, kField);
  if (!tail.ok()) return tail.status();
  // A tokenizer that puts a space before every text would put one into the code behind the gap.
  if (SpellingOf(tokenizer, *tail) != suffix) {
    Ids within = IdsWithinText(tokenizer, suffix, /*parse_special_tokens=*/false);
    if (!within.empty()) *tail = std::move(within);
  }
  Infill infill;
  if (add_special_tokens && tokenizer.adds_bos()) infill.prompt.push_back(*tokenizer.bos_id());
  const auto add = [&infill](int32_t mark, const Ids& text) {
    infill.prompt.push_back(mark);
    infill.prompt.insert(infill.prompt.end(), text.begin(), text.end());
  };
  add(family->before, *head);
  add(family->between, *tail);
  add(family->behind, {});
  infill.stop_ids = {family->before, family->between, family->behind};
  for (const std::string_view end : kEnds) {
    if (const auto id = tokenizer.TokenId(end)) infill.stop_ids.push_back(*id);
  }
  return infill;
}

}  // namespace tessera::coordinator
