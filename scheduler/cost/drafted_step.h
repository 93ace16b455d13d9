// What drafts make of a step, and how many of them do best.
//
// With k drafts, each of which stands with chance a where those before it do, a sequence gets
//   E(k) = 1 + a + ... + a^k tokens
// of a step that has k rows more for it, k rows with logits, and k passes of what proposes them.
// Layers that keep states compute the rows of drafts that stood once more in the next step, which
// are E(k) - 1 on average. So many are tried as give most tokens a second, none where that gains
// less than 5 %: rows of few sequences hide behind reading weights, those of many take time.
// Engines choose likewise, by what they measure (worker/drafts/draft_lengths.h). Source of E:
// Leviathan et al., "Fast inference from transformers via speculative decoding", ICML 2023.
// Thread rule: pure functions, deterministic.
#pragma once

#include "scheduler/cost/cost_model.h"

namespace tessera::scheduler {

// Engines choose from these.
inline constexpr int kDraftLengths[] = {0, 1, 2, 3, 4, 6};
inline constexpr double kMinDraftGain = 1.05;

double TokensWithDrafts(double acceptance, int drafts);  // E

// The step with so many drafts for each sequence that decodes. Its prompts keep up: they have E
// times as many rows as beside one token of each.
StepWork WithDrafts(const ModelShape& model, const StepWork& plain, int drafts);

struct DraftedStep {
  StepWork work;
  int drafts = 0;     // of each sequence that decodes
  double tokens = 1;  // that each of them gets
};

// The step with as many drafts as do best; `seconds`: of a step, as long as it holds up the next.
template <typename Fn>
DraftedStep BestDrafts(const ModelShape& model, const StepWork& plain, int micro_batches,
                       const Fn& seconds) {
  DraftedStep best = {plain};
  const Drafts& drafts = model.drafts;
  if (!drafts.any() || plain.decode_rows <= 0) return best;
  const double without = 1 / seconds(plain);
  double rate = without;
  for (const int length : kDraftLengths) {
    if (length == 0 || length > drafts.most) continue;
    const StepWork work = WithDrafts(model, plain, length);
    if (work.rows() > drafts.max_rows ||
        plain.decode_rows * (1 + length) * micro_batches > drafts.max_logit_rows)
      break;
    const double tokens = TokensWithDrafts(drafts.acceptance, length);
    const double found = tokens / seconds(work);
    if (found <= rate || found < kMinDraftGain * without) continue;
    rate = found;
    best = {work, length, tokens};
  }
  return best;
}

}  // namespace tessera::scheduler
