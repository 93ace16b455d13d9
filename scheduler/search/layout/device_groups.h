// What the searches over device groups share: what a group of devices can do, what a grouping is
// worth, and a placement made of it.
//
// A group becomes one replica: its best layout comes from stage_layout, coarse while searching, at
// full resolution in Finish. Layouts are kept, and device sets that are alike (same devices, same
// links) are laid out once. Where something is rented (goals kBudget and kPrice) a grouping offers
// its replicas, and the integer program of a knapsack chooses which to run. Thread rule: one thread
// at a time; borrows the problem. Deterministic.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "scheduler/search/layout/goodput.h"
#include "scheduler/search/layout/problem.h"
#include "scheduler/search/math/seeded_random.h"

namespace tessera::scheduler {

struct DeviceGroup {
  Role role = Role::kBoth;
  std::vector<int> counts;  // devices per pool of the graph

  bool operator==(const DeviceGroup& other) const = default;
  int devices() const;
};
// No pool is overdrawn; devices in no group are idle.
using Grouping = std::vector<DeviceGroup>;

// Empty groups go, the rest is sorted: equal groupings compare equal.
void Normalise(Grouping* grouping);

struct GroupLayoutOptions {
  int layer_steps = 12;  // layer ranges a layout is first tried in; as `best` does
  // Product of (devices + 1) over a group's pools that one layout may cost; of a larger group the
  // pools with the least memory stay idle.
  int64_t most_states = 150;
  // The same for the layouts of Finish, times layers.
  int64_t most_fine_states = 4000;
  // Prefilling groups: the layout through which a step goes fastest, instead of that of the highest
  // rate. Not for goodput, which judges latencies itself.
  bool prefill_by_latency = false;
  bool exact = false;  // layouts at full resolution from the start, proved best: few devices only
};

// What a grouping reaches.
struct Worth {
  double requests_per_second = 0;
  double usd_per_hour = 0;
};
// By the problem's goal; kPrice: who serves the required rate first, then the cheaper one.
bool Better(const PlacementProblem& problem, const Worth& a, const Worth& b);

class GroupLayouts {
 public:
  GroupLayouts(const PlacementProblem& problem, const GroupLayoutOptions& options);

  // The group's replica without devices; no stages where nothing fits.
  const PlacedReplica& ReplicaOf(const DeviceGroup& group);

  // What the replicas that the goal picks serve; the split ones as far as links carry their KV.
  Worth WorthOf(const Grouping& grouping);

  // The grouping's groups as prefilling and decoding ones: along the order of how much better they
  // are at prefill than at decode, cut where most is served. Fewer than two groups do both.
  Grouping WithRoles(Grouping grouping);

  // A search's answer after `evaluations` candidates: judged by Assemble, layouts at full
  // resolution; interrupted if the search was stopped before. ResourceExhausted where nothing
  // serves.
  absl::StatusOr<Placement> Finish(const Grouping& grouping, int64_t evaluations);

  // Progress of a search: how many of what it judged, and the best so far.
  void Report(const char* what, int64_t evaluations, const Worth& best) const;

  const PlacementProblem& problem() const { return problem_; }
  const LengthMoments& lengths() const { return lengths_; }
  ReplicaJudge* judge() { return &judge_; }
  // All devices in one group.
  DeviceGroup Everything(Role role) const;
  bool MaySplit() const { return problem_.allow_split && lengths_.decode_steps > 0; }
  int64_t layouts() const { return static_cast<int64_t>(by_key_.size()); }

 private:
  DeviceGroup Trimmed(const DeviceGroup& group) const;
  LayoutProblem ProblemOf(const DeviceGroup& group, std::vector<int>* members) const;
  PlacedReplica MakeReplicaOf(const DeviceGroup& group);
  PlacedReplica Polished(const DeviceGroup& group);
  // For a layout at work: says so, and asks the watch where the layout may be broken off.
  std::function<bool()> Watched(const char* resolution, const LayoutProblem& layout,
                                bool stops) const;
  PlacedReplica ToReplica(const Layout& layout, const std::vector<int>& members, Role role) const;

  const PlacementProblem& problem_;
  const std::vector<DevicePool>& pools_;
  const GroupLayoutOptions options_;
  const LengthMoments lengths_;
  ReplicaJudge judge_;
  std::map<std::string, Layout> by_key_;
  std::map<std::pair<Role, std::vector<int>>, PlacedReplica> by_group_;
};

// --- Moves that the searches share. Each changes *grouping and says whether it could. ---

bool MergeTwo(SeededRandom* random, Grouping* grouping);
// By pools, or a pool's devices in two parts where there is one pool.
bool SplitOne(SeededRandom* random, Grouping* grouping);
// One device, or all of a pool, from one group (or the idle ones) to another (or a new one).
bool MoveDevices(SeededRandom* random, const GroupLayouts& layouts, Grouping* grouping);
// One device of a pool against one of another pool.
bool SwapDevices(SeededRandom* random, Grouping* grouping);

// Groups by agglomeration along the fastest links, until `groups` are left: the clusters of the
// communication matrix. Pools stay whole; more groups than pools: pools are cut evenly.
Grouping ClusterByLinks(const PlacementProblem& problem, int groups);

}  // namespace tessera::scheduler
