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

}  // namespace

TokenBans::TokenBans(const v1::Submit& submit, int64_t vocabulary) {
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

std::span<const int32_t> TokenBans::After(std::span<const int32_t> output,
                                          std::span<const int32_t> more,
                                          std::vector<int32_t>* scratch) const {
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
