// The part of a tokenizer that turns text into ids: one implementation for each kind of model file.
// Immutable, thread-safe.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "coordinator/tokenizer/marked_text.h"

namespace tessera::coordinator {

// How much text one id may be made of: what a prompt that cannot fit is refused by unread.
struct TokenReach {
  // Bytes; 0: no bound, since text may be dropped, or joined without end.
  int64_t max_bytes = 0;
  // White space beside an added token may be swallowed, so it counts as nothing.
  bool swallows_space = false;
};

class TextEncoder {
 public:
  virtual ~TextEncoder() = default;

  // Appends the ids of one whole text, without the ones that a post-processor adds around it.
  // Requires well-formed UTF-8. Fails only where a pattern of the model file gives up.
  virtual absl::Status Encode(const MarkedView& input, std::vector<int32_t>* ids) const = 0;

  virtual TokenReach reach() const = 0;
};

}  // namespace tessera::coordinator
