#include "worker/weights/model_share.h"

#include <string_view>

#include "proto/layers/layers.h"
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
absl::Status CheckHeads(const v1::Attention& attention, const v1::LayerShare& share) {
  const int64_t group = attention.heads() / attention.kv_heads();
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

absl::Status CheckKind(const v1::LayerKind& kind, const v1::LayerShare& share) {
  const v1::Attention& attention = kind.attention();
  absl::Status status;
  if (kind.has_delta()) {
    status = CheckRange("key groups", share.key_groups(), kind.delta().key_heads());
  } else {
    status = CheckRange("query heads", share.query_heads(), attention.heads());
    status.Update(CheckRange("kv heads", share.kv_heads(), attention.kv_heads()));
  }
  if (kind.ffn().width() > 0) {
    status.Update(CheckRange("ffn columns", share.ffn_columns(), kind.ffn().width()));
  }
  if (kind.ffn().experts().count() > 0) {
    status.Update(CheckRange("experts", share.experts(), kind.ffn().experts().count()));
  }
  return status.ok() && !kind.has_delta() ? CheckHeads(attention, share) : status;
}

bool Covers(const v1::Range& range, int64_t size) {
  return range.begin() == 0 && range.end() == size;
}

}  // namespace

absl::Status CheckShare(const v1::Model& model, const v1::WorkerShare& share) {
  absl::Status status = CheckLayers(model);
  if (!status.ok()) return status;
  status = CheckRange("layers", share.layers(), LayerCount(model));
  if (NeedsOneStage(model) && !(share.holds_embedding() && share.holds_head())) {
    status.Update(absl::InvalidArgumentError(
        "worker share: a model whose layers borrow keys and values, or have embeddings of their "
        "own, cannot be cut into stages"));
  }
  if (share.kinds_size() != model.kinds_size()) {
    status.Update(
        absl::InvalidArgumentError(StrCat("worker share: it names ", share.kinds_size(),
                                          " kinds of layers; the model has ", model.kinds_size())));
  }
  for (int i = 0; status.ok() && i < model.kinds_size(); ++i) {
    status = CheckKind(model.kinds(i), share.kinds(i));
  }
  if (share.holds_embedding() || share.holds_head()) {
    status.Update(CheckRange("vocabulary rows", share.vocabulary_rows(), model.vocabulary()));
  }
  return status;
}

bool IsWholeStage(const v1::Model& model, const v1::WorkerShare& share) {
  for (int i = 0; i < model.kinds_size(); ++i) {
    const v1::LayerKind& kind = model.kinds(i);
    const v1::LayerShare& part = share.kinds(i);
    if (!Covers(part.query_heads(), kind.attention().heads()) ||
        !Covers(part.kv_heads(), kind.attention().kv_heads()) ||
        !Covers(part.key_groups(), kind.delta().key_heads()) ||
        !Covers(part.ffn_columns(), kind.ffn().width()) ||
        !Covers(part.experts(), kind.ffn().experts().count())) {
      return false;
    }
  }
  return !(share.holds_embedding() || share.holds_head()) ||
         Covers(share.vocabulary_rows(), model.vocabulary());
}

}  // namespace tessera::worker
