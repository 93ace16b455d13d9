#include "scheduler/search/best/goodput_layouts.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace tessera::scheduler {
namespace {

constexpr double kTighter = 0.75;         // a limit of TPOT, to the one before
constexpr size_t kMaxLevels = 8;          // limits that are tried
constexpr double kLongestSeconds = 0.25;  // the first limit, where the problem has none below
constexpr int kMaxFutile = 2;             // limits one after the other that bring nothing

// Widths of stages that may serve less, but answer sooner.
std::vector<int> WiderThanOne(const ReplicaShaping::Devices& devices) {
  int widest = 1;
  for (const auto& [pool, count] : devices) widest = std::max(widest, count);
  std::vector<int> widths;
  for (int width = 2; width / 2 < widest; width *= 2) widths.push_back(width);
  return widths;
}

}  // namespace

GoodputLayouts::GoodputLayouts(const PlacementProblem& problem, ReplicaJudge* judge)
    : problem_(problem),
      judge_(judge),
      shapes_(*problem.model, MomentsOf(problem.samples), problem.options),
      prefilling_(problem, &shapes_, Role::kPrefill),
      decoding_(problem, &shapes_, Role::kDecode) {}

GoodputLayouts::Limited& GoodputLayouts::At(size_t level) {
  while (levels_.size() <= level) {
    const double before = levels_.empty() ? 0 : levels_.back().problem.options.max_tpot_seconds;
    Limited& limited = levels_.emplace_back();
    limited.problem = problem_;
    limited.problem.goal = Goal::kThroughput;
    if (before > 0) {
      limited.problem.options.max_tpot_seconds = std::min(before * kTighter, kLongestSeconds);
    }
    limited.shaping = std::make_unique<ReplicaShaping>(limited.problem, &shapes_);
  }
  return levels_[level];
}

PlacedReplica GoodputLayouts::Shape(const ReplicaShaping::Devices& devices, double known) {
  PlacedReplica best;
  // True: nothing better was known.
  const auto consider = [&](const PlacedReplica& shaped) {
    if (shaped.stages.empty() || shaped.rate.requests_per_second <= known) return false;
    const ReplicaRate rate = judge_->GoodputAbove(known, SpecOf(problem_, shaped), shaped.rate);
    if (rate.requests_per_second <= known) return false;
    known = rate.requests_per_second;
    best = shaped;
    best.rate = rate;
    return true;
  };
  double tpot = 0;  // of the layout before
  int futile_levels = 0;
  for (size_t level = 0; level < kMaxLevels && futile_levels < kMaxFutile; ++level) {
    Limited& limited = At(level);
    if (level > 0 && tpot <= limited.problem.options.max_tpot_seconds) continue;
    const PlacedReplica& shaped = limited.shaping->Shape(devices);
    if (shaped.stages.empty() || shaped.rate.requests_per_second <= known) break;
    tpot = shaped.rate.tpot_seconds;
    if (consider(shaped)) {
      futile_levels = 0;
    } else if (known > 0) {
      ++futile_levels;
    }
  }
  for (const int width : WiderThanOne(devices)) {
    consider(At(0).shaping->ShapeUniform(devices, width));
    consider(At(0).shaping->ShapeHalved(devices, width));
  }
  return best;
}

PlacedReplica GoodputLayouts::ShapeSplit(Role role, const ReplicaShaping::Devices& devices,
                                         double known) {
  PlacedReplica best;
  ReplicaShaping& shaping = role == Role::kPrefill ? prefilling_ : decoding_;
  const auto consider = [&](const PlacedReplica& shaped) {
    if (shaped.stages.empty() || shaped.rate.requests_per_second <= known) return;
    const ReplicaRate rate = judge_->RateOf(SpecOf(problem_, shaped));
    if (rate.requests_per_second <= known) return;
    known = rate.requests_per_second;
    best = shaped;
    best.rate = rate;
  };
  consider(shaping.Shape(devices));
  for (const int width : WiderThanOne(devices)) consider(shaping.ShapeUniform(devices, width));
  return best;
}

}  // namespace tessera::scheduler
