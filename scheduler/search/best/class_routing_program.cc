#include "scheduler/search/best/class_routing_program.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "scheduler/search/best/configuration_program.h"
#include "scheduler/search/best/request_mixes.h"

namespace tessera::scheduler {
namespace {

constexpr int kMergeSitesAbove = 100;  // devices
constexpr int kRounds = 3;
constexpr double kWorthARound = 1.005;  // of the program, by what pricing came upon
// Bounds that are aimed at, one after the other, over what the columns reach.
constexpr double kLevelsOfTwo[] = {1.25, 1.08};
constexpr double kLevelsOfMore[] = {2, 1.5, 1.25, 1.12};
constexpr double kNextLevel = 2.5;         // times the boxes of the one before, by experience
constexpr int64_t kBoxesPerDevice = 4000;  // of all pricings, for each kind beyond the first
constexpr int kLeastDevices = 16, kMostDevices = 100;  // that count for them
constexpr int kCellBoxes = 16000;                      // of the first pricing of a cell
constexpr int kMoreBoxes = 4;                          // times as many in the next
constexpr double kTolerance = 0.01;                    // of a pricing
// That is worth pricing for role both.
constexpr double kWidestOfTwo = 0.0625;
constexpr double kWidestOfMore = 0.25;
constexpr double kNarrowestCell = 0.02;  // that is worth halving
// What is to spare or worth nothing still has this part of an even price.
constexpr double kLeastPrice = 1e-4;
constexpr double kRounding = 1 + 1e-9;
constexpr int kSeedRounds = 2;
constexpr int kSeedBoxes = 800;
constexpr Role kRoles[] = {Role::kBoth, Role::kPrefill, Role::kDecode};

// Parts in steps that leave some ten mixes.
std::vector<ValueParts> GridOf(size_t kinds) {
  const int steps = kinds == 2 ? 8 : kinds == 3 ? 4 : 2;
  std::vector<ValueParts> grid;
  ValueParts parts(kinds, 0);
  const auto deal = [&](const auto& self, size_t w, int left) -> void {
    if (w + 1 == kinds) {
      parts[w] = static_cast<double>(left) / steps;
      grid.push_back(parts);
      return;
    }
    for (int take = 0; take <= left; ++take) {
      parts[w] = static_cast<double>(take) / steps;
      self(self, w + 1, left - take);
    }
  };
  deal(deal, 0, steps);
  return grid;
}

class RoutingProgram {
 public:
  RoutingProgram(const PlacementProblem& problem, const DeviceClasses& classes,
                 std::vector<RequestKind> kinds)
      : problem_(problem), classes_(classes), kinds_(std::move(kinds)) {}

  ClassRoutingBound Run() {
    ClassRoutingBound result;
    result.kinds = kinds_.size();
    if (!Seed() || !Solve()) return result;
    for (int round = 0; round < kRounds; ++round) {
      const double before = value_;
      Certify();
      if (!Solve() || value_ < before * kWorthARound) break;
    }
    if (problem_.watch.Stopped()) return result;
    result.relaxed = value_;
    result.upper_bound = BoundOver(bound_, value_);
    return result;
  }

 private:
  struct Column {
    size_t replica = 0;
    std::vector<double> served;  // requests per second by kind
  };
  struct Duals {
    std::vector<double> devices;  // by class
    double budget = 0;
    std::vector<double> prefill, decode;  // by kind

    std::vector<double> Values(Role role) const {
      std::vector<double> values(prefill.size(), 0);
      for (size_t w = 0; w < values.size(); ++w) {
        if (role != Role::kDecode) values[w] += prefill[w];
        if (role != Role::kPrefill) values[w] += decode[w];
      }
      return values;
    }
  };
  struct Cell {
    Role role = Role::kBoth;
    MixCell mixes;
    double bound = kUnbounded;
    double reached = 0;  // by a replica that serves a load below the cell
    int max_boxes = kCellBoxes;
    double aim = 0;      // of its last pricing
    bool known = false;  // more boxes would not say more
    bool operator<(const Cell& other) const { return bound < other.bound; }
  };

