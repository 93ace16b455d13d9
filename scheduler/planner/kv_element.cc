#include "scheduler/planner/kv_element.h"

#include <memory>
#include <utility>

namespace tessera::scheduler {

ModelShape WithKvElement(ModelShape shape, double bytes_per_element, int64_t scale_bytes) {
  shape.kv_bytes_per_element = bytes_per_element;
  shape.kv_scale_bytes = scale_bytes;
  if (shape.draft_model != nullptr) {
    shape.draft_model = std::make_shared<const ModelShape>(
        WithKvElement(*shape.draft_model, bytes_per_element, scale_bytes));
  }
  return shape;
}

}  // namespace tessera::scheduler
