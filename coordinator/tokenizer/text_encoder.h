#pragma once

// The part of a tokenizer that turns text into ids: one implementation for each kind of model file.
// Immutable, thread-safe.

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "coordinator/tokenizer/marked_text.h"

namespace tessera::coordinator {

class TextEncoder {
 public:
  virtual ~TextEncoder() = default;

  // Appends the ids of one whole text, without the ones that a post-processor adds around it.
  // Requires well-formed UTF-8. Fails only where a pattern of the model file gives up.
  virtual absl::Status Encode(const MarkedView& input, std::vector<int32_t>* ids) const = 0;
};

}  // namespace tessera::coordinator
