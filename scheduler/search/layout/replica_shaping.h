// Good stages of one replica on given devices, in microseconds: for searches that try many sets.
//
// Problem: stage_layout finds the best stages of a device set, in milliseconds to seconds; who asks
// what one device more or less would bring wants an answer at once. Idea: every pool is cut into
// stages of one width (and one of what remains) or of two, the second half of the first; for the
// sequences that KV can hold at most, and for fewer, layers are dealt so that the slowest stage is
// as fast as it can be; widths are changed pool by pool as long as that helps. Pools that are alike
// share a width. Stages stand in the order of their machines; other orders and single widths are
// tried where that is asked for. Heuristic: the rate is that of the cost model for the stages
// found, which need not be the best. Answers are kept. Deterministic. Thread rule: one thread per
// object; borrows problem and shapes.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "scheduler/search/layout/layer_dealing.h"
#include "scheduler/search/layout/problem.h"
#include "scheduler/search/layout/stage_shapes.h"

namespace tessera::scheduler {

// Pools of the graph, those near each other together.
std::vector<int> PoolsByPlace(const ClusterGraph& graph);

class ReplicaShaping {
 public:
  // Devices of pools of the graph, by pool; no pool twice, no count of 0.
  using Devices = std::vector<std::pair<int, int>>;
  // How many ways to deal layers to stages are looked at: one; the few best by what is quick to
  // compute; those of loads at which a stage can just have a layer more as well.
  enum class Care { kQuick, kSome, kFull };
  using Widths = std::map<int, int>;  // of stages, by pool; 0: the pool stays idle

  ReplicaShaping(const PlacementProblem& problem, StageShapes* shapes, Role role = Role::kBoth);

  // A replica of the role on these devices, with its rate; no stages: nothing fits. All widths are
  // tried, pool by pool.
  const PlacedReplica& Shape(const Devices& devices);
  // The same, where every stage is `width` wide, or has all that is left of its pool.
  const PlacedReplica& ShapeUniform(const Devices& devices, int width);
  // The same, where every pool has half of its devices, as far as that goes, in stages so wide and
  // the others in stages half as wide.
  const PlacedReplica& ShapeHalved(const Devices& devices, int width);
  // The same as Shape, where only the widths of `changed` pools are tried and the others are
  // `known`.
  PlacedReplica ShapeLike(const Devices& devices, const Widths& known,
                          const std::vector<int>& changed);
  static Widths WidthsOf(const PlacedReplica& replica);
  // The same devices a few steps from these stages, where that serves more: which is first and
  // last, what is beside what and with full care some of a pool wider than the others. Not
  // quick.
  const PlacedReplica& Refined(const PlacedReplica& replica, Care care);
  // The same, where it takes two steps at once, with full care: thousands of judgements.
  PlacedReplica RefinedFurther(const PlacedReplica& replica);

  int64_t judged() const { return judged_; }  // sets of stages so far

 private:
  struct ByDevices {  // whatever the layers
    bool operator()(const std::vector<LayoutStage>& a, const std::vector<LayoutStage>& b) const;
    size_t operator()(const std::vector<LayoutStage>& stages) const;
  };
  using ByStages =
      std::unordered_map<std::vector<LayoutStage>, PlacedReplica, ByDevices, ByDevices>;

  std::vector<int> WidthsToTry(int devices) const;
  std::vector<LayoutStage> StagesOf(const Devices& devices, const Widths& widths) const;
  // Layers dealt to these stages, whatever theirs are.
  const PlacedReplica& Judge(std::vector<LayoutStage> stages, Care care);
  double SequencesBeside(int layers, const LayoutStage& stage, StagePlace place) const;
  void MakeDeals(Care care, std::vector<LayoutStage>* stages);
  // Layers of the stages for so many sequences at once; requests per second, 0: they do not fit, or
  // serve no more than that.
  double Deal(double sequences, double least_rate, std::vector<LayoutStage>* stages);
  double DealFor(double micro, double slowest_hop, double all_hops);
  std::vector<std::vector<LayoutStage>> Near(const std::vector<LayoutStage>& stages,
                                             Care care) const;
  std::vector<std::vector<int>> Alike(const Devices& devices) const;
  void Descend(const Devices& devices, const std::vector<std::vector<int>>& groups, Widths* widths,
               PlacedReplica* best);

  const PlacementProblem& problem_;
  const std::unique_ptr<StageShapes> means_;  // where layers differ
  StageShapes& shapes_;
  const Role role_;
  LayoutProblem layout_;                    // of the whole graph, for MakeReplica
  std::vector<std::vector<int>> shape_of_;  // by pool, by width - 1
  std::map<Devices, PlacedReplica> shaped_;
  ByStages judged_stages_[3];                // by care
  ByStages refined_[3];                      // the same
  std::vector<DealtStage> dealt_, leanest_;  // of Deal
  // Results of MakeDeals: requests per second, and where in deal_layers_ the layers of the stages
  // begin.
  std::vector<std::pair<double, size_t>> deals_;
  std::vector<int> deal_layers_;
  int64_t judged_ = 0;
};

}  // namespace tessera::scheduler
