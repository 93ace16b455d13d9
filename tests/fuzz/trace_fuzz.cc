// Any text as a trace of requests: an error that names the line, or requests in order whose lengths
// can be computed with.

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "scheduler/input/workload_samples.h"

namespace {

void Require(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto trace =
      tessera::scheduler::ParseTrace({reinterpret_cast<const char*>(data), size}, "fuzzed");
  if (!trace.ok()) {
    Require(trace.status().code() == absl::StatusCode::kInvalidArgument);
    Require(trace.status().message().find("fuzzed") == 0);
    return 0;
  }
  Require(!trace->empty());
  double last = 0;
  for (const auto& request : *trace) {
    Require(std::isfinite(request.arrival_seconds) && request.arrival_seconds >= last);
    Require(std::isfinite(request.prompt_tokens) && request.prompt_tokens >= 0);
    Require(std::isfinite(request.output_tokens) && request.output_tokens >= 0);
    last = request.arrival_seconds;
  }
  for (const std::int64_t context : {std::int64_t{0}, std::int64_t{4096}}) {
    const auto samples = tessera::scheduler::SamplesOf({}, *trace, context, "fuzzed");
    if (!samples.ok()) continue;
    double sum = 0;
    for (const auto& sample : samples->samples) sum += sample.weight;
    Require(std::abs(sum - 1) < 1e-6);
    Require(std::isfinite(samples->requests_per_second) && samples->requests_per_second >= 0);
  }
  return 0;
}
