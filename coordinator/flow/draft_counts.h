// How many drafts the engines of a model tried and how many of them stood, and how a plan counts on
// that instead of on an estimate.
//
// Thread rule: plain values.
#pragma once

#include <cstdint>
#include <functional>
#include <map>

#include "proto/plan_assumptions.pb.h"

namespace tessera::coordinator {

// Sums over all replicas; those of long ago count for less and less, so that they are no whole
// numbers.
struct DraftCounts {
  double lists = 0;            // that steps tried, one per sequence and step
  double tokens = 0;           // in these lists
  double accepted_tokens = 0;  // of these
  // Steps in which lists were tried where a source found some (DraftingSteps), one for each
  // sequence, also where nothing was found; and the drafts that stood in them.
  double asked_steps = 0;
  double asked_accepted_tokens = 0;

  // Halves all sums where they cover more than kRememberedLists lists.
  void Add(const DraftCounts& more);
};

// Which steps of one engine count as asked. Where many sequences run, drafts do not pay, and
// engines leave lists untried but for one of a single draft now and then, to see whether they pay
// again; such steps say nothing of how often a text repeats itself. So a step counts once a list of
// several drafts is tried among as many sequences or more: then the steps before found none. (Where
// --speculate-tokens allows but one, no step ever counts.)
class DraftingSteps {
 public:
  // What counts by now, with a step of so many sequences.
  DraftCounts Count(int64_t sequences, const DraftCounts& step);

 private:
  // By sequences: the asked steps that do not count yet, the newest kMaxUnsure or so.
  static constexpr double kMaxUnsure = 4096;
  std::map<int64_t, DraftCounts> unsure_;
};

inline constexpr double kRememberedLists = 50'000;
// Fewer lists say too little: of 500, the share that stands is within 5 points of the text's.
inline constexpr double kEnoughLists = 500;

using ReadDraftCounts = std::function<DraftCounts()>;

// Sets the acceptance of `terms`, whose source is what the engines draft with, to the one at which
// steps give as many tokens as they gave: 1 + a + a^2 + ... Of n-grams steps that found nothing
// count, too (asked_steps), since most texts repeat themselves in few; of others those that tried
// any. Steps that left lists untried do not, since a plan itself knows when drafts do not pay. Does
// nothing where the terms try no drafts, an option says the acceptance, or fewer than kEnoughLists
// steps count.
void CountOnMeasured(const DraftCounts& counts, v1::DraftTerms* terms);

}  // namespace tessera::coordinator
