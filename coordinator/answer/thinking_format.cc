#include "coordinator/answer/thinking_format.h"

#include <utility>

#include "coordinator/answer/trim.h"

namespace tessera::coordinator {
namespace {

constexpr std::pair<std::string_view, std::string_view> kMarks[] = {
    {"<think>", "</think>"},
    {"[THINK]", "[/THINK]"},
    {"<seed:think>", "</seed:think>"},
    {"<|START_THINKING|>", "<|END_THINKING|>"},
    {"<|channel>thought", "<channel|>"},
};

}  // namespace

ThinkingFormat RecognizeThinking(const std::function<bool(std::string_view)>& template_names) {
  for (const auto& [opening, closing] : kMarks) {
    if (template_names(closing)) return {std::string(opening), std::string(closing)};
  }
  return {};
}

PromptThinking ThinkingAtEnd(const ThinkingFormat& format, absl::Span<const TextSegment> prompt) {
  if (format.opening.empty() || prompt.empty() || !prompt.back().from_template)
    return PromptThinking::kNone;
  const std::string_view end = TrimRight(prompt.back().text);
  if (end.ends_with(format.opening)) return PromptThinking::kOpen;
  return end.ends_with(format.closing) ? PromptThinking::kClosed : PromptThinking::kNone;
}

}  // namespace tessera::coordinator
