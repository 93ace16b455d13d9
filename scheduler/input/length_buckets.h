// Fewer lengths that stand for many: what a plan is searched with.
//
// A trace has thousands of unlike requests, and every attainment is a sum over them. Idea: prompts
// are cut into 16 buckets, each of these into 16 by its answers; a bucket is its mean. Buckets have
// equal parts of requests and tokens together, so those of long requests, which count most in
// second moments, are narrow. Means stay what they were; the longest sequence, which memory must
// hold, stays a request of its own. Thread rule: pure function. Deterministic.
#pragma once

#include <vector>

#include "scheduler/input/workload_samples.h"

namespace tessera::scheduler {

inline constexpr size_t kMaxBuckets = 256;

// The workload with at most kMaxBuckets + 1 lengths for each class; classes with fewer stay.
WorkloadSamples Bucketed(WorkloadSamples workload);

}  // namespace tessera::scheduler
