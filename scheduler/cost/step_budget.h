// What a replica's batcher should get: how many rows its largest step has (its chunk budget),
// and how many sequences run at once.
//
// A prompt is computed in chunks beside the rows that decode. The cost model takes every step to
// carry its even share of prompt tokens; a batcher that may take more fills one step and leaves the
// next without, so the stages of a pipeline wait for each other, and weights are read once for
// steps that compute and once more for steps that only decode. So the budget is the least that
// keeps up (b + q rows in steady state) and, where prompt rows still hide behind the reading of
// weights, as many more as lengthen the period by no more than a hundredth: these shorten the time
// to the first token for nothing. Source of the steady state: replica_cost.h.
// Thread rule: pure function. Units: tokens (rows).
#pragma once

#include <cstdint>

#include "scheduler/cost/replica_cost.h"

namespace tessera::scheduler {

// The budget of a replica whose capacity is `rate`; between 1 and options.memory.max_step_tokens,
// which sizes its buffers. A replica that only prefills fills its steps: the whole of it.
int64_t StepBudget(const ModelShape& model, const ReplicaSpec& replica,
                   const LengthMoments& lengths, const ReplicaOptions& options,
                   const ReplicaRate& rate);

// Sequences at once for the same replica: the rows that decode in steady state (m * b), a quarter
// more for their coming and going, and one per micro-batch whose prompt is being computed (where
// answers are so short that a step begins and ends more prompts than one, as many, with a quarter
// more); the cost model counts only those that decode. Drafts that the rate rests on count like
// sequences, since a worker that follows a plan has as many rows with logits as sequences. More
// would lengthen every step beyond what was promised. A replica that does not decode runs as many
// prompts as options.max_sequences.
int64_t SequenceBudget(const LengthMoments& lengths, const ReplicaOptions& options,
                       const ReplicaSpec& replica, const ReplicaRate& rate);

}  // namespace tessera::scheduler
