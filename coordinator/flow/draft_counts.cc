#include "coordinator/flow/draft_counts.h"

#include <algorithm>

namespace tessera::coordinator {
namespace {

constexpr char kNgram[] = "ngram";

// Tokens that stand of a list of `tokens`, which may be a mean, if each stands behind its
// predecessors with the same probability.
double StandOf(double acceptance, double tokens) {
  double stand = 0, all_before = 1;
  for (double left = tokens; left > 0; --left) {
    all_before *= acceptance;
    stand += all_before * std::min(1.0, left);
  }
  return stand;
}

double AcceptanceAt(double stand, double tokens) {
  double low = 0, high = 1;
  for (int i = 0; i < 40; ++i) {
    const double middle = (low + high) / 2;
    (StandOf(middle, tokens) < stand ? low : high) = middle;
  }
  return high;
}

}  // namespace

void DraftCounts::Add(const DraftCounts& more) {
  lists += more.lists;
  tokens += more.tokens;
  accepted_tokens += more.accepted_tokens;
  asked_steps += more.asked_steps;
  asked_accepted_tokens += more.asked_accepted_tokens;
  if (lists <= kRememberedLists) return;
  for (double* sum : {&lists, &tokens, &accepted_tokens, &asked_steps, &asked_accepted_tokens}) {
    *sum /= 2;
  }
}

DraftCounts DraftingSteps::Count(int64_t sequences, const DraftCounts& step) {
  DraftCounts& unsure = unsure_[sequences];
  unsure.asked_steps += step.asked_steps;
  unsure.asked_accepted_tokens += step.asked_accepted_tokens;
  if (unsure.asked_steps > kMaxUnsure) {
    unsure.asked_steps /= 2;
    unsure.asked_accepted_tokens /= 2;
  }
  DraftCounts counts = step;
  counts.asked_steps = counts.asked_accepted_tokens = 0;
  if (step.tokens <= step.lists) return counts;
  const auto end = unsure_.upper_bound(sequences);
  for (auto it = unsure_.begin(); it != end; it = unsure_.erase(it)) {
    counts.asked_steps += it->second.asked_steps;
    counts.asked_accepted_tokens += it->second.asked_accepted_tokens;
  }
  return counts;
}

void CountOnMeasured(const DraftCounts& counts, v1::DraftTerms* terms) {
  const bool ngram = terms->source() == kNgram;
  const double steps = ngram ? counts.asked_steps : counts.lists;
  if (terms->draft_tokens() == 0 || steps < kEnoughLists ||
      terms->acceptance_origin() == v1::FIGURE_ORIGIN_OPTION)
    return;
  const double acceptance =
      ngram ? AcceptanceAt(counts.asked_accepted_tokens / steps, terms->draft_tokens())
            : AcceptanceAt(counts.accepted_tokens / steps, counts.tokens / steps);
  // So few hide nothing; a plan says whole thousandths.
  terms->set_acceptance(acceptance < 0.001 ? 0
                                           : static_cast<int>(1000 * acceptance + 0.5) / 1000.0);
  terms->set_acceptance_origin(v1::FIGURE_ORIGIN_MEASURED);
}

}  // namespace tessera::coordinator
