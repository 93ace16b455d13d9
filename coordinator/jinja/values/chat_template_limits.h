// How much one rendering of a chat template may do. Plain value.
#pragma once

#include <cstdint>

namespace tessera::coordinator {

struct RenderLimits {
  // Expressions evaluated, statements executed and elements visited.
  int64_t max_steps = 1'000'000;
  // Limits the result and every string made on the way; all work on strings together may touch 32
  // times as many.
  int64_t max_output_bytes = 16 << 20;
};

}  // namespace tessera::coordinator
