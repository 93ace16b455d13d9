// A half-open range of rows, columns or elements.
#pragma once

#include <cstdint>

namespace tessera::worker {

struct IndexRange {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
};

}  // namespace tessera::worker
