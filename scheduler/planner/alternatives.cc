#include "scheduler/planner/alternatives.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "scheduler/planner/report/bottleneck.h"
#include "scheduler/planner/survival.h"
#include "scheduler/search/best/plain_placements.h"
#include "scheduler/search/layout/assemble.h"
#include "scheduler/search/layout/goodput.h"

namespace tessera::scheduler {
namespace {

constexpr size_t kMaxCuts = 8;  // between prefilling and decoding replicas
constexpr size_t kMaxPlainCut = 16;
constexpr double kAbove = 1 + 1e-6;
constexpr double kAsked = 1 - 1e-6;

using Replicas = std::vector<PlacedReplica>;

class Alternatives {
 public:
  explicit Alternatives(const AlternativeQuestion& question)
      : question_(question),
        problem_(*question.problem),
        chosen_(*question.chosen),
        pools_(problem_.graph->pools()),
        judge_(problem_),
        plain_placements_(problem_) {}

  std::vector<v1::OtherChoice> Run() {
    const int devices = problem_.graph->devices();
    if (devices > kPlainUpTo) {
      choices_.emplace_back().set_choice(v1::CHOICE_KIND_PLAIN);
      choices_.back().set_above_devices(kPlainUpTo);
    } else {
      if (kinds().size() > 1) OneKind();
      Equal();
    }
    const bool goodput = problem_.goal == Goal::kGoodput;
    const int splits_up_to = goodput ? kGoodputSplitsUpTo : kProgramsUpTo;
    if (problem_.allow_split && devices <= splits_up_to) Split();
    if (problem_.allow_split && devices > splits_up_to) {
      choices_.emplace_back().set_choice(Splits(chosen_) ? v1::CHOICE_KIND_WHOLE
                                                         : v1::CHOICE_KIND_SPLIT);
      choices_.back().set_above_devices(splits_up_to);
      choices_.back().set_goodput(goodput);
    }
    return std::move(choices_);
  }

 private:
  const std::vector<std::string>& kinds() const { return plain_placements_.kinds(); }

  // What it serves is what the plan is judged by.
  absl::StatusOr<Placement> Judged(Replicas replicas) {
    absl::StatusOr<Placement> placement = Assemble(problem_, std::move(replicas), &judge_);
    if (!placement.ok() || !question_.survives) return placement;
    const std::vector<MachineLoss> losses = LossesOf(problem_, *placement);
    placement->requests_per_second = losses.empty() ? 0 : losses.front().requests_per_second;
    return placement;
  }

  bool Better(const Placement& a, const std::optional<Placement>& b) const {
    if (a.requests_per_second <= 0) return false;
    if (!b) return true;
    if (problem_.goal != Goal::kPrice) return a.requests_per_second > b->requests_per_second;
    const double need = problem_.required_requests_per_second * kAsked;
    const bool serves = a.requests_per_second >= need, other = b->requests_per_second >= need;
    if (serves != other) return serves;
    if (a.usd_per_hour != b->usd_per_hour) return a.usd_per_hour < b->usd_per_hour;
    return a.requests_per_second > b->requests_per_second;
  }

  void Keep(absl::StatusOr<Placement> placement, std::optional<Placement>* best) const {
    if (placement.ok() && Better(*placement, *best)) *best = *std::move(placement);
  }

  void OneKind() {
    std::optional<Placement> best;
    std::string name;
    for (const std::string& kind : kinds()) {
      std::optional<Placement> one;
      EqualStages({kind}, &one);
      if (one && Better(*one, best)) {
        best = std::move(one);
        name = kind;
      }
    }
    Add(v1::CHOICE_KIND_ONE_KIND, best);
    choices_.back().set_kind(name);
  }

  void Equal() {
    std::optional<Placement> best;
    for (size_t k = 1; k <= kinds().size(); ++k)
      EqualStages({kinds().begin(), kinds().begin() + static_cast<int>(k)}, &best);
    Add(v1::CHOICE_KIND_EQUAL_STAGES, best);
  }

  void EqualStages(const std::vector<std::string>& kinds, std::optional<Placement>* best) {
    plain_placements_.EqualStages(kinds, [&](Replicas replicas) {
      std::optional<Placement> made;
      Keep(Trimmed(std::move(replicas)), &made);
      if (!made) return false;
      if (made->replicas.size() > 1) plain_.push_back({made->requests_per_second, made->replicas});
      if (Better(*made, *best)) *best = std::move(made);
      return true;
    });
  }

  // Only as many replicas as the goal wants or pays for, the best for their price first.
  absl::StatusOr<Placement> Trimmed(Replicas replicas) {
    absl::StatusOr<Placement> all = Judged(std::move(replicas));
    if (!all.ok()) return all;
    Replicas serving, kept;
    for (PlacedReplica& replica : all->replicas) {
      if (replica.rate.requests_per_second > 0) serving.push_back(std::move(replica));
    }
    const bool money = problem_.goal == Goal::kPrice || problem_.goal == Goal::kBudget;
    if (money) {
      std::stable_sort(serving.begin(), serving.end(), [](const auto& a, const auto& b) {
        return a.rate.requests_per_second * b.usd_per_hour >
               b.rate.requests_per_second * a.usd_per_hour;
      });
    }
    double rate = 0;  // that survives, where the plan must
    std::vector<int> used(pools_.size(), 0);
    for (PlacedReplica& replica : serving) {
      if (problem_.goal == Goal::kPrice && rate >= problem_.required_requests_per_second * kAsked)
        break;
      std::vector<int> with = used;
      const std::vector<int> more = DevicesByPool(replica.stages, with.size());
      for (size_t p = 0; p < with.size(); ++p) with[p] += more[p];
      if (problem_.goal == Goal::kBudget &&
          problem_.graph->RentOf(with) > problem_.budget_usd_per_hour)
        continue;
      rate += replica.rate.requests_per_second;
      used = std::move(with);
      kept.push_back(std::move(replica));
      if (problem_.goal != Goal::kPrice || !question_.survives) continue;
      const absl::StatusOr<Placement> so_far = Judged(kept);
      rate = so_far.ok() ? so_far->requests_per_second : 0;
    }
    return Judged(std::move(kept));
  }

