// Decision 2 of 3 where there is a plan: which of its pairs of replicas serves a request. One of a
// pair computes the prompt, the other decodes; one that does both is a pair with itself. The daemon
// and the simulator both choose here.
//
// Idea: traffic keeps the shares that the plan gives its pairs; within these the request goes where
// it is done soonest: its first token, then the part of its KV's way that prefill cannot hide, then
// decoding. Other routers choose the two halves one after the other (NVIDIA Dynamo: blocks to
// compute plus blocks that decode; Mooncake: least time to first token, then least time between
// tokens; SGLang: a policy for each side); links that differ make that a poor choice.
//
// Shares: a pair may take a request where one more stays within its share of the last kShareWindow
// or so, plus kShareSlack. Some pair always may: shares and counts both sum to one. Shares are
// taken among the pairs that can serve the request. A pair with a replica that has become slow has
// its share divided by the slowdown, and the others then take what is left, beyond their shares.
//
// A replica whose pairs are all out serves alone, by load: its partners are lost, or left out, or
// too small for this request. Where no replica of the plan can serve, any that is ready does.
//
// Thread rule: pure functions. Deterministic: ties go to the pair that is named first, and to a
// pair before a replica alone. Complexity: O(replicas + pairs).
#pragma once

#include <cstdint>
#include <span>

#include "scheduler/router.h"

namespace tessera::scheduler {

inline constexpr double kShareWindow = 200;
inline constexpr double kShareSlack = 2;

struct PairLoad {
  int prefill = -1;  // index into the snapshot of replicas; -1: it is not there
  int decode = -1;
  double share = 0;  // of the plan's traffic; pairs need not sum to one
  double count = 0;  // of the last requests, fading (NoteRouted)
  // KV did not arrive of late.
  bool left_out = false;
  // Seconds that KV takes on its way where nothing hides it: measured, or as the links are
  // described; 0: not known.
  double kv_seconds_per_token = 0;
  int layers = 1;  // that are sent one by one, as the prompt is computed
};

// No pairs: ChooseReplica.
Route ChoosePair(std::span<const ReplicaLoad> replicas, std::span<const PairLoad> pairs,
                 const RouteRequest& request);

// The part of a prompt's way that comes behind its first token, `tokens` of it being sent.
double UnhiddenKvSeconds(int64_t tokens, double kv_seconds_per_token, int layers,
                         double prompt_seconds);

// A request went to pair number `pair`; -1: to none, which counts for nothing.
void NoteRouted(int pair, std::span<PairLoad> pairs);

// What KV that took `seconds` from its first layer's being there to the receivers' word that they
// have all, `exposed_seconds` of these behind the prompt's end, was on its way. At most either: the
// first, and as many times the second as there are layers, for the last layer at least is exposed.
double KvWaySeconds(double seconds, double exposed_seconds, int layers);

// The KV of `tokens` tokens took so much.
void NoteKvMoved(int64_t tokens, double seconds, double exposed_seconds, PairLoad* pair);

}  // namespace tessera::scheduler
