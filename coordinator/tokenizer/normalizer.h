// The "normalizer" of a tokenizer.json: what happens to a text before it is cut into words.
//
// Understood: Sequence, NFC, NFD, NFKC, NFKD, Lowercase, StripAccents, Strip, Prepend, Replace (a
// string or a regular expression), Precompiled. Any other is refused by name. Immutable after
// FromJson, thread-safe. Every step is linear in the text, or n log n for the normal forms.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/tokenizer/marked_text.h"
#include "coordinator/tokenizer/text/character_map.h"
#include "coordinator/tokenizer/text/regex.h"
#include "coordinator/tokenizer/text/unicode_normalization.h"

namespace tessera::coordinator {

class Normalizer {
 public:
  Normalizer() = default;  // changes nothing

  // null and absent mean none. InvalidArgument names what is not supported.
  static absl::StatusOr<Normalizer> FromJson(const nlohmann::json& spec);

  bool empty() const { return steps_.empty(); }

  // How many bytes of a text may become one at most; 0: no bound, since it deletes or joins.
  int64_t max_shrink() const;

  // Changes the text in place and carries its mask along: new bytes take the mark of what they came
  // from, and count as a client's where any of that was.
  absl::Status Apply(MarkedText* input) const;

 private:
  struct Lowercase {};
  struct StripAccents {};
  struct Strip {
    bool left;
    bool right;
  };
  struct Prepend {
    std::string text;
  };
  struct ReplaceString {
    std::string from;
    std::string to;
  };
  struct ReplaceRegex {
    Regex from;
    std::string to;
  };
  using Step = std::variant<NormalizationForm, Lowercase, StripAccents, Strip, Prepend,
                            ReplaceString, ReplaceRegex, CharacterMap>;

  static absl::Status Append(const nlohmann::json& spec, int depth, std::vector<Step>* steps);
  static absl::StatusOr<Step> ReplaceFromJson(const nlohmann::json& spec);
  static absl::StatusOr<Step> MapFromJson(const nlohmann::json& spec);

  static absl::Status Run(NormalizationForm form, MarkedText* input);
  static absl::Status Run(const Lowercase& step, MarkedText* input);
  static absl::Status Run(const StripAccents& step, MarkedText* input);
  static absl::Status Run(const Strip& step, MarkedText* input);
  static absl::Status Run(const Prepend& step, MarkedText* input);
  static absl::Status Run(const ReplaceString& step, MarkedText* input);
  static absl::Status Run(const ReplaceRegex& step, MarkedText* input);
  static absl::Status Run(const CharacterMap& step, MarkedText* input);

  std::vector<Step> steps_;
};

}  // namespace tessera::coordinator
