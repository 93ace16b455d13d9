#include "coordinator/http/body_budget.h"

namespace tessera::coordinator {

bool BodyShare::Grow(int64_t bytes) {
  const int64_t more = bytes - bytes_;
  const int64_t used = budget_->used_bytes_.fetch_add(more) + more;
  if (more > 0 && used > budget_->LimitOf(bytes)) {
    budget_->used_bytes_ -= more;
    return false;
  }
  bytes_ = bytes;
  return true;
}

bool BodyShare::MayGrow(int64_t bytes) const {
  return budget_->used_bytes_ + bytes - bytes_ <= budget_->LimitOf(bytes);
}

}  // namespace tessera::coordinator
