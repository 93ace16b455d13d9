#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "coordinator/tokenizer/text/json_fields.h"
#include "coordinator/tokenizer/text/pre_tokenizer.h"
#include "coordinator/tokenizer/text/unicode_class.h"
#include "third_party/absl/str_cat.h"

namespace tessera::coordinator {
namespace {

constexpr std::string_view kWhere = "tokenizer.json: pre_tokenizer";
constexpr int kMaxDepth = 8;
constexpr size_t kMaxSteps = 64;

// ByteLevel's own pattern, GPT-2's.
constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

absl::StatusOr<SplitBehavior> BehaviorField(const nlohmann::json& spec, std::string_view fallback) {
  static constexpr std::array<std::pair<std::string_view, SplitBehavior>, 5> kNames = {{
      {"Removed", SplitBehavior::kRemoved},
      {"Isolated", SplitBehavior::kIsolated},
      {"MergedWithPrevious", SplitBehavior::kMergedWithPrevious},
      {"MergedWithNext", SplitBehavior::kMergedWithNext},
      {"Contiguous", SplitBehavior::kContiguous},
  }};
  auto text = StringField(spec, kWhere, "behavior", fallback);
  if (!text.ok()) return text.status();
  for (const auto& [name, behavior] : kNames) {
    if (name == *text) return behavior;
  }
  return absl::InvalidArgumentError(StrCat(kWhere, ": behavior \"", *text, "\" is not supported"));
}

}  // namespace

absl::StatusOr<PreTokenizer> PreTokenizer::FromJson(const nlohmann::json& spec) {
  PreTokenizer pre_tokenizer;
  if (spec.is_null()) return pre_tokenizer;
  if (auto status = pre_tokenizer.Append(spec, 0); !status.ok()) return status;
  return pre_tokenizer;
}

absl::Status PreTokenizer::Append(const nlohmann::json& spec, int depth) {
  auto type = RequiredString(spec, kWhere, "type");
  if (!type.ok()) return type.status();
  if (depth > kMaxDepth || steps_.size() > kMaxSteps) {
    return absl::InvalidArgumentError(StrCat(kWhere, ": too many steps or nested too deep"));
  }
  if (byte_level_) {
    return absl::InvalidArgumentError(
        StrCat(kWhere, ": \"", *type, "\" after ByteLevel is not supported"));
  }
  if (*type == "ByteLevel") return AppendByteLevel(spec);
  if (*type == "Split") return AppendSplit(spec);
  if (*type == "Metaspace") return AppendMetaspace(spec);
  if (*type == "Punctuation") return AppendPunctuation(spec);
  if (*type == "Whitespace") return AppendRegex(R"(\w+|[^\w\s]+)", SplitBehavior::kRemoved, true);
  if (*type == "WhitespaceSplit") {
    steps_.push_back(ClassSplit{kWhiteSpace, false, SplitBehavior::kRemoved});
    return absl::OkStatus();
  }
  if (*type == "Digits") {
    auto individual = BoolField(spec, kWhere, "individual_digits", false);
    if (!individual.ok()) return individual.status();
    steps_.push_back(ClassSplit{
        kNumber, false, *individual ? SplitBehavior::kIsolated : SplitBehavior::kContiguous});
    return absl::OkStatus();
  }
  if (*type == "CharDelimiterSplit") {
    auto delimiter = RequiredString(spec, kWhere, "delimiter");
    if (!delimiter.ok()) return delimiter.status();
    if (delimiter->empty()) {
      return absl::InvalidArgumentError(StrCat(kWhere, ": an empty delimiter"));
    }
    steps_.push_back(PatternSplit{*std::move(delimiter), SplitBehavior::kRemoved, false});
    return absl::OkStatus();
  }
  if (*type != "Sequence") {
    return absl::InvalidArgumentError(StrCat(kWhere, " \"", *type, "\" is not supported"));
  }
  const nlohmann::json& members = FieldOrNull(spec, "pretokenizers");
  if (!members.is_array()) {
    return absl::InvalidArgumentError(StrCat(kWhere, ": Sequence needs \"pretokenizers\""));
  }
  for (const nlohmann::json& member : members) {
    if (auto status = Append(member, depth + 1); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status PreTokenizer::AppendByteLevel(const nlohmann::json& spec) {
  auto prefix = BoolField(spec, kWhere, "add_prefix_space", true);
  if (!prefix.ok()) return prefix.status();
  auto use_regex = BoolField(spec, kWhere, "use_regex", true);
  if (!use_regex.ok()) return use_regex.status();
  if (*prefix) steps_.push_back(PrefixSpace{});
  byte_level_ = true;
  if (!*use_regex) return absl::OkStatus();
  return AppendRegex(kGpt2Pattern, SplitBehavior::kIsolated, false);
}

absl::Status PreTokenizer::AppendRegex(std::string_view pattern, SplitBehavior behavior,
                                       bool invert) {
  auto regex = Regex::Compile(pattern);
  if (!regex.ok()) {
    return absl::InvalidArgumentError(StrCat(kWhere, ": ", StdView(regex.status().message())));
  }
  steps_.push_back(PatternSplit{*std::move(regex), behavior, invert});
  return absl::OkStatus();
}

absl::Status PreTokenizer::AppendSplit(const nlohmann::json& spec) {
  auto behavior = BehaviorField(spec, "");
  if (!behavior.ok()) return behavior.status();
  auto invert = BoolField(spec, kWhere, "invert", false);
  if (!invert.ok()) return invert.status();
  const nlohmann::json& pattern = FieldOrNull(spec, "pattern");
  if (FieldOrNull(pattern, "Regex").is_string()) {
    return AppendRegex(pattern["Regex"].get<std::string>(), *behavior, *invert);
  }
  auto text = RequiredString(pattern, StrCat(kWhere, " Split"), "String");
  if (!text.ok()) return text.status();
  if (text->empty()) return absl::InvalidArgumentError(StrCat(kWhere, " Split: an empty pattern"));
  steps_.push_back(PatternSplit{*std::move(text), *behavior, *invert});
  return absl::OkStatus();
}

absl::Status PreTokenizer::AppendPunctuation(const nlohmann::json& spec) {
  auto behavior = BehaviorField(spec, "Isolated");
  if (!behavior.ok()) return behavior.status();
  steps_.push_back(ClassSplit{kPunctuation, true, *behavior});
  return absl::OkStatus();
}

absl::Status PreTokenizer::AppendMetaspace(const nlohmann::json& spec) {
  Metaspace step;
  auto replacement = StringField(spec, kWhere, "replacement", "\xE2\x96\x81");
  if (!replacement.ok()) return replacement.status();
  if (replacement->empty()) {
    return absl::InvalidArgumentError(StrCat(kWhere, ": Metaspace with an empty replacement"));
  }
  // Older files say only add_prefix_space.
  auto prefix = BoolField(spec, kWhere, "add_prefix_space", true);
  if (!prefix.ok()) return prefix.status();
  auto scheme = StringField(spec, kWhere, "prepend_scheme", *prefix ? "always" : "never");
  if (!scheme.ok()) return scheme.status();
  auto split = BoolField(spec, kWhere, "split", true);
  if (!split.ok()) return split.status();
  step.replacement = *std::move(replacement);
  step.split = *split;
  if (*scheme == "always") {
    step.prepend = Metaspace::kAlways;
  } else if (*scheme == "first") {
    step.prepend = Metaspace::kFirst;
  } else if (*scheme == "never") {
    step.prepend = Metaspace::kNever;
  } else {
    return absl::InvalidArgumentError(
        StrCat(kWhere, ": prepend_scheme \"", *scheme, "\" is not supported"));
  }
  steps_.push_back(std::move(step));
  return absl::OkStatus();
}

}  // namespace tessera::coordinator
