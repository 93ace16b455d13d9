// How long prompts wait in front of a replica that computes them beside what decodes.
//
// A request first is a prompt, one of j that are there, and then one of n sequences that decode, at
// most `most`. The micro-batches, m of them, take prompts from one queue, each until the rows of
// its step are full (scheduler/batcher.h). A step begins s prompts so, and j keep c(j) = min(m,
// max(1, j/s)) micro-batches busy. A step with a chunk takes long in each of S stages, those
// without come right behind it, and a round of all micro-batches takes T = m * P(n, j), where with
// j > 0
//   P(n, j) = P_0 + min(1, max(S, c)/m) * (P_B - P_0),
//   prompts end at     mu(n, j) = c * prompt rows of a step / (E[q] * m * P(n, j)),
//   sequences at       R(n) = n / (m * E[decode steps]) * E[1 / P(n, j)].
// Where decoding is full no prompt is computed: it holds up those behind it. So what a replica
// serves with an endless queue, sum p(n) R(n), is less than either of what its rows and its room
// allow. With k = n + j given, p_k(n) follows from balance between neighbours, the replica as a
// whole is one station that completes X(k) = E[R | k], and p(k) ~ prod_{i<=k} rate / X(i) (the
// aggregation of Chandy, Herzog and Woo, "Parametric analysis of queuing networks", IBM J. Res.
// Dev. 19, 1975; exact without the limit `most` where P is one figure: an M/M/m queue in front of
// processor sharing). With k given, who ends comes again as a prompt, but prompts come from
// outside, and no slower while chunks slow who decodes; so R has the mean of 1/P over the time in
// which prompts may begin, found together with the p_k(n) that it makes. Of the prompts, j - c
// wait; wait = mean of those, over the rate (Little's law); those held up for rows and for room
// each times (c_a^2 + c_s^2)/2 of what they wait for (Allen and Cunneen; Kingman). A `most` between
// two whole numbers has its last place that part of the time.
//
// Rows come in whole steps, which adds `stepping` to that and to the steps of the prompt alone.
// Here steps have the rows of the j, which may be fewer than fit:
// - A prompt waits for the next step that is planned. With c > 0 busy micro-batches, whose steps
//   take tau_B in a stage, and others, tau_0, right behind one of them, the m steps of a round are
//   planned m - c times tau_0 apart, and c times tau_B and a part of the slack, T - c tau_B -
//   (m - c) tau_0, which c points divide at random. Until the next it is sum(gap^2) / 2T =
//     ((m - c) tau_0^2 + c tau_B^2 + 2 tau_B slack + 2 slack^2/(c + 1)) / 2T.
// - That is one of a busy micro-batch, whose prompt of K steps has one step left in 1/K of all
//   cases (with K > 1). Both prompts share this step: for one the rows of the other are in front,
//   for the other behind, which in all is a round more. In (K - 2)/K more steps are left; the
//   newcomer goes to the micro-batch behind, tau_B - tau_0 later in the first stage than alone. In
//   1/K the busy one is free.
// - A prompt that waits for a micro-batch begins in the step in which another prompt ends, for
//   which the rows behind it are half a round more on average.
// Left out: the order in which more than two prompts share steps. Thread rule: pure functions.
// Units: seconds, tokens, requests per second.
#pragma once

#include <functional>

#include "scheduler/cost/queue.h"

namespace tessera::scheduler {

// Times of a replica in which so many sequences decode.
struct StepTimes {
  double lanes = 1;          // m, as far as there is somebody in them
  double plain_seconds = 0;  // P without chunks
  double more_seconds = 0;   // what chunks in all steps add to it
  double prompt_rows = 0;    // that a step has beside those that decode
  double prompts_begun = 1;  // s: by a step that takes prompts until these are full
  double prompt_steps = 1;   // E[K] of a prompt that has them for itself, K >= 1
  double long_prompts = 0;   // P(K > 1)
};

struct PromptsAsked {
  double rate = 0;
  double most = 1;             // sequences that decode at once, >= 1
  double micro_batches = 1;    // m
  double stages = 1;           // that a chunk slows at once: fewer than there are where they differ
  double all_stages = 1;       // through which a step goes
  double prompt_tokens = 0;    // E[q], > 0
  double decode_steps = 0;     // > 0
  double row_peakedness = 1;   // (c_a^2 + c_s^2)/2 of prompts
  double room_peakedness = 1;  // the same of what decodes
};

struct PromptWaits {
  double most_per_second = 0;  // that are served with an endless queue
  Wait wait;                   // infinite: more comes than that
  // What whole steps add: for those who come while no other prompt is there, over all; and for the
  // rest, of which `wait.probability` are held up besides.
  double alone_seconds = 0;
  Wait stepping;
};

PromptWaits PromptWaitsAt(const PromptsAsked& asked,
                          const std::function<StepTimes(double)>& times_with);

}  // namespace tessera::scheduler
