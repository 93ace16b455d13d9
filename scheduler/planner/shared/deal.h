// Dealing devices to several models: parts of the cluster, one for each, of which the least served
// has most. See shared_cluster.h for the method.
//
// Thread rule: one thread per object; borrows the problems, which are on graphs of like pools.
// Deterministic.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "scheduler/planner/part_search.h"
#include "scheduler/planner/shared/shared_cluster.h"

namespace tessera::scheduler {

struct Deal {
  std::vector<Placement> placements;  // by model; device_index is empty
  double theta = 0;
  double sum = 0;      // of all models' parts, which settles ties
  bool exact = false;  // every deal was tried
};

class Dealer {
 public:
  Dealer(const std::vector<const PlacementProblem*>& problems, const Search& search,
         const SharingOptions& options);

  // With the whole cluster to itself; InvalidArgument or ResourceExhausted where it cannot be.
  absl::StatusOr<Placement> Alone(size_t model);

  // `weights`: of each model's rate. ResourceExhausted where not all are served.
  absl::StatusOr<Deal> Run(const std::vector<double>& weights);

  // After Run, to judge deals beside it. More searches of parts for every model; then deals whose
  // parts are given, without placements where a model is not served on its part.
  using Parts = std::vector<DeviceCounts>;  // by model
  void AllowMore(int searches, int64_t devices);
  Deal OnParts(const Parts& parts);
  double RateOn(size_t model, const DeviceCounts& part);  // 0: nothing is served
  bool Better(const Deal& a, const Deal& b) const;
  Parts PartsOf(const Deal& deal, DeviceCounts* idle) const;

 private:
  struct Unit {
    size_t model = 0;
    std::vector<PlacedReplica> replicas;
    DeviceCounts used;
    double rate = 0;
  };

  size_t models() const { return problems_.size(); }
  Deal Judge(std::vector<Placement> placements) const;

  void EveryDeal(Parts* parts, const DeviceCounts& left, size_t model);
  void AddUnit(size_t model, std::vector<PlacedReplica> replicas);
  void AddPart(size_t model, const DeviceCounts& part);
  void CollectUnits(size_t model);
  void Combine();
  void Improve();
  bool TryParts(const Parts& parts);

  const std::vector<const PlacementProblem*>& problems_;
  const SharingOptions& options_;
  std::vector<std::unique_ptr<PartSearch>> searches_;
  std::vector<double> weights_;
  std::vector<int> machines_;
  std::vector<Unit> units_;
  std::set<std::string> known_units_;
  Deal best_;
};

}  // namespace tessera::scheduler
