#include "scheduler/search/search_options.h"

#include <catch2/catch.hpp>

#include "scheduler/search/searches.h"
#include "tests/scheduler/search/placement_instance.h"

namespace tessera::scheduler {
namespace {

using namespace tests;  // NOLINT: the instances

TEST_CASE("constants are set by name and shown with their origin") {
  const auto values = ParseSearchOptions("hexgen", {"hexgen.population=5", "hexgen.patience=7"});
  REQUIRE(values.ok());
  const SearchConstants constants = ConstantsWith(*values);
  CHECK(constants.hexgen.population == 5);
  CHECK(constants.hexgen.patience == 7);
  CHECK(constants.hexgen.second_mutation == GeneticOptions().second_mutation);
  const auto constants_of = SearchConstantsOf("hexgen", *values);
  REQUIRE(constants_of.size() == 9);
  CHECK(constants_of[0].name() == "hexgen.population");
  CHECK(constants_of[0].value() == 5);
  CHECK(constants_of[0].given());
  CHECK(constants_of[0].origin() == "ours: candidates that are kept");
  CHECK(constants_of[1].name() == "hexgen.most_evaluations");
  CHECK(constants_of[1].value() == 4000);
  CHECK(!constants_of[1].given());
  CHECK(SearchConstantsOf("best", {}).empty());
  // Defaults are those of the structs.
  CHECK(ConstantsWith({}).hexgen2.layouts.prefill_by_latency);
  CHECK(!ConstantsWith({}).cost.length_buckets);
}

TEST_CASE("what is no option of the search, no number or out of range is refused") {
  const auto refused = [](const std::string& search, const std::string& text) {
    return std::string(ParseSearchOptions(search, {text}).status().message());
  };
  CHECK_THAT(refused("hexgen", "hexgen.folk=5"), Catch::Contains("it has hexgen.population, "));
  CHECK_THAT(refused("hexgen2", "hexgen.population=5"), Catch::Contains("no such option"));
  CHECK_THAT(refused("best", "hexgen.population=5"),
             Catch::Contains("it has none; name the search that has it (--search)"));
  CHECK_THAT(refused("hexgen", "hexgen.population"), Catch::Contains("NAME=NUMBER"));
  CHECK_THAT(refused("hexgen", "hexgen.population=many"), Catch::Contains("NAME=NUMBER"));
  CHECK_THAT(refused("hexgen", "hexgen.population=0"), Catch::Contains("whole number from 1 to"));
  CHECK_THAT(refused("hexgen", "hexgen.population=1.5"), Catch::Contains("whole number"));
  CHECK_THAT(refused("hexgen", "hexgen.second_mutation=nan"), Catch::Contains("number from 0"));
}

TEST_CASE("a search runs with the constants it is given") {
  LayoutInstance instance;
  PlacementProblem problem = PlacementInstance(3005, &instance);
  const Search search = *FindSearch("hexgen");
  const int64_t ever = search(problem)->evaluations;
  problem.search_options = {{"hexgen.patience", 3}};
  CHECK(search(problem)->evaluations < ever);
}

TEST_CASE("the layout of least latency is passed faster, the other one serves no less") {
  int differ = 0;
  for (int seed = 3000; seed < 3030; ++seed) {
    INFO("seed " << seed);
    LayoutInstance instance;
    PlacementInstance(seed, &instance);
    LayoutProblem layout = instance.problem;
    layout.role = Role::kPrefill;
    const Layout most = BestLayout(layout);
    layout.least_latency = true;
    const Layout fast = BestLayout(layout);
    REQUIRE(most.stages.empty() == fast.stages.empty());
    if (most.stages.empty()) continue;
    const auto latency = [&](const Layout& of) {
      const StepWork step = SteadyWork(Role::kPrefill, layout.lengths, 0, layout.options);
      return PeriodOf(*layout.model, MakeReplica(layout, of.stages), step, 1).latency_seconds;
    };
    CHECK(latency(fast) <= latency(most) * (1 + 1e-9));
    CHECK(fast.rate.requests_per_second <= most.rate.requests_per_second * (1 + 1e-9));
    CHECK(fast.rate.requests_per_second == CapacityOf(*layout.model,
                                                      MakeReplica(layout, fast.stages),
                                                      layout.lengths, layout.options)
                                               .requests_per_second);
    differ += latency(fast) < latency(most) * 0.999 ? 1 : 0;
  }
  CHECK(differ >= 5);
}

TEST_CASE("cost counts on classes of requests where there are several, and buckets where asked") {
  LayoutInstance instance;
  PlacementProblem problem = PlacementInstance(3005, &instance);
  problem.samples = {{600, 10, 1}, {100, 200, 1}};
  const Search search = *FindSearch("cost");
  const auto noted = [&] {
    const auto placement = search(problem);
    REQUIRE(placement.ok());
    return placement->notes.empty() ? v1::ClassChoice() : placement->notes.front().class_choice();
  };
  CHECK(noted().classes() == 0);
  problem.search_options = {{"cost.length_buckets", 1}};
  const v1::ClassChoice by_length = noted();
  CHECK(by_length.classes() == 2);
  // The workload's own classes, which are the same two.
  problem.search_options = {};
  RequestClass prompts, answers;
  prompts.share = answers.share = 0.5;
  prompts.samples = {problem.samples[0]};
  answers.samples = {problem.samples[1]};
  problem.classes = {prompts, answers};
  CHECK(noted().classes() == 2);
  CHECK(noted().requests_per_second() == Approx(by_length.requests_per_second()));
}

}  // namespace
}  // namespace tessera::scheduler
