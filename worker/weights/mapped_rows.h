// Rows of a matrix that the file holds in another order, or between others: a part of a fused
// matrix, heads whose rotated pairs are neighbours.
#pragma once

#include <memory>

#include "proto/model/row_order.h"
#include "worker/weights/row_source.h"

namespace tessera::worker {

// The rows of `source` in this order. A range of rows is read, and lies in its file, as before.
std::shared_ptr<const RowSource> InOrder(std::shared_ptr<const RowSource> source,
                                         const RowOrder& order);

}  // namespace tessera::worker
