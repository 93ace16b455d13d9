#include "scheduler/search/layout/layout_polish.h"

#include <algorithm>
#include <tuple>
#include <utility>
#include <vector>

#include "scheduler/search/layout/assemble.h"

namespace tessera::scheduler {
namespace {

using Stages = std::vector<LayoutStage>;

constexpr double kWorthTaking = 1 + 1e-6;
constexpr size_t kTwoStepsUpTo = 4;         // stages
constexpr int64_t kJudgementsOfPairs = 20;  // what judging a split replica costs more than another

std::vector<Stages> Near(const Stages& stages, int max_width) {
  std::vector<Stages> near;
  const size_t count = stages.size();
  for (size_t i = 0; i < count; ++i) {
    for (size_t j = 0; j < count; ++j) {
      if (i == j) continue;
      if (i < j) {
        Stages swapped = stages;
        std::swap(swapped[i], swapped[j]);
        near.push_back(std::move(swapped));
      }
      if (j + 1 != i && j != i + 1) {  // those have changed places above
        Stages moved = stages;
        moved.erase(moved.begin() + static_cast<long>(i));
        moved.insert(moved.begin() + static_cast<long>(j), stages[i]);
        near.push_back(std::move(moved));
      }
      if (stages[i].layers > 1) {
        Stages given = stages;
        --given[i].layers;
        ++given[j].layers;
        near.push_back(std::move(given));
      }
    }
    const LayoutStage& stage = stages[i];
    for (int width = 1; width < stage.width && stage.layers > 1; ++width) {
      const int layers = std::clamp(stage.layers * width / stage.width, 1, stage.layers - 1);
      Stages cut = stages;
      cut[i] = {stage.pool, width, layers};
      cut.insert(cut.begin() + static_cast<long>(i) + 1,
                 {stage.pool, stage.width - width, stage.layers - layers});
      near.push_back(std::move(cut));
    }
    for (size_t j = i + 1; j < count; ++j) {
      const LayoutStage& other = stages[j];
      if (other.pool != stage.pool || stage.width + other.width > max_width) continue;
      Stages joined = stages;
      joined[i].width += other.width;
      joined[i].layers += other.layers;
      joined.erase(joined.begin() + static_cast<long>(j));
      near.push_back(std::move(joined));
    }
  }
  return near;
}

// Each once.
std::vector<Stages> TwoStepsAway(const std::vector<Stages>& near, int max_width) {
  std::vector<Stages> further;
  for (const Stages& one : near) {
    for (Stages& two : Near(one, max_width)) further.push_back(std::move(two));
  }
  const auto key = [](const LayoutStage& s) { return std::tuple(s.pool, s.width, s.layers); };
  const auto before = [&](const Stages& a, const Stages& b) {
    return std::lexicographical_compare(
        a.begin(), a.end(), b.begin(), b.end(),
        [&](const LayoutStage& x, const LayoutStage& y) { return key(x) < key(y); });
  };
  const auto same = [&](const Stages& a, const Stages& b) {
    return !before(a, b) && !before(b, a);
  };
  std::sort(further.begin(), further.end(), before);
  further.erase(std::unique(further.begin(), further.end(), same), further.end());
  return further;
}

// Tries what is near `stages` until `take`, which is given candidates and takes the best of them
// if it serves more, takes none. `stages` is what it takes.
template <typename Take>
void Climb(const Stages& stages, int max_width, const Take& take) {
  for (bool taken = true; taken;) {
    const std::vector<Stages> near = Near(stages, max_width);
    taken = take(near);
    // A stage that is cut may have to go elsewhere as well.
    if (!taken && stages.size() <= kTwoStepsUpTo) taken = take(TwoStepsAway(near, max_width));
  }
}

class Polish {
 public:
  Polish(const PlacementProblem& problem, ReplicaJudge* judge, int64_t* left)
      : problem_(problem), judge_(*judge), max_width_(MaxWidth(*problem.model)), left_(*left) {}

  void Alone(PlacedReplica* replica) {
    Climb(replica->stages, max_width_, [&](const std::vector<Stages>& candidates) {
      PlacedReplica next = *replica;
      bool better = false;
      for (const Stages& stages : candidates) {
        if (Exhausted()) break;
        next.stages = stages;
        const ReplicaRate rate = GoodputAbove(replica->rate.requests_per_second, next);
        if (rate.requests_per_second <= replica->rate.requests_per_second * kWorthTaking) continue;
        replica->rate = rate;
        replica->stages = stages;
        better = true;
      }
      return better;
    });
  }

  // The placement's replica `at`, with its partners.
  void Together(size_t at, Placement* placement) {
    const Stages* stages = &placement->replicas[at].stages;
    Climb(*stages, max_width_, [&](const std::vector<Stages>& candidates) {
      bool better = false;
      for (const Stages& candidate : candidates) {
        if (Exhausted()) break;
        left_ -= kJudgementsOfPairs;
        std::vector<PlacedReplica> replicas = placement->replicas;
        replicas[at].stages = candidate;
        better = Take(std::move(replicas), placement) || better;
      }
      return better;
    });
  }

  // In place of the placement's, where they serve more.
  bool Take(std::vector<PlacedReplica> replicas, Placement* placement) {
    const absl::StatusOr<Placement> found = Assemble(problem_, std::move(replicas), &judge_);
    if (!found.ok()) return false;
    if (found->requests_per_second <= placement->requests_per_second * kWorthTaking) return false;
    placement->replicas = found->replicas;
    placement->shares = found->shares;
    placement->requests_per_second = found->requests_per_second;
    placement->usd_per_hour = found->usd_per_hour;
    return true;
  }

 private:
  bool Exhausted() const { return left_ <= 0 || problem_.watch.Stopped(); }

  ReplicaRate GoodputAbove(double known, const PlacedReplica& replica) {
    --left_;
    const ReplicaSpec spec = SpecOf(problem_, replica);
    const ReplicaRate capacity =
        CapacityOf(*problem_.model, spec, judge_.lengths(), problem_.options);
    if (capacity.requests_per_second <= known) return ReplicaRate();
    return judge_.GoodputAbove(known, spec, capacity);
  }

  const PlacementProblem& problem_;
  ReplicaJudge& judge_;
  const int max_width_;
  int64_t& left_;
};

}  // namespace

PlacedReplica PolishReplica(const PlacementProblem& problem, PlacedReplica replica,
                            ReplicaJudge* judge, int64_t* left) {
  Polish(problem, judge, left).Alone(&replica);
  return replica;
}

Placement PolishLayouts(const PlacementProblem& problem, Placement placement, ReplicaJudge* judge,
                        int64_t most_judged) {
  Polish polish(problem, judge, &most_judged);
  std::vector<PlacedReplica> replicas = placement.replicas;
  for (PlacedReplica& replica : replicas) {
    if (replica.role == Role::kBoth) polish.Alone(&replica);
  }
  polish.Take(std::move(replicas), &placement);
  for (size_t i = 0; i < placement.replicas.size(); ++i) {
    if (placement.replicas[i].role != Role::kBoth) polish.Together(i, &placement);
  }
  return placement;
}

}  // namespace tessera::scheduler
