// Rows of a matrix that the file holds in another order, or between others: a part of a fused
// matrix, heads whose rotated pairs are neighbours.
#pragma once

#include <cstdint>
#include <memory>

#include "worker/weights/row_source.h"

namespace tessera::worker {

// Which row of the file's matrix each row is.
struct RowOrder {
  int64_t first = 0;  // of the file, where the rows begin
  // Rows belong to heads of `head` rows, which begin `stride` rows apart in the file; 0: no heads.
  int64_t head = 0;
  int64_t stride = 0;
  // Of each head the first `paired` rows are pairs of neighbours (2i, 2i + 1) in the file, and
  // become halves (i, i + paired / 2).
  int64_t paired = 0;

  int64_t FileRow(int64_t row) const;
  // The rows follow each other in the file as well.
  bool IsRange() const { return head == 0 || (paired == 0 && stride == head); }
};

// The rows of `source` in this order. A range of rows is read, and lies in its file, as before.
std::shared_ptr<const RowSource> InOrder(std::shared_ptr<const RowSource> source,
                                         const RowOrder& order);

}  // namespace tessera::worker
