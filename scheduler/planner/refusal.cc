#include "scheduler/planner/refusal.h"

#include <cmath>
#include <limits>
#include <tuple>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "scheduler/input/supported_devices.h"
#include "scheduler/planner/kv_element.h"
#include "scheduler/planner/report/cluster_links.h"
#include "scheduler/planner/report/plan_text.h"
#include "third_party/absl/str_cat.h"

namespace tessera::scheduler {
namespace {

constexpr double kSmallReserveBytes = 268435456.0;  // for a runtime that needs little

// The most that the same devices serve with less asked of them; 0: nothing either.
double Served(const Search& search, const PlacementProblem& problem) {
  const absl::StatusOr<Placement> placement = search(problem);
  return placement.ok() ? placement->requests_per_second : 0;
}

// A price that nobody knows would be the cheapest of all.
absl::Status CheckPrices(const ClusterGraph& graph, const PlannerInput& input) {
  for (const DevicePool& pool : graph.pools()) {
    if (pool.price_usd_per_hour > 0) continue;
    const std::string& machine = graph.machines()[static_cast<size_t>(pool.machine)].name;
    return absl::InvalidArgumentError(
        StrCat(input.cluster_file, ": machine ", machine, ": the price of ", pool.spec->kind,
               " is not known, and this objective needs it; give the machine's price (price: "
               "\"2 USD/h\") or the kind's, under kinds"));
  }
  return absl::OkStatus();
}

// What was asked of latencies, by the names that it was asked with.
struct AskedLimits {
  std::string from;   // the flags, or the file where any limit is from there
  std::string names;  // "--max-ttft or time_per_output_token"
};

AskedLimits LimitsOf(const PlannerInput& input) {
  const WorkloadOptions& given = input.workload_options;
  std::vector<std::string> names, flags;
  using Limit = double (v1::ServiceObjectives::*)() const;
  for (const auto& [limit, flagged, flag, key] :
       {std::tuple<Limit, bool, const char*, const char*>(
            &v1::ServiceObjectives::time_to_first_token_seconds, given.max_ttft, "--max-ttft",
            "time_to_first_token"),
        {&v1::ServiceObjectives::time_per_output_token_seconds, given.max_tpot, "--max-tpot",
         "time_per_output_token"},
        {&v1::ServiceObjectives::end_to_end_seconds, given.max_end_to_end, "--max-e2e",
         "end_to_end"}}) {
    const bool for_all = (input.workload.objectives().*limit)() > 0;
    bool in_file = for_all && !flagged;
    for (const v1::WorkloadClass& one : input.workload.classes())
      in_file = in_file || (one.objectives().*limit)() > 0;
    if (for_all && flagged) {
      names.push_back(flag);
      flags.push_back(flag);
    }
    if (in_file) names.push_back(key);
  }
  return {flags.size() == names.size() ? absl::StrJoin(flags, ", ") : input.workload_file,
          absl::StrJoin(names, " or ")};
}

// Who asked for the limit on TPOT that is kept.
std::string TpotFrom(const PlacementProblem& problem, const PlannerInput& input) {
  const bool flag = input.workload_options.max_tpot &&
                    input.workload.objectives().time_per_output_token_seconds() ==
                        problem.options.max_tpot_seconds;
  return flag ? "--max-tpot" : input.workload_file;
}

// `served`: without any limit.
absl::Status LimitInTheWay(const PlacementProblem& problem, const PlannerInput& input,
                           const absl::Status& found, double served) {
  if (problem.goal == Goal::kGoodput) {
    const AskedLimits asked = LimitsOf(input);
    return absl::ResourceExhaustedError(absl::StrFormat(
        "%s: the best placement found meets the objectives %s; without them these devices serve "
        "%.3f requests/s: relax %s, or ask for less attainment",
        asked.from,
        found.ok() ? "for less than one request in three hours"
                   : "for too few requests, even of those that come alone",
        served, asked.names));
  }
  return absl::ResourceExhaustedError(
      absl::StrFormat("%s: no placement was found with at most %.3g ms per output token; without "
                      "this limit these devices serve %.3f requests/s: allow more time per token",
                      TpotFrom(problem, input), problem.options.max_tpot_seconds * 1e3, served));
}

absl::Status MoneyInTheWay(const PlacementProblem& problem, const PlannerInput& input,
                           double served) {
  if (problem.goal == Goal::kBudget) {
    return absl::ResourceExhaustedError(absl::StrFormat(
        "%s: budget: no plan that serves the model costs %g USD/h or less; allow more",
        input.cluster_file, problem.budget_usd_per_hour));
  }
  return absl::ResourceExhaustedError(absl::StrFormat(
      "%s: %g requests/s are asked, but the best plan found for all these devices serves %.3f; ask "
      "for less or add devices",
      input.workload_options.rate ? std::string("--rate")
                                  : StrCat(input.workload_file, ": requests_per_second",
                                           input.by_request ? "" : " (--rate)"),
      problem.required_requests_per_second, served));
}

// An error where it is links that leave nothing; OK where fast ones do not help.
absl::Status LinksInTheWay(const Search& search, PlacementProblem problem,
                           const PlannerInput& input) {
  v1::Cluster fast = input.cluster;
  std::string narrowest, latest;
  double least = std::numeric_limits<double>::infinity(), longest = -1;
  for (const auto& [name, link, load] : LinksOf(&fast)) {
    if (link->bandwidth_bytes_per_second() < least) {
      least = link->bandwidth_bytes_per_second();
      narrowest = name;
    }
    if (link->latency_seconds() > longest) {
      longest = link->latency_seconds();
      latest = name;
    }
    link->Clear();
    link->set_bandwidth_bytes_per_second(1e15);
    link->set_latency_seconds(0);
  }
  absl::StatusOr<ClusterGraph> graph = MakeClusterGraph(fast, input.catalogue, input.cluster_file);
  if (narrowest.empty() || !graph.ok()) return absl::OkStatus();
  if (graph->pools().size() != problem.graph->pools().size()) {  // some were left out
    auto supported = SupportedDevices(*std::move(graph), fast, input.catalogue, input.cluster_file,
                                      "--include-unsupported");
    if (!supported.ok()) return absl::OkStatus();
    graph = std::move(supported->graph);
  }
  problem.graph = &*graph;
  const double served = Served(search, problem);
  if (served < kMinRequestsPerSecond) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrFormat("%s: links: too slow for a model that needs several of these devices: almost "
                      "no request would be served (%.3f requests/s with infinitely fast links); "
                      "the lowest bandwidth is %s, of %s, the longest latency %.3g s, of %s",
                      input.cluster_file, served, GbitText(least), narrowest, longest, latest));
}

// Where memory is what lacks: what needs less of it, and what that would serve.
absl::Status WithWaysOut(const Search& search, const PlacementProblem& problem,
                         const absl::Status& found, const PlannerInput& input) {
  PlacementProblem less = problem;
  less.goal = Goal::kThroughput;
  less.options.max_tpot_seconds = std::numeric_limits<double>::infinity();
  less.bound = less.prove = false;
  std::string ways;
  const auto add = [&](const std::string& way, const PlacementProblem& with) {
    const double served = Served(search, with);
    if (served >= kMinRequestsPerSecond)
      ways += absl::StrFormat("; with %s the model fits and these devices serve %.3f requests/s",
                              way, served);
  };
  absl::StatusOr<ModelShape> light =
      MakeModelShape(input.model, v1::DATA_TYPE_INT8, v1::DATA_TYPE_UNSPECIFIED);
  if (light.ok() && problem.model->weight_bytes_per_element > light->weight_bytes_per_element) {
    *light =
        WithKvElement(*light, problem.model->kv_bytes_per_element, problem.model->kv_scale_bytes);
    PlacementProblem with = less;
    with.model = &*light;
    add(input.by_request ? "weight_dtype int8" : "--dtype int8", with);
  }
  if (problem.model->kv_bytes_per_element > 1) {
    const ModelShape codes = WithKvElement(*problem.model, 1, kKvScaleBytes);
    PlacementProblem with = less;
    with.model = &codes;
    add(input.by_request ? "kv_dtype int8" : "--kv-cache-dtype int8", with);
  }
  if (problem.options.memory.runtime_reserve_bytes > kSmallReserveBytes) {
    PlacementProblem with = less;
    with.options.memory.runtime_reserve_bytes = kSmallReserveBytes;
    add(input.by_request ? "a runtime_reserve of 256 MiB" : "--reserve \"256 MiB\"", with);
  }
  return ways.empty() ? found : absl::Status(found.code(), StrCat(StdView(found.message()), ways));
}

}  // namespace

