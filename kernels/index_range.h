// A half-open range of numbered things: rows, columns, elements, layers, heads.
#pragma once

#include <cstdint>

namespace tessera {

struct IndexRange {
  int64_t begin = 0;
  int64_t end = 0;

  int64_t size() const { return end - begin; }
  bool operator==(const IndexRange&) const = default;
};

}  // namespace tessera
