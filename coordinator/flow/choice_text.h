// The text of one choice as its tokens arrive: detokenised without half characters, and held back
// while it may be the beginning of a stop string. Tokens are released together with the text they
// made, so that what is reported (text, ids, logprobs) always adds up, stop strings cut or not.
//
// A stop string that contains the text of a special token stops although skip_special_tokens hides
// that text: held text has it, marked as hidden, and a match takes it whole or not at all.
//
// Stop strings count only outside of thinking, and one begins behind it.
//
// Thread rule: one thread at a time. The Tokenizer must outlive it.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "coordinator/flow/generation.h"
#include "coordinator/tokenizer/incremental_decoder.h"
#include "coordinator/tokenizer/tokenizer.h"

namespace tessera::coordinator {

struct ChoiceTextOptions {
  std::vector<std::string> stop_strings;
  bool include_stop_string = false;  // also keeps the text of a stop token id
  bool skip_special_tokens = true;
  std::vector<int32_t> shown_special_ids = {};  // not skipped
  ThinkingMarks thinking = {};
  int32_t min_tokens = 0;  // stop strings do not count before
};

class ChoiceText {
 public:
  ChoiceText(const Tokenizer& tokenizer, ChoiceTextOptions options);

  // Adds one token; fills text, token_ids, logprobs of `event` with what may be sent now, and
  // finish and stop_reason when a stop string is complete: nothing may be appended after that.
  void Append(int32_t token_id, const PositionChances* chances, ChoiceEvent& event);
  // The choice ended for another reason: everything held back is released into `event`.
  // `is_stop_token` says that the last token is an eos or stop id: it is sent like any other, with
  // its logprob, but its text is not part of the answer.
  void AppendLast(int32_t token_id, const PositionChances* chances, bool is_stop_token,
                  ChoiceEvent& event);
  void Flush(ChoiceEvent& event);

  int64_t reported_tokens() const { return reported_tokens_; }
  int64_t thinking_tokens() const { return thinking_tokens_; }

 private:
  struct HeldToken {
    int32_t id = 0;
    int64_t text_begin = 0;  // offset in the choice's text, hidden text included, before this token
    bool has_chances = false;
    PositionChances chances;
  };
  // A part of held_text_, in bytes.
  struct Span {
    size_t begin = 0, end = 0;
  };
  struct Match {
    Span at;
    size_t stop = 0;  // index of the stop string
  };
  // Held text without what is hidden, and where in held_text_ each of its bytes stands.
  struct ShownText {
    std::string text;
    std::vector<size_t> at;
  };

  // Where the text stands in respect of thinking: the first text may yet turn out to open it.
  enum class Thinking { kUndecided, kOpen, kNone };

  bool IsHidden(int32_t token_id) const;
  // Follows the thinking through text that a token has added at the end of held text; releases what
  // is part of it. True: stop strings do not count yet.
  bool IsAsleep(std::string_view added, ChoiceEvent& event);
  void Hold(int32_t token_id, const PositionChances* chances);
  // Holds the text of a token that the client does not see.
  void HoldHidden(int32_t token_id);
  // Ends the text with a stop string.
  void Cut(const Match& match, ChoiceEvent& event);
  // Releases held text up to `end` (bytes of it) and the tokens that began before it.
  void Release(size_t end, bool all_tokens, ChoiceEvent& event);
  // The match in held text that is complete first and ends behind `search_from`.
  std::optional<Match> FindStop(size_t search_from) const;
  // Where the longest end of held text begins that may be the beginning of a stop string.
  size_t HoldFrom() const;
  ShownText Shown() const;
  // A border within hidden text would take a part of it.
  bool SplitsHidden(size_t border) const;

  const Tokenizer* tokenizer_;
  IncrementalDecoder decoder_;
  ChoiceTextOptions options_;
  std::string held_text_;        // decoded, not yet released; the text of hidden tokens included
  std::vector<Span> hidden_;     // of held_text_, in order; only where there are stop strings
  int64_t held_text_begin_ = 0;  // its offset in the choice's text
  std::deque<HeldToken> held_tokens_;
  int64_t tokens_seen_ = 0;
  int64_t reported_tokens_ = 0;
  Thinking thinking_;
  std::string thought_;  // the text since the last decision; of open thinking, its last bytes
  int64_t thinking_tokens_ = 0;
};

}  // namespace tessera::coordinator