absl::Status CheckGoal(const PlacementProblem& problem, const PlannerInput& input) {
  const bool flags = input.workload_options.lengths;  // there is no file to look into
  switch (problem.goal) {
    case Goal::kGoodput:
      if (AnyLimits(problem.classes)) return absl::OkStatus();
      return absl::InvalidArgumentError(
          flags ? std::string("--objective goodput: counts requests within limits, but no limit is "
                              "given; give --max-ttft, --max-tpot or --max-e2e, such as \"500 ms\"")
                : StrCat(input.workload_file,
                         ": objectives: goodput counts requests within limits, but no limit is "
                         "given; give time_to_first_token, time_per_output_token or end_to_end, "
                         "such as \"500 ms\""));
    case Goal::kPrice:
      if (problem.required_requests_per_second <= 0) {
        return absl::InvalidArgumentError(
            StrCat(flags ? std::string("--objective price")
                         : StrCat(input.workload_file, ": requests_per_second"),
                   ": a plan for a price needs the rate to serve; give ",
                   input.by_request ? "it, such as 2.5" : "--rate"));
      }
      return CheckPrices(*problem.graph, input);
    case Goal::kBudget:
      if (problem.budget_usd_per_hour <= 0) {
        return absl::InvalidArgumentError(
            StrCat(input.cluster_file,
                   ": budget: a plan within a budget needs one, for example \"12 USD/h\""));
      }
      return CheckPrices(*problem.graph, input);
    default: return absl::OkStatus();
  }
}

