#include "scheduler/search/searches.h"

#include <map>

#include "scheduler/search/best/best_search.h"
#include "scheduler/search/search_options.h"
#include "third_party/absl/str_cat.h"

namespace tessera::scheduler {
namespace {

const std::map<std::string, Search>& Table() {
  static const auto& table = *new std::map<std::string, Search>{
      {"best", SearchBest},
      {"cost",
       [](const PlacementProblem& problem) {
         return SearchByCost(problem, ConstantsWith(problem.search_options).cost);
       }},
      {"exact",
       [](const PlacementProblem& problem) {
         return SearchExhaustively(problem, ConstantsWith(problem.search_options).exact);
       }},
      {"hexgen",
       [](const PlacementProblem& problem) {
         GeneticOptions options = ConstantsWith(problem.search_options).hexgen;
         if (problem.seed > 0) options.seed = problem.seed;
         return SearchGenetic(problem, options);
       }},
      {"hexgen2",
       [](const PlacementProblem& problem) {
         return SearchPartitionFlow(problem, ConstantsWith(problem.search_options).hexgen2);
       }},
      {"thunderserve",
       [](const PlacementProblem& problem) {
         TabuOptions options = ConstantsWith(problem.search_options).thunderserve;
         if (problem.seed > 0) options.seed = problem.seed;
         return SearchTabu(problem, options);
       }},
  };
  return table;
}

}  // namespace

std::vector<std::string> SearchNames() {
  std::vector<std::string> names;
  for (const auto& [name, search] : Table()) names.push_back(name);
  return names;
}

absl::StatusOr<Search> FindSearch(const std::string& name) {
  const auto found = Table().find(name.empty() ? "best" : name);
  if (found != Table().end()) return found->second;
  std::string known;
  for (const std::string& other : SearchNames()) known += StrCat(known.empty() ? "" : ", ", other);
  return absl::NotFoundError(StrCat("there is no search called ", name, "; known: ", known));
}

}  // namespace tessera::scheduler
