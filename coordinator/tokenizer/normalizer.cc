#include "coordinator/tokenizer/normalizer.h"

#include <utf8proc.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "absl/strings/escaping.h"
#include "coordinator/tokenizer/text/json_fields.h"
#include "coordinator/tokenizer/text/unicode_class.h"
#include "coordinator/tokenizer/text/utf8.h"
#include "third_party/absl/str_cat.h"

namespace tessera::coordinator {
namespace {

constexpr std::string_view kWhere = "tokenizer.json: normalizer";
constexpr int kMaxDepth = 8;

// Replaces the given spans, which are in order and do not overlap.
void ReplaceSpans(const std::vector<ByteSpan>& spans, std::string_view to, MarkedText* input) {
  if (spans.empty()) return;
  std::string text;
  std::string mask;
  size_t done = 0;
  for (const ByteSpan& span : spans) {
    text.append(input->text, done, span.begin - done);
    text.append(to);
    if (!input->mask.empty()) {
      mask.append(input->mask, done, span.begin - done);
      // What is put between two characters comes from both.
      const size_t begin = span.begin == span.end && span.begin > 0 ? span.begin - 1 : span.begin;
      const size_t end = span.begin == span.end ? span.end + 1 : span.end;
      const auto replaced = std::string_view(input->mask).substr(begin, end - begin);
      mask.append(to.size(), replaced.find('\0') == std::string_view::npos ? '\1' : '\0');
    }
    done = span.end;
  }
  text.append(input->text, done);
  if (!input->mask.empty()) mask.append(input->mask, done);
  input->text = std::move(text);
  input->mask = std::move(mask);
}

// Runs `append(code_point, &text)` for every code point; what it appends takes that one's mark.
template <typename F>
void MapCodePoints(MarkedText* input, F append) {
  std::string text;
  std::string mask;
  text.reserve(input->text.size());
  for (size_t i = 0; i < input->text.size();) {
    const size_t begin = i;
    const size_t before = text.size();
    append(NextCodePoint(input->text, &i), &text);
    if (!input->mask.empty()) mask.append(text.size() - before, input->mask[begin]);
  }
  input->text = std::move(text);
  input->mask = std::move(mask);
}

std::optional<NormalizationForm> FormOf(std::string_view type) {
  if (type == "NFC") return NormalizationForm::kNfc;
  if (type == "NFD") return NormalizationForm::kNfd;
  if (type == "NFKC") return NormalizationForm::kNfkc;
  if (type == "NFKD") return NormalizationForm::kNfkd;
  return std::nullopt;
}

}  // namespace

absl::StatusOr<Normalizer> Normalizer::FromJson(const nlohmann::json& spec) {
  Normalizer normalizer;
  if (spec.is_null()) return normalizer;
  if (auto status = Append(spec, 0, &normalizer.steps_); !status.ok()) return status;
  return normalizer;
}

int64_t Normalizer::max_shrink() const {
  // Composing: three Hangul letters of three bytes become one syllable of three; a compatibility
  // form of four bytes, a letter of one; with room to spare.
  constexpr int64_t kCanonical = 4, kCompatibility = 8, kLowercase = 4;
  struct OfStep {
    int64_t operator()(NormalizationForm form) const {
      const bool canonical = form == NormalizationForm::kNfc || form == NormalizationForm::kNfd;
      return canonical ? kCanonical : kCompatibility;
    }
    int64_t operator()(const Lowercase&) const { return kLowercase; }
    int64_t operator()(const StripAccents&) const { return 0; }
    int64_t operator()(const Strip& step) const { return step.left || step.right ? 0 : 1; }
    int64_t operator()(const Prepend&) const { return 1; }
    int64_t operator()(const ReplaceString& step) const {
      return step.to.size() >= step.from.size() ? 1 : 0;
    }
    int64_t operator()(const ReplaceRegex&) const { return 0; }
    int64_t operator()(const CharacterMap&) const { return 0; }
  };
  int64_t shrink = 1;
  for (const Step& step : steps_)
    shrink = std::min<int64_t>(shrink * std::visit(OfStep(), step), 256);
  return shrink;
}

absl::Status Normalizer::Append(const nlohmann::json& spec, int depth, std::vector<Step>* steps) {
  if (depth > kMaxDepth) return absl::InvalidArgumentError(StrCat(kWhere, ": nested too deep"));
  auto type = RequiredString(spec, kWhere, "type");
  if (!type.ok()) return type.status();
  if (const auto form = FormOf(*type)) {
    steps->push_back(*form);
  } else if (*type == "Lowercase") {
    steps->push_back(Lowercase{});
  } else if (*type == "StripAccents") {
    steps->push_back(StripAccents{});
  } else if (*type == "Strip") {
    auto left = BoolField(spec, kWhere, "strip_left", false);
    if (!left.ok()) return left.status();
    auto right = BoolField(spec, kWhere, "strip_right", false);
    if (!right.ok()) return right.status();
    steps->push_back(Strip{*left, *right});
  } else if (*type == "Prepend") {
    auto text = RequiredString(spec, kWhere, "prepend");
    if (!text.ok()) return text.status();
    steps->push_back(Prepend{*std::move(text)});
  } else if (*type == "Replace") {
    auto step = ReplaceFromJson(spec);
    if (!step.ok()) return step.status();
    steps->push_back(*std::move(step));
  } else if (*type == "Precompiled") {
    auto step = MapFromJson(spec);
    if (!step.ok()) return step.status();
    steps->push_back(*std::move(step));
  } else if (*type == "Sequence") {
    const nlohmann::json& members = FieldOrNull(spec, "normalizers");
    if (!members.is_array()) {
      return absl::InvalidArgumentError(StrCat(kWhere, ": Sequence needs \"normalizers\""));
    }
    for (const nlohmann::json& member : members) {
      if (auto status = Append(member, depth + 1, steps); !status.ok()) return status;
    }
  } else {
    return absl::InvalidArgumentError(StrCat(kWhere, " \"", *type, "\" is not supported"));
  }
  return absl::OkStatus();
}

absl::StatusOr<Normalizer::Step> Normalizer::ReplaceFromJson(const nlohmann::json& spec) {
  auto to = RequiredString(spec, kWhere, "content");
  if (!to.ok()) return to.status();
  const nlohmann::json& pattern = FieldOrNull(spec, "pattern");
  if (FieldOrNull(pattern, "String").is_string()) {
    std::string from = pattern["String"].get<std::string>();
    if (from.empty()) {
      return absl::InvalidArgumentError(StrCat(kWhere, " Replace: an empty pattern"));
    }
    return Step(ReplaceString{std::move(from), *std::move(to)});
  }
  auto source = RequiredString(pattern, StrCat(kWhere, " Replace"), "Regex");
  if (!source.ok()) return source.status();
  auto regex = Regex::Compile(*source);
  if (!regex.ok()) {
    return absl::InvalidArgumentError(
        StrCat(kWhere, " Replace: ", StdView(regex.status().message())));
  }
  return Step(ReplaceRegex{*std::move(regex), *std::move(to)});
}

absl::StatusOr<Normalizer::Step> Normalizer::MapFromJson(const nlohmann::json& spec) {
  auto base64 = RequiredString(spec, StrCat(kWhere, " Precompiled"), "precompiled_charsmap");
  if (!base64.ok()) return base64.status();
  std::string bytes;
  absl::Status status = absl::InvalidArgumentError("it is no base64");
  if (absl::Base64Unescape(*base64, &bytes)) {
    auto map = CharacterMap::Parse(bytes);
    if (map.ok()) return Step(*std::move(map));
    status = map.status();
  }
  return absl::InvalidArgumentError(
      StrCat(kWhere, " Precompiled: precompiled_charsmap: ", StdView(status.message())));
}

absl::Status Normalizer::Apply(MarkedText* input) const {
  for (const Step& step : steps_) {
    const absl::Status status =
        std::visit([input](const auto& one) { return Run(one, input); }, step);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status Normalizer::Run(NormalizationForm form, MarkedText* input) {
  std::string text;
  std::string mask;
  text.reserve(input->text.size());
  AppendNormalized(form, input->text, input->mask, &text, &mask);
  input->text = std::move(text);
  input->mask = std::move(mask);
  return absl::OkStatus();
}

absl::Status Normalizer::Run(const Lowercase&, MarkedText* input) {
  MapCodePoints(input, [](char32_t c, std::string* out) {
    if (c == 0x130) {  // the one character whose lower case is two
      out->append("i\xCC\x87");
    } else {
      AppendUtf8(static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))), out);
    }
  });
  return absl::OkStatus();
}

