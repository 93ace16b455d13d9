#include "scheduler/input/draft_choice.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace tessera::scheduler {
namespace {

constexpr int kMaxDrafts = 6, kMaxHeadDrafts = 3;  // worker/engine/draft_setup
// Published runs have 0.8, 0.7 and 0.6 at a head's first places, and less of small draft models.
constexpr double kHeadAcceptance = 0.7, kModelAcceptance = 0.6;
constexpr char kDraft[] = "draft:", kNgram[] = "ngram", kHead[] = "mtp", kAuto[] = "auto";

absl::Status Refused(const std::string& why) {
  return absl::InvalidArgumentError(absl::StrCat("--speculate ", why));
}

v1::DraftTerms TermsOf(const std::string& source, const DraftRequest& request) {
  v1::DraftTerms terms;
  terms.set_source(source);
  const int most = request.most > 0 ? request.most : kMaxDrafts;
  terms.set_draft_tokens(source == kHead ? std::min(most, kMaxHeadDrafts) : most);
  terms.set_acceptance(source == kHead ? kHeadAcceptance : source == kNgram ? 0 : kModelAcceptance);
  if (request.acceptance) {
    terms.set_acceptance(*request.acceptance);
    terms.set_acceptance_origin(v1::FIGURE_ORIGIN_OPTION);
  }
  return terms;
}

absl::Status CheckNumbers(const DraftRequest& request) {
  if (!request.any()) {
    if (request.most == 0 && !request.acceptance) return absl::OkStatus();
    return Refused(
        "is off: numbers of drafts, or how many of them are accepted, count for nothing; give "
        "--speculate mtp, ngram, auto or draft:PATH, or leave them out");
  }
  if (request.most < 0 || request.most > kMaxDrafts) {
    return Refused(
        absl::StrCat("tries ", request.most, " tokens in one step; it must be 1 to ", kMaxDrafts));
  }
  const double acceptance = request.acceptance.value_or(0);
  if (acceptance >= 0 && acceptance <= 1) return absl::OkStatus();
  return Refused(absl::StrCat("has drafts of which ", acceptance,
                              " are accepted; --draft-acceptance must be from 0 to 1"));
}

}  // namespace

std::string DraftModelPath(const std::string& speculate) {
  return speculate.starts_with(kDraft) ? speculate.substr(sizeof(kDraft) - 1) : "";
}

std::string WhyDraftsMoveBits(const v1::Model& model, v1::DataType weight_dtype,
                              v1::DataType kv_dtype) {
  const v1::DataType weights =
      weight_dtype == v1::DATA_TYPE_UNSPECIFIED ? model.dtype() : weight_dtype;
  const bool float32 = weights == v1::DATA_TYPE_FLOAT32 && !model.has_quantization();
  const bool kv = kv_dtype == v1::DATA_TYPE_UNSPECIFIED || kv_dtype == v1::DATA_TYPE_FLOAT32;
  if (float32 && kv) return "";
  return absl::StrCat(float32 ? "its keys and values" : "it",
                      " computes in fewer than 32 bits, where steps of several rows take other "
                      "kernels than steps of one, so that drafts could move a token; --speculate ",
                      model.has_draft_head() ? kHead : kNgram, " allows that");
}

absl::StatusOr<v1::DraftTerms> ChooseDrafts(const DraftRequest& request, v1::DataType weight_dtype,
                                            v1::DataType kv_dtype, v1::Model* model) {
  if (absl::Status s = CheckNumbers(request); !s.ok()) return s;
  std::string source = request.speculate;
  if (!request.any()) return v1::DraftTerms();
  if (source == kAuto) {
    if (!WhyDraftsMoveBits(*model, weight_dtype, kv_dtype).empty()) {
      v1::DraftTerms none;
      none.set_source(kAuto);
      return none;
    }
    source = model->has_draft_head() ? kHead : kNgram;
  }
  if (source == kHead) {
    if (!model->has_draft_head()) {
      return Refused(absl::StrCat("is mtp, but ", model->name(),
                                  " has no head for further tokens that is supported: use "
                                  "--speculate ngram, or off"));
    }
    model->mutable_draft_head()->set_used(true);
    return TermsOf(source, request);
  }
  if (source == kNgram) return TermsOf(source, request);
  if (DraftModelPath(source).empty()) {
    return Refused(
        absl::StrCat("is '", source, "'; it must be off, auto, ngram, mtp, or draft:PATH"));
  }
  if (model->has_draft_model()) return TermsOf(source, request);
  return Refused(absl::StrCat("is ", source,
                              ", but the model comes without a draft_model, which describes it"));
}

Drafts DraftsOf(const v1::DraftTerms& terms) {
  Drafts drafts;
  drafts.origin = terms.source() == kHead                  ? DraftOrigin::kHead
                  : DraftModelPath(terms.source()).empty() ? DraftOrigin::kText
                                                           : DraftOrigin::kModel;
  drafts.most = terms.draft_tokens();
  drafts.acceptance = terms.acceptance();
  return drafts;
}

}  // namespace tessera::scheduler
