// How a word is cut at the matches of a pattern, as Hugging Face's SplitDelimiterBehavior does it.
// Pure function, thread-safe.
#pragma once

#include <string_view>
#include <vector>

#include "coordinator/tokenizer/text/pre_tokenizer.h"

namespace tessera::coordinator {

// Appends the parts of `word`, none of them empty. `matches` are in order and do not overlap; an
// empty one cuts at its place. With `invert` the stretches between them are the matches.
void CutWord(std::string_view word, const std::vector<ByteSpan>& matches, SplitBehavior behavior,
             bool invert, std::vector<std::string_view>* out);

}  // namespace tessera::coordinator
