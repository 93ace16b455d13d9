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
  generated_tokens += more.generated_tokens;
  if (lists <= kRememberedLists) return;
  for (double* sum : {&lists, &tokens, &accepted_tokens, &generated_tokens}) *sum /= 2;
}

void CountOnMeasured(const DraftCounts& counts, v1::DraftTerms* terms) {
  if (terms->draft_tokens() == 0 || counts.lists < kEnoughLists ||
      terms->acceptance_origin() == v1::FIGURE_ORIGIN_OPTION)
    return;
  double lists = counts.lists, tokens = counts.tokens / counts.lists;
  if (terms->source() == kNgram) {
    lists = std::max(lists, counts.generated_tokens - counts.accepted_tokens);
    tokens = terms->draft_tokens();
  }
  const double acceptance = AcceptanceAt(counts.accepted_tokens / lists, tokens);
  // So few hide nothing; a plan says whole thousandths.
  terms->set_acceptance(acceptance < 0.001 ? 0
                                           : static_cast<int>(1000 * acceptance + 0.5) / 1000.0);
  terms->set_acceptance_origin(v1::FIGURE_ORIGIN_MEASURED);
}

}  // namespace tessera::coordinator
