// A workload description -> the lengths the planner works with; and traces of requests.
//
// Thread rule: pure functions. Units: tokens, seconds. Errors: InvalidArgument naming file, line or
// key, and reason.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/workload.pb.h"
#include "scheduler/cost/attainment.h"

namespace tessera::scheduler {

struct TraceRequest {
  double arrival_seconds = 0;  // since the first request
  double prompt_tokens = 0;
  double output_tokens = 0;
};

// Azure CSV (TIMESTAMP,ContextTokens,GeneratedTokens) or Mooncake JSONL (timestamp in ms,
// input_length, output_length), distinguished by the first character. Sorted by arrival.
absl::StatusOr<std::vector<TraceRequest>> ParseTrace(std::string_view text, std::string_view file);

struct WorkloadSamples {
  std::vector<RequestLengths> samples;  // weights sum to 1; like lengths of a class are merged
  std::vector<RequestClass> classes;    // the same by class; of a trace there is one
  double prefix_hit_rate = 0;           // of prompt tokens, over all classes
  double requests_per_second = 0;       // 0: not given
  double arrival_variation = 1;
  bool arrival_variation_measured = false;  // from the trace
  double cut_share = 0;                     // of requests longer than the context, cut to it
};

// Puts the lengths of the traces that classes name into their `lengths`. `read` gives the contents
// of a file, or says why not.
absl::Status ReadClassTraces(
    const std::function<absl::StatusOr<std::string>(const std::string& path)>& read,
    std::string_view file, v1::Workload* workload);

// `trace` is the parsed trace where the workload names one (its rate and the variation of its gaps
// are taken where the workload gives none), else empty. Sequences are cut to `context_tokens` (0:
// no limit), the prompt first.
absl::StatusOr<WorkloadSamples> SamplesOf(const v1::Workload& workload,
                                          const std::vector<TraceRequest>& trace,
                                          int64_t context_tokens, std::string_view file);

}  // namespace tessera::scheduler
