// Why a search has no answer, in words: it is asked again without the limit that was in the way.
//
// Thread rule: pure function; costs one or two more searches, only where there is no plan. Errors:
// the answer is always one.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "scheduler/search/problem.h"

namespace tessera::scheduler {

// Less is refused: a plan for one request in three hours helps nobody. Limits that an empty replica
// just keeps lead to such rates.
inline constexpr double kLeastRequestsPerSecond = 1e-4;

// `found` is what `search` said of `problem`: a status, or OK where its placement serves less than
// that. The files are for messages.
absl::Status WhyNoPlan(const Search& search, const PlacementProblem& problem,
                       const absl::Status& found, const std::string& cluster_file,
                       const std::string& workload_file);

}  // namespace tessera::scheduler
