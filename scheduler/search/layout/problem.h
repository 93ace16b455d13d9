// What every search is asked and what it answers: the one interface of the searches.
//
// Thread rule: plain values; a problem borrows model and graph, a placement borrows the problem's
// graph. Units: requests and tokens per second, USD per hour.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/plan_facts.pb.h"
#include "scheduler/cost/attainment.h"
#include "scheduler/cost/replica_cost.h"
#include "scheduler/input/cluster_graph.h"
#include "scheduler/search/layout/stage_layout.h"

namespace tessera::scheduler {

enum class Goal {
  kThroughput,  // most requests per second, with TPOT within its limit
  kPrice,       // least USD per hour that serves the required rate
  kBudget,      // most requests per second within the budget
  kGoodput,     // most requests per second of which enough meet the objectives of their class
};

// How a search is watched and stopped from outside. It asks `stop` between units of work; true:
// answer with the best so far, and say so in Placement::interrupted. Budgets of searches count
// evaluations, so a search that nobody stops stays deterministic. Both are called from the search's
// thread; empty: nobody watches.
struct SearchWatch {
  std::function<bool()> stop;
  std::function<void(const std::string& what)> progress;  // such as "layouts 120 of 800"

  bool Stopped() const { return stop && stop(); }
  void Report(const std::string& what) const {
    if (progress) progress(what);
  }
};

struct PlacementProblem {
  const ModelShape* model = nullptr;
  const ClusterGraph* graph = nullptr;
  std::vector<RequestLengths> samples;
  std::vector<RequestClass> classes;  // the same by class, with what they ask for
  double arrival_variation = 1;
  ReplicaOptions options;
  KvCodecRates codec_rates;
  Goal goal = Goal::kThroughput;
  double required_requests_per_second = 0;       // kPrice
  double budget_usd_per_hour = 0;                // kBudget
  uint64_t seed = 0;                             // of searches that draw; 0: their own
  std::map<std::string, double> search_options;  // constants of searches, see search_options.h
  bool allow_split = true;                       // replicas that only prefill or only decode
  bool prove = false;  // go for a bound also where that takes minutes; needs few devices
  bool bound = true;   // false: nobody asks what is above the placement, where that takes time
  SearchWatch watch;
};

struct PlacedReplica {
  Role role = Role::kBoth;
  std::vector<LayoutStage> stages;             // pools: indices into graph.pools()
  std::vector<std::vector<int>> device_index;  // per stage, per rank: which device of its pool
  ReplicaRate rate;
  double usd_per_hour = 0;  // of whole machines that it shares with others its part
};

struct Share {
  int prefill = 0;  // replica indices; equal for role both
  int decode = 0;
  double requests_per_second = 0;
  KvCodec codec = KvCodec::kRaw;  // in which the KV travels, where it does
};

struct Placement {
  std::vector<PlacedReplica> replicas;
  std::vector<Share> shares;
  double requests_per_second = 0;
  double usd_per_hour = 0;  // what has to be rented, whole machines where they have a price
  double upper_bound =
      0;  // of requests_per_second, over all placements of the search's kind of layout; 0: none
  bool proved = false;          // no placement of that kind is better, for a price none cheaper
  bool interrupted = false;     // stopped from outside: the best so far
  std::vector<v1::Note> notes;  // alternatives that lost, limits of the search
  std::vector<double>
      shadow_prices;  // per graph pool: requests/s that one more device would bring; estimate
  // The best others that were found, such as the best without splitting; for who judges them by
  // other means. They have no bound of their own.
  std::vector<Placement> alternatives;
  int64_t evaluations = 0;  // candidates that the search judged; 0: it does not count
};

// Stages by all pools of the problem's graph, as placements name them.
LayoutProblem OnWholeGraph(const PlacementProblem& problem, Role role);
// What the cost model takes for a placed replica; borrows the graph's devices.
ReplicaSpec SpecOf(const PlacementProblem& problem, const PlacedReplica& replica);

// ResourceExhausted, saying how many GiB are missing, where weights and KV of the longest sequence
// are more than all devices offer together.
absl::Status CheckRoom(const PlacementProblem& problem);

// Whether a replica only prefills or only decodes.
bool Splits(const Placement& placement);

// Whether a stage is over unlike devices or several machines, or cut unevenly.
bool HasMixedStage(const Placement& placement);

int DevicesUsed(const Placement& placement);

// The bound that is reported for a placement, of which rounding may have left a little less than
// the placement serves. 0: there is none, also where more than that is missing: something of it is
// wrong then, and no plan is to be lost for it.
double BoundOver(double bound, double requests_per_second);

// A note of the best that was found with replicas that only prefill or only decode, or without,
// where it lost; 0 requests/s: none was found.
v1::Note LosingSplitNote(bool splits, double requests_per_second, double usd_per_hour);

// ResourceExhausted, saying how many GiB are missing, where no replica fits even on all devices.
using Search = std::function<absl::StatusOr<Placement>(const PlacementProblem&)>;

}  // namespace tessera::scheduler
