// Which drafts a plan counts on: what --speculate says, made into terms of the plan.
//
// How often a draft of the model's head or of a draft model stands is estimated where nobody says
// it; how often the text repeats itself is not, so that n-grams count for nothing then.
// Thread rule: pure functions. Errors name the option, what the model lacks and what can be used
// instead.
#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "proto/model.pb.h"
#include "proto/plan_assumptions.pb.h"
#include "scheduler/cost/drafts.h"

namespace tessera::scheduler {

struct DraftRequest {
  std::string speculate;             // off, auto, ngram, mtp, or draft:PATH; empty: off
  int most = 0;                      // of a sequence in one step, 1 to 6; 0: 6
  std::optional<double> acceptance;  // of a draft whose predecessors stand, 0..1

  // Whether anything is tried, or may be.
  bool any() const { return !speculate.empty() && speculate != "off"; }
};

// The path of draft:PATH; empty: it is another choice.
std::string DraftModelPath(const std::string& speculate);

// Why steps of several rows of the model may have other bits than those of one, so that drafts
// could move a token; empty: they have the same.
std::string WhyDraftsMoveBits(const v1::Model& model, v1::DataType weight_dtype,
                              v1::DataType kv_dtype);

// The terms, with whose name auto chose; of auto that chose none, "auto" and no tokens. Sets in the
// model that its head is used. draft:PATH: the model has its draft model already.
absl::StatusOr<v1::DraftTerms> ChooseDrafts(const DraftRequest& request, v1::DataType weight_dtype,
                                            v1::DataType kv_dtype, v1::Model* model);

// As the cost model has them.
Drafts DraftsOf(const v1::DraftTerms& terms);

}  // namespace tessera::scheduler
