// How a model marks its thinking, found from its chat template, and whether a prompt leaves it
// open.
//
// Thread rule: pure functions.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "absl/types/span.h"
#include "coordinator/tokenizer/text_segment.h"

namespace tessera::coordinator {

struct ThinkingFormat {
  std::string opening;  // "": the model marks none
  std::string closing;
};

// The first kind of marks whose closing one a template has.
ThinkingFormat RecognizeThinking(const std::function<bool(std::string_view)>& template_names);

// How thinking stands at the end of a prompt, by the template's own text there.
enum class PromptThinking {
  kNone,    // the model may open it
  kOpen,    // the answer begins within it
  kClosed,  // the template has opened and closed it: there is none
};
PromptThinking ThinkingAtEnd(const ThinkingFormat& format, absl::Span<const TextSegment> prompt);

}  // namespace tessera::coordinator
