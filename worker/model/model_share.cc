#include "worker/model/model_share.h"

#include <string_view>

#include "third_party/absl/str_cat.h"

namespace tessera::worker {
namespace {

absl::Status CheckRange(std::string_view name, const v1::Range& range, int64_t size) {
  if (range.begin() >= 0 && range.begin() < range.end() && range.end() <= size) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(StrCat("worker share: ", name, " [", range.begin(), ", ",
                                           range.end(), ") is no part of the model's [0, ", size,
                                           ")"));
}

// Each kv head must serve the same number of this worker's query heads.
absl::Status CheckHeads(const v1::Model& model, const v1::WorkerShare& share) {
  const int64_t group = model.heads() / model.kv_heads();
  const v1::Range& q = share.query_heads();
  const v1::Range& kv = share.kv_heads();
  const int64_t first = q.begin() / group, last = (q.end() - 1) / group;
  const int64_t q_count = q.end() - q.begin(), kv_count = kv.end() - kv.begin();
  const bool even = kv_count == 1 || (q.begin() % group == 0 && q_count % group == 0);
  if (kv.begin() == first && kv.end() == last + 1 && even) return absl::OkStatus();
  return absl::InvalidArgumentError(StrCat("worker share: query heads [", q.begin(), ", ", q.end(),
                                           ") read kv heads [", first, ", ", last + 1,
                                           ") in groups of ", group, "; the share has kv heads [",
                                           kv.begin(), ", ", kv.end(), ")"));
}

bool Covers(const v1::Range& range, int64_t size) {
  return range.begin() == 0 && range.end() == size;
}

}  // namespace

absl::Status CheckShare(const v1::Model& model, const v1::WorkerShare& share) {
  absl::Status status = CheckRange("layers", share.layers(), model.layers());
  status.Update(CheckRange("query heads", share.query_heads(), model.heads()));
  status.Update(CheckRange("kv heads", share.kv_heads(), model.kv_heads()));
  status.Update(CheckRange("ffn columns", share.ffn_columns(), model.ffn_width()));
  if (share.holds_embedding() || share.holds_head()) {
    status.Update(CheckRange("vocabulary rows", share.vocabulary_rows(), model.vocabulary()));
  }
  if (model.has_experts()) {
    status.Update(CheckRange("experts", share.experts(), model.experts().count()));
  }
  if (status.ok()) status = CheckHeads(model, share);
  return status;
}

bool IsWholeStage(const v1::Model& model, const v1::WorkerShare& share) {
  const bool vocabulary = !(share.holds_embedding() || share.holds_head()) ||
                          Covers(share.vocabulary_rows(), model.vocabulary());
  return Covers(share.query_heads(), model.heads()) && Covers(share.kv_heads(), model.kv_heads()) &&
         Covers(share.ffn_columns(), model.ffn_width()) && vocabulary &&
         (!model.has_experts() || Covers(share.experts(), model.experts().count()));
}

}  // namespace tessera::worker
