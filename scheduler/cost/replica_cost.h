// From stage times to what a replica can do: its period, throughput, latency and KV limit.
//
// S stages, m micro-batches in flight, each of b decode rows and q prefill tokens per step;
// tau_j(b, q) stage time, h_j the hop after stage j (the last one is the way of the token ids back
// to the first):
//   period  P = max(max_j tau_j, max_j h_j, sum_j (tau_j + h_j) / m);   TPOT = m*P;   output
//   tokens/s = b/P. role both     steady state q = b*E[uncached in]/E[o]; requests/s = b / (P*E[o])
//   drafts        P is that of a step over the tokens that it gives each sequence (PeriodOf)
//   role decode   q = 0; at a given rate, b = rate*E[o]*P(b), smallest fixed point
//   role prefill  steps of the chunk budget, or of as many prompts as the batcher admits to one
//                 where these have fewer rows; requests/s = rows / (P*E[uncached in])
// Capacity is the largest rate with m*b*E[context] <= (1 - headroom)*K, TPOT <= its objective and
// rows within the step: all three grow with b, so the largest b is found by bisection. A replica
// with less KV than LeastKvTokens serves nothing. Thread rule: pure functions; ReplicaSpec borrows
// devices through its stages. Units: seconds, tokens, 1/seconds.
#pragma once

#include <limits>
#include <vector>

#include "scheduler/cost/cost_model.h"
#include "scheduler/cost/drafted_step.h"
#include "scheduler/cost/lengths.h"
#include "scheduler/cost/queue.h"

namespace tessera::scheduler {

enum class Role { kBoth, kPrefill, kDecode };
std::string_view Name(Role role);

struct ReplicaSpec {
  Role role = Role::kBoth;
  std::vector<StageSpec> stages;
  std::vector<LinkSpec> hops;  // hops[j]: stage j to stage (j + 1) mod S; empty for one stage
  int micro_batches = 0;       // m; 0: one per stage, fewer where KV holds fewer sequences
};

struct ReplicaOptions {
  MemoryOptions memory;
  double kv_headroom = 0.1;  // share of K kept free for uneven arrivals
  double max_tpot_seconds = std::numeric_limits<double>::infinity();
  double max_sequences = 256;  // per replica, of the batcher
  // KV tokens that a running sequence counts as at least: as many as come with its states.
  double least_sequence_tokens = 1;
  // Tokens of the longest request that may come, in whole KV blocks; 0: that of the workload.
  double longest_request_tokens = 0;
};

inline constexpr double kTokenIdBytes = 8;  // of a token on its way back to the first stage

struct Period {
  double seconds = 0;          // P
  double latency_seconds = 0;  // sum of stages and hops: one step through an empty pipeline
  double hops_seconds = 0;     // of it on links
  int slowest_stage = 0;
  int slowest_hop = 0;  // the one after this stage
  double slowest_stage_seconds = 0, slowest_hop_seconds = 0;
  bool hop_bound = false;  // a hop takes longer than every stage
};
// The period of steps of `work` each, with m micro-batches in flight (>= 1). Where they may have
// drafts (ModelShape::drafts, StepWork::may_draft) all seconds are those of one token of each
// sequence: of the steps with as many drafts as do best (drafted_step.h), over the tokens that they
// give.
Period PeriodOf(const ModelShape& model, const ReplicaSpec& replica, const StepWork& work,
                int micro_batches);

// The step that PeriodOf takes.
DraftedStep DraftedStepOf(const ModelShape& model, const ReplicaSpec& replica, const StepWork& work,
                          int micro_batches);

// Part of the time that each stage computes in such steps, 0..1: its time over the period.
std::vector<double> BusyShares(const ModelShape& model, const ReplicaSpec& replica,
                               const StepWork& work, int micro_batches);

// What a micro-batch computes in steady state with b decode rows (role prefill: a step full of
// prompt rows). Below one row a step still runs for a whole one.
StepWork SteadyWork(Role role, const LengthMoments& lengths, double b,
                    const ReplicaOptions& options);

// What ends the growth of a replica's rate.
enum class Limit { kNothing, kKv, kTpot, kStepTokens, kSequences, kObjectives };
std::string_view Name(Limit limit);

struct ReplicaRate {
  double requests_per_second = 0;  // 0: cannot serve (no room, or TPOT out of reach)
  double output_tokens_per_second = 0;
  double decode_rows = 0;     // b, per micro-batch
  double prefill_tokens = 0;  // q, per micro-batch
  int micro_batches = 1;
  double period_seconds = 0;  // P
  double tpot_seconds = 0;
  double kv_capacity_tokens = 0;  // K
  int kv_limiting_stage = 0;
  int slowest_stage = 0;
  Limit limit = Limit::kNothing;
  int64_t step_tokens = 0;  // rows of a step that this rate needs; 0: any
  int drafts = 0;           // of each sequence, at the most that it can serve
  // Sequences that its workers have seats for; infinite: the model keeps no states.
  double seats = std::numeric_limits<double>::infinity();
};

// Where no more sequences run at once than have seats.
ReplicaOptions WithSeats(const ReplicaOptions& options, double seats);

// KV of the longest sequence of the workload; where the replica decodes, also of the longest
// request that may come: it is routed there whatever the workload says.
double LeastKvTokens(Role role, const LengthMoments& lengths, const ReplicaOptions& options);

// Largest b that KV, batcher and step allow, whatever its speed.
double LargestRows(Role role, const LengthMoments& lengths, const ReplicaOptions& options,
                   double kv_tokens, int micro_batches);

// Largest sustainable rate of requests with these lengths.
ReplicaRate CapacityOf(const ModelShape& model, const ReplicaSpec& replica,
                       const LengthMoments& lengths, const ReplicaOptions& options);

// The same with K given, for searches that know it.
ReplicaRate CapacityWithKv(const ModelShape& model, const ReplicaSpec& replica,
                           const LengthMoments& lengths, const ReplicaOptions& options,
                           double kv_capacity_tokens);

// The cost of one prompt in a replica where `decode_rows` rows (of a micro-batch) decode beside it.
// `full_chunks`: as of PrefillLatencySeconds.
struct PrefillCost {
  double service_seconds = 0;  // what it takes from the queue in front: its part of full steps
  double latency_seconds = 0;  // from its first chunk to its first token
};
PrefillCost PrefillCostOf(const ModelShape& model, const ReplicaSpec& replica,
                          const RequestLengths& request, const ReplicaOptions& options,
                          int micro_batches, double decode_rows, double mean_context,
                          std::vector<double>* full_chunks = nullptr);

// Decode rows of a micro-batch at this rate: the smallest fixed point, at most what the batcher
// takes.
double DecodeRowsAt(const ModelShape& model, const ReplicaSpec& replica,
                    const LengthMoments& lengths, const ReplicaOptions& options, int micro_batches,
                    double requests_per_second);

// Seconds of one prompt in an otherwise empty replica: the chunks pipelined through the stages.
// `full_chunks`, of prompts that differ in nothing but their uncached tokens: seconds of the chunks
// that fill a step, which these share; more are added where they are missing.
double PrefillLatencySeconds(const ModelShape& model, const ReplicaSpec& replica,
                             double uncached_tokens, double cached_tokens,
                             const ReplicaOptions& options, double decode_rows = 0,
                             double mean_context = 0, std::vector<double>* full_chunks = nullptr);

}  // namespace tessera::scheduler
