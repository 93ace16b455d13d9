#include "coordinator/tokenizer/post_processor.h"

#include <nlohmann/json.hpp>

#include "coordinator/tokenizer/text/json_fields.h"
#include "third_party/absl/str_cat.h"

namespace tessera::coordinator {
namespace {

constexpr std::string_view kWhere = "tokenizer.json: post_processor";
constexpr size_t kMaxIds = 64;

absl::Status Invalid(std::string_view what) {
  return absl::InvalidArgumentError(StrCat(kWhere, ": ", what));
}

class Reader {
 public:
  explicit Reader(int32_t vocabulary_size) : vocabulary_size_(vocabulary_size) {}

  absl::StatusOr<PostProcessor> Read(const nlohmann::json& spec) {
    if (auto status = Step(spec, 0); !status.ok()) return status;
    return std::move(out_);
  }

 private:
  absl::Status Step(const nlohmann::json& spec, int depth) {
    auto type = RequiredString(spec, kWhere, "type");
    if (!type.ok()) return type.status();
    if (*type == "ByteLevel") return absl::OkStatus();
    if (*type == "TemplateProcessing") return Template(spec);
    if (*type == "RobertaProcessing" || *type == "BertProcessing") return Pair(spec);
    if (*type != "Sequence") return Invalid(StrCat("\"", *type, "\" is not supported"));
    const nlohmann::json& members = FieldOrNull(spec, "processors");
    if (!members.is_array() || depth > 8) return Invalid("Sequence needs \"processors\"");
    for (const nlohmann::json& member : members) {
      if (auto status = Step(member, depth + 1); !status.ok()) return status;
    }
    return absl::OkStatus();
  }

  absl::StatusOr<int32_t> Id(const nlohmann::json& value) {
    if (!value.is_number_unsigned() ||
        value.get<uint64_t>() >= static_cast<uint64_t>(vocabulary_size_)) {
      return Invalid(
          StrCat("id ", value.dump(), " is outside of the vocabulary of ", vocabulary_size_));
    }
    return static_cast<int32_t>(value.get<uint64_t>());
  }

  // A later processor puts its ids around what the earlier ones made.
  absl::Status Around(const std::vector<int32_t>& prefix, const std::vector<int32_t>& suffix) {
    out_.prefix.insert(out_.prefix.begin(), prefix.begin(), prefix.end());
    out_.suffix.insert(out_.suffix.end(), suffix.begin(), suffix.end());
    if (out_.prefix.size() + out_.suffix.size() > kMaxIds) return Invalid("too many ids");
    return absl::OkStatus();
  }

  // cls before and sep behind, each written ["</s>", 2].
  absl::Status Pair(const nlohmann::json& spec) {
    std::vector<int32_t> ids;
    for (const char* key : {"cls", "sep"}) {
      const nlohmann::json& token = FieldOrNull(spec, key);
      if (!token.is_array() || token.size() != 2)
        return Invalid(StrCat("\"", key, "\" is missing"));
      auto id = Id(token[1]);
      if (!id.ok()) return id.status();
      ids.push_back(*id);
    }
    return Around({ids[0]}, {ids[1]});
  }

  absl::Status Template(const nlohmann::json& spec) {
    const nlohmann::json& single = FieldOrNull(spec, "single");
    if (!single.is_array()) return Invalid("TemplateProcessing needs \"single\" as a list");
    std::vector<int32_t> prefix;
    std::vector<int32_t> suffix;
    bool text_seen = false;
    for (const nlohmann::json& piece : single) {
      const nlohmann::json& token = FieldOrNull(piece, "SpecialToken");
      if (token.is_null()) {
        if (FieldOrNull(FieldOrNull(piece, "Sequence"), "id") != "A" || text_seen) {
          return Invalid("TemplateProcessing: \"single\" must hold $A once");
        }
        text_seen = true;
        continue;
      }
      auto name = RequiredString(token, kWhere, "id");
      if (!name.ok()) return name.status();
      const nlohmann::json& known = FieldOrNull(FieldOrNull(spec, "special_tokens"), name->c_str());
      const nlohmann::json& ids = FieldOrNull(known, "ids");
      if (!ids.is_array()) return Invalid(StrCat("special token \"", *name, "\" has no ids"));
      for (const nlohmann::json& value : ids) {
        auto id = Id(value);
        if (!id.ok()) return id.status();
        (text_seen ? suffix : prefix).push_back(*id);
      }
    }
    if (!text_seen) return Invalid("TemplateProcessing: \"single\" must hold $A once");
    return Around(prefix, suffix);
  }

  int32_t vocabulary_size_;
  PostProcessor out_;
};

}  // namespace

absl::StatusOr<PostProcessor> PostProcessor::FromJson(const nlohmann::json& spec,
                                                      int32_t vocabulary_size) {
  if (spec.is_null()) return PostProcessor();
  return Reader(vocabulary_size).Read(spec);
}

}  // namespace tessera::coordinator
