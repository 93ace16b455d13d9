#include "coordinator/flow/choice_text.h"

#include <algorithm>
#include <utility>

namespace tessera::coordinator {

ChoiceText::ChoiceText(const Tokenizer& tokenizer, ChoiceTextOptions options)
    : decoder_(tokenizer, options.skip_special_tokens, /*continues_text=*/true),
      options_(std::move(options)) {
  std::erase(options_.stop_strings, std::string());
}

void ChoiceText::Hold(int32_t token_id, const PositionChances* chances) {
  ++tokens_seen_;
  HeldToken token;
  token.id = token_id;
  token.text_begin = held_text_begin_ + static_cast<int64_t>(held_text_.size());
  if (chances != nullptr) {
    token.has_chances = true;
    token.chances = *chances;
  }
  held_tokens_.push_back(std::move(token));
}

void ChoiceText::Append(int32_t token_id, const PositionChances* chances, ChoiceEvent& event) {
  const size_t before = held_text_.size();
  Hold(token_id, chances);
  held_text_ += decoder_.Append(token_id);

  size_t begin = 0, which = 0;
  if (tokens_seen_ > options_.min_tokens && FindStop(before, begin, which)) {
    const std::string& stop = options_.stop_strings[which];
    const size_t end = options_.include_stop_string ? begin + stop.size() : begin;
    Release(held_text_begin_ + static_cast<int64_t>(end), false, event);
    held_tokens_.clear();
    held_text_.clear();
    event.finish = Finish::kStop;
    event.stop_reason = stop;
    return;
  }
  const size_t hold = HeldBackBytes();
  Release(held_text_begin_ + static_cast<int64_t>(held_text_.size() - hold), hold == 0, event);
}

void ChoiceText::AppendLast(int32_t token_id, const PositionChances* chances, bool is_stop_token,
                            ChoiceEvent& event) {
  if (is_stop_token && !options_.include_stop_string) {
    Flush(event);
    ++tokens_seen_;
    ++reported_tokens_;
    event.ends_with_stop_token = true;
    event.token_ids.push_back(token_id);
    if (chances != nullptr) event.logprobs.push_back(*chances);
    return;
  }
  Append(token_id, chances, event);
  if (event.finish == Finish::kNone) Flush(event);
}

void ChoiceText::Flush(ChoiceEvent& event) {
  held_text_ += decoder_.Flush();
  Release(held_text_begin_ + static_cast<int64_t>(held_text_.size()), true, event);
}

bool ChoiceText::FindStop(size_t search_from, size_t& begin, size_t& which) const {
  bool found = false;
  for (size_t i = 0; i < options_.stop_strings.size(); ++i) {
    const std::string& stop = options_.stop_strings[i];
    // A match must end in the new text; earlier ends were looked at when they arrived.
    const size_t start = search_from >= stop.size() ? search_from - stop.size() + 1 : 0;
    const size_t at = held_text_.find(stop, start);
    if (at == std::string::npos) continue;
    // The stop that is complete first ends the text; among those, the one that begins first.
    if (!found || at + stop.size() < begin + options_.stop_strings[which].size() ||
        (at + stop.size() == begin + options_.stop_strings[which].size() && at < begin)) {
      found = true;
      begin = at;
      which = i;
    }
  }
  return found;
}

size_t ChoiceText::HeldBackBytes() const {
  size_t longest = 0;
  for (const std::string& stop : options_.stop_strings) {
    const size_t most = std::min(stop.size() - 1, held_text_.size());
    for (size_t length = most; length > longest; --length) {
      if (held_text_.compare(held_text_.size() - length, length, stop, 0, length) == 0) {
        longest = length;
        break;
      }
    }
  }
  return longest;
}

void ChoiceText::Release(int64_t end, bool all_tokens, ChoiceEvent& event) {
  event.text.append(held_text_, 0, static_cast<size_t>(end - held_text_begin_));
  held_text_.erase(0, static_cast<size_t>(end - held_text_begin_));
  held_text_begin_ = end;
  while (!held_tokens_.empty() && (all_tokens || held_tokens_.front().text_begin < end)) {
    HeldToken& token = held_tokens_.front();
    event.token_ids.push_back(token.id);
    if (token.has_chances) event.logprobs.push_back(std::move(token.chances));
    held_tokens_.pop_front();
    ++reported_tokens_;
  }
}

}  // namespace tessera::coordinator
