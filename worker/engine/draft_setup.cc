#include "worker/engine/draft_setup.h"

#include <algorithm>
#include <memory>

#include "proto/layers/layers.h"
#include "third_party/absl/str_cat.h"
#include "third_party/spdlog/log.h"
#include "worker/drafts/ngram_source.h"

namespace tessera::worker {
namespace {

// Logits are wide: with more sequences than this, drafts have the rows that those leave over.
constexpr int64_t kDraftedLogitRows = 64;

}  // namespace

absl::Status ReadDrafts(const v1::ConfigureRequest& request, EngineOptions* options) {
  const int32_t most = request.max_draft_tokens();
  if (most < 0 || most > kMaxDrafts) {
    return absl::InvalidArgumentError(
        StrCat("max_draft_tokens is ", most, "; it must be between 1 and ", kMaxDrafts));
  }
  if (most > 0) options->max_drafts = most;
  switch (request.speculation()) {
    case v1::SPECULATION_UNSPECIFIED:
    case v1::SPECULATION_OFF: return absl::OkStatus();
    case v1::SPECULATION_NGRAM: break;
    default:
      return absl::InvalidArgumentError(
          StrCat("speculation is ", static_cast<int>(request.speculation()),
                 ", which this worker does not know: run the coordinator's version on it"));
  }
  if (KeepsStates(request.model())) {
    Logger("worker").info(
        "speculation: off, because layers of {} keep a state of each sequence, which cannot take "
        "back a draft",
        request.model().name());
    return absl::OkStatus();
  }
  options->draft_source = [] { return std::make_unique<NgramSource>(); };
  if (request.kv_cache_bytes_planned()) return absl::OkStatus();  // that leaves room for no more
  scheduler::BatchLimits& limits = options->limits;
  limits.max_logit_rows =
      std::max(limits.max_sequences,
               std::min(kDraftedLogitRows, limits.max_sequences * (1 + options->max_drafts)));
  return absl::OkStatus();
}

}  // namespace tessera::worker
