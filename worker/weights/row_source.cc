#include "worker/weights/row_source.h"

#include "kernels/byte_rows.h"
#include "kernels/int4_rows.h"

namespace tessera::worker {

int64_t RowBytes(const RowForm& form, int64_t columns) {
  if (form.dtype == kernels::DType::kI4) {
    return kernels::Int4RowBytes(columns, form.group_size, form.blocks);
  }
  if (form.is_codes()) return kernels::ByteRowBytes(columns, form.group_size);
  return columns * kernels::SizeInBytes(form.dtype);
}

}  // namespace tessera::worker