absl::Status WhyNoPlan(const Search& search, const PlacementProblem& problem,
                       const absl::Status& found, const PlannerInput& input) {
  if (problem.watch.Stopped())
    return absl::DeadlineExceededError("stopped before any plan was found; allow more time");
  if (!found.ok() && found.code() != absl::StatusCode::kResourceExhausted) return found;
  const bool money = problem.goal == Goal::kPrice || problem.goal == Goal::kBudget;
  const bool patient = !std::isfinite(problem.options.max_tpot_seconds);
  const bool limited = money || !patient || problem.goal == Goal::kGoodput;
  if (!found.ok() && (!limited || !CheckRoom(problem).ok()))
    return WithWaysOut(search, problem, found, input);
  PlacementProblem less = problem;
  less.goal = Goal::kThroughput;
  if (money) {
    if (const double served = Served(search, less); served >= kMinRequestsPerSecond)
      return MoneyInTheWay(problem, input, served);
  }
  less.options.max_tpot_seconds = std::numeric_limits<double>::infinity();
  if (problem.goal == Goal::kGoodput || !patient) {
    if (const double served = Served(search, less); served >= kMinRequestsPerSecond)
      return LimitInTheWay(problem, input, found, served);
  }
  if (absl::Status links = LinksInTheWay(search, less, input); !links.ok()) return links;
  if (!found.ok() && patient) return found;
  if (!found.ok()) {  // without the limit nothing is found either: it is not to blame
    const absl::Status without = search(less).status();
    return without.ok() ? found : without;
  }
  return absl::ResourceExhaustedError(
      StrCat(input.cluster_file, ": no placement of these devices serves a request"));
}

}  // namespace tessera::scheduler