  bool budgeted() const { return problem_.goal == Goal::kBudget; }

  // Replicas that are good for each kind alone, and for all in the mix in which they come.
  bool Seed() {
    std::vector<double> all;
    for (const RequestKind& kind : kinds_) all.push_back(kind.share);
    std::vector<LengthMoments> loads = {MixOf(kinds_, all)};
    for (const RequestKind& kind : kinds_) loads.push_back(kind.lengths);
    for (const LengthMoments& load : loads) {
      StageShapes shapes(*problem_.model, load, problem_.options);
      ConfigurationProgram program(problem_, classes_, &shapes);
      ConfigurationOptions options;
      options.roles = RolesOf(problem_);
      options.max_rounds = kSeedRounds;
      options.max_boxes = kSeedBoxes;
      options.certify = false;
      program.Generate(options);
      if (program.value() <= 0) return false;
      if (&load != loads.data()) worth_.push_back(1 / program.value());
      for (const ClassReplica& replica : program.columns()) Know(replica);
    }
    const std::vector<ValueParts> grid = GridOf(kinds_.size());
    const size_t known = replicas_.size();
    for (size_t r = 0; r < known; ++r) {
      AddColumn(r, all);
      for (const ValueParts& parts : grid) AddColumn(r, SharesOf(parts, worth_));
    }
    return !columns_.empty();
  }

  size_t Know(const ClassReplica& replica) {
    const auto [at, fresh] =
        replica_of_.emplace(std::pair(replica.role, replica.stages), replicas_.size());
    if (fresh) replicas_.push_back(replica);
    return at->second;
  }

  void AddColumn(size_t r, const std::vector<double>& shares) {
    const ClassReplica& replica = replicas_[r];
    const double rate = CapacityOf(*problem_.model, SpecOf(classes_, replica),
                                   MixOf(kinds_, shares), problem_.options)
                            .requests_per_second;
    if (rate <= 0) return;
    Column& column = columns_.emplace_back();
    column.replica = r;
    for (const double share : shares) column.served.push_back(rate * share);
  }

  double CostOf(const std::vector<int>& devices) const {
    double usd = 0;
    for (int k = 0; k < classes_.size(); ++k)
      usd += devices[static_cast<size_t>(k)] * classes_[k].price_usd_per_hour;
    return usd;
  }

  // The relaxation over the columns so far, and its duals. False: nothing serves every kind.
  bool Solve() {
    LinearProgram program;
    std::vector<int> device_rows, prefill_rows, decode_rows;
    for (const DeviceClass& of : classes_.all())
      device_rows.push_back(program.AddRow(-kUnbounded, of.devices()));
    const int budget_row =
        program.AddRow(-kUnbounded, budgeted() ? problem_.budget_usd_per_hour : kUnbounded);
    const int theta = program.AddVariable(1, 0, kUnbounded, false);
    for (const RequestKind& kind : kinds_) {
      for (std::vector<int>* rows : {&prefill_rows, &decode_rows}) {
        rows->push_back(program.AddRow(-kUnbounded, 0));
        program.AddTerm(rows->back(), theta, kind.share);
      }
    }
    for (const Column& column : columns_) {
      const ClassReplica& replica = replicas_[column.replica];
      const int y = program.AddVariable(0, 0, kUnbounded, false);
      const std::vector<int> devices = DevicesOf(classes_, replica);
      for (size_t k = 0; k < devices.size(); ++k) {
        if (devices[k] > 0) program.AddTerm(device_rows[k], y, devices[k]);
      }
      if (budgeted()) program.AddTerm(budget_row, y, CostOf(devices));
      for (size_t w = 0; w < kinds_.size(); ++w) {
        if (column.served[w] <= 0) continue;
        if (replica.role != Role::kDecode) program.AddTerm(prefill_rows[w], y, -column.served[w]);
        if (replica.role != Role::kPrefill) program.AddTerm(decode_rows[w], y, -column.served[w]);
      }
    }
    const absl::StatusOr<LinearProgram::Solution> solution = program.Solve(true);
    if (!solution.ok() || solution->objective <= 0) return false;
    value_ = solution->objective;
    const auto dual = [&](int row) {
      return std::max(0.0, solution->duals[static_cast<size_t>(row)]);
    };
    duals_ = {};
    duals_.budget = budgeted() ? dual(budget_row) : 0;
    for (int k = 0; k < classes_.size(); ++k) {
      const double least = kLeastPrice * value_ / (classes_[k].devices() * classes_.size());
      duals_.devices.push_back(std::max(least, dual(device_rows[static_cast<size_t>(k)])));
    }
    // Of sum 1 by shares, none worth nothing.
    double sum = 0;
    for (size_t w = 0; w < kinds_.size(); ++w) {
      const double least = kLeastPrice * worth_[w] * value_;
      duals_.prefill.push_back(std::max(least, dual(prefill_rows[w])));
      duals_.decode.push_back(std::max(least, dual(decode_rows[w])));
      sum += kinds_[w].share * (duals_.prefill[w] + duals_.decode[w]);
    }
    for (std::vector<double>* values : {&duals_.prefill, &duals_.decode}) {
      for (double& value : *values) value /= sum;
    }
    return true;
  }

