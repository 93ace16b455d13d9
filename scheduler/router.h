// Decision 2 of 3: which replica gets this request. A pure function of (load snapshot, request): it
// knows no clock, thread or socket, so the daemon and the simulator route alike.
//
// Idea: send the request where its first token is expected soonest and the decoding that it joins
// is slowed least; counting requests instead would starve fast replicas among slow ones.
// Complexity: O(replicas). Deterministic: ties go to the replica that is named first, and
// to one that does both before a pair.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace tessera::scheduler {

// One replica as the router sees it. Rates are measured where there are measurements, else
// predicted by the plan.
struct ReplicaLoad {
  bool can_prefill = true;  // role prefill or both
  bool can_decode = true;   // role decode or both
  bool ready = false;
  double prefill_tokens_per_second = 0.0;  // 0: unknown, taken as the fastest known
  double decode_tokens_per_second = 0.0;   // of one sequence when alone; 0: unknown
  int64_t queued_prompt_tokens = 0;        // submitted, not yet computed
  int64_t outstanding_output_tokens = 0;   // expected from what was submitted
  int64_t running_sequences = 0;
  int64_t max_sequences = 0;         // 0: unlimited
  int64_t kv_tokens = 0;             // that its KV pool has room for; 0: not known
  int64_t cached_prefix_tokens = 0;  // of this request's prompt, known to be there
  // How many times longer its steps take than they did (scheduler/slowdown.h); its rates say so
  // already.
  double slowdown = 1;
};

// How a snapshot is kept up to date, by the coordinator and by the simulator alike. Work is what
// one submission asks of a replica: `sequences` choices of a prompt.

// Submitted there.
void NoteSubmitted(int64_t prompt_tokens, int64_t sequences, int64_t output_tokens,
                   ReplicaLoad* load);
// The prompt was computed (its first token is there): `computed_tokens` of it, the others were
// cached, in `prefill_seconds` from admission on; 0 seconds: not known.
void NotePromptComputed(int64_t prompt_tokens, int64_t computed_tokens, double prefill_seconds,
                        ReplicaLoad* load);
// `tokens` sequences got a token each, `gap_seconds` (> 0) after their last one.
void NoteTokenGap(int64_t tokens, double gap_seconds, ReplicaLoad* load);

struct RouteRequest {
  int64_t prompt_tokens = 0;
  int64_t expected_output_tokens = 0;  // of all choices
  int64_t choices = 1;
  bool alone = false;  // one replica does what is left: nothing is handed over
  bool begun = false;  // alone, and it has output: decoding is what is left
};

// Indices into the snapshot; both are -1 when no replica can take the request. Equal when one
// replica does both.
struct Route {
  int prefill_replica = -1;
  int decode_replica = -1;
  double expected_first_token_seconds = 0.0;  // why: 0 when rates are unknown
  double expected_kv_seconds = 0.0;           // that its KV takes behind the first token
  int pair = -1;  // of the plan's pairs (scheduler/pair_router.h), whose share it counts to
};

// What stands for a rate that is not known: the fastest that is.
struct FastestRates {
  double prefill_tokens_per_second = 0;
  double decode_tokens_per_second = 0;
};
FastestRates FastestOf(std::span<const ReplicaLoad> replicas);

// What a request may expect of one replica.
struct ReplicaOutlook {
  double first_token_seconds = 0;  // what is queued before its prompt, then that
  double prompt_seconds = 0;       // its prompt's part of these
  double decode_seconds = 0;       // all its output
};
ReplicaOutlook OutlookAt(const ReplicaLoad& replica, const FastestRates& fastest,
                         const RouteRequest& request);

// The newest observation weighs a fifth: steady against one odd value, quick against a shift.
// 0: nothing was observed before.
double Smoothed(double old_value, double observed);

// By load alone. With a plan: ChoosePair (scheduler/pair_router.h).
Route ChooseReplica(std::span<const ReplicaLoad> replicas, const RouteRequest& request);

// In words, for logs and explanations.
std::string Explain(const Route& route, std::span<const ReplicaLoad> replicas);

}  // namespace tessera::scheduler
