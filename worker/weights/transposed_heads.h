// Rows that are the columns of parts of another matrix: what turns each head's key projection into
// one of its query, as latent attention needs it.
#pragma once

#include <cstdint>
#include <memory>

#include "worker/weights/row_source.h"

namespace tessera::worker {

// Rows of a head in a matrix: the first `transposed` ones of `all`.
struct HeadRows {
  int64_t all = 0;
  int64_t transposed = 0;
};

// From `source`, [heads * rows.all, columns], read as `form`, which is of elements: row
// head * columns + c, of rows.transposed columns, is column c of the head's first rows.transposed
// rows.
std::shared_ptr<const RowSource> TransposeHeads(std::shared_ptr<const RowSource> source,
                                                const RowForm& form, const HeadRows& rows,
                                                int64_t columns);

}  // namespace tessera::worker
