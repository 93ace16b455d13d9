// How unevenly the requests of a trace come.
//
// The coefficient of variation of the gaps between them, c_a: the root of their squared coefficient
// of variation, variance over squared mean, as Kingman's formula takes it (scheduler/cost/queue). 1
// is Poisson, above it are bursts. Where the trace's clock ticks in whole seconds or coarser and
// most ticks have several requests (Mooncake: 3 s), those of a tick are spread evenly over it: when
// they came within it is not known, and that they all came at once would be the worst guess.
//
// Thread rule: pure function. Units: seconds.
#pragma once

#include <optional>
#include <vector>

#include "scheduler/input/workload_samples.h"

namespace tessera::scheduler {

// Gaps of a trace sorted by arrival; nothing where it has fewer than kFewestArrivals requests, or
// all of them came at once.
inline constexpr size_t kFewestArrivals = 100;
std::optional<double> MeasuredVariation(const std::vector<TraceRequest>& trace);

}  // namespace tessera::scheduler
