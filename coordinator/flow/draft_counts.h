// How many drafts the engines of a model tried and how many of them stood, and how a plan counts on
// that instead of on an estimate.
//
// Thread rule: plain values.
#pragma once

#include <functional>

#include "proto/plan_assumptions.pb.h"

namespace tessera::coordinator {

// Sums over all replicas; those of long ago count for less and less, so that they are no whole
// numbers.
struct DraftCounts {
  double lists = 0;             // that steps tried, one per sequence and step
  double tokens = 0;            // in these lists
  double accepted_tokens = 0;   // of these
  double generated_tokens = 0;  // by all steps, those without drafts as well

  // Halves all sums where they cover more than kRememberedLists lists.
  void Add(const DraftCounts& more);
};

inline constexpr double kRememberedLists = 50'000;
// Fewer lists say too little: of 500, the share that stands is within 5 points of the text's.
inline constexpr double kEnoughLists = 500;

using ReadDraftCounts = std::function<DraftCounts()>;

// Sets the acceptance of `terms`, whose source is what the engines draft with, to the one at which
// steps give as many tokens as they gave: 1 + a + a^2 + ... Of n-grams all steps count, since most
// texts repeat themselves in few; of others those that tried any, since a plan itself knows when
// drafts do not pay. Does nothing where the terms try no drafts, an option says the acceptance, or
// fewer than kEnoughLists were tried.
void CountOnMeasured(const DraftCounts& counts, v1::DraftTerms* terms);

}  // namespace tessera::coordinator
