#include "coordinator/flow/choice_text.h"

#include <algorithm>
#include <utility>

namespace tessera::coordinator {

ChoiceText::ChoiceText(const Tokenizer& tokenizer, ChoiceTextOptions options)
    : tokenizer_(&tokenizer),
      decoder_(tokenizer, /*skip_special_tokens=*/false, /*continues_text=*/true),
      options_(std::move(options)),
      thinking_(options_.thinking.opening.empty() ? Thinking::kNone
                : options_.thinking.is_open       ? Thinking::kOpen
                                                  : Thinking::kUndecided) {
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

void ChoiceText::HoldHidden(int32_t token_id) {
  if (options_.stop_strings.empty()) return;
  const size_t begin = held_text_.size();
  held_text_ += tokenizer_->TokenBytes(token_id);
  hidden_.push_back({begin, held_text_.size()});
}

void ChoiceText::Append(int32_t token_id, const PositionChances* chances, ChoiceEvent& event) {
  size_t before = held_text_.size();
  Hold(token_id, chances);
  std::string added;
  if (IsHidden(token_id)) {
    HoldHidden(token_id);
  } else {
    added = decoder_.Append(token_id);
    held_text_ += added;
  }
  if (thinking_ != Thinking::kNone) {
    if (IsAsleep(added, event)) return;
    before = 0;  // what has been held is looked at for the first time
  }
  if (const auto match = FindStop(before); match && tokens_seen_ > options_.min_tokens)
    return Cut(*match, event);
  const size_t from = HoldFrom();
  Release(from, from == held_text_.size(), event);
}

bool ChoiceText::IsHidden(int32_t token_id) const {
  const std::vector<int32_t>& shown = options_.shown_special_ids;
  return options_.skip_special_tokens && tokenizer_->IsSpecial(token_id) &&
         std::find(shown.begin(), shown.end(), token_id) == shown.end();
}

bool ChoiceText::IsAsleep(std::string_view added, ChoiceEvent& event) {
  const auto& [opening, closing, is_open] = options_.thinking;
  thought_ += added;
  if (thinking_ == Thinking::kUndecided) {
    const size_t begin = std::min(thought_.find_first_not_of(" \t\r\n"), thought_.size());
    const std::string_view text = std::string_view(thought_).substr(begin);
    if (!text.starts_with(opening)) {
      if (opening.starts_with(text)) return true;
      thinking_ = Thinking::kNone;
      return false;
    }
    thinking_ = Thinking::kOpen;
    thought_.erase(0, begin + opening.size());
  }
  ++thinking_tokens_;
  const size_t end = thought_.find(closing);
  if (end != std::string::npos) {
    thinking_ = Thinking::kNone;
    const size_t behind = thought_.size() - end - closing.size();
    Release(held_text_.size() - behind, behind == 0, event);
    return false;
  }
  if (thought_.size() >= closing.size()) thought_.erase(0, thought_.size() - closing.size() + 1);
  Release(held_text_.size(), true, event);
  return true;
}

void ChoiceText::Cut(const Match& match, ChoiceEvent& event) {
  const std::string& stop = options_.stop_strings[match.stop];
  const auto [begin, end] = match.at;
  // Kept as a whole: what is hidden in it is a part of the stop string.
  if (options_.include_stop_string && held_text_.compare(begin, end - begin, stop) == 0)
    std::erase_if(hidden_, [from = begin](const Span& s) { return s.begin >= from; });
  Release(options_.include_stop_string ? end : begin, false, event);
  held_tokens_.clear();
  held_text_.clear();
  hidden_.clear();
  event.finish = Finish::kStop;
  event.stop_reason = stop;
}

void ChoiceText::AppendLast(int32_t token_id, const PositionChances* chances, bool is_stop_token,
                            ChoiceEvent& event) {
  if (is_stop_token && !options_.include_stop_string) {
    ++tokens_seen_;
    const size_t before = held_text_.size();
    if (tokenizer_->IsSpecial(token_id)) HoldHidden(token_id);
    // Text before the token belongs to a stop string that ends with it.
    const auto match = FindStop(before);
    const bool counts = thinking_ == Thinking::kNone && tokens_seen_ > options_.min_tokens;
    if (match && match->at.begin < before && counts) return Cut(*match, event);
    Flush(event);
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
  Release(held_text_.size(), true, event);
}

bool ChoiceText::SplitsHidden(size_t border) const {
  return std::any_of(hidden_.begin(), hidden_.end(),
                     [&](const Span& s) { return s.begin < border && border < s.end; });
}

ChoiceText::ShownText ChoiceText::Shown() const {
  ShownText shown;
  size_t next = 0;
  for (size_t i = 0; i < held_text_.size(); ++i) {
    while (next < hidden_.size() && hidden_[next].end <= i) ++next;
    if (next < hidden_.size() && hidden_[next].begin <= i) continue;
    shown.text.push_back(held_text_[i]);
    shown.at.push_back(i);
  }
  return shown;
}

std::optional<ChoiceText::Match> ChoiceText::FindStop(size_t search_from) const {
  std::optional<Match> first;
  // The stop that is complete first ends the text; among those, the one that begins first.
  const auto take = [&](size_t begin, size_t end, size_t which) {
    const bool sooner = !first.has_value() || end < first->at.end ||
                        (end == first->at.end && begin < first->at.begin);
    if (sooner) first = {{begin, end}, which};
  };
  // A match must end in the new text; earlier ends were looked at when they arrived.
  const auto start = [](size_t from, size_t size) { return from >= size ? from - size + 1 : 0; };
  ShownText shown;
  if (!hidden_.empty()) shown = Shown();
  const size_t shown_from =
      std::lower_bound(shown.at.begin(), shown.at.end(), search_from) - shown.at.begin();
  for (size_t i = 0; i < options_.stop_strings.size(); ++i) {
    const std::string& stop = options_.stop_strings[i];
    for (size_t at = held_text_.find(stop, start(search_from, stop.size()));
         at != std::string::npos; at = held_text_.find(stop, at + 1)) {
      if (SplitsHidden(at) || SplitsHidden(at + stop.size())) continue;
      take(at, at + stop.size(), i);
      break;
    }
    const size_t at = shown.text.find(stop, start(shown_from, stop.size()));
    if (at != std::string::npos) take(shown.at[at], shown.at[at + stop.size() - 1] + 1, i);
  }
  return first;
}

size_t ChoiceText::HoldFrom() const {
  size_t from = held_text_.size();
  const auto ends_with_beginning = [](const std::string& text, const std::string& stop,
                                      size_t size) {
    return text.compare(text.size() - size, size, stop, 0, size) == 0;
  };
  ShownText shown;
  if (!hidden_.empty()) shown = Shown();
  for (const std::string& stop : options_.stop_strings) {
    for (size_t size = std::min(stop.size() - 1, held_text_.size()); size > 0; --size) {
      const size_t begin = held_text_.size() - size;
      if (begin >= from) break;
      if (SplitsHidden(begin) || !ends_with_beginning(held_text_, stop, size)) continue;
      from = begin;
      break;
    }
    for (size_t size = std::min(stop.size() - 1, shown.text.size()); size > 0; --size) {
      if (!ends_with_beginning(shown.text, stop, size)) continue;
      from = std::min(from, shown.at[shown.text.size() - size]);
      break;
    }
  }
  return from;
}

void ChoiceText::Release(size_t end, bool all_tokens, ChoiceEvent& event) {
  size_t at = 0;
  for (const Span& span : hidden_) {
    if (span.begin >= end) break;
    event.text.append(held_text_, at, span.begin - at);
    at = span.end;
  }
  if (at < end) event.text.append(held_text_, at, end - at);
  std::erase_if(hidden_, [&](const Span& s) { return s.begin < end; });
  for (Span& span : hidden_) span = {span.begin - end, span.end - end};
  held_text_.erase(0, end);
  held_text_begin_ += static_cast<int64_t>(end);
  while (!held_tokens_.empty() &&
         (all_tokens || held_tokens_.front().text_begin < held_text_begin_)) {
    HeldToken& token = held_tokens_.front();
    event.token_ids.push_back(token.id);
    if (token.has_chances) event.logprobs.push_back(std::move(token.chances));
    held_tokens_.pop_front();
    ++reported_tokens_;
  }
}

}  // namespace tessera::coordinator
