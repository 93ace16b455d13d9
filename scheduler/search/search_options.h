// The constants of the searches after papers, by name, for people to see and to set.
//
// Each has a default and an origin: what the paper says, or ours where its number is not known.
// `best` has none: its budgets are part of what it is. Thread rule: pure functions. Errors:
// InvalidArgument naming the option, the reason and what is known.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/plan_assumptions.pb.h"
#include "scheduler/search/baselines/cost_search.h"
#include "scheduler/search/baselines/exhaustive_search.h"
#include "scheduler/search/baselines/genetic_search.h"
#include "scheduler/search/baselines/partition_flow_search.h"
#include "scheduler/search/baselines/tabu_search.h"

namespace tessera::scheduler {

struct SearchConstants {
  GeneticOptions hexgen;
  PartitionFlowOptions hexgen2;
  TabuOptions thunderserve;
  CostSearchOptions cost;
  ExhaustiveOptions exact;
};
// The defaults with these values, by names such as "hexgen.population"; unknown names count
// nothing.
SearchConstants ConstantsWith(const std::map<std::string, double>& values);

// Values of texts such as "hexgen.population=32", all of them of `search`.
absl::StatusOr<std::map<std::string, double>> ParseSearchOptions(
    const std::string& search, const std::vector<std::string>& texts);

// Every constant of a search with its value, as assumptions say it.
std::vector<v1::SearchConstant> SearchConstantsOf(const std::string& search,
                                                  const std::map<std::string, double>& values);

}  // namespace tessera::scheduler