  double WorthOfDevices() const {
    double worth = budgeted() ? duals_.budget * problem_.budget_usd_per_hour : 0;
    for (int k = 0; k < classes_.size(); ++k)
      worth += duals_.devices[static_cast<size_t>(k)] * classes_[k].devices();
    return worth;
  }

  // Lowers the bound to that of the duals, if it is lower; adds columns of what it comes upon.
  void Certify() {
    const double worth = WorthOfDevices();
    reached_ = value_ / worth;
    boxes_ = 0;
    cells_.clear();
    for (const Role role : kRoles) {
      if (role != Role::kBoth && !problem_.allow_split) continue;
      for (MixCell& mixes : MixesByLongest(kinds_)) Begin({role, std::move(mixes)});
    }
    const int64_t most = MostBoxes();
    for (const double level : Levels()) {
      const int64_t before = boxes_;
      bound_ = std::min(bound_, Lower(level * reached_) * worth);
      if (boxes_ + kNextLevel * static_cast<double>(boxes_ - before) > most) break;
      if (problem_.watch.Stopped()) break;
    }
    for (const auto& [replica, shares] : found_) AddColumn(Know(replica), shares);
    found_.clear();
  }

  bool two() const { return kinds_.size() == 2; }
  std::span<const double> Levels() const {
    return two() ? std::span<const double>(kLevelsOfTwo) : std::span<const double>(kLevelsOfMore);
  }
  int64_t MostBoxes() const {
    return kBoxesPerDevice * std::clamp(problem_.graph->devices(), kLeastDevices, kMostDevices) *
           static_cast<int64_t>(kinds_.size() - 1);
  }
  bool MayGoOn() const { return boxes_ < MostBoxes() && !problem_.watch.Stopped(); }

  void Begin(Cell cell) {
    if (cell.role != Role::kBoth || cell.mixes.Width() <= (two() ? kWidestOfTwo : kWidestOfMore)) {
      cells_.push_back(std::move(cell));
      return;
    }
    auto [a, b] = cell.mixes.Halves();
    Begin({cell.role, std::move(a)});
    Begin({cell.role, std::move(b)});
  }

  // The most that any mix's replica is worth over the price of its devices, looked into down to
  // `aim`, cells in the order of their bounds.
  double Lower(double aim) {
    aim_ = aim;
    std::make_heap(cells_.begin(), cells_.end());
    while (cells_.front().bound > aim_ * kRounding && MayGoOn()) {
      std::pop_heap(cells_.begin(), cells_.end());
      Cell cell = std::move(cells_.back());
      cells_.pop_back();
      const bool priced = cell.aim == aim_;
      if (priced && cell.known && cell.mixes.Width() <= kNarrowestCell) {
        aim_ = cell.bound;  // columns are missing: it gets no nearer to what they reach
        Keep(std::move(cell));
      } else if (priced && cell.known) {
        auto [a, b] = cell.mixes.Halves();
        for (MixCell* half : {&a, &b}) {
          Cell part = cell;
          part.mixes = std::move(*half);
          Price(&part);
          Keep(std::move(part));
        }
      } else {
        if (priced) cell.max_boxes *= kMoreBoxes;
        Price(&cell);
        Keep(std::move(cell));
      }
    }
    return cells_.front().bound;
  }

