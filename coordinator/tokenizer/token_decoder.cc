#include "coordinator/tokenizer/token_decoder.h"

#include <nlohmann/json.hpp>

#include "coordinator/tokenizer/text/byte_alphabet.h"
#include "coordinator/tokenizer/text/json_fields.h"
#include "coordinator/tokenizer/text/utf8.h"
#include "third_party/absl/str_cat.h"

namespace tessera::coordinator {
namespace {

constexpr std::string_view kWhere = "tokenizer.json: decoder";
constexpr int kMaxStrip = 1024;
constexpr size_t kMaxSteps = 32;

void ReplaceAll(const std::string& from, const std::string& to, std::string* text) {
  size_t at = text->find(from);
  while (at != std::string::npos) {
    text->replace(at, from.size(), to);
    at = text->find(from, at + to.size());
  }
}

// Reads the steps of a decoder; each may only stand where our order of work gives the same text.
class RulesReader {
 public:
  absl::StatusOr<DecodeRules> Read(const nlohmann::json& spec) {
    if (auto status = Step(spec, 0); !status.ok()) return status;
    return std::move(rules_);
  }

 private:
  absl::Status Unsupported(std::string_view what) {
    return absl::InvalidArgumentError(StrCat(kWhere, ": ", what, " is not supported"));
  }

  absl::Status Step(const nlohmann::json& spec, int depth) {
    auto type = RequiredString(spec, kWhere, "type");
    if (!type.ok()) return type.status();
    if (depth > 8 || ++steps_ > kMaxSteps) return Unsupported("so many steps");
    if (*type == "Sequence") return Sequence(spec, depth);
    if (*type == "Strip") return Strip(spec);
    if (fused_) return Unsupported(StrCat("\"", *type, "\" after Fuse"));
    if (rules_.byte_level) return Unsupported(StrCat("\"", *type, "\" after ByteLevel"));
    if (*type == "Fuse") {
      fused_ = true;
      return absl::OkStatus();
    }
    if (*type == "Replace") return Replace(spec);
    if (*type == "Metaspace") return Metaspace(spec);
    if (*type == "ByteFallback") {
      rules_.byte_fallback = true;
      return absl::OkStatus();
    }
    if (*type == "ByteLevel" && steps_ == 1 + static_cast<size_t>(depth)) {
      rules_.byte_level = true;
      return absl::OkStatus();
    }
    return Unsupported(StrCat("\"", *type, "\""));
  }

  absl::Status Sequence(const nlohmann::json& spec, int depth) {
    const nlohmann::json& members = FieldOrNull(spec, "decoders");
    if (!members.is_array()) return Unsupported("Sequence without \"decoders\"");
    for (const nlohmann::json& member : members) {
      if (auto status = Step(member, depth + 1); !status.ok()) return status;
    }
    return absl::OkStatus();
  }

  absl::Status Replace(const nlohmann::json& spec) {
    if (rules_.byte_fallback) return Unsupported("Replace after ByteFallback");
    const nlohmann::json& pattern = FieldOrNull(spec, "pattern");
    auto from = RequiredString(pattern, StrCat(kWhere, " Replace"), "String");
    if (!from.ok()) return from.status();
    auto to = RequiredString(spec, kWhere, "content");
    if (!to.ok()) return to.status();
    if (from->empty()) return Unsupported("Replace of an empty string");
    rules_.replacements.emplace_back(*std::move(from), *std::move(to));
    return absl::OkStatus();
  }

  absl::Status Metaspace(const nlohmann::json& spec) {
    if (rules_.byte_fallback || !rules_.replacements.empty()) {
      return Unsupported("Metaspace after another step");
    }
    auto replacement = StringField(spec, kWhere, "replacement", "\xE2\x96\x81");
    if (!replacement.ok()) return replacement.status();
    auto prefix = BoolField(spec, kWhere, "add_prefix_space", true);
    if (!prefix.ok()) return prefix.status();
    auto scheme = StringField(spec, kWhere, "prepend_scheme", *prefix ? "always" : "never");
    if (!scheme.ok()) return scheme.status();
    if (replacement->empty()) return Unsupported("an empty replacement");
    if (*scheme != "never") rules_.dropped_in_first = *replacement;
    rules_.replacements.emplace_back(*std::move(replacement), " ");
    return absl::OkStatus();
  }

  absl::Status Strip(const nlohmann::json& spec) {
    auto content = RequiredString(spec, kWhere, "content");
    if (!content.ok()) return content.status();
    auto start = RequiredInteger(spec, kWhere, "start", 0, kMaxStrip);
    if (!start.ok()) return start.status();
    auto stop = RequiredInteger(spec, kWhere, "stop", 0, kMaxStrip);
    if (!stop.ok()) return stop.status();
    if (*stop != 0) return Unsupported("Strip at the end (\"stop\" above 0)");
    if (!fused_) return Unsupported("Strip before Fuse");
    if (content->empty() || rules_.strip_count != 0) return Unsupported("this Strip");
    rules_.strip_text = *std::move(content);
    rules_.strip_count = static_cast<int>(*start);
    return absl::OkStatus();
  }

  DecodeRules rules_;
  size_t steps_ = 0;
  bool fused_ = false;
};

}  // namespace

absl::StatusOr<DecodeRules> DecodeRules::FromJson(const nlohmann::json& spec) {
  if (spec.is_null()) {
    DecodeRules rules;
    rules.separator = " ";
    return rules;
  }
  return RulesReader().Read(spec);
}

TokenDecoder::TokenDecoder(DecodeRules rules, std::vector<Entry> entries)
    : rules_(std::move(rules)) {
  parts_.reserve(entries.size());
  for (const Entry& entry : entries) {
    Part part{};
    part.special = entry.special;
    std::string bytes = entry.text;
    if (rules_.byte_level) {
      if (auto spelled = BytesOfSpelling(entry.text)) bytes = *std::move(spelled);
    }
    for (const auto& [from, to] : rules_.replacements) ReplaceAll(from, to, &bytes);
    if (rules_.byte_fallback) {
      if (const auto byte = ByteOfFallbackToken(bytes)) {
        bytes = std::string(1, static_cast<char>(*byte));
        part.is_byte = true;
      }
    }
    part.text_begin = static_cast<uint32_t>(storage_.size());
    part.text_size = static_cast<uint32_t>(entry.text.size());
    storage_ += entry.text;
    part.bytes_begin = static_cast<uint32_t>(storage_.size());
    part.bytes_size = static_cast<uint32_t>(bytes.size());
    storage_ += bytes;
    parts_.push_back(part);
  }
}

std::string_view TokenDecoder::Text(int32_t id) const {
  if (!Has(id)) return {};
  return std::string_view(storage_).substr(parts_[id].text_begin, parts_[id].text_size);
}

std::string_view TokenDecoder::Bytes(int32_t id) const {
  if (!Has(id)) return {};
  return std::string_view(storage_).substr(parts_[id].bytes_begin, parts_[id].bytes_size);
}

}  // namespace tessera::coordinator
