#include "scheduler/planner/alternatives.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/str_format.h"
#include "scheduler/planner/report/bottleneck.h"
#include "scheduler/planner/report/plan_text.h"
#include "scheduler/planner/survival.h"
#include "scheduler/search/best/plain_placements.h"
#include "scheduler/search/layout/assemble.h"
#include "scheduler/search/layout/goodput.h"
#include "third_party/absl/str_cat.h"

namespace tessera::scheduler {
namespace {

constexpr size_t kMostCuts = 8;  // between prefilling and decoding replicas
constexpr size_t kMostPlainCut = 16;
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

  std::vector<std::string> Lines() {
    const int devices = problem_.graph->devices();
    if (devices > kPlainUpTo) {
      lines_.push_back(absl::StrFormat(
          "one kind of device, equal stages: not tried above %d devices, where judging them takes "
          "long",
          kPlainUpTo));
    } else {
      if (kinds().size() > 1) OneKind();
      Equal();
    }
    const bool goodput = problem_.goal == Goal::kGoodput;
    const int splits_up_to = goodput ? kGoodputSplitsUpTo : kProgramsUpTo;
    if (problem_.allow_split && devices <= splits_up_to) Split();
    if (problem_.allow_split && devices > splits_up_to) {
      lines_.push_back(absl::StrFormat("%s: not tried above %d devices%s, where it takes long",
                                       Splits(chosen_) ? kWhole : kSplit, splits_up_to,
                                       goodput ? " for goodput" : ""));
    }
    return std::move(lines_);
  }

 private:
  static constexpr char kWhole[] = "every replica prefills and decodes";
  static constexpr char kSplit[] = "every replica only prefills or only decodes";

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
    Add(best ? StrCat("one kind of device, the best of them ", name) : "one kind of device", best,
        "none of the kinds alone holds the model in equal stages");
  }

  void Equal() {
    std::optional<Placement> best;
    for (size_t k = 1; k <= kinds().size(); ++k)
      EqualStages({kinds().begin(), kinds().begin() + static_cast<int>(k)}, &best);
    Add("equal stages of equal width everywhere", best,
        "they do not hold the model: the smallest devices would need as much memory as the others");
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
      for (const LayoutStage& stage : replica.stages)
        with[static_cast<size_t>(stage.pool)] += stage.width;
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
      Add(kWhole, best, "none of the replicas holds both");
      return;
    }
    Cuts(chosen_.replicas, &best);
    if (question_.split_everywhere != nullptr)
      Keep(Judged(question_.split_everywhere->replicas), &best);
    // The best few: each cut is a program of its own.
    std::stable_sort(plain_.begin(), plain_.end(),
                     [](const auto& a, const auto& b) { return a.first > b.first; });
    for (size_t i = 0; i < std::min(plain_.size(), kMostPlainCut); ++i)
      Cuts(plain_[i].second, &best, 2);
    Add(kSplit, best,
        "it needs two replicas that each hold the model, and no such replicas were found");
    if (best) {
      lines_.back() += question_.split_everywhere != nullptr
                           ? " (heuristic, no bound)"
                           : " (heuristic: replicas of this plan and of equal stages, no others)";
      if (problem_.goal != Goal::kPrice &&
          best->requests_per_second > question_.promised_requests_per_second * kAbove)
        lines_.back() +=
            "; its prediction is higher, but plans are chosen by simulation: see \"why\"";
    }
  }

  void Cuts(Replicas replicas, std::optional<Placement>* best, size_t most = kMostCuts) {
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
      const DeviceSpec& spec = *pools_[static_cast<size_t>(stage.pool)].spec;
      flops += stage.width * spec.effective_flops();
      bytes += stage.width * spec.effective_bandwidth();
    }
    return flops / bytes;
  }

  void Add(const std::string& name, const std::optional<Placement>& found,
           const std::string& why_none) {
    if (!found) {
      lines_.push_back(StrCat(name, ": none, ", why_none,
                              question_.survives ? ", or a machine's loss leaves nothing" : ""));
      return;
    }
    std::string line = absl::StrFormat(
        "%s: %.3f requests/s%s (%s)", name, found->requests_per_second,
        question_.survives ? " after the loss of a machine" : "",
        ChangeText(found->requests_per_second / question_.promised_requests_per_second, "as much"));
    if (problem_.goal == Goal::kPrice) {
      line += found->usd_per_hour == chosen_.usd_per_hour
                  ? absl::StrFormat(" for the same %.2f USD/h", found->usd_per_hour)
                  : absl::StrFormat(" for %.2f instead of %.2f USD/h", found->usd_per_hour,
                                    chosen_.usd_per_hour);
    }
    absl::StrAppendFormat(&line, " on %d replica%s of %d of %d devices", found->replicas.size(),
                          found->replicas.size() == 1 ? "" : "s", DevicesUsed(*found),
                          problem_.graph->devices());
    const auto slowest = std::min_element(
        found->replicas.begin(), found->replicas.end(), [](const auto& a, const auto& b) {
          return a.rate.requests_per_second < b.rate.requests_per_second;
        });
    const PlacedReplica& r = *slowest;
    const bool kv = r.rate.limit == Limit::kKv;
    const int at = kv ? r.rate.kv_limiting_stage : r.rate.slowest_stage;
    line +=
        StrCat(", the weakest limited by ", LimitName(problem_, r), kv ? " on " : ", slowest on ",
               pools_[static_cast<size_t>(r.stages[static_cast<size_t>(at)].pool)].spec->kind);
    lines_.push_back(std::move(line));
  }

  const AlternativeQuestion& question_;
  const PlacementProblem& problem_;
  const Placement& chosen_;
  const std::vector<DevicePool>& pools_;
  ReplicaJudge judge_;  // replicas that are alike are judged once
  const PlainPlacements plain_placements_;
  // Of equal stages with two replicas or more, with the requests/s that they serve.
  std::vector<std::pair<double, Replicas>> plain_;
  std::vector<std::string> lines_;
};

}  // namespace

std::vector<std::string> AlternativeLines(const AlternativeQuestion& question) {
  return Alternatives(question).Lines();
}

}  // namespace tessera::scheduler
