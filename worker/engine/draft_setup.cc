#include "worker/engine/draft_setup.h"

#include <algorithm>
#include <memory>

#include "proto/layers/layers.h"
#include "third_party/absl/str_cat.h"
#include "worker/drafts/head_source.h"
#include "worker/drafts/ngram_source.h"

namespace tessera::worker {
namespace {

// Logits are wide: with more sequences than this, drafts have the rows that those leave over.
constexpr int64_t kDraftedLogitRows = 64;
// A model's head reads its layer and the output head for each one, tried or not.
constexpr int64_t kMaxHeadDrafts = 3;

absl::Status NoDraftHead(const v1::Model& model) {
  return absl::InvalidArgumentError(
      StrCat("model '", model.name(),
             "' has no head that predicts further tokens (multi-token prediction): use "
             "the coordinator's --speculate ngram, or off"));
}

absl::Status CheckDraftModel(const v1::Model& model) {
  if (!model.has_draft_model()) {
    return absl::InvalidArgumentError(
        StrCat("model '", model.name(), "' comes without the draft model that is to be used"));
  }
  const v1::DraftModel& draft = model.draft_model();
  absl::Status layers = CheckLayers(draft.model());
  if (layers.ok() && !KeepsStates(draft.model())) return absl::OkStatus();
  return layers.ok() ? absl::InvalidArgumentError(
                           StrCat("draft model ", draft.folder(),
                                  ": its layers keep states (gated delta nets), from which refused "
                                  "tokens cannot be taken back: use a model whose layers attend"))
                     : layers;
}

}  // namespace

absl::Status ReadDraftTypes(const v1::ConfigureRequest& request, const HalfTypes& computed,
                            ModelOptions* options) {
  if (!HoldsDraftModel(request.model(), request.share())) return absl::OkStatus();
  const v1::Model& draft = request.model().draft_model().model();
  const auto types = ResolveDTypes(draft, DraftWeightType(draft, request.weight_dtype()),
                                   request.kv_dtype(), computed);
  if (!types.ok()) return types.status();
  options->draft_weight_dtype = types->weight_dtype;
  options->draft_product_dtype = types->product_dtype;
  return absl::OkStatus();
}

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
    case v1::SPECULATION_NGRAM:
      options->draft_source = [] { return std::make_unique<NgramSource>(); };
      break;
    case v1::SPECULATION_MTP:
      if (!request.model().draft_head().used()) return NoDraftHead(request.model());
      options->draft_source = [] { return std::make_unique<HeadSource>(); };
      options->head_drafts = true;
      options->max_drafts = std::min(options->max_drafts, kMaxHeadDrafts);
      break;
    case v1::SPECULATION_DRAFT_MODEL:
      if (absl::Status s = CheckDraftModel(request.model()); !s.ok()) return s;
      options->draft_source = [] { return std::make_unique<HeadSource>(); };
      options->head_drafts = true;
      break;
    default:
      return absl::InvalidArgumentError(
          StrCat("speculation is ", static_cast<int>(request.speculation()),
                 ", which this worker does not know: run the coordinator's version on it"));
  }
  if (request.kv_cache_bytes_planned()) return absl::OkStatus();  // that leaves room for no more
  scheduler::BatchLimits& limits = options->limits;
  limits.max_logit_rows =
      std::max(limits.max_sequences,
               std::min(kDraftedLogitRows, limits.max_sequences * (1 + options->max_drafts)));
  return absl::OkStatus();
}

}  // namespace tessera::worker
