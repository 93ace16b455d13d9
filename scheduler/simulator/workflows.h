// Agentic workflows: requests that come in stages, each stage when the one before has ended, with a
// deadline for the whole. Dispatch and queue order after HexGen-Text2SQL.
//
// Dispatch: a call goes to the replica with the largest
//   alpha * (base time / its time) - (1 - alpha) * (its outstanding work / base work)
// where its time is the call's on that replica when alone, base that of the fastest, and
// outstanding work the seconds that the replica still owes (the paper's public traces show that
// counting all work ever sent there loses at heavy load). Order: each replica serves the call of
// least slack first, of those that can still make it (scheduler/deadline_order.h). Alpha is tuned
// by replaying the workflows that arrived last; round-robin in order of arrival is one of the
// choices and what is used until one of them is better in the replay. Thread rule: one thread per
// run. Deterministic. Units: seconds, tokens.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "scheduler/simulator/simulator.h"

namespace tessera::scheduler {

struct WorkflowCall {
  int64_t prompt_tokens = 1;
  int64_t output_tokens = 1;
};

struct Workflow {
  double arrival_seconds = 0;
  double deadline_seconds = 0;                    // after its arrival
  std::vector<std::vector<WorkflowCall>> stages;  // calls of a stage run side by side
};

// Like those of a text-to-SQL agent: find the schema, propose, correct, choose.
struct WorkflowProcess {
  double workflows_per_second = 1;
  int64_t workflows = 500;
  uint64_t seed = 1;
  int64_t fewest_calls = 3, most_calls = 15;
  int64_t most_parallel = 8;
  double mean_prompt_tokens = 3000, mean_output_tokens = 110;
  // Deadline: this many times what the workflow takes on the fastest replica alone, drawn evenly.
  double least_slack = 3, most_slack = 8;
};

// How fast a replica is, for expected times.
struct ReplicaSpeed {
  double prefill_tokens_per_second = 0;  // of full steps
  double alone_seconds_per_token = 0;    // one sequence decoding
  double crowded_tokens_per_second = 0;  // as many as its KV and limits hold
  double AloneSeconds(const WorkflowCall& call) const {
    return static_cast<double>(call.prompt_tokens) / prefill_tokens_per_second +
           static_cast<double>(call.output_tokens) * alone_seconds_per_token;
  }
  // What the call takes of the replica's time beside others.
  double WorkSeconds(double prompt_tokens, double output_tokens) const {
    return prompt_tokens / prefill_tokens_per_second + output_tokens / crowded_tokens_per_second;
  }
};
ReplicaSpeed SpeedOf(const ReplicaSetup& replica, double context_tokens);

std::vector<Workflow> GenerateWorkflows(const WorkflowProcess& process,
                                        const std::vector<ReplicaSpeed>& speeds);

struct WorkflowPolicy {
  bool round_robin = true;  // in order of arrival; alpha and urgency mean nothing
  double alpha = 0.5;
  bool by_urgency = true;  // else in order of arrival
};

struct TuningOptions {
  bool tuned = false;  // else the policy stays
  // Values of alpha that a replay tries, each with queues by urgency and by arrival; round-robin is
  // tried always. The paper tunes alpha within 0..1 and names no values: even steps, ours, without
  // the ends (0 knows no replica's speed, 1 no load).
  std::vector<double> alphas = {0.1, 0.3, 0.5, 0.7, 0.9};
  // Workflows that a replay takes: the last that arrived, each as far as it is known then. What
  // runs beyond capacity is seen only if those that have not ended are there too.
  int64_t window = 150;
  int64_t every = 50;  // arrivals between two replays; each begins when a workflow ends
  // Arrivals before the first replay; twice as many before the second, and so on up to `every`:
  // round-robin is not kept for long where it overloads somebody.
  int64_t first = 5;
  double least_gain = 0.02;  // of attainment or P95 in the replay, to leave round-robin
};

struct WorkflowResult {
  std::vector<double> seconds;  // of each workflow that ended well, -1: a call failed
  double attainment = 0;        // part within its deadline
  double p95_seconds = 0;       // failed ones count as the longest
  int64_t tunings = 0;
  double longest_tuning_seconds = 0;  // CPU time of one replay of all choices
  int64_t round_robin_calls = 0;      // sent by round-robin
  int64_t calls = 0;                  // sent
  SimulationResult simulation;        // of the calls
};

// `expected` lengths stand for those of calls in deadlines and times: nobody knows outputs before.
// Every replica must do both, prefill and decode. Replays know which replicas are ready when they
// are made, and nothing of `changes` to come. `links`: what the hops of replicas pass (their
// hop_links).
absl::StatusOr<WorkflowResult> SimulateWorkflows(
    const std::vector<ReplicaSetup>& replicas, const std::vector<Workflow>& workflows,
    const WorkflowPolicy& policy, const TuningOptions& tuning, const WorkflowCall& expected,
    const std::vector<ScheduledChange>& changes = {}, const std::vector<SharedLink>& links = {});

// Workflows per second that the replicas get through when all of them are there at the start: what
// loads are parts of.
absl::StatusOr<double> WorkflowCapacity(const std::vector<ReplicaSetup>& replicas,
                                        std::vector<Workflow> workflows,
                                        const WorkflowCall& expected,
                                        const std::vector<SharedLink>& links = {});

}  // namespace tessera::scheduler
