#include "coordinator/tokenizer/text/split_behavior.h"

namespace tessera::coordinator {
namespace {

struct Part {
  ByteSpan span;
  bool match;
};

// The word as matches and the stretches between them.
std::vector<Part> PartsOf(std::string_view word, const std::vector<ByteSpan>& matches,
                          bool invert) {
  std::vector<Part> parts;
  parts.reserve(2 * matches.size() + 1);
  size_t done = 0;
  for (const ByteSpan& match : matches) {
    if (done < match.begin) parts.push_back({{done, match.begin}, invert});
    parts.push_back({match, !invert});
    done = match.end;
  }
  if (done < word.size()) parts.push_back({{done, word.size()}, invert});
  return parts;
}

// Whether `next` joins the part before it.
bool Joins(SplitBehavior behavior, const Part& previous, const Part& next) {
  switch (behavior) {
    case SplitBehavior::kMergedWithPrevious: return next.match && !previous.match;
    case SplitBehavior::kMergedWithNext: return previous.match && !next.match;
    case SplitBehavior::kContiguous: return previous.match == next.match;
    default: return false;
  }
}

}  // namespace

void CutWord(std::string_view word, const std::vector<ByteSpan>& matches, SplitBehavior behavior,
             bool invert, std::vector<std::string_view>* out) {
  if (matches.empty() && behavior != SplitBehavior::kRemoved) {
    if (!word.empty()) out->push_back(word);
    return;
  }
  const std::vector<Part> parts = PartsOf(word, matches, invert);
  for (size_t i = 0; i < parts.size(); ++i) {
    if (behavior == SplitBehavior::kRemoved && parts[i].match) continue;
    const size_t begin = parts[i].span.begin;
    while (i + 1 < parts.size() && Joins(behavior, parts[i], parts[i + 1])) ++i;
    if (begin < parts[i].span.end) out->push_back(word.substr(begin, parts[i].span.end - begin));
  }
}

}  // namespace tessera::coordinator
