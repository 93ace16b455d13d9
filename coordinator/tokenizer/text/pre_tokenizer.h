// The "pre_tokenizer" of a tokenizer.json: cuts a normalised text into the words that byte-pair
// encoding works on, one by one.
//
// Understood: Sequence, ByteLevel, Split (string or regular expression, every behaviour), Digits,
// Whitespace, WhitespaceSplit, Punctuation, CharDelimiterSplit, Metaspace. Any other is refused by
// name. ByteLevel's alphabet is not spelled out here: words stay UTF-8, and the model reads their
// bytes where byte_level() says so; so ByteLevel must come last. Immutable after FromJson,
// thread-safe.
#pragma once

#include <deque>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/tokenizer/text/regex.h"

namespace tessera::coordinator {

// What Split does with the stretches that match its pattern.
enum class SplitBehavior : uint8_t {
  kRemoved,
  kIsolated,
  kMergedWithPrevious,
  kMergedWithNext,
  kContiguous,  // neighbouring matches are one word
};

// The words of one text. Words point into the text or into `storage`.
struct Words {
  std::vector<std::string_view> views;
  std::deque<std::string> storage;
};

class PreTokenizer {
 public:
  PreTokenizer() = default;  // the text is one word

  // null and absent mean none. InvalidArgument names what is not supported.
  static absl::StatusOr<PreTokenizer> FromJson(const nlohmann::json& spec);

  // Whether the model works on bytes and not on characters.
  bool byte_level() const { return byte_level_; }

  // Whether text between the words is dropped.
  bool drops_text() const;

  // Replaces *words by the words of `text`, none of them empty. `at_start`: the text begins where
  // the whole input begins. `text` must live as long as *words is used.
  absl::Status Split(std::string_view text, bool at_start, Words* words) const;

 private:
  struct PatternSplit {
    std::variant<Regex, std::string> pattern;
    SplitBehavior behavior;
    bool invert;
  };
  struct ClassSplit {  // every character of the class is a match
    uint8_t unicode_class;
    bool ascii_punctuation;  // these count too, whatever their class
    SplitBehavior behavior;
  };
  struct PrefixSpace {};  // ByteLevel's add_prefix_space
  struct Metaspace {
    std::string replacement;
    enum { kAlways, kFirst, kNever } prepend;
    bool split;
  };
  using Step = std::variant<PatternSplit, ClassSplit, PrefixSpace, Metaspace>;

  absl::Status Append(const nlohmann::json& spec, int depth);
  absl::Status AppendByteLevel(const nlohmann::json& spec);
  absl::Status AppendSplit(const nlohmann::json& spec);
  absl::Status AppendMetaspace(const nlohmann::json& spec);
  absl::Status AppendRegex(std::string_view pattern, SplitBehavior behavior, bool invert);
  absl::Status AppendPunctuation(const nlohmann::json& spec);

  static absl::Status Run(const PatternSplit& step, bool at_start, Words* words);
  static absl::Status Run(const ClassSplit& step, bool at_start, Words* words);
  static absl::Status Run(const PrefixSpace& step, bool at_start, Words* words);
  static absl::Status Run(const Metaspace& step, bool at_start, Words* words);

  std::vector<Step> steps_;
  bool byte_level_ = false;
};

}  // namespace tessera::coordinator