  void Split() {
    const bool splits = Splits(chosen_);
    std::optional<Placement> best;
    if (splits) {
      Replicas whole = chosen_.replicas;
      for (PlacedReplica& replica : whole) replica.role = Role::kBoth;
      Keep(Judged(std::move(whole)), &best);
      for (const auto& [rate, plain] : plain_) Keep(Judged(plain), &best);
      Add(v1::CHOICE_KIND_WHOLE, best);
      return;
    }
    Cuts(chosen_.replicas, &best);
    if (question_.split_everywhere != nullptr)
      Keep(Judged(question_.split_everywhere->replicas), &best);
    // The best few: each cut is a program of its own.
    std::stable_sort(plain_.begin(), plain_.end(),
                     [](const auto& a, const auto& b) { return a.first > b.first; });
    for (size_t i = 0; i < std::min(plain_.size(), kMaxPlainCut); ++i)
      Cuts(plain_[i].second, &best, 2);
    Add(v1::CHOICE_KIND_SPLIT, best);
    if (!best) return;
    v1::FoundChoice& found = *choices_.back().mutable_found();
    found.set_split(question_.split_everywhere != nullptr ? v1::SPLIT_SOURCE_SEARCHED
                                                          : v1::SPLIT_SOURCE_PLAN);
    found.set_predicted_higher(problem_.goal != Goal::kPrice &&
                               best->requests_per_second >
                                   question_.promised_requests_per_second * kAbove);
  }

  void Cuts(Replicas replicas, std::optional<Placement>* best, size_t most = kMaxCuts) {
    if (replicas.size() < 2) return;
    std::vector<std::pair<double, size_t>> order;
    for (size_t i = 0; i < replicas.size(); ++i) order.push_back({-Inclination(replicas[i]), i});
    std::stable_sort(order.begin(), order.end());
    const size_t cuts = std::min(most, replicas.size() - 1);
    for (size_t cut = 1; cut <= cuts; ++cut) {
      const size_t prefilling = std::max<size_t>(1, cut * replicas.size() / (cuts + 1));
      Replicas split = replicas;
      for (size_t i = 0; i < order.size(); ++i)
        split[order[i].second].role = i < prefilling ? Role::kPrefill : Role::kDecode;
      Keep(Judged(std::move(split)), best);
    }
  }

  // How much rather a replica computes than reads: prefills rather than decodes.
  double Inclination(const PlacedReplica& replica) const {
    double flops = 0, bytes = 0;
    for (const LayoutStage& stage : replica.stages) {
      ForEachPart(stage, [&](const LayoutPart& part) {
        const DeviceSpec& spec = *pools_[static_cast<size_t>(part.pool)].spec;
        flops += part.width * spec.effective_flops();
        bytes += part.width * spec.effective_bandwidth();
      });
    }
    return flops / bytes;
  }

  void Add(v1::ChoiceKind kind, const std::optional<Placement>& made) {
    v1::OtherChoice& choice = choices_.emplace_back();
    choice.set_choice(kind);
    if (!made) {
      choice.mutable_missing()->set_after_loss(question_.survives);
      return;
    }
    v1::FoundChoice& found = *choice.mutable_found();
    found.set_value(made->requests_per_second);
    found.set_unit(question_.survives ? v1::VALUE_UNIT_REQUESTS_AFTER_LOSS
                                      : v1::VALUE_UNIT_REQUESTS);
    found.set_ratio(made->requests_per_second / question_.promised_requests_per_second);
    if (problem_.goal == Goal::kPrice) {
      found.set_usd_per_hour(made->usd_per_hour);
      found.set_plan_usd_per_hour(chosen_.usd_per_hour);
    }
    found.set_replicas(static_cast<int>(made->replicas.size()));
    found.set_devices(DevicesUsed(*made));
    found.set_all_devices(problem_.graph->devices());
    const auto slowest = std::min_element(
        made->replicas.begin(), made->replicas.end(), [](const auto& a, const auto& b) {
          return a.rate.requests_per_second < b.rate.requests_per_second;
        });
    *found.mutable_limit() = LimitOf(problem_, *slowest);
  }

  const AlternativeQuestion& question_;
  const PlacementProblem& problem_;
  const Placement& chosen_;
  const std::vector<DevicePool>& pools_;
  ReplicaJudge judge_;  // replicas that are alike are judged once
  const PlainPlacements plain_placements_;
  // Plans of equal stages with two replicas or more, with the requests/s that they serve.
  std::vector<std::pair<double, Replicas>> plain_;
  std::vector<v1::OtherChoice> choices_;
};

}  // namespace

std::vector<v1::OtherChoice> OtherChoices(const AlternativeQuestion& question) {
  return Alternatives(question).Run();
}

}  // namespace tessera::scheduler
