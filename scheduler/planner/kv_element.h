// A model as it would be with KV of another type.
//
// Pure function, thread-safe.
#pragma once

#include <cstdint>

#include "scheduler/cost/model_shape.h"

namespace tessera::scheduler {

// The shape with KV of so many bytes an element and a scale; its draft model's KV as well.
ModelShape WithKvElement(ModelShape shape, double bytes_per_element, int64_t scale_bytes);

}  // namespace tessera::scheduler
