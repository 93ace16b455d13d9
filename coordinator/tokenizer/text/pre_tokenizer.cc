#include "coordinator/tokenizer/text/pre_tokenizer.h"

#include "coordinator/tokenizer/text/split_behavior.h"
#include "coordinator/tokenizer/text/unicode_class.h"
#include "coordinator/tokenizer/text/utf8.h"
#include "third_party/absl/str_cat.h"

namespace tessera::coordinator {
namespace {

bool IsAsciiPunctuation(char32_t c) {
  return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') ||
         (c >= '{' && c <= '~');
}

void FindString(std::string_view text, std::string_view pattern, std::vector<ByteSpan>* matches) {
  for (size_t at = text.find(pattern); at != std::string_view::npos;
       at = text.find(pattern, at + pattern.size())) {
    matches->push_back({at, at + pattern.size()});
  }
}

}  // namespace

absl::Status PreTokenizer::Split(std::string_view text, bool at_start, Words* words) const {
  words->views.clear();
  words->storage.clear();
  if (text.empty()) return absl::OkStatus();
  words->views.push_back(text);
  for (const Step& step : steps_) {
    const absl::Status status =
        std::visit([&](const auto& one) { return Run(one, at_start, words); }, step);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status PreTokenizer::Run(const PatternSplit& step, bool, Words* words) {
  std::vector<std::string_view> out;
  std::vector<ByteSpan> matches;
  for (const std::string_view word : words->views) {
    matches.clear();
    if (const auto* regex = std::get_if<Regex>(&step.pattern)) {
      if (auto status = regex->FindAll(word, &matches); !status.ok()) return status;
    } else {
      FindString(word, std::get<std::string>(step.pattern), &matches);
    }
    CutWord(word, matches, step.behavior, step.invert, &out);
  }
  words->views = std::move(out);
  return absl::OkStatus();
}

absl::Status PreTokenizer::Run(const ClassSplit& step, bool, Words* words) {
  std::vector<std::string_view> out;
  std::vector<ByteSpan> matches;
  for (const std::string_view word : words->views) {
    matches.clear();
    for (size_t i = 0; i < word.size();) {
      const size_t begin = i;
      const char32_t c = NextCodePoint(word, &i);
      if ((UnicodeClassOf(c) & step.unicode_class) != 0 ||
          (step.ascii_punctuation && IsAsciiPunctuation(c))) {
        matches.push_back({begin, i});
      }
    }
    CutWord(word, matches, step.behavior, false, &out);
  }
  words->views = std::move(out);
  return absl::OkStatus();
}

bool PreTokenizer::drops_text() const {
  struct OfStep {
    bool operator()(const PatternSplit& s) const { return s.behavior == SplitBehavior::kRemoved; }
    bool operator()(const ClassSplit& s) const { return s.behavior == SplitBehavior::kRemoved; }
    bool operator()(const PrefixSpace&) const { return false; }
    bool operator()(const Metaspace& s) const { return s.replacement.empty(); }
  };
  return std::any_of(steps_.begin(), steps_.end(),
                     [](const Step& step) { return std::visit(OfStep(), step); });
}

absl::Status PreTokenizer::Run(const PrefixSpace&, bool, Words* words) {
  for (std::string_view& word : words->views) {
    if (word.front() == ' ') continue;
    word = words->storage.emplace_back(StrCat(" ", word));
  }
  return absl::OkStatus();
}

absl::Status PreTokenizer::Run(const Metaspace& step, bool at_start, Words* words) {
  std::vector<std::string_view> out;
  std::vector<ByteSpan> matches;
  const char* text_begin = words->views.empty() ? nullptr : words->views.front().data();
  for (const std::string_view word : words->views) {
    std::string changed;
    changed.reserve(word.size() + word.size() / 4 + step.replacement.size());
    const bool first = at_start && word.data() == text_begin;
    const bool prepend =
        step.prepend == Metaspace::kAlways || (step.prepend == Metaspace::kFirst && first);
    if (prepend && word.front() != ' ' && !word.starts_with(step.replacement)) {
      changed = step.replacement;
    }
    for (const char c : word) {
      if (c == ' ') {
        changed.append(step.replacement);
      } else {
        changed.push_back(c);
      }
    }
    const std::string_view stored = words->storage.emplace_back(std::move(changed));
    if (!step.split) {
      out.push_back(stored);
      continue;
    }
    matches.clear();
    FindString(stored, step.replacement, &matches);
    CutWord(stored, matches, SplitBehavior::kMergedWithNext, false, &out);
  }
  words->views = std::move(out);
  return absl::OkStatus();
}

}  // namespace tessera::coordinator
