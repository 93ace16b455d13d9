#include "scheduler/answer_lengths.h"

#include <algorithm>

namespace tessera::scheduler {

void AnswerLengths::Note(int64_t output_tokens) {
  if (recent_.size() == kRecent) {
    sorted_.erase(std::lower_bound(sorted_.begin(), sorted_.end(), recent_.front()));
    recent_.pop_front();
  }
  recent_.push_back(output_tokens);
  sorted_.insert(std::upper_bound(sorted_.begin(), sorted_.end(), output_tokens), output_tokens);
  sums_.resize(sorted_.size());
  int64_t sum = 0;
  for (size_t i = sorted_.size(); i-- > 0;) sums_[i] = sum += sorted_[i];
  expected_.clear();
  for (size_t i = 0; i < sorted_.size(); ++i) {
    const int64_t until = std::min(sorted_[i], kTabled);
    if (until > static_cast<int64_t>(expected_.size()))
      expected_.resize(static_cast<size_t>(until), MeanFrom(i));
  }
}

int64_t AnswerLengths::MeanFrom(size_t place) const {
  const auto count = static_cast<int64_t>(sorted_.size() - place);
  return (sums_[place] + count - 1) / count;
}

int64_t AnswerLengths::Expected(int64_t emitted, int64_t max_tokens) const {
  if (max_tokens <= emitted || recent_.empty()) return std::max(emitted, max_tokens);
  // Longer than any: as much again, of which nothing is known.
  int64_t expected = 2 * emitted;
  if (emitted >= 0 && emitted < static_cast<int64_t>(expected_.size())) {
    expected = expected_[static_cast<size_t>(emitted)];
  } else if (const auto longer = std::upper_bound(sorted_.begin(), sorted_.end(), emitted);
             longer != sorted_.end()) {
    expected = MeanFrom(static_cast<size_t>(longer - sorted_.begin()));
  }
  return std::clamp(expected, emitted + 1, max_tokens);
}

}  // namespace tessera::scheduler
