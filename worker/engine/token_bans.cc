#include "worker/engine/token_bans.h"

#include <algorithm>
#include <iterator>

namespace tessera::worker {
namespace {

void SortUnique(std::vector<int32_t>* ids) {
  std::sort(ids->begin(), ids->end());
  ids->erase(std::unique(ids->begin(), ids->end()), ids->end());
}

bool EndsWith(std::span<const int32_t> output, std::span<const int32_t> end) {
  return output.size() >= end.size() &&
         std::equal(end.begin(), end.end(), output.end() - end.size());
}

bool StartsWith(std::span<const int32_t> output, std::span<const int32_t> begin) {
  return output.size() >= begin.size() && std::equal(begin.begin(), begin.end(), output.begin());
}

}  // namespace

TokenBans::TokenBans(const v1::Submit& submit, int64_t vocabulary) : vocabulary_(vocabulary) {
  if (submit.has_thinking_budget()) thinking_ = submit.thinking_budget();
  if (submit.allowed_token_ids_size() > 0) {
    std::vector<bool> allowed(vocabulary, false);
    for (const int32_t id : submit.allowed_token_ids()) allowed[id] = true;
    for (int32_t id = 0; id < vocabulary; ++id) {
      if (!allowed[id]) always_.push_back(id);
    }
  }
  for (const v1::TokenSequence& word : submit.bad_words()) {
    if (word.ids_size() == 1) {
      always_.push_back(word.ids(0));
    } else {
      words_.emplace_back(word.ids().begin(), word.ids().end());
    }
  }
  SortUnique(&always_);
}

std::optional<int32_t> TokenBans::ForcedAfter(std::span<const int32_t> output) const {
  if (!thinking_.has_value()) return std::nullopt;
  const std::span opening(thinking_->opening_ids().data(), thinking_->opening_ids_size());
  size_t begin = opening.size();
  // One token of white space may stand before the opening.
  if (!StartsWith(output, opening)) {
    if (output.empty() || !StartsWith(output.subspan(1), opening)) return std::nullopt;
    ++begin;
  }
  const size_t end = begin + static_cast<size_t>(thinking_->tokens());
  if (output.size() < end) return std::nullopt;
  const auto forced = static_cast<int64_t>(output.size() - end);
  if (forced >= thinking_->end_ids_size()) return std::nullopt;
  const auto thought = output.subspan(begin, end - begin);
  const bool closed =
      std::find(thought.begin(), thought.end(), thinking_->closing_id()) != thought.end();
  if (closed) return std::nullopt;
  return thinking_->end_ids(static_cast<int>(forced));
}

std::span<const int32_t> TokenBans::After(std::span<const int32_t> output,
                                          std::span<const int32_t> more,
                                          std::vector<int32_t>* scratch) const {
  if (const std::optional<int32_t> forced = ForcedAfter(output)) {
    scratch->clear();
    for (int32_t id = 0; id < vocabulary_; ++id) {
      if (id != *forced) scratch->push_back(id);
    }
    return *scratch;
  }
  std::vector<int32_t> extra;
  for (const std::vector<int32_t>& word : words_) {
    if (EndsWith(output, std::span(word).first(word.size() - 1))) extra.push_back(word.back());
  }
  if (extra.empty() && more.empty()) return always_;
  if (extra.empty() && always_.empty()) return more;
  extra.insert(extra.end(), more.begin(), more.end());
  SortUnique(&extra);
  scratch->clear();
  std::set_union(always_.begin(), always_.end(), extra.begin(), extra.end(),
                 std::back_inserter(*scratch));
  return *scratch;
}

}  // namespace tessera::worker
