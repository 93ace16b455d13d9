// Inputs of a matrix that the file holds in another order, in heads that stay whole.
#pragma once

#include <memory>

#include "proto/model/row_order.h"
#include "worker/weights/row_source.h"

namespace tessera::worker {

// The columns of `source` in this order, which pairs none. Slices begin and end with heads. Codes
// stay codes where heads hold whole groups of inputs with a scale of their own; what shares pairs
// over more inputs than a group is read as elements.
std::shared_ptr<const RowSource> InputsInOrder(std::shared_ptr<const RowSource> source,
                                               const RowOrder& order);

}  // namespace tessera::worker
