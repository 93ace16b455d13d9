#include "scheduler/search/best/plain_placements.h"

#include <algorithm>

#include "scheduler/search/layout/assemble.h"

namespace tessera::scheduler {
namespace {

constexpr int kWidths[] = {1, 2, 4, 8};
constexpr int kMaxStages = 16;
constexpr int kStagesTried = 3;  // from the fewest that hold the model: more waste devices, but
                                 // where they leave none out

}  // namespace

PlainPlacements::PlainPlacements(const PlacementProblem& problem)
    : problem_(problem), pools_(problem.graph->pools()) {
  for (size_t p = 0; p < pools_.size(); ++p) by_memory_.push_back(p);
  std::stable_sort(by_memory_.begin(), by_memory_.end(), [&](size_t a, size_t b) {
    const DeviceSpec &x = *pools_[a].spec, &y = *pools_[b].spec;
    return x.memory_bytes != y.memory_bytes ? x.memory_bytes > y.memory_bytes : x.kind < y.kind;
  });
  for (const size_t p : by_memory_) {
    if (std::find(kinds_.begin(), kinds_.end(), pools_[p].spec->kind) == kinds_.end())
      kinds_.push_back(pools_[p].spec->kind);
  }
}

void PlainPlacements::EqualStages(const std::vector<std::string>& kinds,
                                  const std::function<bool(Replicas)>& fits) const {
  const double weights = TotalWeightBytes(*problem_.model);
  for (const int width : kWidths) {
    std::vector<int> slots;  // pools, one entry per stage
    double least = 0;
    for (const size_t p : by_memory_) {
      if (std::find(kinds.begin(), kinds.end(), pools_[p].spec->kind) == kinds.end()) continue;
      slots.insert(slots.end(), static_cast<size_t>(pools_[p].count / width), static_cast<int>(p));
      if (pools_[p].count >= width) least = pools_[p].spec->memory_bytes;
    }
    const int all = std::min(static_cast<int>(slots.size()), problem_.model->layers);
    int tried = 0;
    for (int stages = 1; stages <= all; ++stages) {
      const bool none_left = slots.size() % static_cast<size_t>(stages) == 0;
      if (stages > kMaxStages && static_cast<size_t>(stages) < slots.size()) continue;
      if ((tried >= kStagesTried && !none_left) || weights > stages * width * least) continue;
      if (fits(Packed(slots, stages, width))) ++tried;
    }
  }
}

PlainPlacements::Replicas PlainPlacements::Packed(const std::vector<int>& slots, int stages,
                                                  int width) const {
  Replicas replicas;
  const int layers = problem_.model->layers;
  for (size_t at = 0; at + static_cast<size_t>(stages) <= slots.size();
       at += static_cast<size_t>(stages)) {
    PlacedReplica& replica = replicas.emplace_back();
    for (int j = 0; j < stages; ++j) {
      replica.stages.push_back({slots[at + static_cast<size_t>(j)], width,
                                layers / stages + (j < layers % stages ? 1 : 0)});
    }
  }
  return replicas;
}

PlainPlacements::Replicas PlainPlacements::EachMachine(int most_stages, ReplicaJudge* judge) const {
  Replicas all;
  for (size_t p = 0; p < pools_.size(); ++p) {
    Replicas best;
    double most = 0;
    for (const int width : kWidths) {
      for (int stages = 1; stages <= std::min(most_stages, problem_.model->layers); ++stages) {
        if (stages * width > pools_[p].count) break;
        const std::vector<int> slots(static_cast<size_t>(pools_[p].count / width),
                                     static_cast<int>(p));
        Replicas some = Packed(slots, stages, width);
        const double rate = static_cast<double>(some.size()) *
                            judge->RateOf(SpecOf(problem_, some.front())).requests_per_second;
        if (rate <= most) continue;
        most = rate;
        best = std::move(some);
      }
    }
    all.insert(all.end(), best.begin(), best.end());
  }
  return all;
}

std::vector<Placement> JudgedPlain(const PlacementProblem& problem, ReplicaJudge* judge) {
  std::vector<Placement> judged;
  const auto keep = [&](PlainPlacements::Replicas replicas) {
    if (replicas.empty() || problem.watch.Stopped()) return false;
    absl::StatusOr<Placement> placement = Assemble(problem, std::move(replicas), judge);
    if (!placement.ok() || !(placement->requests_per_second > 0)) return false;
    LeaveOutIdle(*problem.graph, &*placement);
    judged.push_back(*std::move(placement));
    return true;
  };
  const PlainPlacements plain(problem);
  const std::vector<std::string>& kinds = plain.kinds();
  for (size_t k = 0; k < kinds.size(); ++k) {
    plain.EqualStages({kinds[k]}, keep);
    if (k > 0) plain.EqualStages({kinds.begin(), kinds.begin() + static_cast<int>(k) + 1}, keep);
  }
  for (const int stages : {1, 2, 4}) keep(plain.EachMachine(stages, judge));
  return judged;
}

}  // namespace tessera::scheduler
