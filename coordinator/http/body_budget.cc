#include "coordinator/http/body_budget.h"

#include "absl/strings/str_cat.h"

namespace tessera::coordinator {

NoRoom RefusalOf(const BodyBudget& bodies, int64_t body_bytes) {
  const std::string limit =
      absl::StrCat("(", bodies.max_bytes(),
                   " bytes, --max-body-memory-bytes; a quarter of it is for bodies of at most ",
                   BodyBudget::kSmallBytes, " bytes)");
  if (bodies.EverFits(body_bytes)) {
    return {503, absl::StrCat("the bodies of all requests together take up the memory for them ",
                              limit, ": try again")};
  }
  return {413,
          absl::StrCat("a body of ", body_bytes,
                       " bytes is larger than the memory for the bodies of all requests ", limit)};
}

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
