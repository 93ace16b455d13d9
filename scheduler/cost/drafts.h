// Drafts that steps try: tokens behind a sequence's last one, of which those stand that the step
// draws itself (worker/drafts).
//
// Thread rule: plain values.
#pragma once

#include <limits>

namespace tessera::scheduler {

// Who proposes them.
enum class DraftOrigin {
  kText,   // the sequence itself, which takes no time (n-grams)
  kHead,   // the model's head for further tokens (ModelShape::draft_kind)
  kModel,  // a draft model (ModelShape::draft_model)
};

struct Drafts {
  DraftOrigin origin = DraftOrigin::kText;
  int most = 0;           // of a sequence in one step; 0: none are tried
  double acceptance = 0;  // of a draft whose predecessors stand, 0..1
  // Rows of a step, and rows with logits of the steps of all micro-batches together.
  double max_rows = std::numeric_limits<double>::infinity();
  double max_logit_rows = std::numeric_limits<double>::infinity();

  bool any() const { return most > 0 && acceptance > 0; }
};

}  // namespace tessera::scheduler
