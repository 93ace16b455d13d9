// How long prompts wait in front of a replica that computes them beside what decodes.
//
// A request first is a prompt, one of j that are there, m of which are computed at once (one per
// micro-batch, scheduler/batcher.h), and then one of n sequences that decode, at most `most`. With
// P(n, j) the period of steps, r = min(j, m)/m of which carry a chunk (attainment.h),
//   prompts end at     mu(n, j) = min(j, m) * prompt rows of a step / (E[q] * m * P(n, j)),
//   sequences at       R(n, j) = n / (m * P(n, j) * E[decode steps]).
// Where decoding is full no prompt is computed: it holds up those behind it. So what a replica
// serves with an endless queue, sum p(n) R(n), is less than either of what its rows and its room
// allow. With k = n + j given, p_k(n) follows from balance between neighbours, the replica as a
// whole is one station that completes X(k) = E[R | k], and p(k) ~ prod_{i<=k} rate / X(i) (the
// aggregation of Chandy, Herzog and Woo, "Parametric analysis of queuing networks", IBM J. Res.
// Dev. 19, 1975; exact without the limit `most` where P is one figure: an M/M/m queue in front of
// processor sharing). Wait = mean of those who are not being computed, over the rate (Little's
// law); those held up for rows and for room each times (c_a^2 + c_s^2)/2 of what they wait for
// (Allen and Cunneen; Kingman). A `most` between two whole numbers has its last place that part of
// the time. Thread rule: pure functions. Units: seconds, tokens, requests per second.
#pragma once

#include <functional>

#include "scheduler/cost/queue.h"

namespace tessera::scheduler {

// Of a replica in which so many sequences decode.
struct StepTimes {
  double lanes = 1;          // m, as far as there is somebody in them
  double plain_seconds = 0;  // P without chunks
  double more_seconds = 0;   // what chunks in all steps add to it
  double prompt_rows = 0;    // that a step has beside those that decode
};

struct PromptsAsked {
  double rate = 0;
  double most = 1;           // sequences that decode at once, >= 1
  double micro_batches = 1;  // m
  double stages = 1;
  double prompt_tokens = 0;    // E[q], > 0
  double decode_steps = 0;     // > 0
  double row_peakedness = 1;   // (c_a^2 + c_s^2)/2 of prompts
  double room_peakedness = 1;  // the same of what decodes
};

struct PromptWaits {
  double most_per_second = 0;  // that are served with an endless queue
  Wait wait;                   // infinite: more comes than that
};

PromptWaits PromptWaitsAt(const PromptsAsked& asked,
                          const std::function<StepTimes(double)>& times_with);

// Part of the time that a step takes longer where a part of the micro-batches carries chunks: a
// long step is long in each stage, and the others wait for it there.
double SlowedPart(double part_with_chunks, double stages);

}  // namespace tessera::scheduler
