#include "scheduler/search/best/class_placement.h"

#include <algorithm>
#include <map>

namespace tessera::scheduler {
namespace {

constexpr int kMaxMoves = 8;  // of layers, in one replica

}  // namespace

ClassPlacement::ClassPlacement(const PlacementProblem& problem)
    : problem_(&problem), lengths_(MomentsOf(problem.samples)) {
  layout_.model = problem.model;
  layout_.graph = problem.graph;
  for (const DevicePool& pool : problem.graph->pools()) {
    layout_.pools.push_back({pool.spec, pool.machine, pool.count});
    free_.push_back(pool.count);
  }
}

double ClassPlacement::requests_per_second() const {
  double sum = 0;
  for (const PlacedReplica& replica : replicas_) {
    if (replica.role == Role::kBoth) sum += replica.rate.requests_per_second;
  }
  return sum;
}

std::optional<PlacedReplica> ClassPlacement::OnMachines(const DeviceClasses& classes,
                                                        const ClassReplica& replica) const {
  PlacedReplica placed;
  placed.role = replica.role;
  std::vector<int> free = free_;
  std::vector<int> machines;  // that the replica is in
  for (const ClassStage& stage : replica.stages) {
    int best = -1;
    bool best_near = false;
    for (const int pool : classes[stage.device_class].pools) {
      const int count = free[static_cast<size_t>(pool)];
      if (count < stage.width) continue;
      const bool near =
          std::find(machines.begin(), machines.end(),
                    layout_.pools[static_cast<size_t>(pool)].machine) != machines.end();
      if (best >= 0 && (best_near && !near)) continue;
      if (best < 0 || near != best_near || count < free[static_cast<size_t>(best)]) {
        best = pool;
        best_near = near;
      }
    }
    if (best < 0) return std::nullopt;
    free[static_cast<size_t>(best)] -= stage.width;
    const int machine = layout_.pools[static_cast<size_t>(best)].machine;
    if (!best_near) machines.push_back(machine);
    placed.stages.push_back({best, stage.width, stage.layers});
  }
  // Stages of one machine beside each other, in the order of the machines.
  std::map<int, int> order;
  for (size_t i = 0; i < machines.size(); ++i) order[machines[i]] = static_cast<int>(i);
  std::stable_sort(placed.stages.begin(), placed.stages.end(),
                   [&](const LayoutStage& a, const LayoutStage& b) {
                     return order[layout_.pools[static_cast<size_t>(a.pool)].machine] <
                            order[layout_.pools[static_cast<size_t>(b.pool)].machine];
                   });
  return placed;
}

double ClassPlacement::Judge(PlacedReplica* replica) const {
  ReplicaSpec spec = MakeReplica(layout_, replica->stages);
  spec.role = replica->role;
  replica->rate = CapacityOf(*problem_->model, spec, lengths_, problem_->options);
  return replica->rate.requests_per_second;
}

// From the stage that is slowest, or has least room, to any other, while that helps.
void ClassPlacement::MoveLayers(PlacedReplica* replica) const {
  for (int move = 0; move < kMaxMoves; ++move) {
    const double before = replica->rate.requests_per_second;
    PlacedReplica best = *replica;
    std::vector<int> from = {replica->rate.slowest_stage, replica->rate.kv_limiting_stage};
    if (before <= 0) from.erase(from.begin());
    if (from.size() == 2 && from[0] == from[1]) from.pop_back();
    for (const int stage : from) {
      for (size_t to = 0; to < replica->stages.size(); ++to) {
        PlacedReplica moved = *replica;
        LayoutStage& giver = moved.stages[static_cast<size_t>(stage)];
        if (static_cast<int>(to) == stage || giver.layers <= 1) continue;
        // Like stages are like places to go; the first stands for all.
        if (to > 0 && static_cast<int>(to) - 1 != stage &&
            replica->stages[to].pool == replica->stages[to - 1].pool &&
            replica->stages[to].width == replica->stages[to - 1].width &&
            replica->stages[to].layers == replica->stages[to - 1].layers && to > 1 &&
            to + 1 < replica->stages.size()) {
          continue;
        }
        --giver.layers;
        ++moved.stages[to].layers;
        if (Judge(&moved) > best.rate.requests_per_second) best = std::move(moved);
      }
    }
    if (best.rate.requests_per_second <= before * (1 + 1e-9)) return;
    *replica = std::move(best);
  }
}

bool ClassPlacement::Place(const DeviceClasses& classes, const ClassReplica& replica,
                           double least_part) {
  std::optional<PlacedReplica> placed = OnMachines(classes, replica);
  if (!placed) return false;
  Judge(&*placed);
  MoveLayers(&*placed);
  if (placed->rate.requests_per_second <= 0 ||
      placed->rate.requests_per_second < least_part * replica.rate) {
    return false;
  }
  Put(*std::move(placed));
  return true;
}

void ClassPlacement::Put(PlacedReplica replica) {
  for (const LayoutStage& stage : replica.stages)
    free_[static_cast<size_t>(stage.pool)] -= stage.width;
  replicas_.push_back(std::move(replica));
}

}  // namespace tessera::scheduler
