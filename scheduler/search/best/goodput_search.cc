#include "scheduler/search/best/goodput_search.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "scheduler/search/best/class_search.h"
#include "scheduler/search/best/configuration_search.h"
#include "scheduler/search/best/few_devices_search.h"
#include "scheduler/search/best/goodput_columns.h"
#include "scheduler/search/best/goodput_moves.h"
#include "scheduler/search/layout/assemble.h"
#include "scheduler/search/layout/device_groups.h"
#include "scheduler/search/layout/layout_polish.h"
#include "third_party/absl/str_cat.h"

namespace tessera::scheduler {
namespace {

// Limits of TPOT that candidates are made for, as parts of the slowest replica's.
constexpr double kParts[] = {0.7, 0.5, 0.35};
constexpr int kMovesUpTo = 100;     // devices: with more there are too many neighbours
constexpr double kBoundGap = 0.15;  // of the bound over its relaxation: limits leave more
constexpr int64_t kMaxLaidOut = 6000;
constexpr int64_t kMaxLaidOutAgain = 2000;
constexpr int kMaxTogether = 100;  // sets of whole pools
constexpr int64_t kMaxJudged = 400;
constexpr int64_t kMaxPolished = 2000;
constexpr size_t kMaxStarts = 3;
constexpr int kMaxRounds = 4;
constexpr int kMaxDeals = 8;
constexpr double kWorthDealing = 1 + 1e-3;

class GoodputSearch {
 public:
  explicit GoodputSearch(const PlacementProblem& problem)
      : problem_(problem),
        groups_(problem, GroupLayoutOptions()),
        columns_(problem, &groups_),
        moves_(problem.graph->devices() <= kMovesUpTo),
        few_(AreFewDevices(problem)),
        relaxes_(moves_ && !few_) {}

  absl::StatusOr<Placement> Run() {
    if (absl::Status s = CheckRoom(problem_); !s.ok()) return s;
    if (relaxes_) OfferRelaxation();
    if (bound_ <= 0) {  // candidates have a bound of their own, or say why nothing fits
      if (absl::Status s = OfferCandidates(); !s.ok()) return s;
    }
    columns_.OfferAlone();
    if (moves_) columns_.OfferTogether(kMaxTogether);
    Generate();
    if (moves_) Move();
    best_ = PolishLayouts(problem_, std::move(best_), groups_.judge(), kMaxPolished);
    // Layouts made within tighter limits were judged with the steps that these leave; afresh some
    // serve more, which is what anybody finds who judges the plan again.
    if (best_.requests_per_second > 0) Consider(Assemble(problem_, best_.replicas));
    if (best_.requests_per_second <= 0) return NothingInTime();
    TellOfTheOther();
    if (columns_.program().Relax(problem_.allow_split))
      best_.shadow_prices = columns_.program().DevicePrices();
    best_.upper_bound = bound_;
    best_.interrupted = problem_.watch.Stopped();
    best_.evaluations = columns_.laid_out();
    best_.notes.insert(best_.notes.end(), notes_.begin(), notes_.end());
    best_.notes.emplace_back().set_search_limit(v1::SEARCH_LIMIT_NEAR_THE_FASTEST);
    return std::move(best_);
  }

 private:
  // The relaxation's replicas, whatever their role there.
  void OfferRelaxation() {
    const ClassBound bound = BoundByClass(problem_, kBoundGap);
    bound_ = bound.upper_bound;
    for (const PlacedReplica& replica : bound.replicas) columns_.OfferRoles(UsedBy(replica));
  }

  // What serves most within some limits of TPOT.
  absl::Status OfferCandidates() {
    const absl::StatusOr<Placement> widest = Candidate(problem_.options.max_tpot_seconds, true);
    if (!widest.ok()) return widest.status();
    if (bound_ <= 0) bound_ = std::max(widest->upper_bound, 0.0);
    v1::FastestPlacement& fastest = *notes_.emplace_back().mutable_fastest();
    fastest.set_requests_per_second(widest->requests_per_second);
    fastest.set_goodput_requests_per_second(widest_goodput_);
    double slowest = 0;
    for (const PlacedReplica& replica : widest->replicas)
      slowest = std::max(slowest, replica.rate.tpot_seconds);
    for (const double part : kParts) {
      if (problem_.watch.Stopped() || slowest <= 0) break;
      const absl::StatusOr<Placement> tight = Candidate(part * slowest, problem_.allow_split);
      // Tighter ones serve less, in time or not.
      if (!tight.ok() || tight->requests_per_second <= best_.requests_per_second) break;
    }
    return absl::OkStatus();
  }

  // What a deal teaches of split replicas changes what is worth looking for.
  void Generate() {
    for (int round = 0; round < kMaxRounds; ++round) {
      if (round > 0 && problem_.watch.Stopped()) return;
      const double before = best_.requests_per_second;
      const int64_t most = round == 0 ? kMaxLaidOut : kMaxLaidOutAgain;
      columns_.Generate(false, most);
      if (few_) columns_.Polish(kMaxPolished);
      Consider(Assemble(problem_, columns_.program().Pack(false), groups_.judge()));
      columns_.Generate(true, most);
      Deal();
      problem_.watch.Report(absl::StrFormat("device sets laid out: %d, %.3f requests/s",
                                            columns_.laid_out(), best_.requests_per_second));
      if (round > 0 && best_.requests_per_second <= before * kWorthDealing) return;
    }
  }