absl::Status Normalizer::Run(const StripAccents&, MarkedText* input) {
  MapCodePoints(input, [](char32_t c, std::string* out) {
    if ((UnicodeClassOf(c) & kMark) == 0) AppendUtf8(c, out);
  });
  return absl::OkStatus();
}

absl::Status Normalizer::Run(const Strip& step, MarkedText* input) {
  size_t begin = 0;
  size_t end = input->text.size();
  while (step.left && begin < end) {
    size_t next = begin;
    if ((UnicodeClassOf(NextCodePoint(input->text, &next)) & kWhiteSpace) == 0) break;
    begin = next;
  }
  while (step.right && end > begin) {
    size_t previous = end;
    if ((UnicodeClassOf(PreviousCodePoint(input->text, &previous)) & kWhiteSpace) == 0) break;
    end = previous;
  }
  input->text = input->text.substr(begin, end - begin);
  if (!input->mask.empty()) input->mask = input->mask.substr(begin, end - begin);
  return absl::OkStatus();
}

absl::Status Normalizer::Run(const Prepend& step, MarkedText* input) {
  if (input->text.empty()) return absl::OkStatus();
  input->text.insert(0, step.text);
  if (!input->mask.empty()) input->mask.insert(0, step.text.size(), input->mask[0]);
  return absl::OkStatus();
}

absl::Status Normalizer::Run(const ReplaceString& step, MarkedText* input) {
  std::vector<ByteSpan> spans;
  for (size_t at = input->text.find(step.from); at != std::string::npos;
       at = input->text.find(step.from, at + step.from.size())) {
    spans.push_back({at, at + step.from.size()});
  }
  ReplaceSpans(spans, step.to, input);
  return absl::OkStatus();
}

absl::Status Normalizer::Run(const ReplaceRegex& step, MarkedText* input) {
  std::vector<ByteSpan> spans;
  if (auto status = step.from.FindAll(input->text, &spans); !status.ok()) return status;
  ReplaceSpans(spans, step.to, input);
  return absl::OkStatus();
}

absl::Status Normalizer::Run(const CharacterMap& step, MarkedText* input) {
  std::string text;
  std::string mask;
  text.reserve(input->text.size());
  for (size_t begin = 0; begin < input->text.size();) {
    const size_t end = EndOfGrapheme(input->text, begin), before = text.size();
    step.Append(std::string_view(input->text).substr(begin, end - begin), &text);
    if (!input->mask.empty()) {
      const auto from = std::string_view(input->mask).substr(begin, end - begin);
      const bool of_client = from.find('\0') != std::string_view::npos;
      mask.append(text.size() - before, of_client ? '\0' : '\1');
    }
    begin = end;
  }
  input->text = std::move(text);
  input->mask = std::move(mask);
  return absl::OkStatus();
}

}  // namespace tessera::coordinator