  void Keep(Cell cell) {
    cells_.push_back(std::move(cell));
    std::push_heap(cells_.begin(), cells_.end());
  }

  void Price(Cell* cell) {
    const std::vector<double> values = duals_.Values(cell->role);
    const LoadBelow load = Below(cell->role, kinds_, values, cell->mixes);
    StageShapes shapes(*problem_.model, load.lengths, problem_.options, load.rows);
    ReplicaPricing pricing(classes_, &shapes);
    PricingQuery query;
    query.role = cell->role;
    query.prices = duals_.devices;
    for (int k = 0; k < classes_.size(); ++k)
      query.prices[static_cast<size_t>(k)] += duals_.budget * classes_[k].price_usd_per_hour;
    query.target = reached_ / load.value;
    query.tolerance = kTolerance;
    query.max_boxes = cell->max_boxes;
    double bound = 0;
    cell->reached = 0;
    cell->aim = aim_;
    cell->known = true;
    for (int site = classes_.sites() > 1 ? -1 : 0; site < classes_.sites(); ++site) {
      query.site = site;
      query.known_bound = std::max(bound, aim_) / load.value;
      const PricingAnswer answer = pricing.Run(query);
      boxes_ += std::max(1, answer.boxes);
      cell->known = cell->known && answer.boxes < cell->max_boxes;
      bound = std::max(bound, answer.bound * load.value);
      cell->reached = std::max(cell->reached, answer.reached * load.value);
      if (!answer.found.empty())
        found_.emplace_back(answer.found.back(), SharesOf(cell->mixes.Middle(), values));
    }
    cell->bound = std::min(cell->bound, bound);
  }

  const PlacementProblem& problem_;
  const DeviceClasses& classes_;
  const std::vector<RequestKind> kinds_;
  std::vector<double> worth_;  // of a request by kind, as if there were no others
  std::vector<ClassReplica> replicas_;
  std::map<std::pair<Role, std::vector<ClassStage>>, size_t> replica_of_;
  std::vector<Column> columns_;
  Duals duals_;
  double value_ = 0;
  double bound_ = kUnbounded;
  // Of a round.
  double reached_ = 0;  // worth over price of the best columns
  double aim_ = 0;      // up to here cells are not looked into
  int64_t boxes_ = 0;
  std::vector<Cell> cells_;  // all mixes of all roles; the highest bound in front
  std::vector<std::pair<ClassReplica, std::vector<double>>> found_;  // with shares by kind
};

}  // namespace

ClassRoutingBound BoundByRouting(const PlacementProblem& problem) {
  if (problem.goal != Goal::kThroughput && problem.goal != Goal::kBudget) return {};
  std::vector<RequestKind> kinds = RequestKindsOf(problem.classes);
  ClassRoutingBound none;
  none.kinds = kinds.size();
  if (kinds.size() < 2 || kinds.size() > kMaxRoutedKinds) return none;
  for (const RequestKind& kind : kinds) {
    if (kind.lengths.decode_steps <= 0 || kind.lengths.uncached_prompt_tokens <= 0) return none;
  }
  std::vector<int> all;
  for (const DevicePool& pool : problem.graph->pools()) all.push_back(pool.count);
  const bool merge = problem.graph->devices() > kMergeSitesAbove;
  const DeviceClasses classes(*problem.graph, all, merge);
  return RoutingProgram(problem, classes, std::move(kinds)).Run();
}

}  // namespace tessera::scheduler