  // Chooses the columns that serve most together. What links and partners leave of replicas that
  // only prefill or decode is known when shares are: then it is dealt again with what they served.
  void Deal() {
    GoodputProgram& program = columns_.program();
    for (int round = 0; round < kMaxDeals && !problem_.watch.Stopped(); ++round) {
      const std::vector<PlacedReplica> dealt = program.Pack(true);
      if (program.packed_value() <= best_.requests_per_second * kWorthDealing) return;
      const absl::StatusOr<Placement> placement = Assemble(problem_, dealt, groups_.judge());
      Consider(placement);
      if (!placement.ok() || !program.Learn(dealt, *placement)) return;
    }
  }

  // The best that splits, where the best does not, and the other way round.
  void TellOfTheOther() {
    const bool splits = Splits(best_);
    const std::vector<Placement>& others = splits ? best_whole_ : best_split_;
    // Who was stopped has not looked at both.
    const bool told = !others.empty() || !problem_.watch.Stopped();
    if (told && (splits || groups_.MaySplit())) {
      best_.notes.push_back(
          LosingSplitNote(!splits, others.empty() ? 0 : others.front().requests_per_second, 0));
    }
    if (!others.empty()) best_.alternatives.push_back(others.front());
  }

  // From some that split and from the best that does not: moves seldom lead from one to the other.
  void Move() {
    std::vector<Placement> starts = best_split_;
    starts.insert(starts.end(), best_whole_.begin(), best_whole_.end());
    for (const Placement& start : starts) {
      if (problem_.watch.Stopped()) return;
      GoodputMoves moves(problem_, &groups_, &columns_);
      Consider(moves.Improve(start, kMaxJudged));
      problem_.watch.Report(
          absl::StrFormat("moves judged, %.3f requests/s", best_.requests_per_second));
    }
  }

  // What serves most with this limit of TPOT, considered for its goodput.
  absl::StatusOr<Placement> Candidate(double max_tpot, bool split) {
    PlacementProblem other = problem_;
    other.goal = Goal::kThroughput;
    other.options.max_tpot_seconds = std::min(max_tpot, problem_.options.max_tpot_seconds);
    other.allow_split = split && problem_.allow_split;
    other.prove = problem_.prove && candidates_ == 0;
    other.bound = candidates_ == 0 && bound_ <= 0;  // of tighter ones nobody asks
    problem_.watch.Report(absl::StrFormat("candidates judged: %d", ++candidates_));
    absl::StatusOr<Placement> found = SearchConfigurations(other, &known_);
    if (!found.ok()) return found;
    const double goodput = Consider(Assemble(problem_, found->replicas, groups_.judge()));
    if (candidates_ == 1) widest_goodput_ = goodput;
    for (const PlacedReplica& replica : found->replicas) {
      columns_.OfferRoles(UsedBy(replica));
      if (!few_) columns_.OfferFinely(UsedBy(replica));  // those are the best that there are
      columns_.OfferAsItIs(replica);
    }
    if (Splits(*found) && !problem_.watch.Stopped()) (void)Candidate(max_tpot, false).ok();
    return found;
  }

  // Its goodput.
  double Consider(absl::StatusOr<Placement> placement) {
    if (!placement.ok()) return 0;
    const double goodput = placement->requests_per_second;
    const bool splits = Splits(*placement);
    std::vector<Placement>& alike = splits ? best_split_ : best_whole_;
    const size_t most = splits ? kMaxStarts : 1;
    const auto at = std::find_if(alike.begin(), alike.end(), [&](const Placement& other) {
      return other.requests_per_second <= goodput;
    });
    if (goodput > 0 && (at == alike.end() || at->requests_per_second < goodput))
      alike.insert(at, *placement);
    if (alike.size() > most) alike.pop_back();
    if (goodput > best_.requests_per_second) best_ = *std::move(placement);
    return goodput;
  }

  std::vector<int> UsedBy(const PlacedReplica& replica) const {
    return DevicesByPool(replica.stages, problem_.graph->pools().size());
  }

  absl::Status NothingInTime() const {
    return absl::ResourceExhaustedError(StrCat(
        problem_.model->name,
        " fits, but no replica that was found meets the objectives for enough requests, even one "
        "request alone; relax time_to_first_token, time_per_output_token or end_to_end, or ask "
        "for less attainment"));
  }

  const PlacementProblem& problem_;
  GroupLayouts groups_;
  GoodputColumns columns_;
  const bool moves_, few_, relaxes_;
  KnownLayouts known_;
  Placement best_;
  std::vector<Placement> best_split_, best_whole_;  // the best first
  double bound_ = 0;
  std::vector<v1::Note> notes_;
  int candidates_ = 0;
  double widest_goodput_ = 0;
};

}  // namespace

absl::StatusOr<Placement> SearchGoodput(const PlacementProblem& problem) {
  return GoodputSearch(problem).Run();
}

}  // namespace tessera::scheduler
