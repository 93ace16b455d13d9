// Mixes of request classes, and loads that are below every mix of a part of them: what bounds plans
// that route by class.
//
// Problem: a plan that sends classes to different replicas may give each replica any mix of them,
// so a bound has to hold for a whole simplex of mixes. What a replica serves is not linear in the
// mix: prompts of one class hide in weight reads that the decode rows of another one pay anyway,
// and one class may fill the KV where another fills the batch. So a replica may serve more of a mix
// than the same part of its time given to each class alone: by a third and more.
//
// Idea: requests of class w are worth v_w. In a cell (mixes between its corners) look at a replica
// in steady state with n requests of a mix f begun per step: it serves value n * v(f) per period.
// A virtual request L of value V, of which it begins n * v(f) / V, is below the mix if
//   x(L) / V <= x(f) / v(f)  for x each of: rows o, tokens to compute q, decode context summed, and
//   the request itself (x = 1),
//   pairs(L) / q(L) <= pairs(f) / q(f)  and its longest sequence is not longer.
// Then a step of L has no more rows, context, prompt tokens, prompt attention, cached tokens read
// (max(n, 1) * pairs / q) and sampled rows than the mix's, so by a cost model that grows with each
// of these its period, TPOT and KV are no more either, the same micro-batches under way: what is
// legal for the mix is legal for L, and L's rate times V is at least the mix's value. All of these
// x(f) / v(f) are ratios of functions that are linear in f, so their least value is at a corner;
// V = the most that any corner is worth sees to x = 1. A step that is whole decode rows for the mix
// may be a part of one for L: such steps are to be timed without rounding up (StageShapes).
// A replica that only prefills computes steps full of tokens, whatever the mix: with
//   V / q(L) >= v(f) / q(f),  q(L) >= q(f)  and the least pairs(f) / q(f)
// its step has as many tokens, no more attention and, as T / q(L) <= T / q(f), no more prompts than
// the mix's. Corners again are where these are reached.
// Room for the longest sequence is asked for as if every mix of a cell had its longest kind; mixes
// without it are in a cell of their own. Thread rule: pure functions. Units: tokens.
#pragma once

#include <span>
#include <utility>
#include <vector>

#include "scheduler/cost/attainment.h"
#include "scheduler/cost/lengths.h"
#include "scheduler/cost/replica_cost.h"

namespace tessera::scheduler {

// Requests of the same lengths, of one class or several.
struct RequestKind {
  double share = 0;  // of the arrival rate
  LengthMoments lengths;
};
std::vector<RequestKind> RequestKindsOf(const std::vector<RequestClass>& classes);

// Parts of what is worth something, by kind, that come from each; they sum to 1.
using ValueParts = std::vector<double>;

// The requests of such a mix by number; their shares sum to 1. Values above 0.
std::vector<double> SharesOf(const ValueParts& parts, std::span<const double> values);
// Moments of kinds in these shares.
LengthMoments MixOf(const std::vector<RequestKind>& kinds, std::span<const double> shares);

// All mixes between its corners; as many corners as it has kinds.
struct MixCell {
  std::vector<ValueParts> corners;

  // Largest difference between two corners in the part of any kind.
  double Width() const;
  ValueParts Middle() const;
  // Cut in the middle of its longest edge. Requires two corners or more.
  std::pair<MixCell, MixCell> Halves() const;
};
// For each length: all mixes of the kinds whose sequences are no longer.
std::vector<MixCell> MixesByLongest(const std::vector<RequestKind>& kinds);

struct LoadBelow {
  LengthMoments lengths;
  double value = 0;  // V
  double rows = 1;   // of L at least, for each decode row of the mix
};
// Of role both or decode with decode steps, of role prefill, and of both with tokens to compute, in
// every kind.
LoadBelow Below(Role role, const std::vector<RequestKind>& kinds, std::span<const double> values,
                const MixCell& cell);

}  // namespace tessera::scheduler
